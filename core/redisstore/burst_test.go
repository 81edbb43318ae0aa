package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
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
