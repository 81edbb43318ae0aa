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

// watch watches a key, if that is possible within 20 seconds.
func watch(store *redisstore.Store, c driver.Claim, wake func()) (stop func(), err error) {
	bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return store.Watch(bounded, c.Key, wake)
}

// watched watches a key, until the end of the test.
func watched(t *testing.T, store *redisstore.Store, c driver.Claim, wake func()) (stop func()) {
	t.Helper()
	stop, err := watch(store, c, wake)
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
	for range 12 {
		require.Positive(t, client.ClientKillByFilter(ctx, "TYPE", "pubsub").Val())
		await()
	}
	assert.Less(t, time.Since(began), 6*time.Second, "no pause is longer than that before it")
	redistest.Eventually(t, "no connection is left but the last", func() bool { return subscriptions(t, client) == 1 })
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
	_, err := watch(store, storetest.NewClaim(time.Minute, time.Hour), nothing)
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

// claimOn returns a claim, which is not made, whose record belongs to a node.
func claimOn(t *testing.T, cluster *redistest.Shards, node *redistest.Server) driver.Claim {
	t.Helper()
	for {
		c := storetest.NewClaim(time.Minute, time.Hour)
		if cluster.MasterOf(t, nameOf(c)) == node {
			return c
		}
	}
}

// CON-11: a server that takes no sharded subscriptions decides for all, since a record may move to it. Who has one elsewhere is
// woken when it has been replaced.
func TestASubscriptionIsReplacedWhenAnotherServerTakesNoShardedOne(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartMasters(t, 2)
	unshard(t, cluster.Nodes[1])
	store := redisstore.New(cluster.Client(t))
	wake, await := woken(t)
	watched(t, store, claimOn(t, cluster, cluster.Nodes[0]), wake)
	node := cluster.Nodes[0].Client(t)
	assert.Equal(t, 1, executions(t, node, "ssubscribe"))
	watched(t, store, claimOn(t, cluster, cluster.Nodes[1]), nothing)
	await()
	assert.Equal(t, 1, executions(t, node, "subscribe"))
}

// allAt returns slots that all belong to one node.
func allAt(node *redistest.Server) []redis.ClusterSlot {
	return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: node.Addr}}}}
}

// CON-11: a client may learn late that a slot has moved. A watch follows it to the node that has it then, unless its request has
// left meanwhile, and gives up after a second.
func TestAWatchFollowsASlotThatHasMoved(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartMasters(t, 2)
	old, now := cluster.Nodes[0], cluster.Nodes[1]
	if !now.Knows(t, "SSUBSCRIBE") {
		t.Skip("this server has no sharded channels, and the others know no slots")
	}
	c := claimOn(t, cluster, now)
	// learns returns a client that is given these slots, when it asks for them for the first, second... time.
	learns := func(slots func(asked int32) []redis.ClusterSlot) *redis.ClusterClient {
		var asked atomic.Int32
		return cluster.Client(t, func(o *redis.ClusterOptions) {
			o.ClusterStateReloadInterval = time.Hour
			o.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) { return slots(asked.Add(1)), nil }
		})
	}

	t.Run("soon", func(t *testing.T) {
		left, leave := context.WithCancel(ctx)
		store := redisstore.New(learns(func(asked int32) []redis.ClusterSlot {
			if asked == 2 { // the first watch is between the nodes
				leave()
			}
			if asked < 3 {
				return allAt(old)
			}
			return allAt(now)
		}))
		_, err := store.Watch(left, c.Key, nothing)
		require.ErrorIs(t, err, context.Canceled)
		wake, await := woken(t)
		stop := watched(t, store, c, wake)
		require.EqualValues(t, 1, now.Client(t).SPublish(ctx, nameOf(c), "").Val())
		await()
		stop()
		for _, node := range []*redis.Client{old.Client(t), now.Client(t)} {
			require.Eventually(t, func() bool { return subscriptions(t, node) == 0 }, 20*time.Second, 10*time.Millisecond)
		}
	})
	t.Run("never", func(t *testing.T) {
		require.NoError(t, old.Client(t).ConfigResetStat(ctx).Err())
		_, err := watch(redisstore.New(learns(func(int32) []redis.ClusterSlot { return allAt(old) })), c, nothing)
		assert.ErrorContains(t, err, "MOVED")
		assert.Contains(t, old.Info(t, "cmdstat_ssubscribe"), "rejected_calls=11", "tries, a tenth of a second apart")
	})
	t.Run("never, because it is closed", func(t *testing.T) {
		var client *redis.ClusterClient
		client = learns(func(asked int32) []redis.ClusterSlot {
			if asked == 1 {
				return allAt(old)
			}
			_ = client.Close()
			return nil
		})
		_, err := watch(redisstore.New(client), c, nothing)
		assert.ErrorContains(t, err, "MOVED")
	})
}
