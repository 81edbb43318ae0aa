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
	errOtherStore = errors.New("pgstore: InTx: the run's engine does not keep its records in a pgstore.Store, so the outcome can not join the transaction")
	errBusy       = errors.New("pgstore: InTx: another InTx of this run has not returned; a run has one transaction")
	errEnded      = errors.New("pgstore: InTx: the run ends the transaction; return nil to have it committed with the outcome, an error to have it rolled back")
)

// DB is what begins transactions: a *pgxpool.Pool or a *pgx.Conn.
type DB interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// InTx runs f in a transaction of db that is committed together with the outcome of the run that ctx belongs to, or rolled
// back with it. db must be the database of the engine's Store; it may be another pool. When f returns an error, or panics,
// the transaction is rolled back at once, and InTx returns the error. Otherwise it is open when InTx returns: nothing of
// it is to be seen or promised before the run has ended. f must not commit it, and keep nothing of it. The commit has
// Config.Limits.StoreTimeout to be answered. InTx itself ends with ctx, and at most a second later where it has a transaction
// to roll back.
//
// A run has one such transaction: a second InTx goes on in it, under a savepoint, and heeds neither db nor opts. From then on
// core.Step refuses new steps, before they are done, with an error that wraps errors.ErrUnsupported: do them before.
//
// Let the transaction be READ COMMITTED. Without a level in opts it has the role's default; where that is higher, say
// pgx.ReadCommitted. At a higher level the commit fails if the lease was renewed since, or somebody waits; at SERIALIZABLE
// also when transactions of other keys are committed meanwhile, since PostgreSQL tells rows that are close together not
// apart. The run then has no effects, and the client has to retry.
//
// Outside of a run, for a request without a key for example, and in an unprotected one (Run.Unprotected), it is
// pgx.BeginTxFunc.
func InTx(ctx context.Context, db DB, opts pgx.TxOptions, f func(pgx.Tx) error) error {
	run, ok := core.FromContext(ctx)
	if !ok || run.Unprotected {
		return pgx.BeginTxFunc(ctx, db, opts, f)
	}
	of := ctx
	if own, ok := ctx.Value(core.ContextKey).(context.Context); ok { // frameworks' contexts know that, and nothing else of the run
		of = own
	}
	sess, _ := of.Value(sessionKey{}).(*session)
	if sess == nil || sess.claim.Fence != run.Fence { // no Store here, or only that of a run around this one
		return errOtherStore
	}
	return sess.inTx(ctx, db, opts, f)
}

// CompleteTx is Complete as a part of tx: the outcome is kept if and when the caller commits. It returns [driver.ErrLost] when
// the claim does not hold the record; roll tx back then, as after any other error. Nothing but a commit that was answered says
// that the outcome is kept; after one without an answer, a Begin of another owner tells. Call CompleteTx last: rivals wait for
// tx to end.
// In the handler of an engine use [InTx], because the engine completes the run itself.
func (s *Store) CompleteTx(ctx context.Context, tx pgx.Tx, c driver.Claim, outcome []byte) error {
	var status string
	if err := scan(ctx, tx, []any{&status}, s.complete, claimArguments(&c, completeArguments(&c, outcome))); err != nil {
		return storeError(err)
	}
	return statusError(status)
}

// commit ends a run whose effects are in tx, nil when tx has been ended or taken away before. The answer is nil when effects
// and outcome are there, driver.ErrLost when neither is there nor will be, and driver.ErrOutcomeUnknown when the store could not
// find out. Whatever it is, nothing of the run is to be sent again, and only after nil is its answer to be shown.
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
		return fmt.Errorf("%w: whether the run's transaction is committed: %w; nor could the store look: %w", driver.ErrOutcomeUnknown, cause, err)
	}
	return fmt.Errorf("%w: the run's transaction is not committed: %w", driver.ErrLost, cause)
}

// commitTx commits tx with the outcome in it. From the moment that it has asked for that, only the server's word tells that
// tx is not committed.
func (s *Store) commitTx(ctx context.Context, sess *session, tx pgx.Tx, c *driver.Claim, outcome []byte) error {
	if err := s.CompleteTx(ctx, tx, *c, outcome); err != nil {
		rollback(ctx, tx)
		return err
	}
	sess.commitSent.Store(true)
	err := tx.Commit(ctx)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.SeverityUnlocalized == "ERROR" || errors.Is(err, pgx.ErrTxCommitRollback) {
		sess.commitSent.Store(false)
	}
	return err
}

// resolveCommit looks whether a transaction without an answer was committed after all: nil when it was, driver.ErrLost when it was
// not and will not be, another error when the store could not tell. Fail waits for the transaction's lock on the record. If
// the transaction is gone, Fail frees the key; if it is not, Fail finds the record COMPLETED.
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

// rollback ends tx. It ends with ctx, but lasts for a second at most; a ctx that has ended leaves it that second.
func rollback(ctx context.Context, tx pgx.Tx) {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = tx.Rollback(ctx) // or the server does, when the connection is gone
}

// sessionKey is the key under which a context of a run holds its session.
type sessionKey struct{}

// session is what a Store knows of a run while it lasts: the transaction that the handler's effects are in.
type session struct {
	claim      driver.Claim
	commitSent atomic.Bool // the transaction may be committed: nobody has said that it is not

	mu     sync.Mutex
	tx     pgx.Tx // open, and nobody is at work on it; nil without one
	busy   bool   // an InTx is at work
	joined bool   // the effects are in a transaction that the run is to commit, or was to
	ended  bool   // the run has ended
}

// OpenSession implements driver.SessionOpener: it makes the transaction of an [InTx] known to the verbs that end the run, and rolls
// back what none of them has ended.
func (s *Store) OpenSession(ctx context.Context, c driver.Claim) (run context.Context, closeSession func()) {
	sess := &session{claim: c}
	closeSession = func() {
		if tx, _ := sess.finish(); tx != nil {
			rollback(ctx, tx)
		}
	}
	return context.WithValue(ctx, sessionKey{}, sess), closeSession
}

// sessionOf returns the session of c's run, nil when ctx belongs to none.
func sessionOf(ctx context.Context, c *driver.Claim) *session {
	if sess, _ := ctx.Value(sessionKey{}).(*session); sess != nil && sess.claim.Owner == c.Owner {
		return sess
	}
	return nil
}

// finish ends the run. It tells whether the effects are in a transaction, and hands that over the first time. An InTx that
// is still at work keeps it, and rolls it back.
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

func (s *session) isJoined() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joined || s.busy
}

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
	guard := &handlerTx{Tx: tx}
	if err = f(guard); err == nil {
		err = guard.check()
	}
	keep = err == nil
	return err
}

// acquire starts the work of an InTx. It hands over the transaction of an earlier one, nil without one.
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

// release ends the work of an InTx, whose transaction waits for the end of the run, or is rolled back.
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

// handlerTx is a transaction in the hands of f, which is not to commit it.
type handlerTx struct {
	pgx.Tx
	ended bool
}

// Commit refuses: the run commits.
func (g *handlerTx) Commit(context.Context) error { return errEnded }

func (g *handlerTx) Rollback(ctx context.Context) error {
	g.ended = true
	return g.Tx.Rollback(ctx)
}

// check tells why the transaction can not be committed. A statement whose error f has swallowed has spoilt it.
func (g *handlerTx) check() error {
	switch {
	case g.ended:
		return errEnded
	case g.Conn().PgConn().TxStatus() != 'T':
		return pgx.ErrTxCommitRollback
	}
	return nil
}
