package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/blobs"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/internal/pgserver"
	"github.com/go-idem/idem/internal/servicetest"
)

var errTest = errors.New("test")

// both checks that the effect and the outcome are there, once, and that a retry replays them.
func (s *service) both() {
	s.tb.Helper()
	s.idle()
	assert.Equal(s.tb, 1, s.effects(), "effects")
	assert.True(s.tb, s.replays(), "the outcome is not there")
}

// neither checks that neither effect nor outcome is there.
func (s *service) neither() {
	s.tb.Helper()
	s.idle()
	assert.Zero(s.tb, s.effects(), "effects")
	assert.False(s.tb, s.replays(), "there is an outcome")
}

// together checks that effect and outcome are both there or both not, now and after the client's retries.
func (s *service) together() {
	s.tb.Helper()
	assert.Equal(s.tb, s.replays(), s.effects() == 1, "one of effect and outcome is there without the other")
	s.retried()
}

// retried checks that the client's retries, as many as it takes, end with one effect and one outcome.
func (s *service) retried() {
	s.tb.Helper()
	require.Eventually(s.tb, func() bool {
		result, err := s.do(s.order)
		return err == nil && result.Problem == "" && result.Response.Status == 201
	}, 30*time.Second, 50*time.Millisecond)
	s.both()
}

func TestEffectAndOutcomeAreThereTogether(t *testing.T) {
	s := newService(t)
	result := s.send(func(ctx context.Context) (*core.Response, error) {
		require.NoError(t, s.inTx(ctx))
		assert.Zero(t, s.effects(), "before the outcome nothing is to be seen")
		return created()
	})
	assert.Equal(t, 201, result.Response.Status)
	s.both()
	assert.True(t, s.send(s.order).Replayed)
	assert.EqualValues(t, 1, s.runs.Load())
}

// framework is a context like *gin.Context: of the run's it knows what the adapter has put there.
type framework struct {
	context.Context
	run context.Context
}

func (f framework) Value(key any) any {
	if key == driver.ContextKey {
		return f.run
	}
	return nil
}

func TestEffectAndOutcomeAreThereTogetherInAFrameworksOwnContext(t *testing.T) { // FRM-05
	s := newService(t)
	result := s.send(func(ctx context.Context) (*core.Response, error) {
		require.NoError(t, s.inTx(framework{context.Background(), ctx}))
		assert.Zero(t, s.effects(), "before the outcome nothing is to be seen")
		return created()
	})
	assert.Equal(t, 201, result.Response.Status)
	s.both()
}

// order with an end of its own.
func (s *service) ending(end handler) handler {
	return func(ctx context.Context) (*core.Response, error) {
		if err := s.inTx(ctx); err != nil {
			return nil, err
		}
		return end(ctx)
	}
}

func TestARunThatEndsWithoutAnOutcomeRollsItsEffectsBack(t *testing.T) {
	status := func(code int) handler {
		return func(context.Context) (*core.Response, error) { return &core.Response{Status: code}, nil }
	}
	for name, end := range map[string]handler{
		"a status to retry":           status(503),
		"a status that frees the key": status(429),
		"an error":                    func(context.Context) (*core.Response, error) { return nil, errTest },
		"a panic":                     func(context.Context) (*core.Response, error) { panic(errTest) },
		"an unknown outcome": func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, core.LeaveUnknown)
			return created()
		},
	} {
		for asked, resolver := range map[string]func(*core.Config){
			"":                      func(*core.Config) {},
			" with unknown refused": func(c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown },
		} {
			t.Run(name+asked, func(t *testing.T) {
				s := newService(t, resolver)
				func() {
					defer func() { _ = recover() }()
					_, _ = s.do(s.ending(end))
				}()
				assert.EqualValues(t, 1, s.runs.Load())
				s.neither()
			})
		}
	}
}

// A 400 that is stored is an outcome like any other, so the rows that InTx has written are committed with it.
func TestEffectsAreCommittedWithAStored400(t *testing.T) {
	s := newService(t)
	refused := func(context.Context) (*core.Response, error) { return &core.Response{Status: 400}, nil }
	assert.Equal(t, 400, s.send(s.ending(refused)).Response.Status)
	s.both()
}

func TestAnInTxThatFailsLeavesTheRunWithoutEffects(t *testing.T) {
	for _, test := range []struct {
		name  string
		f     func(context.Context, *service, pgx.Tx) error
		error string
	}{
		{"an error", func(_ context.Context, s *service, tx pgx.Tx) error { return errors.Join(s.effect(tx), errTest) }, "test"},
		{"an error of a statement that is swallowed", func(ctx context.Context, s *service, tx pgx.Tx) error {
			err := s.effect(tx)
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return err
		}, "commit unexpectedly resulted in rollback"},
		{"rows that are left open", func(ctx context.Context, s *service, tx pgx.Tx) error {
			err := s.effect(tx)
			_, queried := tx.Query(ctx, "SELECT 1")
			return errors.Join(err, queried)
		}, "has not closed the rows of a query"},
		{"a commit of its own", func(ctx context.Context, s *service, tx pgx.Tx) error {
			return errors.Join(s.effect(tx), tx.Commit(ctx))
		}, "the run ends the transaction"},
		{"a rollback of its own", func(ctx context.Context, s *service, tx pgx.Tx) error {
			defer rollBack(tx)
			return s.effect(tx)
		}, "the run ends the transaction"},
		{"a panic", func(_ context.Context, s *service, tx pgx.Tx) error { panic(errors.Join(s.effect(tx), errTest)) }, "test"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newService(t)
			result := s.send(func(ctx context.Context) (*core.Response, error) {
				var err error
				func() {
					defer func() {
						if p := recover(); p != nil {
							err = p.(error)
						}
					}()
					err = pgstore.InTx(ctx, s.pool, pgx.TxOptions{}, func(tx pgx.Tx) error { return test.f(ctx, s, tx) })
				}()
				assert.ErrorContains(t, err, test.error)
				s.idle()
				return &core.Response{Status: 422}, nil
			})
			assert.Equal(t, 422, result.Response.Status)
			assert.Zero(t, s.effects())
			assert.True(t, s.replays(), "the answer is kept all the same")
		})
	}
}

func TestAnInTxWithoutAConnectionIsAnError(t *testing.T) {
	s := newService(t)
	s.send(func(ctx context.Context) (*core.Response, error) {
		over, cancel := context.WithCancel(ctx)
		cancel()
		assert.ErrorIs(t, s.inTx(over), context.Canceled)
		return s.order(ctx)
	})
	s.both()
}

// TestTheEndOfARunNeedsNoConnectionBesideItsTransaction: when a pool has no other left, runs end all the same.
func TestTheEndOfARunNeedsNoConnectionBesideItsTransaction(t *testing.T) {
	s := newService(t)
	pool := newPool(t, s.server, func(c *pgxpool.Config) { c.MaxConns = 1 })
	s.pool, s.Engine = pool, servicetest.NewEngine(t, pgstore.New(pool))
	result := s.send(s.ending(func(context.Context) (*core.Response, error) { return &core.Response{Status: 503}, nil }))
	assert.Equal(t, 503, result.Response.Status)
	assert.Equal(t, 201, s.send(s.order).Response.Status, "the failure is recorded")
	s.both()
}

func TestAnInTxCanBeTriedAgain(t *testing.T) {
	s := newService(t)
	s.send(func(ctx context.Context) (*core.Response, error) {
		require.ErrorIs(t, pgstore.InTx(ctx, s.pool, pgx.TxOptions{}, func(pgx.Tx) error { return errTest }), errTest)
		return s.order(ctx)
	})
	s.both()
}

func TestASecondInTxGoesOnInTheTransaction(t *testing.T) {
	s := newService(t)
	s.send(func(ctx context.Context) (*core.Response, error) {
		require.NoError(t, s.inTx(ctx))
		err := pgstore.InTx(ctx, s.pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
			assert.NoError(t, s.effect(tx))
			var seen int
			assert.NoError(t, tx.QueryRow(ctx, "SELECT count(*) FROM effect WHERE key = $1", s.key).Scan(&seen))
			assert.Equal(t, 2, seen)
			_, err := tx.Exec(ctx, "SELECT 1/0")
			return err
		})
		require.Error(t, err, "its own effect is undone")
		assert.EqualValues(t, 1, s.pool.Stat().AcquiredConns())
		return created()
	})
	s.both()
}

func TestARunHasOneInTxAtATime(t *testing.T) {
	s := newService(t)
	s.send(func(ctx context.Context) (*core.Response, error) {
		err := pgstore.InTx(ctx, s.pool, pgx.TxOptions{}, func(pgx.Tx) error { return s.inTx(ctx) })
		assert.ErrorContains(t, err, "another InTx of this run has not returned")
		return created()
	})
}

// TestAnInTxThatIsAtWorkWhenTheRunEndsHasNoEffects: a goroutine of the handler's has outlived it.
func TestAnInTxThatIsAtWorkWhenTheRunEndsHasNoEffects(t *testing.T) {
	s := newService(t)
	entered, letGo, done := make(chan struct{}), make(chan struct{}), make(chan error)
	result := s.send(func(ctx context.Context) (*core.Response, error) {
		go func() {
			done <- pgstore.InTx(ctx, s.pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
				close(entered)
				<-letGo
				return s.effect(tx)
			})
		}()
		<-entered
		return created()
	})
	assert.Equal(t, "claim-lost", result.Problem, "an answer whose effects are not there is not the outcome")
	close(letGo)
	assert.ErrorIs(t, <-done, driver.ErrLost)
	s.neither()
}

func TestAfterTheRunAnInTxIsLost(t *testing.T) {
	s := newService(t)
	var of context.Context
	s.send(func(ctx context.Context) (*core.Response, error) {
		of = ctx
		return created()
	})
	assert.ErrorIs(t, s.inTx(of), driver.ErrLost)
	assert.Zero(t, s.effects())
}

func TestOutsideOfARunAnInTxIsATransaction(t *testing.T) {
	s := newService(t)
	require.NoError(t, s.inTx(ctx))
	assert.Equal(t, 1, s.effects())
	_, err := s.Do(ctx, servicetest.Order(""), nil)
	require.NoError(t, err)
	err = pgstore.InTx(ctx, s.pool, pgx.TxOptions{}, func(tx pgx.Tx) error { return errors.Join(s.effect(tx), errTest) })
	assert.ErrorIs(t, err, errTest)
	assert.Equal(t, 1, s.effects())
	s.idle()
}

func TestAnInTxIsRefusedInARunWhoseOutcomeIsKeptElsewhere(t *testing.T) {
	s := newService(t)
	elsewhere := servicetest.NewEngine(t, memstore.New())
	refused := func(ctx context.Context) (*core.Response, error) {
		assert.ErrorContains(t, s.inTx(ctx), "does not keep its records in a pgstore.Store")
		return created()
	}
	_, err := elsewhere.Do(ctx, servicetest.Order(s.key), refused)
	require.NoError(t, err)
	s.send(func(ctx context.Context) (*core.Response, error) { // a run within a run
		_, err := elsewhere.Do(ctx, servicetest.Order(random()), refused)
		require.NoError(t, err)
		return s.order(ctx)
	})
	s.both()
}

func TestARunWithinARunHasATransactionOfItsOwn(t *testing.T) {
	outer, inner := newService(t), newService(t)
	_, err := outer.do(outer.ending(func(ctx context.Context) (*core.Response, error) {
		result, err := inner.Do(ctx, servicetest.Order(inner.key), inner.order)
		require.NoError(t, err)
		assert.Equal(t, 201, result.Response.Status)
		return nil, errTest
	}))
	assert.ErrorIs(t, err, errTest)
	inner.both()
	outer.neither()
}

func TestACheckpointIsRefusedOnceTheTransactionIsOpen(t *testing.T) {
	s := newService(t)
	s.send(func(ctx context.Context) (*core.Response, error) {
		run, _ := core.FromContext(ctx)
		c := claimOf(t, s, run)
		require.NoError(t, s.store.Checkpoint(ctx, c, "before", nil))
		require.NoError(t, s.inTx(ctx))
		assert.ErrorContains(t, s.store.Checkpoint(ctx, c, "after", nil), "before the transaction begins")
		found, err := s.store.Checkpoints(ctx, c)
		assert.NoError(t, err)
		assert.Len(t, found, 1)
		return created()
	})
	s.both()
}

func TestAStepIsRefusedBeforeItsEffectOnceTheTransactionIsOpen(t *testing.T) {
	s := newService(t)
	did := 0
	step := func(context.Context) (int, error) { did++; return did, nil }
	began := time.Now()
	s.send(func(ctx context.Context) (*core.Response, error) {
		_, err := core.Step(ctx, "before", step)
		require.NoError(t, err)
		require.Error(t, pgstore.InTx(ctx, s.pool, pgx.TxOptions{}, func(pgx.Tx) error { return errTest }))
		_, err = core.Step(ctx, "after a transaction that was rolled back", step)
		require.NoError(t, err)

		require.NoError(t, s.inTx(ctx))
		_, err = core.Step(ctx, "after", step)
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, "do steps before the transaction begins")
		assert.Equal(t, 2, did)
		kept, err := core.Step(ctx, "before", step)
		assert.NoError(t, err, "what is kept already")
		assert.Equal(t, 1, kept)
		return created()
	})
	assert.Less(t, time.Since(began), 4*time.Second, "nothing is tried again for StoreTimeout, which is 5 s")
	s.both()
}

// A step that opens the transaction itself: nothing can be asked before, but its effect is undone with the run.
func TestAStepWithTheTransactionInItIsAnErrorAtOnce(t *testing.T) {
	s := newService(t)
	began := time.Now()
	_, err := s.do(func(ctx context.Context) (*core.Response, error) {
		if _, err := core.Step(ctx, "charge", func(ctx context.Context) (int, error) { return 1, s.inTx(ctx) }); err != nil {
			return nil, err
		}
		return created()
	})
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "charge")
	assert.Less(t, time.Since(began), 4*time.Second)
	s.neither()
	s.together()
}

// An unprotected run has no claim that a transaction could join.
func TestInAnUnprotectedRunAnInTxIsATransaction(t *testing.T) {
	s := newService(t)
	network := &network{}
	network.down.Store(true)
	away := servicetest.NewEngine(t, pgstore.New(newPool(t, s.server, network.use)), func(c *core.Config) {
		c.DangerouslyFailOpen, c.Lease.Duration, c.Limits.StoreTimeout = true, time.Second, 100*time.Millisecond
	})
	result, err := away.Do(ctx, servicetest.Order(random()), func(ctx context.Context) (*core.Response, error) {
		run, _ := core.FromContext(ctx)
		assert.True(t, run.Unprotected)
		assert.NoError(t, s.inTx(ctx))
		assert.Equal(t, 1, s.effects(), "committed when it returns")
		assert.ErrorIs(t, pgstore.InTx(ctx, s.pool, pgx.TxOptions{}, func(tx pgx.Tx) error { return errors.Join(s.effect(tx), errTest) }), errTest)
		assert.Equal(t, 1, s.effects())
		return created()
	})
	require.NoError(t, err)
	assert.Equal(t, 201, result.Response.Status)
	s.idle()
}

// An unprotected run inside a run is not the outer one: its effects stay when the outer run's are undone.
func TestAnUnprotectedRunInsideARunDoesNotJoinItsTransaction(t *testing.T) {
	outer, inner := newService(t), newService(t)
	network := &network{}
	network.down.Store(true)
	away := servicetest.NewEngine(t, pgstore.New(newPool(t, inner.server, network.use)), func(c *core.Config) {
		c.DangerouslyFailOpen, c.Lease.Duration, c.Limits.StoreTimeout = true, time.Second, 100*time.Millisecond
	})
	_, err := outer.do(outer.ending(func(ctx context.Context) (*core.Response, error) {
		_, err := away.Do(ctx, servicetest.Order(inner.key), inner.order)
		require.NoError(t, err)
		return nil, errTest
	}))
	assert.ErrorIs(t, err, errTest)
	outer.neither()
	assert.Equal(t, 1, inner.effects())
}

// claimOf is the claim of a run, as the store has it.
func claimOf(t testing.TB, s *service, run core.Run) driver.Claim {
	t.Helper()
	c := driver.Claim{Fence: run.Fence, Retention: time.Hour, Lease: time.Minute}
	var key, owner, fingerprint []byte
	row := s.aside.QueryRow(ctx, "SELECT key, owner, fingerprint FROM idem.record WHERE fence = $1", run.Fence)
	require.NoError(t, row.Scan(&key, &owner, &fingerprint))
	copy(c.Key[:], key)
	copy(c.Owner[:], owner)
	copy(c.Fingerprint[:], fingerprint)
	return c
}

// TestTheEffectsOfARunThatWasTakenOverAreUndone: the fence holds for what is in the transaction, too.
func TestTheEffectsOfARunThatWasTakenOverAreUndone(t *testing.T) {
	s := newService(t)
	result := s.send(s.ending(func(running context.Context) (*core.Response, error) {
		run, _ := core.FromContext(running)
		execute(t, s.aside, "UPDATE idem.record SET lease_end = 1 WHERE fence = $1", run.Fence)
		heir, err := servicetest.NewEngine(t, pgstore.New(s.aside)).Do(ctx, servicetest.Order(s.key), func(ctx context.Context) (*core.Response, error) {
			return &core.Response{Status: 202}, pgstore.InTx(ctx, s.aside, pgx.TxOptions{}, s.effect)
		})
		require.NoError(t, err)
		assert.Equal(t, 202, heir.Response.Status)
		return created()
	}))
	assert.Equal(t, "claim-lost", result.Problem)
	s.both()
}

func TestCompleteTxKeepsTheOutcomeIfAndWhenItsTransactionIsCommitted(t *testing.T) {
	store, pool := newStore(t)
	for name, end := range map[string]func(pgx.Tx) error{
		"commit":   func(tx pgx.Tx) error { return tx.Commit(ctx) },
		"rollback": func(tx pgx.Tx) error { return tx.Rollback(ctx) },
	} {
		c := claimed(t, store)
		tx, err := pool.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, store.CompleteTx(ctx, tx, c, []byte("kept")))
		require.NoError(t, store.CompleteTx(ctx, tx, c, []byte("kept")), "again")
		assert.ErrorIs(t, store.CompleteTx(ctx, tx, c, []byte("another")), driver.ErrLost)
		assert.ErrorIs(t, store.CompleteTx(ctx, tx, rival(c), []byte("kept")), driver.ErrLost)
		assert.Equal(t, driver.InProgress, begin(t, store, rival(c)).State)
		require.NoError(t, end(tx))
		if name == "commit" {
			assert.Equal(t, "kept", string(begin(t, store, rival(c)).Outcome))
			continue
		}
		assert.Equal(t, driver.InProgress, begin(t, store, rival(c)).State)
		assert.NoError(t, store.Complete(ctx, c, []byte("another")))
	}
}

// TestATransactionThatCannotBeCommittedIsARetry: the client does not get the handler's answer, and its retry runs at once.
func TestATransactionThatCannotBeCommittedIsARetry(t *testing.T) {
	s := newService(t)
	execute(t, s.aside, `CREATE TABLE IF NOT EXISTS once (key text UNIQUE DEFERRABLE INITIALLY DEFERRED)`)
	insert := func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO once VALUES ($1)", s.key)
		return errors.Join(err, s.effect(tx))
	}
	require.NoError(t, pgstore.InTx(ctx, s.pool, pgx.TxOptions{}, insert))
	result := s.send(func(ctx context.Context) (*core.Response, error) {
		require.NoError(t, pgstore.InTx(ctx, s.pool, pgx.TxOptions{}, insert))
		return created()
	})
	assert.Equal(t, "claim-lost", result.Problem)
	assert.ErrorContains(t, s.lost.Load().Err, "duplicate key", "the hook hears why")
	assert.Equal(t, 1, s.effects())
	execute(t, s.aside, "DELETE FROM effect WHERE key = $1", s.key)

	result = s.send(func(ctx context.Context) (*core.Response, error) {
		run, _ := core.FromContext(ctx)
		assert.Equal(t, 2, run.Attempt)
		assert.False(t, run.Takeover, "what the first run did is known")
		return s.order(ctx)
	})
	assert.Equal(t, 201, result.Response.Status)
	s.both()
}

// TestAboveReadCommittedARenewedLeaseIsARetry: the transaction can not see the record that the renewal has written.
func TestAboveReadCommittedARenewedLeaseIsARetry(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			s := newService(t)
			result := s.send(func(ctx context.Context) (*core.Response, error) {
				require.NoError(t, pgstore.InTx(ctx, s.pool, pgx.TxOptions{IsoLevel: level}, s.effect))
				run, _ := core.FromContext(ctx)
				require.NoError(t, s.store.Extend(ctx, claimOf(t, s, run)))
				return created()
			})
			assert.Equal(t, "claim-lost", result.Problem)
			s.neither()
			s.key = random()
			result = s.send(func(ctx context.Context) (*core.Response, error) {
				require.NoError(t, pgstore.InTx(ctx, s.pool, pgx.TxOptions{IsoLevel: level}, s.effect))
				return created()
			})
			assert.Equal(t, 201, result.Response.Status, "a short one is kept")
			s.both()
		})
	}
}

// The moments at which a connection, a process or a server may go.
var moments = []struct {
	name string
	text string // in the message that the moment is at
	when when
	kept bool // effect and outcome are there
}{
	{"before the effect", "INSERT INTO effect", unsent, false},
	{"after the effect", "INSERT INTO effect", answered, false},
	{"before the outcome", ".complete(", unsent, false},
	{"after the outcome", ".complete(", answered, false},
	{"before the commit", "commit\x00", unsent, false},
	{"after the commit", "commit\x00", answered, true},
}

func TestAConnectionThatIsLostLeavesBothOrNeither(t *testing.T) {
	for _, moment := range moments {
		t.Run(moment.name, func(t *testing.T) {
			network := &network{}
			s := newServiceOn(t, pgserver.Shared(t), network)
			network.breakAt(moment.text, moment.when, nothing)
			result, err := s.do(s.order)
			network.broke(t)
			switch {
			case moment.kept:
				require.NoError(t, err)
				assert.Equal(t, 201, result.Response.Status, "the outcome was found")
				s.both()
			case err == nil:
				assert.Equal(t, "claim-lost", result.Problem, "nobody is told of what is not there")
			}
			if !moment.kept {
				s.neither()
			}
			s.together()
		})
	}
}

// TestACommitWhoseAnswerAndTruthAreOutOfReachIsARetry: the store can not even ask whether the outcome is there.
func TestACommitWhoseAnswerAndTruthAreOutOfReachIsARetry(t *testing.T) {
	for _, moment := range moments[4:] {
		t.Run(moment.name, func(t *testing.T) {
			network := &network{}
			s := newServiceOn(t, pgserver.Shared(t), network, shortLease)
			network.breakAt(moment.text, moment.when, func() { network.down.Store(true) })
			result := s.send(s.order)
			network.broke(t)
			assert.Equal(t, "store-unavailable", result.Problem)
			network.down.Store(false)
			s.together()
		})
	}
}

// TestAnOutcomeIsNotKeptWithoutItsTransaction: not even when the store can not free the key.
func TestAnOutcomeIsNotKeptWithoutItsTransaction(t *testing.T) {
	network := &network{}
	s := newServiceOn(t, pgserver.Shared(t), network, shortLease)
	network.breakAt("commit\x00", unsent, func() { network.breakAt(".fail_2(", unsent, nothing) })
	assert.Equal(t, "store-unavailable", s.send(s.order).Problem)
	network.broke(t)
	s.neither()
	s.together()
}

// PG-01: what the store says of a run's transaction whose end it did not hear, or could not bring about.
func TestLostIsSaidOfATransactionThatIsGoneAndUnknownOfOneThatMayBeCommitted(t *testing.T) {
	hang := func(n *network) { n.hole.Store(true) }
	fall := func(n *network) { n.down.Store(true) }
	stay := func(*network) {}
	for _, test := range []struct {
		name string
		text string
		when when
		then func(*network) // with the network, from then on
		want error
		kept bool
	}{
		{"before the outcome", ".complete(", unsent, stay, driver.ErrLost, false},
		{"before the outcome, out of reach", ".complete(", unsent, fall, driver.ErrLost, false},
		{"after the outcome, out of reach", ".complete(", answered, fall, driver.ErrLost, false},
		{"before the outcome, silent", ".complete(", unsent, hang, driver.ErrLost, false},
		{"before the commit", "commit\x00", unsent, stay, driver.ErrLost, false},
		{"before the commit, out of reach", "commit\x00", unsent, fall, driver.ErrOutcomeUnknown, false},
		{"before the commit, silent", "commit\x00", unsent, hang, driver.ErrOutcomeUnknown, false},
		{"after the commit", "commit\x00", answered, stay, nil, true},
		{"after the commit, out of reach", "commit\x00", answered, fall, driver.ErrOutcomeUnknown, true},
		{"after the commit, silent", "commit\x00", answered, hang, driver.ErrOutcomeUnknown, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			network := &network{}
			s := newServiceOn(t, pgserver.Shared(t), network)
			s.completes(network, test.text, test.when, func() { test.then(network) }, test.want)
			assert.Equal(t, test.kept, s.effects() == 1)
		})
	}
}

// completes has a run complete while something happens to the network, and checks what the store says of it, also when it is
// asked again.
func (s *service) completes(network *network, text string, when when, then func(), want error) {
	s.tb.Helper()
	var c driver.Claim
	s.send(func(running context.Context) (*core.Response, error) {
		require.NoError(s.tb, s.inTx(running))
		run, _ := core.FromContext(running)
		c = claimOf(s.tb, s, run)
		network.breakAt(text, when, then)
		for range 2 {
			short, cancel := context.WithTimeout(running, 500*time.Millisecond)
			err := s.store.Complete(short, c, []byte("outcome"))
			cancel()
			for _, e := range []error{driver.ErrLost, driver.ErrOutcomeUnknown} {
				assert.Equal(s.tb, e == want, errors.Is(err, e), "%v: %v", e, err)
			}
			assert.Equal(s.tb, want == nil, err == nil, err)
		}
		network.broke(s.tb)
		network.heal()
		return &core.Response{Status: 500}, nil
	})
	s.idle()
	kept := count(s.tb, s.aside, "SELECT count(*) FROM idem.record WHERE key = $1 AND state = 'COMPLETED'", c.Key[:])
	assert.Equal(s.tb, s.effects(), kept, "one of effect and outcome is there without the other")
}

// A body that the record names stays, whatever the store knows of the record; one that none names goes.
func TestACommitWithoutAnAnswerKeepsItsBlob(t *testing.T) {
	for _, test := range []struct {
		name  string
		text  string
		when  when
		stays bool
	}{
		{"after the commit", "commit\x00", answered, true},
		{"before the commit", "commit\x00", unsent, true}, // nobody knows
		{"before the outcome", ".complete(", unsent, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			network, dir := &network{}, t.TempDir()
			files, err := blobs.Dir(dir)
			require.NoError(t, err)
			keepBlobs := func(c *core.Config) {
				shortLease(c)
				c.Keep.Blobs, c.Keep.BlobsFrom = files, 1
			}
			s := newServiceOn(t, pgserver.Shared(t), network, keepBlobs)
			network.breakAt(test.text, test.when, func() { network.down.Store(true) })
			result := s.send(s.order)
			network.broke(t)
			assert.NotEmpty(t, result.Problem, "nobody is told of what may not be there")
			left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
			require.NoError(t, err)
			assert.Equal(t, test.stays, len(left) == 1, left)
			network.heal()
			if s.effects() == 1 {
				result := s.send(s.order)
				assert.True(t, result.Replayed)
				assert.Equal(t, "made", string(result.Response.Body))
			}
		})
	}
}

// A transaction that the server has refused is gone, whether or not the key can be freed.
func TestARefusedCommitIsLostAlsoOutOfReach(t *testing.T) {
	network := &network{}
	s := newServiceOn(t, pgserver.Shared(t), network)
	execute(t, s.aside, `CREATE TABLE IF NOT EXISTS once (key text UNIQUE DEFERRABLE INITIALLY DEFERRED)`)
	execute(t, s.aside, "INSERT INTO once VALUES ($1)", s.key)
	s.send(func(running context.Context) (*core.Response, error) {
		require.NoError(t, pgstore.InTx(running, s.pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO once VALUES ($1)", s.key)
			return err
		}))
		run, _ := core.FromContext(running)
		network.breakAt(".fail_2(", unsent, func() { network.down.Store(true) })
		err := s.store.Complete(running, claimOf(t, s, run), nil)
		assert.ErrorIs(t, err, driver.ErrLost)
		assert.NotErrorIs(t, err, driver.ErrOutcomeUnknown)
		network.down.Store(false)
		return &core.Response{Status: 500}, nil
	})
	s.together()
}

// slowCommit makes the transactions of a service take so long to be committed.
func (s *service) slowCommit(d time.Duration) {
	execute(s.tb, s.aside, fmt.Sprintf(`
		CREATE TABLE slow_%[1]s (n int);
		CREATE FUNCTION slow_%[1]s() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(%[2]f); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON slow_%[1]s DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION slow_%[1]s()`, s.key, d.Seconds()))
}

func (s *service) slowOrder(ctx context.Context) (*core.Response, error) {
	err := pgstore.InTx(ctx, s.pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO slow_"+s.key+" VALUES (1)")
		return errors.Join(err, s.effect(tx))
	})
	if err != nil {
		return nil, err
	}
	return created()
}

func TestACommitThatIsUnderWayWhenItsConnectionIsLostIsWaitedFor(t *testing.T) {
	network := &network{}
	s := newServiceOn(t, pgserver.Shared(t), network)
	s.slowCommit(time.Second)
	network.breakAt("commit\x00", sent, nothing)
	result := s.send(s.slowOrder)
	network.broke(t)
	assert.Equal(t, 201, result.Response.Status)
	s.both()
}

func TestACommitThatTakesLongerThanTheStoreMayIsARetry(t *testing.T) {
	s := newServiceOn(t, pgserver.Shared(t), &network{}, func(c *core.Config) {
		c.Lease.Duration, c.Limits.StoreTimeout = 10*time.Second, 2*time.Second
	})
	s.slowCommit(3 * time.Second)
	result := s.send(s.slowOrder)
	assert.Equal(t, "store-unavailable", result.Problem, "nobody knows by now")
	s.retried()
	assert.EqualValues(t, 1, s.runs.Load(), "the retry gets the outcome")
}

func TestAServerThatCrashesLeavesBothOrNeither(t *testing.T) {
	network, server := &network{}, pgserver.Start(t)
	for _, moment := range moments {
		t.Run(moment.name, func(t *testing.T) {
			s := newServiceOn(t, server, network, shortLease)
			network.breakAt(moment.text, moment.when, server.Kill)
			result, err := s.do(s.order)
			network.broke(t)
			assert.True(t, err != nil || result.Problem != "", "nobody is told of what may not be there")
			server.Restart(t)
			s.aside.Reset()
			assert.Equal(t, moment.kept, s.effects() == 1)
			s.together()
		})
	}
}

// shortLease lets a retry take over soon. Half a second for a call was not enough on a busy machine.
func shortLease(c *core.Config) {
	c.Lease.Duration, c.Limits.StoreTimeout = 2*time.Second, time.Second
}

// TestAProcessThatIsKilledLeavesBothOrNeither: a child kills itself at the moment that its environment names.
func TestAProcessThatIsKilledLeavesBothOrNeither(t *testing.T) {
	for _, moment := range moments {
		t.Run(moment.name, func(t *testing.T) {
			s := newService(t, shortLease)
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), "PGSTORE_DIE="+moment.name, "PGSTORE_URL="+s.server.URL, "PGSTORE_KEY="+s.key)
			out, err := child.CombinedOutput()
			ended, ok := errors.AsType[*exec.ExitError](err)
			require.True(t, ok, "%v: %s", err, out)
			require.Equal(t, syscall.SIGKILL, ended.Sys().(syscall.WaitStatus).Signal(), "%s", out)
			require.Eventually(t, func() bool {
				return count(t, s.aside, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", s.key) == 0
			}, 20*time.Second, 20*time.Millisecond, "the server has not noticed")
			assert.Equal(t, moment.kept, s.effects() == 1)
			s.together()
		})
	}
}

// dieIfTold is the child: a service that runs one order and dies in it.
func dieIfTold() {
	for _, moment := range moments {
		if moment.name != os.Getenv("PGSTORE_DIE") {
			continue
		}
		network := &network{}
		network.breakAt(moment.text, moment.when, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
		key := os.Getenv("PGSTORE_KEY")
		config, err := pgxpool.ParseConfig(os.Getenv("PGSTORE_URL") + "&application_name=" + key)
		if err == nil {
			network.use(config)
			err = placeOrder(config, key)
		}
		fmt.Println("still alive:", err)
		os.Exit(1)
	}
}

func placeOrder(config *pgxpool.Config, key string) error {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	cfg := core.Config{Store: pgstore.New(pool), Scope: core.SingleTenant}
	shortLease(&cfg)
	engine, err := core.New(cfg)
	if err != nil {
		return err
	}
	s := &service{Engine: engine, pool: pool, key: key}
	_, err = s.do(s.order)
	return err
}
