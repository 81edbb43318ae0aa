package sqlitestore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/sqlitestore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/storecheck"
)

func TestStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.Harness { return withClock(tb) })
}

func TestSQLiteAndMemoryAnswerRandomSequencesAlike(t *testing.T) {
	t.Parallel()
	storecheck.AnswersAsMemory(t, withClock(t), 100, 20_000)
}

// Owners on four connections to one file begin, extend and fail as they like. The owner of the claim is alone with it, and its
// fence is higher than those before.
func TestCallsOnOneKeyNeverInterleave(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	storecheck.NeverInterleave(t, 4, 40, func(int) driver.Store { return open(t, path, sqlitestore.NormalSync()) })
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
