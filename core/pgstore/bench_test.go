package pgstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

func BenchmarkBeginAndComplete(b *testing.B) {
	store, _ := newStore(b)
	outcome := make([]byte, 500)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c := storetest.NewClaim(time.Minute, time.Hour)
			claim(b, store, &c)
			require.NoError(b, store.Complete(ctx, c, outcome))
		}
	})
}

// Replays of one key by all at once.
func BenchmarkReplay(b *testing.B) {
	store, _ := newStore(b)
	c := claimed(b, store)
	require.NoError(b, store.Complete(ctx, c, make([]byte, 500)))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			require.Equal(b, driver.Completed, begin(b, store, rival(c)).State)
		}
	})
}
