package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

var (
	errOtherStore = errors.New("pgstore: InTx: the run's engine does not keep its records in a pgstore.Store, " +
		"so the outcome can not join the transaction")
	errBusy  = errors.New("pgstore: InTx: another InTx of this run has not returned; a run has one transaction")
	errEnded = errors.New("pgstore: InTx: the run ends the transaction; " +
		"return nil to have it committed with the outcome, an error to have it rolled back")
	errRowsOpen = errors.New("pgstore: InTx: the function has not closed the rows of a query, so the transaction cannot be committed")
)

// DB begins transactions. A *pgxpool.Pool and a *pgx.Conn implement it.
type DB interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// InTx runs f in a transaction of db. The store commits it together with the outcome of the run that ctx belongs to, or rolls
// it back if there is no outcome. db must be the database of the engine's Store; it may be another pool. If f returns an
// error or panics, InTx rolls the transaction back at once and returns the error. Otherwise the transaction is still open
// when InTx returns, so the handler must not rely on its effects before the run has ended. f must neither commit the
// transaction nor use it after its return. A stored 400 is an outcome, too: a handler that refuses after it has written
// returns an error from f, or its rows are committed. The commit may take Config.Limits.StoreTimeout. InTx returns when ctx
// ends, or up to a second later if it must roll back.
//
// A run has one such transaction. A second InTx continues it under a savepoint, and ignores db and opts. After InTx core.Step
// refuses new steps with an error that wraps errors.ErrUnsupported, before it runs them, so do steps before InTx.
//
// Use READ COMMITTED. If opts has no level, the transaction has the default of the role; if that is higher, set
// pgx.ReadCommitted. At a higher level the commit fails if the lease was renewed or a request waits for the run. At
// SERIALIZABLE it also fails if transactions of other keys are committed meanwhile, because PostgreSQL may lock neighbouring
// rows together. The run then has no effects, and the client must retry.
//
// Outside of a run, for example in a request without a key, and in an unprotected run (Run.Unprotected), InTx is
// pgx.BeginTxFunc. So it is in the handler of a consumer.Batch, which is in many runs: its outcomes are stored apart.
func InTx(ctx context.Context, db DB, opts pgx.TxOptions, f func(pgx.Tx) error) error {
	run, ok := core.FromContext(ctx)
	if !ok || run.Unprotected {
		return pgx.BeginTxFunc(ctx, db, opts, f)
	}
	runContext := ctx
	if own, ok := ctx.Value(driver.ContextKey).(context.Context); ok { // contexts of frameworks have no other value of the run
		runContext = own
	}
	sess, _ := runContext.Value(sessionKey{}).(*session)
	if sess == nil || sess.claim.Fence != run.Fence { // no Store has opened a session, or only for a run around this one
		return errOtherStore
	}
	return sess.inTx(ctx, db, opts, f)
}

// CompleteTx is Complete as a part of tx: the store keeps the outcome when the caller commits. It returns [driver.ErrLost] if
// the claim does not hold the record. After this and any other error the caller must roll tx back. Only a successful commit
// says that the outcome is kept. If the reply to the commit is lost, a Begin with another owner shows what became of it. Call
// CompleteTx last, because other calls for the key wait until tx ends. In a handler of an engine use [InTx] instead, because
// the engine completes the run.
func (s *Store) CompleteTx(ctx context.Context, tx pgx.Tx, c driver.Claim, outcome []byte) error {
	var status string
	if err := scan(ctx, tx, []any{&status}, s.complete, claimArguments(&c, completeArguments(&c, outcome))); err != nil {
		return storeError(err)
	}
	return statusError(status)
}

// commit ends a run whose effects are in tx. tx is nil if it has ended before. commit returns nil if effects and outcome are
// committed, driver.ErrLost if neither is and will be, and driver.ErrOutcomeUnknown if the store could not find out. The
// caller must not repeat the call, and may send the response only after nil.
func (s *Store) commit(ctx context.Context, sess *session, tx pgx.Tx, c *driver.Claim, outcome []byte) error {
	cause := errors.New("it was ended before")
	if tx != nil {
		cause = s.commitTx(ctx, sess, tx, c, outcome)
	}
	if cause == nil {
		return nil
	}
	switch err := s.resolveCommit(ctx, c, outcome); {
	case err == nil:
		return nil
	case !errors.Is(err, driver.ErrLost) && sess.commitSent.Load():
		return fmt.Errorf("%w: whether the run's transaction is committed: %w; nor could the store look: %w",
			driver.ErrOutcomeUnknown, cause, err)
	}
	return fmt.Errorf("%w: the run's transaction is not committed: %w", driver.ErrLost, cause)
}

// commitTx adds the outcome to tx and commits. Once the COMMIT is sent, only a reply of the server can say that tx is not
// committed.
func (s *Store) commitTx(ctx context.Context, sess *session, tx pgx.Tx, c *driver.Claim, outcome []byte) error {
	if err := s.CompleteTx(ctx, tx, *c, outcome); err != nil {
		rollback(ctx, tx)
		return err
	}
	sess.commitSent.Store(true)
	err := tx.Commit(ctx)
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if ok && refused.SeverityUnlocalized == "ERROR" || errors.Is(err, pgx.ErrTxCommitRollback) {
		sess.commitSent.Store(false)
	}
	return err
}

// resolveCommit finds out whether a transaction was committed although its COMMIT had no reply. It returns nil if so,
// driver.ErrLost if not, and another error if it could not find out. It calls Fail, which waits for the transaction's lock on
// the record. If the transaction was rolled back, Fail releases the key; if it was committed, Fail finds the record
// COMPLETED.
func (s *Store) resolveCommit(ctx context.Context, c *driver.Claim, outcome []byte) error {
	err := s.execute(ctx, s.fail, c, failArguments(c, driver.Failure{Cause: "transaction not committed"})...)
	switch {
	case err == nil:
		return driver.ErrLost
	case errors.Is(err, driver.ErrLost):
		return s.execute(ctx, s.complete, c, completeArguments(c, outcome)...)
	}
	return err
}

// rollback rolls tx back. It takes at most a second, and ends with ctx. If ctx has ended already, it has that second.
func rollback(ctx context.Context, tx pgx.Tx) {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = tx.Rollback(ctx) // if this fails, the connection breaks, and the server rolls back
}
