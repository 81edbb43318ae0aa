package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/internal/redistest"
)

// TestWhoWatchesWhenTheLastBeforeLeavesIsStillTold: the one that leaves has given the channel up, and tells the server of it
// only when the next one has subscribed.
func TestWhoWatchesWhenTheLastBeforeLeavesIsStillTold(t *testing.T) {
	ctx, client := context.Background(), redistest.Shared(t).Client(t)
	n := &New(client).notifier
	name := t.Name()
	leave, err := n.watch(ctx, client, false, name, func() {})
	require.NoError(t, err)
	defer leave()
	sub := n.subs[client]
	n.mu.Lock()
	delete(sub.channels, name)
	n.mu.Unlock()

	woken := make(chan struct{}, 10)
	stop, err := n.watch(ctx, client, false, name, func() { woken <- struct{}{} })
	require.NoError(t, err)
	defer stop()
	n.unsubscribe(sub, false, name)
	require.NoError(t, sub.pubsub.Ping(ctx)) // nothing is under way any more
	require.Eventually(t, func() bool {
		return client.Publish(ctx, name, "").Val() == 1 && len(woken) > 0
	}, 20*time.Second, time.Millisecond)
}
