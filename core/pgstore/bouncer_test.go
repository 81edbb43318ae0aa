package pgstore_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/pgserver"
	"github.com/go-idem/idem/internal/servicetest"
)

var queryModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
	pgx.QueryExecModeSimpleProtocol,
}

// pooled returns a pool through a PgBouncer in transaction mode.
func pooled(t *testing.T, bouncer *pgserver.Server, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	return newPool(t, bouncer, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
}

func TestStoreKeepsTheContractThroughPgBouncer(t *testing.T) {
	server := pgserver.Shared(t)
	pool := pooled(t, server.Bouncer(t, "transaction"), pgx.QueryExecModeCacheStatement) // the default of pgx
	require.NoError(t, pgstore.Migrate(ctx, pool))
	keepsTheContract(t, pgstore.New(pool, pgstore.ListenOn(newPool(t, server))))
}

// PgBouncer 1.18 gives each transaction any connection to the server, so a statement that one client has prepared is missing, or
// is that of another client. The calls of the store meet no such statement, in whatever mode pgx is.
func TestCallsThroughPgBouncerMeetNoStatementOfAnotherClient(t *testing.T) {
	server := pgserver.Shared(t)
	bouncer := server.Bouncer(t, "transaction")
	for _, mode := range queryModes {
		t.Run(mode.String(), func(t *testing.T) {
			pool := pooled(t, bouncer, mode)
			require.NoError(t, pgstore.Migrate(ctx, pool, pgstore.Schema(ownSchema())))
			require.NoError(t, pgstore.Migrate(ctx, pool))
			store := pgstore.New(pool)
			clients(160, func() {
				c := storetest.NewClaim(time.Minute, time.Hour)
				entry, err := store.Begin(ctx, c)
				assert.NoError(t, err)
				assert.Equal(t, driver.Claimed, entry.State)
				c.Fence = entry.Fence
				assert.NoError(t, store.Extend(ctx, c))
				assert.NoError(t, store.Complete(ctx, c, c.Key[:]))
				replayed, err := store.Begin(ctx, rival(c))
				assert.NoError(t, err)
				assert.Equal(t, c.Key[:], replayed.Outcome)
				seen, err := store.Look(ctx, c.Key)
				assert.NoError(t, err)
				assert.NoError(t, store.Scan(ctx, driver.Filter{Scope: c.Key[:driver.ScopeBytes]}, func(r driver.Record) bool {
					return assert.Equal(t, driver.Completed, r.State)
				}))
				assert.NoError(t, store.Forget(ctx, seen))
			})
		})
	}
}

// A handler's own statements are prepared as pgx is configured to. If that fails, the run has no effect and no outcome.
func TestATransactionThroughPgBouncerLeavesBothOrNeither(t *testing.T) {
	server := pgserver.Shared(t)
	bouncer := server.Bouncer(t, "transaction")
	for _, mode := range queryModes {
		t.Run(mode.String(), func(t *testing.T) {
			s := newService(t)
			pool := pooled(t, bouncer, mode)
			engine := servicetest.NewEngine(t, pgstore.New(pool))
			var kept, failed atomic.Int64
			clients(80, func() {
				_, err := engine.Do(ctx, servicetest.Order(random()), func(ctx context.Context) (*core.Response, error) {
					if err := pgstore.InTx(ctx, pool, pgx.TxOptions{}, s.effect); err != nil {
						return nil, err
					}
					return created()
				})
				if err == nil {
					kept.Add(1)
				} else {
					failed.Add(1)
				}
			})
			assert.EqualValues(t, kept.Load(), s.effects())
			if mode == pgx.QueryExecModeCacheStatement { // PgBouncer knows prepared statements since version 1.21
				t.Logf("%d of 80 requests failed", failed.Load())
				return
			}
			assert.Zero(t, failed.Load())
		})
	}
}

// A LISTEN through PgBouncer would be confirmed, and its notifications would reach other clients or nobody.
func TestWatchThroughPgBouncerIsRefusedAndTheEnginePolls(t *testing.T) {
	for _, poolMode := range []string{"transaction", "session"} {
		t.Run(poolMode, func(t *testing.T) {
			t.Parallel()
			server := pgserver.Shared(t)
			pool := pooled(t, server.Bouncer(t, poolMode), pgx.QueryExecModeExec)
			require.NoError(t, pgstore.Migrate(ctx, pool))
			var refused atomic.Int64
			engine := servicetest.NewEngine(t, pgstore.New(pool), func(c *core.Config) {
				c.Wait.Timeout = 20 * time.Second
				c.Hooks.StoreError = func(_ context.Context, e core.Event) {
					if assert.ErrorIs(t, e.Err, errors.ErrUnsupported) {
						refused.Add(1)
					}
				}
			})
			key, running, end, waited := random(), make(chan struct{}), make(chan struct{}), make(chan core.Result)
			go func() {
				_, err := engine.Do(ctx, servicetest.Order(key), func(context.Context) (*core.Response, error) {
					close(running)
					<-end
					return created()
				})
				assert.NoError(t, err)
			}()
			<-running
			go func() {
				result, err := engine.Do(ctx, servicetest.Order(key), func(context.Context) (*core.Response, error) { panic("a second run") })
				assert.NoError(t, err)
				waited <- result
			}()
			require.Eventually(t, func() bool { return refused.Load() > 0 }, 20*time.Second, time.Millisecond)
			close(end)
			result := <-waited
			assert.True(t, result.Replayed)
			assert.EqualValues(t, 1, refused.Load())
			assert.Zero(t, listeningChannels(t, pool), "a LISTEN was left on a connection that others use")
		})
	}
}

// listeningChannels returns on how many channels the four connections between PgBouncer and its server listen.
func listeningChannels(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	for range 4 {
		tx, err := pool.Begin(ctx) // holds one of the four
		require.NoError(t, err)
		defer tx.Rollback(ctx)
		var channels int
		require.NoError(t, tx.QueryRow(ctx, "SELECT count(*) FROM pg_listening_channels()").Scan(&channels))
		n += channels
	}
	return n
}
