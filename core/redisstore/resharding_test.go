package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/internal/storecheck"
)

// resharded starts a cluster whose first two masters give all slots to the third, and do not come to the end of it: a script
// with two keys that are not there is refused by both.
func resharded(t *testing.T) *redis.ClusterClient {
	c := redistest.StartCluster(t)
	for _, from := range c.Nodes[:2] {
		c.Reshard(t, from, c.Nodes[2], c.SlotsOf(t, from)...)
	}
	return c.Client(t)
}

// LSE-19.
func TestStoreKeepsTheContractWhileSlotsMove(t *testing.T) {
	t.Parallel()
	client := resharded(t)
	for way, options := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			store := redisstore.New(client, options...)
			// A wake may be lost while the slot of its channel moves, so who waits is not part of this.
			quiet := struct {
				driver.Store
				driver.Checkpointer
			}{store, store}
			storetest.Run(t, func(testing.TB) storetest.Harness { return storetest.Harness{Store: quiet, Advance: time.Sleep} })
			t.Run("answers as memory does", func(t *testing.T) { storecheck.AnswersAsMemoryInRealTime(t, store, 60, 2_000) })
			t.Run("long outcomes", func(t *testing.T) { longOutcomes(t, store) })
		})
	}
}

// longOutcomes keeps outcomes that are read by a GET.
func longOutcomes(t *testing.T, store *redisstore.Store) {
	for range 12 {
		c := claimed(t, store, time.Minute)
		outcome := make([]byte, 10_000)
		copy(outcome[5_000:], c.Key[:])
		c.LateRetry = time.Hour
		require.NoError(t, store.Complete(ctx, c, outcome))
		for range 2 {
			c.Owner[0] ^= 1
			entry, err := store.Begin(ctx, c)
			require.NoError(t, err)
			require.Equal(t, outcome, entry.Outcome)
		}
	}
}

// LSE-19: each call, with what has stayed and what has moved in every combination.
func TestEveryCallFindsARecordAndWhatLiesBesideItOnTwoNodes(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := cluster.Client(t)
	for way, options := range ways {
		store := redisstore.New(client, options...)
		for name, moves := range map[string]func(driver.Claim) []string{
			"nothing has moved":        func(driver.Claim) []string { return nil },
			"the record has":           func(c driver.Claim) []string { return []string{nameOf(c)} },
			"what lies beside it has":  func(c driver.Claim) []string { return []string{nameOf(c) + ":steps", nameOf(c) + ":late"} },
			"the steps have":           func(c driver.Claim) []string { return []string{nameOf(c) + ":steps"} },
			"the record and steps":     func(c driver.Claim) []string { return []string{nameOf(c), nameOf(c) + ":steps"} },
			"the record and tombstone": func(c driver.Claim) []string { return []string{nameOf(c), nameOf(c) + ":late"} },
			"all have":                 func(c driver.Claim) []string { return []string{nameOf(c), nameOf(c) + ":steps", nameOf(c) + ":late"} },
		} {
			t.Run(way+", "+name, func(t *testing.T) { t.Parallel(); s := splitter{t, cluster, client, store, moves}; s.life() })
		}
	}
}

type splitter struct {
	t       *testing.T
	cluster *redistest.Shards
	client  *redis.ClusterClient
	store   *redisstore.Store
	moves   func(driver.Claim) []string
}

// split has the slot of c move, with some keys, and returns what ends that.
func (s *splitter) split(c driver.Claim) (end func() int) {
	s.t.Helper()
	from := s.cluster.MasterOf(s.t, nameOf(c))
	to := s.cluster.Nodes[0]
	if to == from {
		to = s.cluster.Nodes[1]
	}
	slot := int(s.client.ClusterKeySlot(ctx, nameOf(c)).Val())
	reshard := s.cluster.Reshard(s.t, from, to, slot)
	for _, key := range s.moves(c) {
		s.cluster.Migrate(s.t, from, to, key)
	}
	return reshard.End
}

// life is a run with steps, its outcome, and what is left of it, each while the slot moves.
func (s *splitter) life() {
	t, store := s.t, s.store
	c := storetest.NewClaim(time.Second, time.Hour)
	c.LateRetry = time.Hour
	end := s.split(c)
	entry, err := store.Begin(ctx, c)
	require.NoError(t, err)
	require.Equal(t, driver.Claimed, entry.State)
	c.Fence, c.Attempt, c.Operation = entry.Fence, entry.Attempt, entry.Operation
	require.NoError(t, store.Checkpoint(ctx, c, "early", []byte("done")))
	end()

	c.Steps = true
	end = s.split(c)
	require.NoError(t, store.Extend(ctx, c))
	require.NoError(t, store.Checkpoint(ctx, c, "late", []byte("done too")))
	kept, err := store.Checkpoints(ctx, c)
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{"early": []byte("done"), "late": []byte("done too")}, kept)
	end()

	end = s.split(c)
	require.NoError(t, store.Complete(ctx, c, []byte("kept")))
	require.NoError(t, store.Complete(ctx, c, []byte("kept")), "sent again")
	end()

	end = s.split(c)
	rival := c
	rival.Owner[0] ^= 1
	entry, err = store.Begin(ctx, rival)
	require.NoError(t, err)
	require.Equal(t, driver.Entry{State: driver.Completed, Outcome: []byte("kept")}, entry)
	end()
	require.Zero(t, s.client.Exists(ctx, nameOf(c)+":steps").Val(), "the steps are gone")

	end = s.split(c)
	require.NoError(t, store.Reopen(ctx, rival, []byte("kept")))
	require.NoError(t, store.Reopen(ctx, rival, []byte("kept")), "sent again")
	require.Zero(t, s.client.Exists(ctx, nameOf(c)+":late").Val(), "the tombstone is gone")
	c = heir(t, store, c)
	c.Retention = time.Second
	require.NoError(t, store.Complete(ctx, c, []byte("kept")))
	end()

	end = s.split(c)
	redistest.Eventually(t, "the retention is over", func() bool {
		entry, err = store.Begin(ctx, rival)
		require.NoError(t, err)
		return entry.State == driver.Expired
	})
	end()
}

// A run that is paused between its check and its step is a stale one when it goes on.
func TestAStepOfAnOwnerThatWasTakenOverMeanwhileIsNotKept(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := cluster.Client(t)
	for name, successor := range map[string]func(*redisstore.Store, driver.Claim) driver.Claim{
		"its successor has kept the step": func(store *redisstore.Store, c driver.Claim) driver.Claim {
			c = heir(t, store, c)
			require.NoError(t, store.Checkpoint(ctx, c, "ship", []byte("successor")))
			return c
		},
		"it is an operation of the past": func(store *redisstore.Store, c driver.Claim) driver.Claim {
			require.NoError(t, client.Del(ctx, nameOf(c), nameOf(c)+":steps").Err())
			c = heir(t, store, c)
			require.NoError(t, store.Checkpoint(ctx, c, "ship", []byte("successor")))
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := splitter{t, cluster, client, nil, func(c driver.Claim) []string { return []string{nameOf(c)} }}
			c := heir(t, redisstore.New(client), storetest.NewClaim(50*time.Millisecond, time.Hour))
			require.NoError(t, redisstore.New(client).Checkpoint(ctx, c, "first", nil))
			end := s.split(c)
			var next driver.Claim
			paused := cluster.Client(t)
			paused.AddHook(&betweenPieces{func() {
				end()
				time.Sleep(100 * time.Millisecond) // the lease ends
				next = successor(redisstore.New(client), c)
			}})
			assert.ErrorIs(t, redisstore.New(paused).Checkpoint(ctx, c, "ship", []byte("stale")), driver.ErrLost)
			require.NotZero(t, next.Fence, "there was no time between two pieces")
			kept, err := redisstore.New(client).Checkpoints(ctx, next)
			require.NoError(t, err)
			assert.Equal(t, "successor", string(kept["ship"]))
		})
	}
}

// The pieces of a step have one context, also in batches, where a call whose context is over is not sent.
func TestAStepInPiecesEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for pieces := range 2 {
		c := running(t, redisstore.New(redistest.Shared(t).Client(t)))
		ended, end := context.WithCancel(ctx)
		sent := 0
		checkpoint := recordCall{do: func(store *redisstore.Store, c driver.Claim) error { return store.Checkpoint(ended, c, "late", nil) }}
		err := answered(t, checkpoint, c, false, func(cmd redis.Cmder) any {
			if cmd.Name() != "evalsha" {
				return nil
			}
			if sent++; sent > pieces {
				end()
			}
			if isSplit(cmd) {
				return refusal("TRYAGAIN the slot moves")
			}
			return []any{"ok", "the operation"}
		}, redisstore.Batch())
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, pieces+1, sent)
	}
}

// betweenPieces does something, once, before the second piece of a step.
type betweenPieces struct{ do func() }

func (b *betweenPieces) DialHook(next redis.DialHook) redis.DialHook { return next }
func (b *betweenPieces) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (b *betweenPieces) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if key, _ := cmd.Args()[min(3, len(cmd.Args())-1)].(string); len(key) > 6 && key[len(key)-6:] == ":steps" && b.do != nil {
			do := b.do
			b.do = nil
			do()
		}
		return next(ctx, cmd)
	}
}
