package pgstore_test

import (
	"context"
	"sync"
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
	"github.com/go-idem/idem/internal/storecheck"
)

func keepsTheContract(t *testing.T, store driver.Store) {
	storetest.Run(t, func(testing.TB) storetest.Harness {
		return storetest.Harness{Store: store, Advance: time.Sleep}
	})
}

func TestStoreKeepsTheContract(t *testing.T) {
	store, _ := newStore(t)
	keepsTheContract(t, store)
}

// Above READ COMMITTED calls on one key give way to each other; nobody hears of it.
func TestStoreKeepsTheContractAtEveryDefaultIsolationLevel(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			store, pool := newStore(t, func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
			})
			var is string
			require.NoError(t, pool.QueryRow(ctx, "SHOW transaction_isolation").Scan(&is))
			require.Equal(t, level, is)
			keepsTheContract(t, store)
		})
	}
}

// A pooler that shares connections between transactions needs a mode without prepared statements.
func TestStoreKeepsTheContractInEveryModeOfItsDriver(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			store, _ := newStore(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			c := claimed(t, store, func(c *driver.Claim) { c.Steps = true })
			require.NoError(t, store.Checkpoint(ctx, c, "\x00step", []byte("\x00result")))
			steps, err := store.Checkpoints(ctx, c)
			require.NoError(t, err)
			assert.Equal(t, map[string][]byte{"\x00step": []byte("\x00result")}, steps)
			_, err = store.Sweep(ctx, 10)
			require.NoError(t, err)
			keepsTheContract(t, store)
		})
	}
}

func TestPostgresAndMemoryAnswerRandomSequencesAlike(t *testing.T) {
	store, _ := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 32 })
	storecheck.AnswersAsMemoryInRealTime(t, store, 500, 20_000)
}

func TestAManyTimesRepeatedRequestRunsOnceOverManyProcesses(t *testing.T) {
	server, key := pgserver.Shared(t), random()
	const processes, clients = 4, 25
	var runs, kept int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range processes {
		pool := newPool(t, server)
		require.NoError(t, pgstore.Migrate(ctx, pool))
		engine := servicetest.NewEngine(t, pgstore.New(pool))
		for range clients {
			wg.Go(func() {
				for {
					result, err := engine.Do(ctx, servicetest.Order(key), func(context.Context) (*core.Response, error) {
						mu.Lock()
						defer mu.Unlock()
						runs++
						return created()
					})
					if !assert.NoError(t, err) || result.Problem != "" && !assert.Equal(t, "in-progress", result.Problem) {
						return
					}
					if result.Problem == "" {
						mu.Lock()
						defer mu.Unlock()
						assert.Equal(t, "made", string(result.Response.Body))
						kept++
						return
					}
				}
			})
		}
	}
	wg.Wait()
	assert.Equal(t, 1, runs)
	assert.Equal(t, processes*clients, kept)
}

// Sixteen owners begin, extend and fail as they like. Whoever holds the claim is alone with it, and its fence is higher than those
// before.
func TestCallsOnOneKeyNeverInterleave(t *testing.T) {
	store, _ := newStore(t)
	storecheck.NeverInterleave(t, 16, 40, func(int) driver.Store { return store })
}

func TestAPoolWithoutAConnectionLeftIsAnErrorWithinTheContext(t *testing.T) {
	store, pool := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	taken, err := pool.Acquire(ctx)
	require.NoError(t, err)
	c := storetest.NewClaim(time.Minute, time.Hour)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = store.Begin(short, c)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = store.Watch(short, c.Key, nothing)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	taken.Release()
	assert.Equal(t, 1, begin(t, store, rival(c)).Attempt, "the begin without a connection left nothing behind")
}

func TestAStoreOutlivesItsConnections(t *testing.T) {
	store, pool := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	c := claimed(t, store)
	aside := newPool(t, pgserver.Shared(t))
	execute(t, aside, "SELECT pg_terminate_backend($1::int)", backend(t, pool))
	if err := store.Extend(ctx, c); err != nil {
		require.NotErrorIs(t, err, driver.ErrLost, "a connection that is gone says nothing about the claim")
	}
	require.NoError(t, store.Extend(ctx, c))
}

// backend is the process id of the connection of a pool that has one.
func backend(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return count(t, pool, "SELECT pg_backend_pid()")
}

func TestAStoreOutlivesItsServer(t *testing.T) {
	server := pgserver.Start(t)
	pool := newPool(t, server)
	require.NoError(t, pgstore.Migrate(ctx, pool))
	store := pgstore.New(pool)
	done, running := claimed(t, store), claimed(t, store)
	require.NoError(t, store.Complete(ctx, done, []byte("kept")))
	server.Kill()
	_, err := store.Begin(ctx, rival(done))
	require.Error(t, err)
	server.Restart(t)
	pool.Reset()
	assert.Equal(t, "kept", string(begin(t, store, rival(done)).Outcome))
	assert.NoError(t, store.Extend(ctx, running))
}

func TestBadOptionsPanicAtStartUp(t *testing.T) {
	pool := newPool(t, pgserver.Shared(t))
	assert.PanicsWithError(t, "pgstore: New: pool is nil; pass what pgxpool.New returns", func() { pgstore.New(nil) })
	for _, name := range []string{"", "Upper", "1st", `quo"te`, "a'b", "a.b", string(make([]byte, 51))} {
		assert.Panics(t, func() { pgstore.New(pool, pgstore.Schema(name)) }, name)
		assert.ErrorContains(t, pgstore.Migrate(ctx, pool, pgstore.Schema(name)), "Schema", name)
	}
}
