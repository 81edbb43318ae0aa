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
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/servicetest"
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

// A role's default isolation level is the service's affair: calls on different keys have nothing to do with each other.
func TestCallsOnDifferentKeysNeverGiveWayAtAnyDefaultIsolationLevel(t *testing.T) {
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
	pool := newPool(t, s.server, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable" })
	engine := servicetest.NewEngine(t, pgstore.New(pool))
	clients(200, func() {
		result, err := engine.Do(ctx, servicetest.Order(random()), func(ctx context.Context) (*core.Response, error) {
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

// The transaction of a handler that names no level has the role's. If it must give way, the run has no effect and the client
// sends the request again; nobody is told of a serialization failure, and Sweep meets none.
func TestManyRequestsForOneKeyHaveOneEffectAtAnyDefaultIsolationLevel(t *testing.T) {
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			s, seen := newService(t), &conflicts{}
			pool := newPool(t, s.server, func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
				c.ConnConfig.Tracer = seen
			})
			require.NoError(t, pgstore.Migrate(ctx, pool, pgstore.Schema(ownSchema())))
			store := pgstore.New(pool)
			engine := servicetest.NewEngine(t, store, func(c *core.Config) { c.Wait.Timeout = 20 * time.Second })
			const keys, perKey = 10, 8
			var wg sync.WaitGroup
			for i := range keys * perKey {
				wg.Go(func() { s.insist(engine, pool, s.key+string(rune('a'+i%keys))) })
			}
			wg.Go(func() {
				for range 20 {
					_, err := store.Sweep(ctx, 100)
					assert.NoError(t, err)
				}
			})
			wg.Wait()
			assert.Equal(t, keys, count(t, s.aside, "SELECT count(*) FROM effect WHERE key LIKE $1 || '_'", s.key))
			assert.Equal(t, keys, count(t, s.aside, "SELECT count(DISTINCT key) FROM effect WHERE key LIKE $1 || '_'", s.key))
			t.Logf("%d runs of %d keys, %d statements gave way", s.runs.Load(), keys, seen.n.Load())
			if level == "read committed" {
				assert.EqualValues(t, keys, s.runs.Load())
			} else {
				assert.GreaterOrEqual(t, seen.n.Load(), int64(keys), "the first run of each key gives way")
			}
		})
	}
}

// insist sends a request until it has a response. Only a transaction that gave way is a reason to send it again.
func (s *service) insist(engine *core.Engine, pool *pgxpool.Pool, key string) {
	for range 100 {
		result, err := engine.Do(ctx, servicetest.Order(key), func(ctx context.Context) (*core.Response, error) {
			s.runs.Add(1)
			return s.orderAs(ctx, pool, key)
		})
		switch {
		case err == nil && result.Problem == "":
			assert.Equal(s.tb, "made", string(result.Response.Body))
			return
		case err != nil && !isSerializationFailure(err), err == nil && result.Problem != "claim-lost":
			assert.Fail(s.tb, "refused", "%v %v", result.Problem, err)
			return
		}
	}
	assert.Fail(s.tb, "a hundred requests had no response")
}

// orderAs is a handler with one effect of the key. In the first run of a key it changes the record as a renewal of the lease
// does.
func (s *service) orderAs(ctx context.Context, pool *pgxpool.Pool, key string) (*core.Response, error) {
	err := pgstore.InTx(ctx, pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect VALUES ($1)", key)
		return err
	})
	if err != nil {
		return nil, err
	}
	if run, _ := core.FromContext(ctx); run.Attempt == 1 {
		execute(s.tb, s.aside, "UPDATE idem.record SET lease_end = lease_end + 1 WHERE fence = $1", run.Fence)
	}
	return created()
}

// isSerializationFailure reports whether err is that of a statement of the handler that gave way to another transaction.
func isSerializationFailure(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "40001"
}
