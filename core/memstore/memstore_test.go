package memstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/testclock"
)

func TestStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Harness {
		c := testclock.New(time.Now())
		return storetest.Harness{Store: memstore.New(memstore.Clock(c.Now)), Advance: c.Advance}
	})
}

// A store without optional abilities must pass the suite as well.
func TestStoreWithoutAbilitiesKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Harness {
		c := testclock.New(time.Now())
		store := struct{ driver.Store }{memstore.New(memstore.Clock(c.Now))}
		return storetest.Harness{Store: store, Advance: c.Advance}
	})
}

func TestFullStoreRefusesNewKeysAndKeepsTheOthers(t *testing.T) {
	for name, limit := range map[string]memstore.Option{
		"records": memstore.MaxRecords(2),
		"bytes":   memstore.MaxBytes(2 * 320),
	} {
		t.Run(name, func(t *testing.T) {
			c, ctx := testclock.New(time.Now()), context.Background()
			store := memstore.New(limit, memstore.Clock(c.Now))
			running, done := storetest.NewClaim(time.Minute, time.Hour), storetest.NewClaim(time.Minute, 2*time.Hour)
			for _, claim := range []*driver.Claim{&running, &done} {
				entry, err := store.Begin(ctx, *claim)
				require.NoError(t, err)
				claim.Fence = entry.Fence
			}
			third := storetest.NewClaim(time.Minute, time.Hour)
			_, err := store.Begin(ctx, third)
			require.ErrorIs(t, err, memstore.ErrFull)

			require.NoError(t, store.Extend(ctx, running), "a full store must hear its owners")
			require.NoError(t, store.Complete(ctx, done, make([]byte, 1000)))
			require.NoError(t, store.Fail(ctx, running, driver.Failure{}))

			c.Advance(time.Hour)
			_, err = store.Begin(ctx, third)
			if name == "bytes" { // the kept outcome alone is over the limit
				require.ErrorIs(t, err, memstore.ErrFull)
				c.Advance(time.Hour)
				_, err = store.Begin(ctx, third)
			}
			assert.NoError(t, err, "expired records make room")
		})
	}
}

func TestBadOptionsPanicAtStartUp(t *testing.T) {
	assert.Panics(t, func() { memstore.New(memstore.MaxRecords(0)) })
	assert.Panics(t, func() { memstore.New(memstore.MaxBytes(-1)) })
	assert.Panics(t, func() { memstore.New(memstore.Clock(nil)) })
}
