package redisstore_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/badnet"
	"github.com/go-idem/idem/internal/redistest"
)

func nothing() {}

// watched watches a key, until the end of the test.
func watched(t *testing.T, store *redisstore.Store, c driver.Claim, wake func()) (stop func()) {
	t.Helper()
	bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	stop, err := store.Watch(bounded, c.Key, wake)
	require.NoError(t, err)
	t.Cleanup(stop)
	return stop
}

// woken returns what wakes, and what waits for that.
func woken(t *testing.T) (wake, await func()) {
	wakes := make(chan struct{}, 100)
	return func() { wakes <- struct{}{} }, func() {
		t.Helper()
		select {
		case <-wakes:
		case <-time.After(20 * time.Second):
			t.Fatal("nobody was woken")
		}
	}
}

// subscriptions returns how many connections of a server are subscribed to channels.
func subscriptions(t *testing.T, client *redis.Client) int {
	t.Helper()
	list, err := client.Do(ctx, "CLIENT", "LIST", "TYPE", "PUBSUB").Text()
	require.NoError(t, err)
	return strings.Count(list, "\n")
}

// TestAWatchThatBeginsWhenTheLastOneEndsIsNotified: the one that leaves has given the channel up, and the server is told of it
// when the next one has come, or is about to.
func TestAWatchThatBeginsWhenTheLastOneEndsIsNotified(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store, c := redisstore.New(client), storetest.NewClaim(time.Minute, time.Hour)
	watched(t, store, storetest.NewClaim(time.Minute, time.Hour), nothing) // the connection stays
	for i := range 300 {
		watched(t, store, c, nothing)()
		if i%3 == 0 {
			time.Sleep(time.Duration(i) * time.Microsecond) // so that the goroutine gets as far as it likes
		}
		wake, await := woken(t)
		stop := watched(t, store, c, wake)
		require.EqualValues(t, 1, client.Publish(ctx, nameOf(c), "").Val(), "the server listens")
		await()
		stop()
	}
}

// A process has one connection for all its watches. Who begins to watch a key, or ends, neither wakes others nor cuts them off.
func TestAWatchThatComesOrGoesDisturbsNoOther(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store, c := redisstore.New(client), storetest.NewClaim(time.Minute, time.Hour)
	var wakes atomic.Int32
	watched(t, store, c, func() { wakes.Add(1) })
	for range 50 {
		watched(t, store, c, nothing)()
		watched(t, store, storetest.NewClaim(time.Minute, time.Hour), nothing)
	}
	assert.Equal(t, 1, subscriptions(t, client))
	require.EqualValues(t, 1, client.Publish(ctx, nameOf(c), "").Val())
	redistest.Eventually(t, "it is woken", func() bool { return wakes.Load() > 0 })
	assert.EqualValues(t, 1, wakes.Load())
}

// What was published while a connection was broken is lost. Each new one wakes who waits, and is there soon.
func TestAWatchIsWokenWhenItsConnectionHasBeenReplaced(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	wake, await := woken(t)
	watched(t, redisstore.New(client), storetest.NewClaim(time.Minute, time.Hour), wake)
	began := time.Now()
	for range 8 {
		require.EqualValues(t, 1, client.ClientKillByFilter(ctx, "TYPE", "pubsub").Val())
		await()
	}
	assert.Less(t, time.Since(began), 3*time.Second, "no pause is longer than that before it")
}

// A server that refuses connections is asked after longer and longer pauses. Who has just come is told at once.
func TestAServerThatRefusesSubscriptionsIsSpared(t *testing.T) {
	t.Parallel()
	server, network := redistest.Start(t), badnet.New(1)
	store := redisstore.New(server.Client(t, func(o *redis.Options) { o.Dialer, o.DialerRetries = network.Dial, 1 }))
	wake, await := woken(t)
	watched(t, store, storetest.NewClaim(time.Minute, time.Hour), wake)
	network.Set(badnet.Faults{Refuse: true})
	began := time.Now()
	require.EqualValues(t, 1, server.Client(t).ClientKillByFilter(ctx, "TYPE", "pubsub").Val())

	redistest.Eventually(t, "five attempts, and one that the client makes by itself", func() bool { return network.Hits() >= 6 })
	assert.Greater(t, time.Since(began), 1500*time.Millisecond, "pauses of 50, 100, 200, 400 and 800 ms")
	bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_, err := store.Watch(bounded, storetest.NewClaim(time.Minute, time.Hour).Key, nothing)
	assert.ErrorContains(t, err, "connection refused")

	network.Set(badnet.Faults{})
	await()
}

// A pause is for servers that are broken: who comes when the last one has just left does not wait for its end.
func TestAWatchAfterTheLastOneNeedsNoPause(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	store, fastest := redisstore.New(client), time.Hour
	leave := watched(t, store, storetest.NewClaim(time.Minute, time.Hour), nothing)
	for range 10 {
		leave()
		require.Eventually(t, func() bool { return subscriptions(t, client) == 0 }, 20*time.Second, time.Millisecond)
		began := time.Now()
		leave = watched(t, store, storetest.NewClaim(time.Minute, time.Hour), nothing)
		fastest = min(fastest, time.Since(began))
	}
	assert.Less(t, fastest, 25*time.Millisecond)
}
