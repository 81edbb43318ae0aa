package dynamostore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
)

func TestAWaitingRequestIsNotifiedByItsOwnProcessAtOnce(t *testing.T) {
	t.Parallel()
	store := sharedTable(t).store()
	store.SetPollInterval(time.Hour)
	for _, end := range []func(driver.Claim) error{
		func(c driver.Claim) error { return store.Complete(ctx, c, nil) },
		func(c driver.Claim) error { return store.Fail(ctx, c, driver.Failure{}) },
	} {
		c := claimed(t, store, time.Minute)
		woken := make(chan struct{}, 100)
		stop, err := store.Watch(ctx, c.Key, func() { woken <- struct{}{} })
		require.NoError(t, err)
		require.NoError(t, end(c))
		select {
		case <-woken:
		case <-time.After(10 * time.Second):
			t.Error("wake was not called within 10 seconds")
		}
		stop()
	}
}

func TestAWaitingRequestIsNotifiedByAnotherProcess(t *testing.T) {
	t.Parallel()
	owner, other := sharedTable(t).store(), sharedTable(t).store()
	completed, failed, running := claimed(t, owner, time.Minute), claimed(t, owner, time.Minute), claimed(t, owner, time.Minute)
	woken := make(chan driver.Claim, 100)
	for _, c := range []driver.Claim{completed, failed, running} {
		stop, err := other.Watch(ctx, c.Key, func() { woken <- c })
		require.NoError(t, err)
		defer stop()
	}
	require.NoError(t, owner.Complete(ctx, completed, nil))
	require.NoError(t, owner.Fail(ctx, failed, driver.Failure{}))
	seen := map[driver.Claim]bool{}
	for len(seen) < 2 {
		select {
		case c := <-woken:
			seen[c] = true
		case <-time.After(10 * time.Second):
			t.Fatal("nobody was notified within 10 seconds")
		}
	}
	assert.NotContains(t, seen, running)
}
