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
	errElsewhere = errors.New("pgstore: InTx: the run's engine does not keep its records in a pgstore.Store, so the outcome can not join the transaction")
	errBusy      = errors.New("pgstore: InTx: another InTx of this run has not returned; a run has one transaction")
	errEnded     = errors.New("pgstore: InTx: the run ends the transaction; return nil to have it committed with the outcome, an error to have it rolled back")
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
	a, _ := of.Value(attendanceKey{}).(*attendance)
	if a == nil || a.claim.Fence != run.Fence { // no Store here, or only that of a run around this one
		return errElsewhere
	}
	return a.inTx(ctx, db, opts, f)
}

// CompleteTx is Complete as a part of tx: the outcome is kept if and when the caller commits. It returns [driver.ErrLost] when
// the claim does not hold the record; roll tx back then, as after any other error. Nothing but a commit that was answered says
// that the outcome is kept; after one without an answer, a Begin of another owner tells. Call CompleteTx last: rivals wait for
// tx to end.
// In the handler of an engine use [InTx], because the engine completes the run itself.
func (s *Store) CompleteTx(ctx context.Context, tx pgx.Tx, c driver.Claim, outcome []byte) error {
	var word string
	if err := scan(ctx, tx, []any{&word}, s.complete, held(&c, completion(&c, outcome))); err != nil {
		return storeError(err)
	}
	return wordError(word)
}

// commit ends a run whose effects are in tx, nil when tx has been ended or taken away before. The answer is nil when effects
// and outcome are there, driver.ErrLost when neither is there nor will be, and driver.ErrOutcomeUnknown when the store could not
// find out. Whatever it is, nothing of the run is to be sent again, and only after nil is its answer to be shown.
func (s *Store) commit(ctx context.Context, a *attendance, tx pgx.Tx, c *driver.Claim, outcome []byte) error {
	cause := errors.New("it was ended before")
	if tx != nil {
		cause = s.commitTx(ctx, a, tx, c, outcome)
	}
	if cause == nil {
		return nil
	}
	switch err := s.turnedOut(ctx, c, outcome); {
	case err == nil:
		return nil
	case !errors.Is(err, driver.ErrLost) && a.asked.Load():
		return fmt.Errorf("%w: whether the run's transaction is committed: %w; nor could the store look: %w", driver.ErrOutcomeUnknown, cause, err)
	}
	return fmt.Errorf("%w: the run's transaction is not committed: %w", driver.ErrLost, cause)
}

// commitTx commits tx with the outcome in it. From the moment that it has asked for that, only the server's word tells that
// tx is not committed.
func (s *Store) commitTx(ctx context.Context, a *attendance, tx pgx.Tx, c *driver.Claim, outcome []byte) error {
	if err := s.CompleteTx(ctx, tx, *c, outcome); err != nil {
		rollback(ctx, tx)
		return err
	}
	a.asked.Store(true)
	err := tx.Commit(ctx)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.SeverityUnlocalized == "ERROR" || errors.Is(err, pgx.ErrTxCommitRollback) {
		a.asked.Store(false)
	}
	return err
}

// turnedOut looks whether a transaction without an answer was committed after all: nil when it was, driver.ErrLost when it was
// not and will not be, another error when the store could not tell. Fail waits for the transaction's lock on the record. If
// the transaction is gone, Fail frees the key; if it is not, Fail finds the record COMPLETED.
func (s *Store) turnedOut(ctx context.Context, c *driver.Claim, outcome []byte) error {
	err := s.run(ctx, s.fail, c, failure(c, driver.Failure{Cause: "transaction not committed"})...)
	switch {
	case err == nil:
		return driver.ErrLost
	case errors.Is(err, driver.ErrLost):
		return s.run(ctx, s.complete, c, completion(c, outcome)...)
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

type attendanceKey struct{} // the attendance of the run that a context belongs to

// attendance is what a Store knows of a run while it lasts: the transaction that the handler's effects are in.
type attendance struct {
	claim driver.Claim
	asked atomic.Bool // the transaction may be committed: nobody has said that it is not

	mu     sync.Mutex
	tx     pgx.Tx // open, and nobody is at work on it; nil without one
	busy   bool   // an InTx is at work
	joined bool   // the effects are in a transaction that the run is to commit, or was to
	over   bool   // the run has ended
}

// OpenSession implements driver.SessionOpener: it makes the transaction of an [InTx] known to the verbs that end the run, and rolls
// back what none of them has ended.
func (s *Store) OpenSession(ctx context.Context, c driver.Claim) (run context.Context, leave func()) {
	a := &attendance{claim: c}
	leave = func() {
		if tx, _ := a.finish(); tx != nil {
			rollback(ctx, tx)
		}
	}
	return context.WithValue(ctx, attendanceKey{}, a), leave
}

// attending returns the attendance of c's run, nil when ctx belongs to none.
func attending(ctx context.Context, c *driver.Claim) *attendance {
	if a, _ := ctx.Value(attendanceKey{}).(*attendance); a != nil && a.claim.Owner == c.Owner {
		return a
	}
	return nil
}

// finish ends the run. It tells whether the effects are in a transaction, and hands that over the first time. An InTx that
// is still at work keeps it, and rolls it back.
func (a *attendance) finish() (tx pgx.Tx, joined bool) {
	if a == nil {
		return nil, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	tx, a.tx = a.tx, nil
	a.over = true
	a.joined = a.joined || a.busy
	return tx, a.joined
}

func (a *attendance) isJoined() bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.joined || a.busy
}

func (a *attendance) inTx(ctx context.Context, db DB, opts pgx.TxOptions, f func(pgx.Tx) error) (err error) {
	tx, err := a.take()
	if err != nil {
		return err
	}
	keep := tx != nil
	defer func() { // also when f panics
		if lost := a.giveBack(ctx, tx, keep); lost != nil {
			err = lost
		}
	}()
	if tx != nil {
		return pgx.BeginFunc(ctx, tx, f)
	}
	if tx, err = db.BeginTx(ctx, opts); err != nil {
		return err
	}
	guard := &guarded{Tx: tx}
	if err = f(guard); err == nil {
		err = guard.check()
	}
	keep = err == nil
	return err
}

// take starts the work of an InTx. It hands over the transaction of an earlier one, nil without one.
func (a *attendance) take() (tx pgx.Tx, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.over:
		return nil, driver.ErrLost
	case a.busy:
		return nil, errBusy
	}
	tx, a.tx, a.busy = a.tx, nil, true
	return tx, nil
}

// giveBack ends the work of an InTx, whose transaction waits for the end of the run, or is rolled back.
func (a *attendance) giveBack(ctx context.Context, tx pgx.Tx, keep bool) (lost error) {
	a.mu.Lock()
	a.busy = false
	if keep && !a.over {
		a.tx, a.joined, tx = tx, true, nil
	} else if keep {
		lost = driver.ErrLost
	}
	a.mu.Unlock()
	if tx != nil {
		rollback(ctx, tx)
	}
	return lost
}

// guarded is a transaction in the hands of f, which is not to commit it.
type guarded struct {
	pgx.Tx
	ended bool
}

// Commit refuses: the run commits.
func (g *guarded) Commit(context.Context) error { return errEnded }

func (g *guarded) Rollback(ctx context.Context) error {
	g.ended = true
	return g.Tx.Rollback(ctx)
}

// check tells why the transaction can not be committed. A statement whose error f has swallowed has spoilt it.
func (g *guarded) check() error {
	switch {
	case g.ended:
		return errEnded
	case g.Conn().PgConn().TxStatus() != 'T':
		return pgx.ErrTxCommitRollback
	}
	return nil
}
