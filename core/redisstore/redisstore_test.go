package redisstore_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/internal/storecheck"
)

var ctx = context.Background()

func TestStoreKeepsTheContract(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	storetest.Run(t, func(testing.TB) storetest.Harness {
		return storetest.Harness{Store: redisstore.New(client), Advance: time.Sleep}
	})
	t.Cleanup(func() { everyKeyHasTTL(t, client) })
}

// engines are what records are kept on. Each has a replica, so that a write can be confirmed.
var engines = map[string]func(*testing.T) redis.UniversalClient{
	"a server that can compare and set, with a replica": func(t *testing.T) redis.UniversalClient {
		client, _ := replicated(t)
		canCompare(client)
		return client
	},
	"behind sentinel": func(t *testing.T) redis.UniversalClient { client, _ := redistest.Sentinel(t); return client },
	"on a cluster":    func(t *testing.T) redis.UniversalClient { return redistest.Cluster(t) },
}

// ways are how a store sends what it sends.
var ways = map[string][]redisstore.Option{
	"one by one":                         nil,
	"by scripts alone":                   {redisstore.Scripts()},
	"in batches":                         {redisstore.Batch()},
	"confirmed by a replica":             {redisstore.WaitReplicas(1, 5*time.Second)},
	"in batches, confirmed by a replica": {redisstore.Batch(), redisstore.WaitReplicas(1, 5*time.Second)},
}

func TestStoreKeepsTheContractOnEveryEngineInEveryWay(t *testing.T) {
	for engine, start := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			client := start(t)
			for way, options := range ways {
				t.Run(way, func(t *testing.T) {
					t.Parallel()
					store := redisstore.New(client, options...)
					storetest.Run(t, func(testing.TB) storetest.Harness { return storetest.Harness{Store: store, Advance: time.Sleep} })
					t.Run("answers as memory does", func(t *testing.T) { storecheck.AnswersAsMemoryInRealTime(t, store, 60, 2_000) })
				})
			}
		})
	}
}

// TestAPromotedReplicaLearnsTheScripts: it has the records, and none of the scripts.
func TestAPromotedReplicaLearnsTheScripts(t *testing.T) {
	client, primary := redistest.Sentinel(t)
	store := redisstore.New(client, redisstore.Scripts())
	c := claimed(t, store, time.Minute)
	require.NoError(t, store.Complete(ctx, c, []byte("kept")))
	require.EqualValues(t, 2, client.Wait(ctx, 2, 5*time.Second).Val(), "the replicas have the record")
	primary.Kill()
	c.Owner[0] ^= 1
	var entry driver.Entry
	require.Eventually(t, func() bool {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var err error
		entry, err = store.Begin(attempt, c)
		return err == nil
	}, 30*time.Second, 50*time.Millisecond)
	require.Equal(t, driver.Completed, entry.State)
	require.Equal(t, "kept", string(entry.Outcome))
	require.NotZero(t, executions(t, client, "eval"), "the promoted replica had the script: nothing was tested")
}

// everyKeyHasTTL: TTL-05.
func everyKeyHasTTL(t *testing.T, client *redis.Client) {
	t.Helper()
	keys := 0
	for iter := client.Scan(ctx, 0, "idem:*", 1000).Iterator(); iter.Next(ctx); keys++ {
		ttl, err := client.PTTL(ctx, iter.Val()).Result()
		require.NoError(t, err)
		assert.NotEqual(t, time.Duration(-1), ttl, "%s has no TTL", iter.Val())
	}
	assert.NotZero(t, keys, "the tests left no key to look at")
}

// TestStoreKeepsTheContractOnMiniredis is for quick runs without a server. It proves nothing about Redis.
func TestStoreKeepsTheContractOnMiniredis(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.Harness {
		server := miniredis.RunT(tb)
		now := time.Now()
		server.SetTime(now)
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		tb.Cleanup(func() { _ = client.Close() })
		return storetest.Harness{Store: redisstore.New(client), Advance: func(d time.Duration) {
			now = now.Add(d)
			server.SetTime(now)
			server.FastForward(d)
		}}
	})
}

func TestLuaAndMemoryAnswerRandomSequencesAlike(t *testing.T) {
	client := redistest.Shared(t).Client(t, func(o *redis.Options) { o.PoolSize = 64 })
	storecheck.AnswersAsMemoryInRealTime(t, redisstore.New(client, redisstore.Scripts()), 750, 25_000)
	storecheck.AnswersAsMemoryInRealTime(t, redisstore.New(client), 750, 25_000)
}

func claimed(t *testing.T, store driver.Store, lease time.Duration) driver.Claim {
	t.Helper()
	c := storetest.NewClaim(lease, time.Hour)
	entry, err := store.Begin(ctx, c)
	require.NoError(t, err)
	require.Equal(t, driver.Claimed, entry.State)
	c.Fence, c.Attempt = entry.Fence, entry.Attempt
	return c
}

func onlyKey(t testing.TB, client *redis.Client, prefix string) string {
	t.Helper()
	keys, err := client.Keys(ctx, prefix+"*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	return keys[0]
}

// A store whose keys are found by their prefix, and whose claims are in format 1.
func prefixed(t testing.TB, client redis.UniversalClient) (*redisstore.Store, string) {
	prefix := fmt.Sprintf("%s:%d:", t.Name(), time.Now().UnixNano())
	return redisstore.New(client, redisstore.Prefix(prefix), redisstore.Scripts()), prefix
}

// nameOf is the name of a claim's record.
func nameOf(c driver.Claim) string {
	return "idem:{" + string(driver.AppendRecordName(nil, c.Key)) + "}"
}

// Most of the time these tests wait for leases to end, so more of them run at once than there are processors.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
