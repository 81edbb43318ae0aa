package dynamostore_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/storecheck"
)

func TestStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.Harness { return withClock(tb, 0) })
}

// A server returns the item when a condition is not met, as DynamoDB does, and no lease is over by a clock.
func TestAStoreThatOnlyWatchesLeasesKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.Harness { return withClock(tb, never, withItems()) })
}

func TestDynamoDBAndMemoryAnswerRandomSequencesAlike(t *testing.T) {
	t.Parallel()
	for _, tested := range []storetest.Harness{withClock(t, 0), withClock(t, never, withItems())} {
		storecheck.AnswersAsMemory(t, tested, 12, 1000)
	}
}

// Owners in four processes begin, extend and fail as they like. The owner of the claim is alone with it, and its fence is
// higher than those before.
func TestCallsOnOneKeyNeverInterleave(t *testing.T) {
	t.Parallel()
	storecheck.NeverInterleave(t, 4, 30, func(owner int) driver.Store {
		if owner%2 == 0 {
			return sharedTable(t).store(withItems())
		}
		return sharedTable(t).store()
	})
}

func TestAnotherOwnerIsLostAlthoughItsFenceIsRight(t *testing.T) {
	t.Parallel()
	store := sharedTable(t).store()
	c := claimed(t, store, time.Minute)
	other := rival(c)
	other.Fence = c.Fence
	assert.ErrorIs(t, store.Extend(ctx, other), driver.ErrLost)
	assert.ErrorIs(t, store.Complete(ctx, other, nil), driver.ErrLost)
	assert.ErrorIs(t, store.Fail(ctx, other, driver.Failure{}), driver.ErrLost)
	assert.ErrorIs(t, store.Checkpoint(ctx, other, "charge", nil), driver.ErrLost)
	require.NoError(t, store.Complete(ctx, c, nil))
}

// Each write takes effect, its reply is lost, and the client of the SDK sends it again. What the calls return shows nothing of
// that.
func TestAWriteThatTheClientSendsAgainRecognisesItself(t *testing.T) {
	t.Parallel()
	for name, items := range map[string][]func(*dynamodb.Options){"with items": {withItems()}, "without items": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests := &counter{}
			store := sharedTable(t).store(append(items, requests.counted(), losing())...)
			c := claimed(t, store, time.Minute)
			assert.Equal(t, 1, c.Attempt)
			before := requests.n.Load()
			require.NoError(t, store.Extend(ctx, c))
			assert.GreaterOrEqual(t, requests.n.Load()-before, int64(2), "the client has not sent the write again")
			require.NoError(t, store.Checkpoint(ctx, c, "charge", []byte("1")))
			require.NoError(t, store.Fail(ctx, c, driver.Failure{}))

			next := rival(c)
			entry := begin(t, store, next)
			assert.Equal(t, driver.Claimed, entry.State)
			assert.Equal(t, 2, entry.Attempt)
			assert.Greater(t, entry.Fence, c.Fence)
			next.Fence = entry.Fence
			assert.ErrorIs(t, store.Fail(ctx, rival(c), driver.Failure{}), driver.ErrLost)
			require.NoError(t, store.Complete(ctx, next, []byte("dead")))
			require.NoError(t, store.Reopen(ctx, rival(c), []byte("dead")))

			seen, err := store.Look(ctx, c.Key)
			require.NoError(t, err)
			assert.Equal(t, driver.Failed, seen.State)
			require.NoError(t, store.Forget(ctx, seen))
			withdrawn := storetest.NewClaim(time.Minute, time.Hour)
			require.NoError(t, store.Fail(ctx, withdrawn, driver.Failure{NoEffects: true, NotRun: true}))
			_, err = store.Begin(ctx, withdrawn)
			assert.ErrorIs(t, err, driver.ErrLost)
		})
	}
}

// What a call costs is part of what the package promises.
func TestHowManyRequestsCallsCost(t *testing.T) {
	t.Parallel()
	requests := &counter{}
	store := sharedTable(t).store(withItems(), requests.counted())
	cost := func(want int64, what string, call func()) {
		t.Helper()
		before := requests.n.Load()
		call()
		assert.Equal(t, want, requests.n.Load()-before, what)
	}
	cost(2, "the first claim, which also reads the clock", func() { claimed(t, store, time.Minute) })
	var c driver.Claim
	cost(1, "a claim", func() { c = claimed(t, store, time.Minute) })
	cost(1, "a conflict", func() { assert.Equal(t, driver.InProgress, begin(t, store, rival(c)).State) })
	cost(1, "an extension", func() { require.NoError(t, store.Extend(ctx, c)) })
	cost(1, "an outcome", func() { require.NoError(t, store.Complete(ctx, c, []byte("kept"))) })
	cost(1, "a replay", func() { assert.Equal(t, "kept", string(begin(t, store, rival(c)).Outcome)) })
	cost(2, "a claim and its failure", func() {
		require.NoError(t, store.Fail(ctx, claimed(t, store, time.Minute), driver.Failure{NoEffects: true}))
	})
}
