package pgstore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/core/storetest"
)

// conflicts counts the statements of a pool that gave way to another transaction.
type conflicts struct{ n atomic.Int64 }

func (c *conflicts) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (c *conflicts) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if e, ok := errors.AsType[*pgconn.PgError](data.Err); ok && e.Code == "40001" {
		c.n.Add(1)
	}
}

// clients runs f in eight goroutines, n times in all.
func clients(n int, f func()) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range n / 8 {
				f()
			}
		})
	}
	wg.Wait()
}

// A role's default isolation level is the service's affair: verbs on different keys have nothing to do with each other.
func TestVerbsOnDifferentKeysNeverGiveWayAtAnyDefaultIsolationLevel(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			seen := &conflicts{}
			store, _ := newStore(t, func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
				c.ConnConfig.Tracer = seen
			})
			clients(400, func() {
				c := storetest.NewClaim(time.Minute, time.Hour)
				entry, err := store.Begin(ctx, c)
				assert.NoError(t, err)
				c.Fence = entry.Fence
				assert.NoError(t, store.Extend(ctx, c))
				assert.NoError(t, store.Checkpoint(ctx, c, "step", nil))
				assert.NoError(t, store.Complete(ctx, c, nil))
			})
			assert.Zero(t, seen.n.Load())
		})
	}
}

func TestUnrelatedTransactionsAtReadCommittedAreNeverRefusedAtAnyDefaultIsolationLevel(t *testing.T) {
	s := newService(t)
	pool := s.server.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable" })
	engine := newEngine(t, pgstore.New(pool))
	clients(200, func() {
		result, err := engine.Do(ctx, request(random()), func(ctx context.Context) (*core.Response, error) {
			if err := pgstore.InTx(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, s.effect); err != nil {
				return nil, err
			}
			return created()
		})
		assert.NoError(t, err)
		assert.Empty(t, result.Problem)
	})
	assert.Equal(t, 200, s.effects())
}
