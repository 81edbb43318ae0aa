package sqlitestore_test

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/sqlitestore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/testclock"
)

func TestStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.Harness { return withClock(tb) })
}

func TestSQLiteAndMemoryAnswerRandomSequencesAlike(t *testing.T) {
	t.Parallel()
	sequences, seed := 100, time.Now().UnixNano()
	if os.Getenv("SOAK") != "" {
		sequences = 20_000
	}
	t.Logf("seeds %d to %d", seed, seed+int64(sequences)-1)
	tested := withClock(t)
	for i := range int64(sequences) {
		reference := testclock.New(time.Now())
		memory := storetest.Harness{Store: memstore.New(memstore.Clock(reference.Now)), Advance: reference.Advance}
		storetest.Differential(t, seed+i, 30, memory, tested)
	}
}

// Owners on four connections to one file begin, extend and fail as they like. The owner of the claim is alone with it, and its
// fence is higher than those before.
func TestCallsOnOneKeyNeverInterleave(t *testing.T) {
	t.Parallel()
	path, base := newPath(t), storetest.NewClaim(time.Minute, time.Hour)
	var mu sync.Mutex
	var holders, claims int
	var fence int64
	var wg sync.WaitGroup
	for range 4 {
		store := open(t, path, sqlitestore.NormalSync())
		wg.Go(func() {
			for range 40 {
				c := rival(base)
				entry, err := store.Begin(ctx, c)
				if !assert.NoError(t, err) {
					return
				}
				if entry.State != driver.Claimed {
					assert.Equal(t, driver.InProgress, entry.State)
					continue
				}
				mu.Lock()
				holders++
				claims++
				assert.Equal(t, 1, holders)
				assert.Greater(t, entry.Fence, fence)
				assert.Equal(t, claims, entry.Attempt)
				fence, c.Fence = entry.Fence, entry.Fence
				mu.Unlock()
				assert.NoError(t, store.Extend(ctx, c))
				mu.Lock()
				holders--
				mu.Unlock()
				assert.NoError(t, store.Fail(ctx, c, driver.Failure{}))
			}
		})
	}
	wg.Wait()
	assert.Greater(t, claims, 1)
}

func TestRecordsOutliveTheStore(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	first := open(t, path)
	done, running := claimed(t, first), claimed(t, first)
	assert.NoError(t, first.Complete(ctx, done, []byte("kept")))
	assert.NoError(t, first.Close())
	second := open(t, path)
	assert.Equal(t, "kept", string(begin(t, second, rival(done)).Outcome))
	assert.Equal(t, driver.InProgress, begin(t, second, rival(running)).State)
	assert.NoError(t, second.Extend(ctx, running))
}
