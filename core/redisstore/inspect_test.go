package redisstore_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
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

// OPR-02: what belongs to other scopes and programs is as good as not there.
func TestAScanReadsTheRecordsOfItsScopeAlone(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store := redisstore.New(client)
	var c driver.Claim
	for range 20 { // each of a scope of its own
		c = running(t, store)
	}
	name := nameOf(c)
	for _, other := range []string{"idem:{", "idem:{}", "idem:{no record}", strings.TrimSuffix(name, "}"), name + "}"} {
		require.NoError(t, client.Set(ctx, other, "of another program", 0).Err())
	}
	scope := "idem:{" + string(driver.AppendRecordName(nil, c.Key))[:12]
	require.NoError(t, client.Set(ctx, scope+"}", "of another program", 0).Err())
	_, err := store.Look(ctx, c.Key) // the server knows the script now
	require.NoError(t, err)

	before, found := executions(t, client, "evalsha"), map[[32]byte]int{}
	require.NoError(t, store.Scan(ctx, driver.Filter{Scope: c.Key[:driver.ScopeBytes]}, func(r driver.Record) bool {
		found[r.Name]++
		return true
	}))
	assert.Equal(t, map[[32]byte]int{c.Key: 1}, found)
	assert.Equal(t, 1, executions(t, client, "evalsha")-before, "records that it has read")
}

// several claims more keys than one SCAN visits.
func several(t *testing.T, store *redisstore.Store) {
	for range 500 {
		claimed(t, store, time.Minute)
	}
}

// OPR-02: an operator who has seen enough costs the server nothing more.
func TestAScanEndsWhenNoMoreIsWanted(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store := redisstore.New(client)
	several(t, store)
	found := 0
	require.NoError(t, store.Scan(ctx, driver.Filter{}, func(driver.Record) bool {
		found++
		return false
	}))
	assert.Equal(t, 1, found)
	assert.Equal(t, 1, executions(t, client, "scan"))
	stats := client.PoolStats()
	assert.Equal(t, stats.TotalConns, stats.IdleConns, "connections that the scan has given back")
}

// OPR-02: a record that cannot be read is missing, unless its server has only sent the scan elsewhere, or does not know the script.
func TestAScanReadsARecordOnceMoreAfterARedirectAlone(t *testing.T) {
	server := redistest.Start(t)
	several(t, redisstore.New(server.Client(t)))
	for text, isError := range map[refusal]bool{
		"NOSCRIPT no matching script": false, "MOVED 1 refused:1": false, "ASK 1 refused:1": false, "TRYAGAIN the slot moves": false,
		"NOPERM no right": true,
	} {
		client, sent := server.Client(t), 0
		client.AddHook(givenReplies(func(cmd redis.Cmder) any {
			if cmd.Name() != "evalsha" {
				return nil
			}
			if sent++; sent > 1 {
				return nil
			}
			return text
		}))
		found := map[[32]byte]bool{}
		err := redisstore.New(client).Scan(ctx, driver.Filter{}, func(r driver.Record) bool {
			found[r.Name] = true
			return true
		})
		if isError {
			assert.ErrorContains(t, err, string(text))
			continue
		}
		assert.NoError(t, err, text)
		assert.Len(t, found, 500, text)
	}
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

// isClusterNodes reports whether a command asks a node of a Cluster which nodes have which slots.
func isClusterNodes(cmd redis.Cmder) bool { return cmd.Name() == "cluster" && cmd.Args()[1] == "nodes" }

func isScan(cmd redis.Cmder) bool { return cmd.Name() == "scan" }

// refusedAfter is a hook that refuses what matches, after so many times.
func refusedAfter(times int32, matches func(redis.Cmder) bool) redis.Hook {
	var sent atomic.Int32
	return givenReplies(func(cmd redis.Cmder) any {
		if matches(cmd) && sent.Add(1) > times {
			return refusal("NOPERM no right")
		}
		return nil
	})
}

// learning is a hook that lets each of two masters know of itself alone when it is first asked.
func learning() redis.Hook {
	var asked atomic.Int32
	return &changedReply{command: "cluster", change: func(cmd redis.Cmder) {
		if !isClusterNodes(cmd) || asked.Add(1) > 2 {
			return
		}
		nodes := cmd.(*redis.StringCmd)
		for line := range strings.Lines(nodes.Val()) {
			if strings.Contains(line, "myself") {
				nodes.SetVal(line)
			}
		}
	}}
}

// OPR-02: a scan without an error has found the records of all masters. What a master says of others may be old.
func TestAScanOfAllMastersIsCompleteOrAnError(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartMasters(t, 2)
	several(t, redisstore.New(cluster.Client(t)))
	scan := func(hook redis.Hook, wantsMore bool) (found int, err error) {
		client := cluster.Client(t)
		client.OnNewNode(func(node *redis.Client) { node.AddHook(hook) })
		err = redisstore.New(client).Scan(ctx, driver.Filter{}, func(driver.Record) bool {
			found++
			return wantsMore
		})
		return found, err
	}
	for name, test := range map[string]struct {
		hook  redis.Hook
		found int
		err   string
	}{
		"their slots are not known before": {refusedAfter(0, isClusterNodes), 0, "NOPERM no right"},
		"their slots are not known behind": {refusedAfter(2, isClusterNodes), 500, "NOPERM no right"},
		"their keys are not known":         {refusedAfter(0, isScan), 0, "NOPERM no right"},
		"they learn of each other":         {learning(), 500, ""},
	} {
		found, err := scan(test.hook, true)
		assert.Equal(t, test.found, found, name)
		if test.err == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, test.err, name)
		}
	}

	from, slots := cluster.Nodes[0].Client(t), cluster.SlotsOf(t, cluster.Nodes[0])
	empty := slices.IndexFunc(slots, func(slot int) bool { return from.ClusterCountKeysInSlot(ctx, slot).Val() == 0 })
	cluster.Reshard(t, cluster.Nodes[0], cluster.Nodes[1], slots[empty])
	_, err := scan(learning(), true)
	assert.ErrorContains(t, err, "records may be missing", "a slot is on its way, and its records might be")
	found, err := scan(learning(), false)
	assert.NoError(t, err, "no more is wanted")
	assert.Equal(t, 1, found)
}

// OPR-02: a cursor means nothing to a server that has taken the place of the first one.
func TestAScanWhoseServerIsReplacedIsAnError(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := redisstore.New(server.Client(t))
	several(t, store)
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
