package pgstore_test

import (
	"context"
	"fmt"
	"maps"
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
	"github.com/go-idem/idem/internal/badnet"
	"github.com/go-idem/idem/internal/hangtest"
	"github.com/go-idem/idem/internal/pgserver"
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

// hanging is a store whose server does not reply.
type hanging struct {
	pool  *pgxpool.Pool
	store *pgstore.Store
	claim driver.Claim
}

// calls returns all exported functions that take a context, by their names. TestARunWithATransactionDoesNotHangInSilence has those
// within a run. The functions without a value call no server.
func (h *hanging) calls() map[string]func(context.Context) error {
	calls := hangtest.StoreCalls(h.store, h.claim)
	maps.Copy(calls, map[string]func(context.Context) error{
		"Store.CompleteTx": func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error { return h.store.CompleteTx(ctx, tx, h.claim, nil) })
		},
		"Store.Sweep": func(ctx context.Context) error {
			_, err := h.store.Sweep(ctx, 10)
			return err
		},
		"Store.Watch": func(ctx context.Context) error { return hangtest.Watch(ctx, h.store, h.claim.Key) },
		"Check": func(ctx context.Context) error {
			_, err := pgstore.Check(ctx, h.pool, pgstore.ListenOn(h.pool))
			return err
		},
		"SchemaVersion": func(ctx context.Context) error {
			_, _, err := pgstore.SchemaVersion(ctx, h.pool)
			return err
		},
		"Migrate": func(ctx context.Context) error { return pgstore.Migrate(ctx, h.pool) },
		"InTx": func(ctx context.Context) error {
			return pgstore.InTx(ctx, h.pool, pgx.TxOptions{}, func(pgx.Tx) error { return errTest })
		},
		"Store.OpenSession":   nil,
		"Store.MayCheckpoint": nil,
		"handlerTx.Commit":    nil, // returns an error at once
		"handlerTx.Rollback":  nil, // is that of pgx
	})
	return calls
}

func TestTheListOfCallsThatCanHangIsComplete(t *testing.T) {
	hangtest.RequireAll(t, ".", new(hanging).calls())
}

// Whatever is asked of a server that does not reply, or stops in the middle of a reply, ends with its context, whether there is a
// connection or none. No goroutine is left when the server is back.
func TestNothingHangsLongerThanItsContext(t *testing.T) {
	require.NoError(t, pgstore.Migrate(ctx, newPool(t, pgserver.Shared(t))))
	t.Run("hanging", func(t *testing.T) {
		for fault, faults := range map[string]badnet.Faults{"no reply": {Hole: true}, "half a reply": {HalfReply: true}} {
			for _, warm := range []bool{true, false} {
				for name, call := range new(hanging).calls() {
					if call != nil {
						t.Run(fmt.Sprintf("%s, %s, with a connection: %v", name, fault, warm), func(t *testing.T) {
							t.Parallel()
							hang(t, faults, warm, name)
						})
					}
				}
			}
		}
	})
	hangtest.NoGoroutine(t, 10*time.Second, "github.com/go-idem/idem/core/pgstore", "github.com/jackc/pgx/v5/pgconn")
}

// hang makes one call, which has this name, on a network of its own.
func hang(t *testing.T, faults badnet.Faults, warm bool, name string) {
	network := badnet.New(1)
	pool := newPool(t, pgserver.Shared(t), func(c *pgxpool.Config) { c.ConnConfig.DialFunc, c.MaxConns = network.Dial, 2 })
	if warm {
		require.NoError(t, pool.Ping(ctx))
	}
	network.Set(faults)
	defer func() { // pgx would wait 15 seconds for the end of a statement before it closes a connection
		network.Set(badnet.Faults{})
		network.Reset()
	}()
	h := &hanging{pool, pgstore.New(pool), storetest.NewClaim(time.Minute, time.Hour)}
	hangtest.EndInTime(t, 4, bound, h.calls()[name])
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
			s := newServiceOn(t, pgserver.Shared(t), network)
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
			s := newServiceOn(t, pgserver.Shared(t), network, func(c *core.Config) {
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
