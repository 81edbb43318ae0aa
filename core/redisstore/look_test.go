package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
)

// OPR-01: of what is no record, an operator sees how long it will be there, and nothing else.
func TestALookAtWhatIsNoRecordSaysHowLongItStays(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store := redisstore.New(client)
	c := claimed(t, store, time.Minute)
	later := func() error { return client.Set(ctx, nameOf(c), "32"+strings.Repeat("0", 100), time.Hour).Err() }
	for name, test := range map[string]struct {
		write  func() error
		state  driver.State
		stays  time.Duration
		within time.Duration
	}{
		"a damaged record":                   {func() error { return client.Set(ctx, nameOf(c), "no record", time.Hour).Err() }, driver.Unreadable, time.Hour, time.Minute},
		"a damaged record without an expiry": {func() error { return client.Set(ctx, nameOf(c), "no record", 0).Err() }, driver.Unreadable, 0, 0},
		"a list without an expiry":           {func() error { return client.LPush(ctx, nameOf(c), "no record").Err() }, driver.Unreadable, 0, 0},
		"a tombstone":                        {func() error { return client.Set(ctx, nameOf(c)+":late", "", time.Hour).Err() }, driver.Expired, time.Hour, time.Minute},
		"a tombstone without an expiry":      {func() error { return client.Set(ctx, nameOf(c)+":late", "", 0).Err() }, driver.Expired, 0, 0},
		"a record of a later format":         {later, driver.Unreadable, time.Hour, time.Minute},
		"nothing":                            {func() error { return nil }, driver.Absent, 0, 0},
	} {
		require.NoError(t, client.FlushDB(ctx).Err())
		require.NoError(t, test.write(), name)
		seen, err := store.Look(ctx, c.Key)
		require.NoError(t, err, name)
		assert.InDelta(t, test.stays, seen.Expires, float64(test.within), name)
		if client.Type(ctx, nameOf(c)).Val() != "list" {
			outcome, err := store.Outcome(ctx, c.Key)
			require.NoError(t, err, name)
			assert.Nil(t, outcome, name)
		}
		seen.Expires = 0
		assert.Equal(t, driver.Record{Name: c.Key, State: test.state}, seen, name)
	}
}
