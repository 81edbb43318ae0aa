package redisstore

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/internal/redistest"
)

// TestAWatchThatBeginsWhenTheLastOneEndsIsNotified: the one that leaves has given the channel up, and the server is told of it
// when the next one has come, or is about to.
func TestAWatchThatBeginsWhenTheLastOneEndsIsNotified(t *testing.T) {
	ctx, client := context.Background(), redistest.Shared(t).Client(t)
	n := New(client).notifier
	name := t.Name()
	other, err := n.watch(ctx, client, name+" of another", func() {}) // the connection stays
	require.NoError(t, err)
	defer other()
	for i := range 300 {
		leave, err := n.watch(ctx, client, name, func() {})
		require.NoError(t, err)
		leave()
		if i%3 == 0 {
			time.Sleep(time.Duration(i) * time.Microsecond) // so that the goroutine gets as far as it likes
		}
		var woken atomic.Bool
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		stop, err := n.watch(bounded, client, name, func() { woken.Store(true) })
		cancel()
		require.NoError(t, err)
		require.EqualValues(t, 1, client.Publish(ctx, name, "").Val(), "the server listens")
		require.Eventually(t, woken.Load, 20*time.Second, 10*time.Microsecond)
		stop()
	}
}
