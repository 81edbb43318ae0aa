package redisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
)

func TestABurstOfReplaysTakesOneCommandEach(t *testing.T) {
	store, client := nativeStore(t)
	kept, _ := nativeClaim(t, store, client, time.Minute)
	require.NoError(t, store.Complete(ctx, kept, []byte("kept")))
	trips := &roundTrips{}
	client.AddHook(trips)
	expect := func(name string, c driver.Claim, want driver.State, wantTrips, wantExpiries int) (entry driver.Entry) {
		t.Helper()
		expiries, sent := executions(t, client, "pexpiretime"), int(trips.n.Load())
		entry, err := store.Begin(ctx, c)
		require.NoError(t, err)
		assert.Equal(t, want, entry.State, name)
		assert.Equal(t, wantTrips, int(trips.n.Load())-sent, "%s: round trips", name)
		assert.Equal(t, wantExpiries, executions(t, client, "pexpiretime")-expiries, "%s: PEXPIRETIME", name)
		return entry
	}
	burst := func() {
		t.Helper()
		for range 8 {
			expect("an early replay", rivalOf(kept), driver.Completed, 1, 1)
		}
		for range 3 {
			expect("a later replay", rivalOf(kept), driver.Completed, 1, 0)
		}
	}
	burst()
	next := storetest.NewClaim(time.Minute, time.Hour)
	expect("the claim that ends the burst", next, driver.Claimed, 2, 1)
	expect("the claim after it", storetest.NewClaim(time.Minute, time.Hour), driver.Claimed, 1, 1)
	burst()
	// SET finds the record, and then the script decides.
	expect("a run in progress that ends the burst", rivalOf(next), driver.InProgress, 3, 2)
	burst()
	other := rivalOf(kept)
	other.Fingerprint[0] ^= 1
	expect("another request that ends the burst", other, driver.Mismatch, 3, 1)
}

func TestReplaysWithOtherRequestsBetweenThemAreNoBurst(t *testing.T) {
	store, client := nativeStore(t)
	kept, _ := nativeClaim(t, store, client, time.Minute)
	require.NoError(t, store.Complete(ctx, kept, []byte("kept")))
	running := claimed(t, store, time.Minute)
	other := rivalOf(kept)
	other.Fingerprint[0] ^= 1
	for name, c := range map[string]driver.Claim{"a new key": {}, "a run in progress": rivalOf(running), "another request": other} {
		gets := executions(t, client, "get")
		for i := range 20 {
			if i%5 == 4 {
				if c.Lease == 0 {
					claimed(t, store, time.Minute)
					continue
				}
				_, err := store.Begin(ctx, c)
				require.NoError(t, err)
				continue
			}
			entry, err := store.Begin(ctx, rivalOf(kept))
			require.NoError(t, err)
			require.Equal(t, driver.Completed, entry.State)
		}
		assert.Equal(t, gets, executions(t, client, "get"), "replays and %s", name)
	}
}

// A user who may not send GET replays all the same, and is not asked each time.
func TestABurstOfReplaysWithoutGETGoesOnWithSET(t *testing.T) {
	store, client := nativeStore(t)
	kept, _ := nativeClaim(t, store, client, time.Minute)
	require.NoError(t, store.Complete(ctx, kept, []byte("kept")))
	trips := refuse(client, map[string]refusal{"get": "NOPERM no right"})
	for i := range 30 {
		before := trips.n.Load()
		entry, err := store.Begin(ctx, rivalOf(kept))
		require.NoError(t, err)
		require.Equal(t, "kept", string(entry.Outcome))
		want := int64(1)
		if i > 0 && i%8 == 0 {
			want = 2
		}
		assert.Equal(t, want, trips.n.Load()-before, "replay %d", i)
	}
}

// The reply is lost, and go-redis may not send the commands again: nobody knows whether they were executed, so the caller decides.
func TestAPlainCommandWithoutAReplyIsAnError(t *testing.T) {
	_, client := nativeStore(t)
	losing, network := losingClient(t, client, -1)
	trips := &roundTrips{}
	losing.AddHook(trips)
	store := redisstore.New(losing)
	claimed(t, store, time.Minute)
	claimed(t, store, time.Minute)
	c := storetest.NewClaim(time.Minute, time.Hour)
	before := trips.n.Load()
	network.lose(1)
	_, err := store.Begin(ctx, c)
	assert.Error(t, err)
	assert.EqualValues(t, 1, trips.n.Load()-before)
	entry, err := store.Begin(ctx, c)
	require.NoError(t, err)
	assert.Equal(t, driver.Claimed, entry.State, "the claim recognises itself")
}

// OPR-04: what an operator has forgotten is not replayed, also in a burst.
func TestABurstOfReplaysEndsWhenAnOperatorForgetsTheRecord(t *testing.T) {
	store, client := nativeStore(t)
	kept := inBurst(t, store)
	operators := redisstore.New(client)
	seen, err := operators.Look(ctx, kept.Key)
	require.NoError(t, err)
	require.NoError(t, operators.Forget(ctx, seen))
	entry, err := store.Begin(ctx, rivalOf(kept))
	require.NoError(t, err)
	assert.Equal(t, driver.Claimed, entry.State)
	assert.Greater(t, entry.Fence, kept.Fence)
}

// inBurst returns the claim of an outcome that a store has replayed so often that it asks with GET.
func inBurst(t *testing.T, store *redisstore.Store) driver.Claim {
	kept := claimed(t, store, time.Minute)
	require.NoError(t, store.Complete(ctx, kept, []byte("kept")))
	for range 10 {
		entry, err := store.Begin(ctx, rivalOf(kept))
		require.NoError(t, err)
		require.Equal(t, "kept", string(entry.Outcome))
	}
	return kept
}

// CON-11: the GET of a burst and what follows it have one deadline together.
func TestABurstOfReplaysOnAServerThatHangsEndsWithItsContext(t *testing.T) {
	for name, options := range map[string][]redisstore.Option{"one by one": nil, "in batches": {redisstore.Batch()}} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			if !server.Knows(t, "PEXPIRETIME") {
				t.Skip("this server has no PEXPIRETIME, so it gets scripts alone")
			}
			store := redisstore.New(server.Client(t), options...)
			kept := inBurst(t, store)
			server.Pause()
			defer server.Resume()
			bounded, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			var ended sync.WaitGroup
			for range 3 { // of a batch two are sent, and the third waits
				ended.Go(func() {
					_, err := store.Begin(bounded, rivalOf(kept))
					assert.Error(t, err)
				})
			}
			ended.Wait()
			assert.Less(t, time.Since(began), 5*time.Second)
		})
	}
}

// LSE-19: while a slot moves, and when it has moved, a burst goes on.
func TestABurstOfReplaysGoesOnWhileItsSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartMasters(t, 2)
	if !cluster.Nodes[0].Knows(t, "PEXPIRETIME") {
		t.Skip("this server has no PEXPIRETIME, so it gets scripts alone")
	}
	client := cluster.Client(t)
	for _, way := range []string{"one by one", "by scripts alone", "in batches"} { // the masters have no replicas
		t.Run(way, func(t *testing.T) {
			store := redisstore.New(client, ways[way]...)
			kept := inBurst(t, store)
			from := cluster.MasterOf(t, nameOf(kept))
			reshard := cluster.Reshard(t, from, otherMaster(cluster, from), int(client.ClusterKeySlot(ctx, nameOf(kept)).Val()))
			require.True(t, cluster.Migrate(t, from, otherMaster(cluster, from), nameOf(kept)))
			for i := range 60 {
				if i == 30 {
					reshard.End()
				}
				entry, err := store.Begin(ctx, rivalOf(kept))
				require.NoError(t, err, "replay %d", i)
				require.Equal(t, "kept", string(entry.Outcome))
			}
		})
	}
}
