package pgstore_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/internal/badnet"
	"github.com/go-idem/idem/internal/model"
	"github.com/go-idem/idem/internal/pgserver"
)

// lossyStore is a store in a schema of its own, behind a network that loses one to three percent of the replies, and half as
// many requests.
func lossyStore(t *testing.T, seed int64) (driver.Store, *badnet.Net) {
	_, _, schema := ownStore(t)
	network := badnet.New(seed)
	pool := newPool(t, pgserver.Shared(t), func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.DialFunc = 32, network.Dial })
	connect(t, pool, 8)
	loss := float64(seed%3+1) / 100
	network.Set(badnet.Faults{LoseReplies: loss, LoseRequests: loss / 2})
	return pgstore.New(pool, pgstore.Schema(schema)), network
}

// connect has a pool make so many connections.
func connect(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	for range n {
		conn, err := pool.Acquire(ctx)
		require.NoError(t, err)
		defer conn.Release()
	}
}

func TestHistoriesOfPostgresAreLinearizable(t *testing.T) {
	model.EachLoad(t, func(t *testing.T, l model.Load, seed int64) {
		l.Calls = min(l.Calls, 125*l.Clients)           // many seeds, none of them long: slow calls overlap, and make for many orders to try
		l.Lease, l.Retention = 4*l.Lease, 4*l.Retention // a call that lasts for several leases may have found anything
		store, network := lossyStore(t, seed)
		l.IsLinearizable(t, store, seed)
		require.NotZero(t, network.Hits(), "nothing was lost")
	})
}

func TestHistoriesOfAWrongUseOfPostgresAreNotLinearizable(t *testing.T) {
	for name, wrong := range model.Misuses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, network := lossyStore(t, time.Now().UnixNano())
			network.Set(badnet.Faults{})
			model.IsFoundWrong(t, wrong(store))
		})
	}
}
