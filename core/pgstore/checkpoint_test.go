package pgstore_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/pgstore"
)

func stepping(c *driver.Claim) { c.Steps = true }

// steps are the checkpoints that c sees, in text.
func steps(t *testing.T, store *pgstore.Store, c driver.Claim) map[string]string {
	t.Helper()
	found, err := store.Checkpoints(ctx, c)
	require.NoError(t, err)
	require.NotNil(t, found)
	text := map[string]string{}
	for step, result := range found {
		text[step] = string(result)
	}
	return text
}

func TestTheNextRunFindsTheStepsThatWereFinished(t *testing.T) {
	store, _, _ := ownStore(t)
	c := claimed(t, store, stepping)
	assert.Empty(t, steps(t, store, c))
	require.NoError(t, store.Checkpoint(ctx, c, "reserve", []byte("17")))
	require.NoError(t, store.Checkpoint(ctx, c, "charge", []byte("first")))
	require.NoError(t, store.Checkpoint(ctx, c, "charge", []byte("last")))
	require.NoError(t, store.Checkpoint(ctx, c, "", nil))
	want := map[string]string{"reserve": "17", "charge": "last", "": ""}
	assert.Equal(t, want, steps(t, store, c))
	require.NoError(t, store.Fail(ctx, c, driver.Failure{}))
	next := rival(c)
	claim(t, store, &next)
	assert.Equal(t, want, steps(t, store, next))
}

func TestOnlyTheClaimThatRunsReadsAndWritesSteps(t *testing.T) {
	store, _, _ := ownStore(t)
	c := claimed(t, store, stepping)
	lost := func(c driver.Claim, who string) {
		t.Helper()
		assert.ErrorIs(t, store.Checkpoint(ctx, c, "step", []byte("late")), driver.ErrLost, who)
		_, err := store.Checkpoints(ctx, c)
		assert.ErrorIs(t, err, driver.ErrLost, who)
	}
	lost(rival(c), "another owner")
	require.NoError(t, store.Fail(ctx, c, driver.Failure{}))
	lost(c, "a claim that has failed")
	next := rival(c)
	claim(t, store, &next)
	lost(c, "a claim before the last")
	assert.Empty(t, steps(t, store, next))
	require.NoError(t, store.Complete(ctx, next, nil))
	lost(next, "a claim that has completed")
}

func TestARunOfAnotherRequestSeesNoSteps(t *testing.T) {
	store, _, _ := ownStore(t)
	c := claimed(t, store, stepping)
	require.NoError(t, store.Checkpoint(ctx, c, "charge", []byte("17")))
	require.NoError(t, store.Fail(ctx, c, driver.Failure{NoEffects: true}))
	mended := other(c)
	claim(t, store, &mended)
	assert.Empty(t, steps(t, store, mended))
	require.NoError(t, store.Checkpoint(ctx, mended, "charge", []byte("18")))
	require.NoError(t, store.Fail(ctx, mended, driver.Failure{NoEffects: true}))
	c = rival(c)
	claim(t, store, &c)
	assert.Empty(t, steps(t, store, c), "the same request again is another operation, too")
}

// TestAStepMayHaveAnyName: an index takes 2704 bytes.
func TestAStepMayHaveAnyName(t *testing.T) {
	store, _, _ := ownStore(t)
	c := claimed(t, store, stepping)
	want := map[string]string{}
	random := make([]byte, 5000) // nothing that could be compressed
	rand.Read(random)
	for _, name := range []string{
		string(random), string(random[:4999]), string(random[:1025]), string(random[:1024]), string(random[:1023]), string(random[:2704]),
		strings.Repeat("ä", 100_000), "\x00", "",
	} {
		require.NoError(t, store.Checkpoint(ctx, c, name, []byte("first")), len(name))
		want[name] = fmt.Sprint("last of ", len(name))
		require.NoError(t, store.Checkpoint(ctx, c, name, []byte(want[name])), len(name))
	}
	assert.Equal(t, want, steps(t, store, c))
	require.NoError(t, store.Fail(ctx, c, driver.Failure{}))
	next := rival(c)
	claim(t, store, &next)
	assert.Equal(t, want, steps(t, store, next))
}

func TestStepsEndWithTheirRecord(t *testing.T) {
	store, pool, schema := ownStore(t)
	kept := func() int { return count(t, pool, "SELECT count(*) FROM "+schema+".checkpoint") }
	completed, expired := claimed(t, store, stepping), claimed(t, store, stepping)
	for _, c := range []driver.Claim{completed, expired} {
		require.NoError(t, store.Checkpoint(ctx, c, "step", nil))
	}
	require.NoError(t, store.Complete(ctx, completed, nil))
	assert.Equal(t, 1, kept(), "an outcome ends them")
	expire(t, pool, schema, expired)
	next := rival(expired)
	claim(t, store, &next)
	assert.Empty(t, steps(t, store, next), "a key that is new has none")
	assert.Zero(t, kept())
}

func TestStepsLiveAsLongAsTheirRecord(t *testing.T) {
	store, pool, schema := ownStore(t)
	setClock(t, pool, schema, 1000)
	c := claimed(t, store, stepping, func(c *driver.Claim) { c.Lease, c.Retention = 10*time.Microsecond, 20*time.Microsecond })
	require.NoError(t, store.Checkpoint(ctx, c, "step", []byte("17")))
	for i, refresh := range []func() error{
		func() error { return store.Extend(ctx, c) },
		func() error { return store.Checkpoint(ctx, c, "other", nil) },
		func() error { _, err := store.Checkpoints(ctx, c); return err },
		func() error { return store.Fail(ctx, c, driver.Failure{}) },
	} {
		setClock(t, pool, schema, 1000+int64(i+1)*19)
		require.NoError(t, refresh(), i)
	}
	setClock(t, pool, schema, 1000+5*19)
	next := rival(c)
	claim(t, store, &next)
	assert.Equal(t, map[string]string{"step": "17", "other": ""}, steps(t, store, next))
	setClock(t, pool, schema, 1000+5*19+20)
	assert.ErrorIs(t, store.Checkpoint(ctx, next, "step", nil), driver.ErrLost, "after the retention")
}
