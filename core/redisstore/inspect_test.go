package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
)

// scanned returns how often a Scan finds each record, by its name and state.
func scanned(t *testing.T, store *redisstore.Store) map[string]int {
	t.Helper()
	found := map[string]int{}
	require.NoError(t, store.Scan(ctx, driver.Filter{}, func(r driver.Record) bool {
		found[string(driver.AppendRecordName(nil, r.Name))+" "+string(r.State)]++
		return true
	}))
	return found
}

// nameAs returns how scanned names the record of a claim in this state.
func nameAs(c driver.Claim, state driver.State) string {
	return string(driver.AppendRecordName(nil, c.Key)) + " " + string(state)
}

// OPR-02.
func TestAScanFindsARecordWithATombstoneOnce(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store := redisstore.New(client)
	want := map[string]int{}
	for range 5 {
		c := claimed(t, store, time.Minute)
		c.LateRetry = time.Hour
		require.NoError(t, store.Complete(ctx, c, []byte("kept")))
		want[nameAs(c, driver.Completed)] = 1
	}
	expired := claimed(t, store, time.Minute)
	expired.LateRetry = time.Hour
	require.NoError(t, store.Complete(ctx, expired, []byte("kept")))
	require.NoError(t, client.Del(ctx, nameOf(expired)).Err())
	want[nameAs(expired, driver.Expired)] = 1
	assert.Equal(t, want, scanned(t, store))
}

// OPR-02: one damaged key does not keep operators from all other records.
func TestAScanGoesOnPastKeysOfOtherTypes(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store := redisstore.New(client)
	list, steps := claimed(t, store, time.Minute), claimed(t, store, time.Minute)
	require.NoError(t, client.Del(ctx, nameOf(list)).Err())
	require.NoError(t, client.LPush(ctx, nameOf(list), "no record").Err())
	require.NoError(t, client.Set(ctx, nameOf(steps)+":steps", "no hash", 0).Err())
	assert.Equal(t, map[string]int{nameAs(list, driver.Unreadable): 1, nameAs(steps, driver.InProgress): 1}, scanned(t, store))
}

// wrapped is a client of a Cluster that the store cannot recognise as one.
type wrapped struct{ *redis.ClusterClient }

// OPR-02.
func TestAScanOfAnUnknownClientFindsNotOnlyAPart(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{})
	defer cluster.Close()
	store := redisstore.New(wrapped{cluster})
	err := store.Scan(ctx, driver.Filter{}, func(driver.Record) bool { return true })
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "redisstore_test.wrapped")
}

// OPR-02: a slot that goes to a master whose scan has ended takes its records along, and one that is on its way may.
func TestAScanDuringWhichSlotsMoveSaysThatRecordsMayBeMissing(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	store := redisstore.New(c.Client(t))
	claim := claimed(t, store, time.Minute)
	from, to := c.MasterOf(t, nameOf(claim)), c.Nodes[0]
	if from == to {
		to = c.Nodes[1]
	}
	slot := int(c.Client(t).ClusterKeySlot(ctx, nameOf(claim)).Val())
	want := map[string]int{nameAs(claim, driver.InProgress): 1}
	assert.Equal(t, want, scanned(t, store))

	err := store.Scan(ctx, driver.Filter{}, func(driver.Record) bool {
		move := c.Reshard(t, from, to, slot)
		move.Keys(100)
		move.End()
		return true
	})
	assert.ErrorContains(t, err, "records may be missing")
	assert.Equal(t, want, scanned(t, store))

	move := c.Reshard(t, to, from, slot)
	assert.ErrorContains(t, store.Scan(ctx, driver.Filter{}, func(driver.Record) bool { return true }), "records may be missing")
	move.Keys(100)
	move.End()
	assert.Equal(t, want, scanned(t, store))
}

// OPR-02: a cursor means nothing to a server that has taken the place of the first one.
func TestAScanWhoseServerIsReplacedIsAnError(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := redisstore.New(server.Client(t))
	for range 500 {
		claimed(t, store, time.Minute)
	}
	found := 0
	err := store.Scan(ctx, driver.Filter{}, func(driver.Record) bool {
		if found++; found == 1 { // as Sentinel does when it makes a master of a replica
			require.NoError(t, server.Client(t).ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err())
		}
		return true
	})
	assert.Error(t, err)
	assert.Less(t, found, 500)
}

// OPR-02: characters that mean something else in a pattern, or in the name of a key.
func TestAScanFindsTheRecordsOfItsPrefixAlone(t *testing.T) {
	client := redistest.Start(t).Client(t)
	prefixes := []string{"", "a", "ab", "a*", "a?", "a[", "a]", "a[b]", "a[^b]", "a[a-z]", `\`, `a\`, `a\*`, "a{", "a{x}:", "a*:{", "\x00\xff:"}
	for _, prefix := range prefixes {
		claimed(t, redisstore.New(client, redisstore.Prefix(prefix)), time.Minute)
	}
	for _, prefix := range prefixes {
		assert.Len(t, scanned(t, redisstore.New(client, redisstore.Prefix(prefix))), 1, "%q", prefix)
	}
}
