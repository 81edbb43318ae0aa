package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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
)

// DB begins transactions. A *pgxpool.Pool and a *pgx.Conn implement it.
type DB interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// InTx runs f in a transaction of db. The store commits it together with the outcome of the run that ctx belongs to, or rolls
// it back if there is no outcome. db must be the database of the engine's Store; it may be another pool. If f returns an
// error or panics, InTx rolls the transaction back at once and returns the error. Otherwise the transaction is still open
// when InTx returns, so the handler must not rely on its effects before the run has ended. f must neither commit the
// transaction nor use it after its return. The commit may take Config.Limits.StoreTimeout. InTx returns when ctx ends, or up
// to a second later if it must roll back.
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
// pgx.BeginTxFunc.
func InTx(ctx context.Context, db DB, opts pgx.TxOptions, f func(pgx.Tx) error) error {
	run, ok := core.FromContext(ctx)
	if !ok || run.Unprotected {
		return pgx.BeginTxFunc(ctx, db, opts, f)
	}
	runContext := ctx
	if own, ok := ctx.Value(core.ContextKey).(context.Context); ok { // contexts of frameworks have no other value of the run
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

// sessionKey is the key under which a context of a run holds its session.
type sessionKey struct{}

// session is what a Store knows of one run while it lasts: the transaction with the handler's effects. A nil session has none.
type session struct {
	claim      driver.Claim
	commitSent atomic.Bool // a COMMIT was sent, and the server has not refused it: the transaction may be committed

	mu     sync.Mutex
	tx     pgx.Tx // the open transaction between calls of InTx; otherwise nil
	busy   bool   // an InTx is running
	joined bool   // an InTx has succeeded: the run must commit its transaction, or has done so
	ended  bool   // the run has ended
}

// OpenSession implements driver.SessionOpener. Through the returned context Complete and Fail find the transaction of an
// [InTx]. closeSession rolls the transaction back if none of these calls has ended it.
func (s *Store) OpenSession(ctx context.Context, c driver.Claim) (run context.Context, closeSession func()) {
	sess := &session{claim: c}
	closeSession = func() {
		if tx, _ := sess.finish(); tx != nil {
			rollback(ctx, tx)
		}
	}
	return context.WithValue(ctx, sessionKey{}, sess), closeSession
}

// sessionOf returns the session of the run of c, or nil if ctx belongs to no such run.
func sessionOf(ctx context.Context, c *driver.Claim) *session {
	if sess, _ := ctx.Value(sessionKey{}).(*session); sess != nil && sess.claim.Owner == c.Owner {
		return sess
	}
	return nil
}

// finish marks the run as ended. It reports whether the run has a transaction, and returns the transaction at its first call.
// If an InTx is still running, finish returns no transaction: that InTx rolls it back.
func (s *session) finish() (tx pgx.Tx, joined bool) {
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	tx, s.tx = s.tx, nil
	s.ended = true
	s.joined = s.joined || s.busy
	return tx, s.joined
}

// isJoined reports whether the run has a transaction, or an InTx is making one.
func (s *session) isJoined() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joined || s.busy
}

// inTx is InTx for the run of the session.
func (s *session) inTx(ctx context.Context, db DB, opts pgx.TxOptions, f func(pgx.Tx) error) (err error) {
	tx, err := s.acquire()
	if err != nil {
		return err
	}
	keep := tx != nil
	defer func() { // also when f panics
		if lost := s.release(ctx, tx, keep); lost != nil {
			err = lost
		}
	}()
	if tx != nil {
		return pgx.BeginFunc(ctx, tx, f)
	}
	if tx, err = db.BeginTx(ctx, opts); err != nil {
		return err
	}
	handler := &handlerTx{Tx: tx}
	if err = f(handler); err == nil {
		err = handler.check()
	}
	keep = err == nil
	return err
}

// acquire starts an InTx. It returns the transaction of an earlier InTx, or nil if there was none.
func (s *session) acquire() (tx pgx.Tx, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return nil, driver.ErrLost
	case s.busy:
		return nil, errBusy
	}
	tx, s.tx, s.busy = s.tx, nil, true
	return tx, nil
}

// release ends an InTx. With keep it stores the transaction for the end of the run. Without keep, or if the run has ended
// meanwhile, it rolls the transaction back; in the latter case it returns driver.ErrLost.
func (s *session) release(ctx context.Context, tx pgx.Tx, keep bool) (lost error) {
	s.mu.Lock()
	s.busy = false
	if keep && !s.ended {
		s.tx, s.joined, tx = tx, true, nil
	} else if keep {
		lost = driver.ErrLost
	}
	s.mu.Unlock()
	if tx != nil {
		rollback(ctx, tx)
	}
	return lost
}

// handlerTx is the transaction that the function of the handler gets. The function must not commit it.
type handlerTx struct {
	pgx.Tx
	ended bool
}

// Commit returns an error, because the store commits at the end of the run.
func (g *handlerTx) Commit(context.Context) error { return errEnded }

// Rollback rolls back at once. InTx returns an error then.
func (g *handlerTx) Rollback(ctx context.Context) error {
	g.ended = true
	return g.Tx.Rollback(ctx)
}

// check returns an error if the transaction cannot be committed: f has rolled it back, or has ignored the error of a
// statement, after which PostgreSQL accepts no commit.
func (g *handlerTx) check() error {
	switch {
	case g.ended:
		return errEnded
	case g.Conn().PgConn().TxStatus() != 'T':
		return pgx.ErrTxCommitRollback
	}
	return nil
}
