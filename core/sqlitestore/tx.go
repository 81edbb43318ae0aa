package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

var (
	errOtherStore = errors.New("sqlitestore: InTx: the run's engine does not keep its records in this Store, " +
		"so the outcome cannot join the transaction")
	errBusy  = errors.New("sqlitestore: InTx: another InTx of this run has not returned; a run has one transaction")
	errEnded = errors.New("sqlitestore: InTx: the transaction has ended early: SQLite rolls it back when a statement finds no " +
		"room or its context ends, and the function must neither commit nor roll it back")
)

// Tx sends statements in the transaction of an InTx. The queries that sqlc generates take it.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// InTx runs f in a transaction of the store's file. The store commits it together with the outcome of the run that ctx belongs
// to, or rolls it back if there is no outcome. If f returns an error or panics, InTx rolls back at once what f has done, and
// returns the error. Otherwise the transaction is still open when InTx returns, so the handler must not rely on its effects
// before the run has ended. f must neither end the transaction nor use it after its return. A stored 400 is an outcome, too: a
// handler that refuses after it has written returns an error from f, or its rows are committed. InTx returns when ctx ends, or up
// to a second later if it must roll back.
//
// SQLite has one writer: from InTx to the end of the run no other run claims a key, and nothing else writes to the file. So call
// InTx last, and call no other service after it. A run that writes to the file in another way, or claims another key of this
// store, after its InTx gets an error.
//
// A run has one such transaction. A second InTx continues it. After InTx core.Step refuses new steps with an error that wraps
// errors.ErrUnsupported, before it runs them, so do steps before InTx.
//
// Outside of a run, for example in a request without a key, and in an unprotected run (Run.Unprotected), InTx is a transaction
// that it commits when f returns. So it is in the handler of a consumer.Batch, which is in many runs: its outcomes are stored apart.
func (s *Store) InTx(ctx context.Context, f func(Tx) error) error {
	run, ok := core.FromContext(ctx)
	if !ok || run.Unprotected {
		return s.inOwnTx(ctx, f)
	}
	sess := sessionIn(ctx)
	isOwn := sess != nil && sess.store == s && sess.claim.Fence == run.Fence // and not that of a run around this one
	if !isOwn {
		return errOtherStore
	}
	return sess.inTx(ctx, f)
}

// inOwnTx runs f in a transaction that belongs to no run.
func (s *Store) inOwnTx(ctx context.Context, f func(Tx) error) error {
	if err := s.checkNesting(ctx); err != nil {
		return err
	}
	t, err := s.awaitTransaction(ctx)
	if err != nil {
		return err
	}
	defer t.release()
	if err := t.run(f); err != nil {
		return err
	}
	return s.explain(t.commit())
}

// awaitTransaction is beginTransaction for a caller that must not wait longer than ctx lasts. It returns the lock of a
// transaction that comes too late.
func (s *Store) awaitTransaction(ctx context.Context) (*transaction, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	begin := func() (*transaction, error) { return s.beginTransaction(ctx) }
	t, err := await(ctx, begin, func(t *transaction, err error) {
		if err == nil {
			t.release()
		}
	})
	return t, s.explain(err)
}

// commit ends a run whose effects are in t. t is nil if the transaction has ended before. commit returns nil if effects and
// outcome are committed, driver.ErrLost if neither is and will be, and driver.ErrOutcomeUnknown if the store could not find out.
// The caller must not repeat the call, and may send the response only after nil.
func (s *Store) commit(ctx context.Context, sess *session, t *transaction, c *driver.Claim, outcome []byte) error {
	cause := errors.New("it was ended before")
	if t != nil {
		sess.mayBeCommitted.Store(true)
		_, cause = await(ctx, func() (struct{}, error) { return struct{}{}, s.explain(sess.commit(t, c, outcome)) })
	}
	if cause == nil {
		return nil
	}
	switch err := s.resolveCommit(ctx, c, outcome); {
	case err == nil:
		return nil
	case !errors.Is(err, driver.ErrLost) && sess.mayBeCommitted.Load():
		return fmt.Errorf("%w: whether the run's transaction is committed: %w; nor could the store look: %w",
			driver.ErrOutcomeUnknown, cause, err)
	}
	return fmt.Errorf("%w: the run's transaction is not committed: %w", driver.ErrLost, cause)
}

// resolveCommit finds out whether a transaction was committed that did not say so in time. It returns nil if so, driver.ErrLost
// if not, and another error if it could not find out. It calls Fail, which waits for the lock of the transaction. If the
// transaction was rolled back, Fail releases the key; if it was committed, Fail finds the record COMPLETED.
func (s *Store) resolveCommit(ctx context.Context, c *driver.Claim, outcome []byte) error {
	notCommitted := driver.Failure{Cause: "transaction not committed"}
	err := s.change(ctx, c, func(t *transaction) (bool, error) { return s.fail(t, c, notCommitted) })
	switch {
	case err == nil:
		return driver.ErrLost
	case errors.Is(err, driver.ErrLost):
		return s.change(ctx, c, func(t *transaction) (bool, error) { return t.complete(c, outcome) })
	}
	return err
}
