package pgstore_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// withdraws sends the Fail of a run whose begin had no answer.
func withdraws(t *testing.T, store driver.Store, c driver.Claim) error {
	t.Helper()
	c.Fence = 0
	return store.Fail(ctx, c, driver.Failure{Cause: "begin had no answer", NoEffects: true, NotRun: true})
}

// comesTooLate checks that a begin that is executed now gets nothing and changes nothing.
func comesTooLate(t *testing.T, store driver.Store, c driver.Claim, why string) {
	t.Helper()
	_, err := store.Begin(ctx, c)
	assert.ErrorIs(t, err, driver.ErrLost, why)
}

// LSE-18: the begin is executed behind its own fail, which found nothing.
func TestABeginBehindItsWithdrawalLeavesTheKeyFree(t *testing.T) {
	store, pool, schema := ownStore(t)
	for _, state := range []string{"never seen", "expired"} {
		for _, noTakeover := range []bool{false, true} {
			late := storetest.NewClaim(time.Minute, time.Hour)
			late.NoTakeover = noTakeover
			if state == "expired" {
				before := rival(late)
				before.Steps = true
				claim(t, store, &before)
				require.NoError(t, store.Checkpoint(ctx, before, "step", nil))
				expire(t, pool, schema, before)
			}
			require.NoError(t, withdraws(t, store, late), state)
			require.NoError(t, withdraws(t, store, late), "again")
			comesTooLate(t, store, late, state)
			next := other(late)
			claim(t, store, &next)
			assert.Equal(t, 1, next.Attempt, "nothing has run")
			assert.Equal(t, next.Fence, next.Operation)
			assert.False(t, next.Takeover)
			comesTooLate(t, store, late, "also when another run has the key")
			assert.Empty(t, steps(t, store, next))
		}
	}
}

func TestAWithdrawalHoldsForALease(t *testing.T) {
	store, pool, schema := ownStore(t)
	setClock(t, pool, schema, 1000)
	late := storetest.NewClaim(10*time.Microsecond, time.Hour)
	require.NoError(t, withdraws(t, store, late))
	setClock(t, pool, schema, 1009)
	comesTooLate(t, store, late, "within the lease")
	setClock(t, pool, schema, 1010)
	assert.Equal(t, 1, begin(t, store, late).Attempt, "after it")
}

func TestARunThatFailedOrWithdrewIsRememberedUnderTheNextOnes(t *testing.T) {
	store, pool, schema := ownStore(t)
	first := claimed(t, store)
	withdrawn := rival(first)
	assert.ErrorIs(t, withdraws(t, store, withdrawn), driver.ErrLost, "another run has the key")
	before := row(t, pool, schema, first)
	assert.ErrorIs(t, withdraws(t, store, withdrawn), driver.ErrLost)
	assert.Equal(t, before, row(t, pool, schema, first), "again changes nothing")
	comesTooLate(t, store, withdrawn, "while the other runs")
	require.NoError(t, store.Extend(ctx, first), "whose claim stands")

	require.NoError(t, store.Fail(ctx, first, driver.Failure{}))
	comesTooLate(t, store, withdrawn, "when the other has failed")
	another := rival(first)
	assert.ErrorIs(t, withdraws(t, store, another), driver.ErrLost)
	next := rival(first)
	claim(t, store, &next)
	assert.Equal(t, 2, next.Attempt)
	execute(t, pool, "UPDATE "+schema+".record SET lease_end = 1")
	for _, c := range []driver.Claim{first, withdrawn, another} {
		comesTooLate(t, store, c, "when the next one has vanished")
	}
	require.NoError(t, store.Complete(ctx, next, []byte("kept")))
	assert.Equal(t, driver.Completed, begin(t, store, first).State, "an outcome is everybody's")
}

func TestARecordRemembersTheLastSixteen(t *testing.T) {
	store, pool, schema := ownStore(t)
	holder := claimed(t, store)
	var all []driver.Claim
	for range 40 {
		all = append(all, rival(holder))
		assert.ErrorIs(t, withdraws(t, store, all[len(all)-1]), driver.ErrLost)
	}
	execute(t, pool, "UPDATE "+schema+".record SET lease_end = 1")
	for i, c := range all[24:] {
		comesTooLate(t, store, c, fmt.Sprint(i))
	}
	assert.Equal(t, 16, count(t, pool, "SELECT cardinality(withdrawn) FROM "+schema+".record"))
}

// A withdrawal and its begin are under way at the same time, in any order, beside other runs.
func TestNoOrderOfABeginAndItsWithdrawalHoldsTheKey(t *testing.T) {
	store, _, _ := ownStore(t)
	for i := range 60 {
		base := storetest.NewClaim(time.Minute, time.Hour)
		var wg sync.WaitGroup
		for range 3 {
			c := rival(base)
			wg.Go(func() { _, _ = store.Begin(ctx, c) })
			wg.Go(func() { _ = withdraws(t, store, c) })
		}
		wg.Wait()
		entry := begin(t, store, other(base))
		require.Equal(t, driver.Claimed, entry.State, i)
		require.Equal(t, 1, entry.Attempt, i)
	}
}

// A key that was completed once is not free because somebody withdrew.
func TestAWithdrawalDoesNotHideATombstone(t *testing.T) {
	store, pool, schema := ownStore(t)
	late := func(c *driver.Claim) { c.LateRetry = time.Hour }
	c := claimed(t, store, late)
	require.NoError(t, store.Complete(ctx, c, []byte("kept")))
	expire(t, pool, schema, c)
	require.NoError(t, withdraws(t, store, rival(c)))
	assert.Equal(t, driver.Entry{State: driver.Expired}, begin(t, store, rival(c)))
	assert.Equal(t, driver.Entry{State: driver.Expired}, begin(t, store, other(c)))
	careless := rival(c)
	careless.LateRetry = 0
	assert.Equal(t, driver.Claimed, begin(t, store, careless).State)
}

func TestAWithdrawalWakesNobodyAndFreesNothing(t *testing.T) {
	store, _, _ := ownStore(t)
	woken := newWakes()
	c := claimed(t, store)
	watch(t, store, c.Key, woken)
	await(t, store, c)
	assert.ErrorIs(t, withdraws(t, store, rival(c)), driver.ErrLost)
	assert.Equal(t, driver.InProgress, begin(t, store, rival(c)).State)
	assert.Equal(t, driver.Mismatch, begin(t, store, other(c)).State)
	require.NoError(t, store.Complete(ctx, c, nil))
	woken.wait(t)
	assert.Empty(t, woken)
}

// EVT-08: attempts count runs, not claims.
func TestAClaimWithoutARunGivesItsAttemptBack(t *testing.T) {
	store, _, _ := ownStore(t)
	notRun := driver.Failure{NoEffects: true, NotRun: true}
	c := claimed(t, store)
	for range 5 {
		require.NoError(t, store.Fail(ctx, c, notRun))
		require.NoError(t, store.Fail(ctx, c, notRun), "again")
		c = other(c)
		claim(t, store, &c)
		require.Equal(t, 1, c.Attempt)
	}
	require.NoError(t, store.Fail(ctx, c, driver.Failure{})) // a run
	for range 5 {
		c = rival(c)
		claim(t, store, &c)
		require.Equal(t, 2, c.Attempt)
		require.NoError(t, store.Fail(ctx, c, notRun))
	}
	assert.Equal(t, driver.Mismatch, begin(t, store, other(c)).State, "the run may have had effects")
}

func TestAnOperationGoesOnUntilTheKeyIsFree(t *testing.T) {
	store, pool, schema := ownStore(t)
	c := claimed(t, store)
	operation := c.Fence
	next := func(why string) {
		t.Helper()
		c = rival(c)
		claim(t, store, &c)
		assert.Equal(t, operation, c.Operation, why)
		assert.Equal(t, operation, begin(t, store, c).Operation, "to who asks again")
	}
	assert.Equal(t, operation, c.Operation)
	require.NoError(t, store.Fail(ctx, c, driver.Failure{}))
	next("after a failure")
	require.NoError(t, store.Fail(ctx, c, driver.Failure{NoEffects: true, NotRun: true}))
	next("after a claim without a run")
	execute(t, pool, "UPDATE "+schema+".record SET lease_end = 1")
	next("after a takeover")

	freed := claimed(t, store)
	require.NoError(t, store.Fail(ctx, freed, driver.Failure{NoEffects: true}))
	again := rival(freed)
	claim(t, store, &again)
	assert.Equal(t, again.Fence, again.Operation, "a free key")
	expire(t, pool, schema, again)
	after := rival(again)
	claim(t, store, &after)
	assert.Equal(t, after.Fence, after.Operation, "a key that is new")
}
