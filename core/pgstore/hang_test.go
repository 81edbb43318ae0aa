package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/core/pgstore/internal/pgtest"
	"github.com/go-idem/idem/core/storetest"
)

const (
	bound = 300 * time.Millisecond
	slack = 600 * time.Millisecond // of a machine that is busy
)

// inTime calls f, which must come back within its context's time, and by a while later than that where it has a transaction
// to roll back.
func inTime(t *testing.T, name string, later time.Duration, f func(context.Context)) {
	t.Helper()
	short, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	began := time.Now()
	f(short)
	assert.Less(t, time.Since(began), bound+later+slack, name)
}

// Whatever is asked of a server that does not answer ends with its context, whether there is a connection or none.
func TestNothingHangsLongerThanItsContext(t *testing.T) {
	for _, warm := range []bool{true, false} {
		network := &network{}
		pool := pgtest.Shared(t).Pool(t, network.use)
		require.NoError(t, pgstore.Migrate(ctx, pgtest.Shared(t).Pool(t)))
		store := pgstore.New(pool)
		c := storetest.NewClaim(time.Minute, time.Hour)
		failed := func(err error) { t.Helper(); assert.Error(t, err) }
		for name, call := range map[string]func(context.Context){
			"begin":       func(ctx context.Context) { _, err := store.Begin(ctx, c); failed(err) },
			"extend":      func(ctx context.Context) { failed(store.Extend(ctx, c)) },
			"complete":    func(ctx context.Context) { failed(store.Complete(ctx, c, nil)) },
			"fail":        func(ctx context.Context) { failed(store.Fail(ctx, c, driver.Failure{})) },
			"checkpoint":  func(ctx context.Context) { failed(store.Checkpoint(ctx, c, "step", nil)) },
			"checkpoints": func(ctx context.Context) { _, err := store.Checkpoints(ctx, c); failed(err) },
			"sweep":       func(ctx context.Context) { _, err := store.Sweep(ctx, 10); failed(err) },
			"watch":       func(ctx context.Context) { _, err := store.Watch(ctx, c.Key, nothing); failed(err) },
			"migrate":     func(ctx context.Context) { failed(pgstore.Migrate(ctx, pool)) },
			"inTx": func(ctx context.Context) {
				failed(pgstore.InTx(ctx, pool, pgx.TxOptions{}, func(pgx.Tx) error { t.Error("in a transaction"); return nil }))
			},
		} {
			if warm {
				require.NoError(t, pool.Ping(ctx))
			} else {
				pool.Reset()
			}
			network.hole.Store(true)
			inTime(t, name, 0, call)
			network.heal()
		}
	}
}

// A run with a transaction, whose connection falls silent at any moment, ends with its context and a second more.
func TestARunWithATransactionDoesNotHangInSilence(t *testing.T) {
	ends := map[string]func(*service, context.Context, driver.Claim){
		"complete": func(s *service, ctx context.Context, c driver.Claim) {
			assert.Error(s.tb, s.store.Complete(ctx, c, nil))
		},
		"fail": func(s *service, ctx context.Context, c driver.Claim) {
			assert.Error(s.tb, s.store.Fail(ctx, c, driver.Failure{}))
		},
		"a second InTx": func(s *service, ctx context.Context, _ driver.Claim) { assert.Error(s.tb, s.inTx(ctx)) },
		"CompleteTx": func(s *service, ctx context.Context, c driver.Claim) {
			assert.Error(s.tb, pgstore.InTx(ctx, s.pool, pgx.TxOptions{}, func(tx pgx.Tx) error { return s.store.CompleteTx(ctx, tx, c, nil) }))
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			network := &network{}
			s := newServiceOn(t, pgtest.Shared(t), network)
			_, _ = s.do(func(running context.Context) (*core.Response, error) {
				require.NoError(t, s.inTx(running))
				run, _ := core.FromContext(running)
				c := claimOf(t, s, run)
				network.hole.Store(true)
				short, cancel := context.WithTimeout(running, bound)
				defer cancel()
				began := time.Now()
				end(s, short, c)
				assert.Less(t, time.Since(began), bound+time.Second+slack)
				network.heal()
				return nil, errTest
			})
			s.neither()
		})
	}
}

// TestAnEngineIsBoundByItsStoreTimeout: a handler's transaction hangs when the run ends, however it does.
func TestARunEndsInSilenceWithinItsStoreTimeout(t *testing.T) {
	for name, status := range map[string]int{"an outcome": 201, "a failure": 500} {
		t.Run(name, func(t *testing.T) {
			network := &network{}
			s := newServiceOn(t, pgtest.Shared(t), network, func(c *core.Config) {
				c.Lease.Duration, c.Limits.StoreTimeout = 2*time.Second, bound
			})
			var ended time.Time
			s.send(s.ending(func(context.Context) (*core.Response, error) {
				network.hole.Store(true)
				ended = time.Now()
				return &core.Response{Status: status}, nil
			}))
			assert.Less(t, time.Since(ended), bound+slack)
			network.heal()
			s.together()
		})
	}
}

// TestWatchersOfASilentServerAreFreeToGo: stop does not wait, and who comes later is not held by who came before.
func TestWatchersOfASilentServerAreFreeToGo(t *testing.T) {
	for _, moment := range []struct {
		name string
		up   bool // the subscription stood before
	}{{"before the subscription stands", false}, {"when it stands", true}} {
		t.Run(moment.name, func(t *testing.T) {
			network := &network{}
			store, _ := newStore(t, network.use)
			store.SetIdleTimeout(50 * time.Millisecond)
			store.SetReplyTimeout(100 * time.Millisecond)
			c, woken := claimed(t, store), newWakes()
			if moment.up {
				watch(t, store, c.Key, woken)
			}
			network.hole.Store(true)
			for range 3 {
				began := time.Now()
				short, cancel := context.WithTimeout(ctx, bound)
				stop, err := store.Watch(short, c.Key, nothing)
				cancel()
				if err == nil {
					stop()
				}
				assert.Less(t, time.Since(began), bound+slack)
			}
			stays := newWakes()
			if !moment.up { // somebody who waits for as long as it takes
				go func() {
					for {
						if stop, err := store.Watch(ctx, c.Key, stays.wake); err == nil {
							defer stop()
							break
						}
					}
					woken <- struct{}{}
					<-stays
					woken <- struct{}{}
				}()
			}
			require.Eventually(t, func() bool { return network.swallowed() > 0 }, 20*time.Second, time.Millisecond)
			network.hole.Store(false) // for other connections; this one says nothing more, and does not break
			defer network.heal()
			woken.wait(t) // it is made anew, also when the first try fell silent
			if !moment.up {
				await(t, store, c)
				require.NoError(t, store.Complete(ctx, c, nil))
				woken.wait(t)
			}
		})
	}
}

// A pool all of whose connections are taken is no reason to hang.
func TestABusyPoolIsAnErrorWithinTheContext(t *testing.T) {
	store, pool := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	taken, err := pool.Acquire(ctx)
	require.NoError(t, err)
	defer taken.Release()
	for name, call := range map[string]func(context.Context) error{
		"sweep":   func(ctx context.Context) error { _, err := store.Sweep(ctx, 1); return err },
		"migrate": func(ctx context.Context) error { return pgstore.Migrate(ctx, pool) },
		"watch":   func(ctx context.Context) error { _, err := store.Watch(ctx, [32]byte{}, nothing); return err },
		"inTx": func(ctx context.Context) error {
			return pgstore.InTx(ctx, pool, pgx.TxOptions{}, func(pgx.Tx) error { return nil })
		},
	} {
		inTime(t, name, 0, func(ctx context.Context) { assert.ErrorIs(t, call(ctx), context.DeadlineExceeded, name) })
	}
}
