package sqlitestore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/sqlitestore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/servicetest"
	"github.com/go-idem/idem/internal/testclock"
)

var errTest = errors.New("test")

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

func TestEffectAndOutcomeAreThereTogether(t *testing.T) {
	t.Parallel()
	for name, contextOf := range map[string]func(context.Context) context.Context{
		"in the context of the run":          func(ctx context.Context) context.Context { return ctx },
		"in the context of a framework":      func(run context.Context) context.Context { return framework{ctx, run} },
		"in a context that ends with a part": func(run context.Context) context.Context { return ended(run) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			result := s.send(func(ctx context.Context) (*core.Response, error) {
				in := contextOf(ctx)
				require.NoError(t, s.inTx(in))
				if end, ok := in.(endable); ok {
					end.cancel()
				}
				assert.Zero(t, s.effects(), "before the outcome nothing is to be seen")
				return created()
			})
			assert.Equal(t, 201, result.Response.Status)
			s.both()
			assert.True(t, s.send(s.order).Replayed)
			assert.EqualValues(t, 1, s.runs.Load())
		})
	}
}

// endable is a context that ends when the test says so.
type endable struct {
	context.Context
	cancel context.CancelFunc
}

func ended(run context.Context) endable {
	ctx, cancel := context.WithCancel(run)
	return endable{ctx, cancel}
}

// ending is order with an end of its own.
func (s *service) ending(end handler) handler {
	return func(ctx context.Context) (*core.Response, error) {
		if err := s.inTx(ctx); err != nil {
			return nil, err
		}
		return end(ctx)
	}
}

func TestARunThatEndsWithoutAnOutcomeRollsItsEffectsBack(t *testing.T) {
	t.Parallel()
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
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			func() {
				defer func() { _ = recover() }()
				_, _ = s.do(s.ending(end))
			}()
			assert.EqualValues(t, 1, s.runs.Load())
			s.neither()
		})
	}
}

// A 400 that is stored is an outcome like any other, so the rows that InTx has written are committed with it.
func TestEffectsAreCommittedWithAStored400(t *testing.T) {
	t.Parallel()
	s := newService(t)
	refused := func(context.Context) (*core.Response, error) { return &core.Response{Status: 400}, nil }
	assert.Equal(t, 400, s.send(s.ending(refused)).Response.Status)
	s.both()
}

func TestAnInTxThatFailsLeavesTheRunWithoutEffects(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		f     func(context.Context, *service, sqlitestore.Tx) error
		error string
	}{
		{"an error", func(_ context.Context, s *service, tx sqlitestore.Tx) error {
			return errors.Join(s.effect(tx), errTest)
		}, "test"},
		{"a rollback of its own", func(_ context.Context, s *service, tx sqlitestore.Tx) error {
			err := s.effect(tx)
			_, ended := tx.ExecContext(ctx, "ROLLBACK")
			return errors.Join(err, ended)
		}, "the transaction has ended early"},
		{"a commit of its own", func(_ context.Context, s *service, tx sqlitestore.Tx) error {
			err := s.effect(tx)
			_, refused := tx.ExecContext(ctx, "COMMIT")
			assert.Error(s.tb, refused)
			return err
		}, "the transaction has ended early"},
		{"a rollback of SQLite's that is swallowed", func(_ context.Context, s *service, tx sqlitestore.Tx) error {
			err := s.effect(tx)
			_, constraint := tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO effect VALUES (NULL)")
			assert.ErrorContains(s.tb, constraint, "NOT NULL")
			assert.ErrorContains(s.tb, s.effect(tx), "the transaction has ended early", "it would be committed by itself")
			assert.Error(s.tb, tx.QueryRowContext(ctx, "INSERT INTO effect VALUES (?) RETURNING 1", s.key).Scan(new(int)))
			return err
		}, "the transaction has ended early"},
		{"a rollback of SQLite's in a prepared statement", func(_ context.Context, s *service, tx sqlitestore.Tx) error {
			insert, err := tx.PrepareContext(ctx, "INSERT OR ROLLBACK INTO effect VALUES (?)")
			require.NoError(s.tb, err)
			defer insert.Close()
			for _, key := range []any{s.key, nil, s.key} {
				_, err = insert.ExecContext(ctx, key)
			}
			return errors.Join(err, s.effect(tx))
		}, "the transaction has ended early"},
		{"a rollback of SQLite's in a query of one row", func(_ context.Context, s *service, tx sqlitestore.Tx) error {
			assert.Error(s.tb, tx.QueryRowContext(ctx, "INSERT OR ROLLBACK INTO effect VALUES (NULL) RETURNING 1").Scan(new(int)))
			return s.effect(tx)
		}, "the transaction has ended early"},
		{"a statement whose context ends", func(_ context.Context, s *service, tx sqlitestore.Tx) error {
			err := s.effect(tx)
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_, interrupted := tx.ExecContext(short, `INSERT INTO effect
				WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n`)
			assert.ErrorIs(s.tb, interrupted, context.DeadlineExceeded)
			return errors.Join(err, s.effect(tx))
		}, "the transaction has ended early"},
		{"a panic", func(_ context.Context, s *service, tx sqlitestore.Tx) error {
			panic(errors.Join(s.effect(tx), errTest))
		}, "test"},
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
					err = s.store.InTx(ctx, func(tx sqlitestore.Tx) error { return test.f(ctx, s, tx) })
				}()
				assert.ErrorContains(t, err, test.error)
				return &core.Response{Status: 422}, nil
			})
			assert.Equal(t, 422, result.Response.Status)
			assert.Zero(t, s.effects())
			assert.True(t, s.replays(), "the response is kept all the same")
		})
	}
}

// Rows that nobody closes would keep the only connection that writes.
func TestRowsThatAreLeftOpenHoldNothingUp(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*service, sqlitestore.Tx) error{
		"rows": func(s *service, tx sqlitestore.Tx) error {
			rows, err := tx.QueryContext(ctx, "SELECT 1 UNION SELECT 2")
			return errors.Join(s.effect(tx), err, rows.Err())
		},
		"a row": func(s *service, tx sqlitestore.Tx) error { return tx.QueryRowContext(ctx, "SELECT 1").Err() },
		"a new row": func(s *service, tx sqlitestore.Tx) error {
			return tx.QueryRowContext(ctx, "INSERT INTO effect VALUES (?) RETURNING 1", s.key).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			require.NoError(t, s.store.InTx(ctx, func(tx sqlitestore.Tx) error { return leave(s, tx) }), "outside of a run")
			result := s.send(func(run context.Context) (*core.Response, error) {
				require.NoError(t, s.store.InTx(run, func(tx sqlitestore.Tx) error { return leave(s, tx) }))
				return created()
			})
			assert.Equal(t, 201, result.Response.Status)
			assert.Equal(t, 201, serviceOn(t, s.store).send(s.order).Response.Status, "the next one finds the connection")
		})
	}
}

func TestAnInTxCanBeTriedAgain(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.send(func(ctx context.Context) (*core.Response, error) {
		require.ErrorIs(t, s.store.InTx(ctx, func(sqlitestore.Tx) error { return errTest }), errTest)
		return s.order(ctx)
	})
	s.both()
}

func TestASecondInTxGoesOnInTheTransaction(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.send(func(ctx context.Context) (*core.Response, error) {
		require.NoError(t, s.inTx(ctx))
		err := s.store.InTx(ctx, func(tx sqlitestore.Tx) error {
			assert.NoError(t, s.effect(tx))
			var seen int
			assert.NoError(t, tx.QueryRowContext(ctx, "SELECT count(*) FROM effect WHERE key = ?", s.key).Scan(&seen))
			assert.Equal(t, 2, seen)
			return errTest
		})
		require.ErrorIs(t, err, errTest, "its own effect is undone")
		return created()
	})
	s.both()
}

// What the first InTx has done is gone, so the second one must not go on, and the response is not that of the run.
func TestASecondInTxIsRefusedAfterARollbackOfSQLites(t *testing.T) {
	t.Parallel()
	s := newService(t)
	result := s.send(func(ctx context.Context) (*core.Response, error) {
		require.NoError(t, s.inTx(ctx))
		require.NoError(t, s.store.EndTransaction())
		assert.ErrorContains(t, s.inTx(ctx), "the transaction has ended early")
		return created()
	})
	assert.Equal(t, "claim-lost", result.Problem)
	s.neither()
	assert.Equal(t, 201, s.send(s.order).Response.Status, "the retry runs at once")
	s.both()
}

// A Complete or Fail that begins too late leaves the transaction as it is.
func TestACallWhoseContextHasEndedLeavesTheTransaction(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.send(func(run context.Context) (*core.Response, error) {
		require.NoError(t, s.inTx(run))
		over, cancel := context.WithCancel(run)
		cancel()
		c := s.claim(run)
		assert.ErrorIs(t, s.store.Complete(over, c, []byte("late")), context.Canceled)
		assert.ErrorIs(t, s.store.Fail(over, c, driver.Failure{}), context.Canceled)
		assert.ErrorIs(t, s.store.Extend(over, c), context.Canceled)
		return created()
	})
	s.both()
}

func TestARunHasOneInTxAtATime(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.send(func(ctx context.Context) (*core.Response, error) {
		err := s.store.InTx(ctx, func(sqlitestore.Tx) error { return s.inTx(ctx) })
		assert.ErrorContains(t, err, "another InTx of this run has not returned")
		return created()
	})
}

// A goroutine of the handler's has outlived it.
func TestAnInTxThatIsAtWorkWhenTheRunEndsHasNoEffects(t *testing.T) {
	t.Parallel()
	s := newService(t)
	entered, letGo, done := make(chan struct{}), make(chan struct{}), make(chan error)
	result := s.send(func(ctx context.Context) (*core.Response, error) {
		go func() {
			done <- s.store.InTx(ctx, func(tx sqlitestore.Tx) error {
				close(entered)
				<-letGo
				return s.effect(tx)
			})
		}()
		<-entered
		return created()
	})
	assert.Equal(t, "claim-lost", result.Problem, "a response whose effects are not there is not the outcome")
	close(letGo)
	assert.ErrorIs(t, <-done, driver.ErrLost)
	s.neither()
}

func TestAfterTheRunAnInTxIsLost(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	s := newService(t)
	require.NoError(t, s.inTx(ctx))
	assert.Equal(t, 1, s.effects())
	err := s.store.InTx(ctx, func(tx sqlitestore.Tx) error { return errors.Join(s.effect(tx), errTest) })
	assert.ErrorIs(t, err, errTest)
	assert.Equal(t, 1, s.effects())
}

func TestAnInTxIsRefusedInARunWhoseOutcomeIsKeptElsewhere(t *testing.T) {
	t.Parallel()
	s := newService(t)
	elsewhere := servicetest.NewEngine(t, memstore.New())
	refused := func(ctx context.Context) (*core.Response, error) {
		assert.ErrorContains(t, s.inTx(ctx), "does not keep its records in this Store")
		return created()
	}
	_, err := elsewhere.Do(ctx, servicetest.Order(s.key), refused)
	require.NoError(t, err)
	s.send(func(ctx context.Context) (*core.Response, error) { // a run within a run
		_, err := elsewhere.Do(ctx, servicetest.Order(s.key+"inner"), refused)
		require.NoError(t, err)
		return s.order(ctx)
	})
	s.both()
}

// The run would wait for itself.
func TestAClaimInsideAnInTxIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s := newService(t, func(c *core.Config) { c.Lease.Duration, c.Limits.StoreTimeout = time.Minute, 30*time.Second })
	began := time.Now()
	s.send(func(run context.Context) (*core.Response, error) {
		require.NoError(t, s.inTx(run))
		_, err := s.store.Begin(run, storetest.NewClaim(time.Minute, time.Hour))
		assert.ErrorContains(t, err, "make the call before the InTx")
		return created()
	})
	assert.Less(t, time.Since(began), 20*time.Second)
	s.both()
}

func TestAStepIsRefusedBeforeItsEffectOnceTheTransactionIsOpen(t *testing.T) {
	t.Parallel()
	s := newService(t)
	did := 0
	step := func(context.Context) (int, error) { did++; return did, nil }
	s.send(func(ctx context.Context) (*core.Response, error) {
		_, err := core.Step(ctx, "before", step)
		require.NoError(t, err)
		require.Error(t, s.store.InTx(ctx, func(sqlitestore.Tx) error { return errTest }))
		_, err = core.Step(ctx, "after a transaction that was rolled back", step)
		require.NoError(t, err)

		require.NoError(t, s.inTx(ctx))
		_, err = core.Step(ctx, "after", step)
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, "do steps before the transaction begins")
		assert.Equal(t, 2, did)
		assert.ErrorIs(t, s.store.Checkpoint(ctx, s.claim(ctx), "after", nil), errors.ErrUnsupported)
		kept, err := core.Step(ctx, "before", step)
		assert.NoError(t, err, "what is kept already")
		assert.Equal(t, 1, kept)
		return created()
	})
	s.both()
}

// The lease is renewed while the run holds the lock of the file, and stays renewed when its effects are rolled back.
func TestALeaseIsExtendedInsideTheTransaction(t *testing.T) {
	t.Parallel()
	for name, decision := range map[string]core.Disposition{"committed": core.Keep, "rolled back": core.LeaveUnknown} {
		t.Run(name, func(t *testing.T) {
			store, now := newStore(t), testclock.New(time.Now())
			store.SetClock(now.Now)
			s := serviceOn(t, store, func(c *core.Config) { c.Lease.Duration = time.Hour })
			var c driver.Claim
			s.send(func(run context.Context) (*core.Response, error) {
				require.NoError(t, s.inTx(run))
				c = s.claim(run)
				now.Advance(2 * c.Lease)
				require.NoError(t, store.Extend(ctx, c))
				_, err := store.Checkpoints(ctx, c)
				require.NoError(t, err)
				stale := c
				stale.Fence--
				require.ErrorIs(t, store.Extend(ctx, stale), driver.ErrLost)
				core.Decide(run, decision)
				return created()
			})
			if decision == core.Keep {
				s.both()
				return
			}
			assert.Zero(t, s.effects())
			assert.Equal(t, driver.InProgress, begin(t, store, rival(c)).State, "another run could have taken over")
		})
	}
}

// claim returns the claim of the run that ctx belongs to.
func (s *service) claim(ctx context.Context) driver.Claim {
	s.tb.Helper()
	run, _ := core.FromContext(ctx)
	c := driver.Claim{Fence: run.Fence, Retention: 24 * time.Hour, Lease: time.Hour}
	var key, owner, fingerprint []byte
	row := s.store.DB().QueryRowContext(ctx, "SELECT key, owner, fingerprint FROM idem_record WHERE fence = ?", run.Fence)
	require.NoError(s.tb, row.Scan(&key, &owner, &fingerprint))
	copy(c.Key[:], key)
	copy(c.Owner[:], owner)
	copy(c.Fingerprint[:], fingerprint)
	return c
}

func TestAnInTxOfARunThatHasLostItsClaimIsLost(t *testing.T) {
	t.Parallel()
	s := newService(t)
	result := s.send(func(run context.Context) (*core.Response, error) {
		_, err := s.store.DB().ExecContext(ctx, "DELETE FROM idem_record")
		require.NoError(t, err)
		assert.ErrorIs(t, s.inTx(run), driver.ErrLost)
		return created()
	})
	assert.Equal(t, "record-lost", result.Problem)
	s.neither()
}

// The client does not get the handler's response, and its retry runs at once.
func TestATransactionThatCannotBeCommittedIsARetry(t *testing.T) {
	t.Parallel()
	s := newService(t)
	_, err := s.store.DB().ExecContext(ctx, `CREATE TABLE account (name TEXT PRIMARY KEY);
		CREATE TABLE payment (account TEXT REFERENCES account DEFERRABLE INITIALLY DEFERRED)`)
	require.NoError(t, err)
	result := s.send(func(run context.Context) (*core.Response, error) {
		require.NoError(t, s.store.InTx(run, func(tx sqlitestore.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO payment VALUES ('nobody')")
			return errors.Join(err, s.effect(tx))
		}))
		return created()
	})
	assert.Equal(t, "claim-lost", result.Problem)
	assert.ErrorContains(t, s.lost.Load().Err, "FOREIGN KEY", "the hook hears why")
	assert.Zero(t, s.effects())
	result = s.send(func(ctx context.Context) (*core.Response, error) {
		run, _ := core.FromContext(ctx)
		assert.Equal(t, 2, run.Attempt)
		assert.False(t, run.Takeover, "what the first run did is known")
		return s.order(ctx)
	})
	assert.Equal(t, 201, result.Response.Status)
	s.both()
}
