package sqlitestore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/internal/record"
)

// sessionKey is the key under which a context of a run holds its session.
type sessionKey struct{}

// session is what a Store knows of one run while it lasts: the transaction with the handler's effects. A nil session has none.
type session struct {
	store          *Store
	claim          driver.Claim
	mayBeCommitted atomic.Bool // a commit is under way, or has ended without a result
	isExtended     atomic.Bool // the lease was extended in the transaction

	mu     sync.Mutex
	tx     *transaction // the open transaction between calls of InTx; otherwise nil
	busy   bool         // an InTx is running
	joined bool         // an InTx has succeeded: the run must commit its transaction, or has done so
	ended  bool         // the run has ended
}

// OpenSession implements driver.SessionOpener. Through the returned context Complete and Fail find the transaction of an
// [Store.InTx]. closeSession rolls the transaction back if none of these calls has ended it.
func (s *Store) OpenSession(ctx context.Context, c driver.Claim) (run context.Context, closeSession func()) {
	sess := &session{store: s, claim: c}
	closeSession = func() {
		if t, _ := sess.finish(); t != nil {
			sess.undo(ctx, t)
		}
	}
	return context.WithValue(ctx, sessionKey{}, sess), closeSession
}

// sessionIn returns the session of the run that ctx belongs to, or nil. The context of a framework has the run's context only.
func sessionIn(ctx context.Context) *session {
	if run, ok := ctx.Value(driver.ContextKey).(context.Context); ok {
		ctx = run
	}
	sess, _ := ctx.Value(sessionKey{}).(*session)
	return sess
}

// sessionOf returns the session of the run of c, or nil if ctx belongs to no such run.
func sessionOf(ctx context.Context, c *driver.Claim) *session {
	if sess := sessionIn(ctx); sess != nil && sess.claim.Owner == c.Owner {
		return sess
	}
	return nil
}

// finish marks the run as ended. It reports whether the run has a transaction, and returns the transaction at its first call. If
// an InTx is still running, finish returns no transaction: that InTx rolls it back.
func (s *session) finish() (t *transaction, joined bool) {
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, s.tx = s.tx, nil
	s.ended = true
	s.joined = s.joined || s.busy
	return t, s.joined
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

// holdsLock reports whether the run holds the write lock of the file, or an InTx of it waits for the lock.
func (s *session) holdsLock() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tx != nil || s.busy
}

// inTx is InTx for the run of the session. The transaction has a savepoint idem_run at its beginning, so that it can be undone
// without a loss of the lock, and idem_part at the beginning of f. Without these, SQLite has ended the transaction.
func (s *session) inTx(ctx context.Context, f func(Tx) error) (err error) {
	t, err := s.acquire()
	if err != nil {
		return err
	}
	isFirst, keep := t == nil, false
	defer func() { // also when f panics
		if lost := s.release(ctx, t, isFirst, keep); lost != nil {
			err = lost
		}
	}()
	if isFirst {
		if t, err = s.begin(ctx); err != nil {
			return err
		}
	}
	if err := t.runPart(f); err != nil {
		return err
	}
	keep = true
	return nil
}

// runPart runs the function of an InTx in the transaction of a run. The savepoint idem_open is the last one before and after it:
// without it SQLite has ended the transaction, and the savepoint of a part would begin another one.
func (t *transaction) runPart(f func(Tx) error) error {
	if err := t.execute("RELEASE idem_open"); err != nil {
		return errEnded
	}
	if err := t.execute("SAVEPOINT idem_part"); err != nil {
		return err
	}
	if err := t.run(f); err != nil {
		return err
	}
	if err := t.execute("RELEASE idem_part"); err != nil {
		return errEnded
	}
	return t.execute("SAVEPOINT idem_open")
}

// acquire starts an InTx. It returns the transaction of an earlier InTx, or nil if there was none.
func (s *session) acquire() (t *transaction, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return nil, driver.ErrLost
	case s.busy:
		return nil, errBusy
	}
	t, s.tx, s.busy = s.tx, nil, true
	return t, nil
}

// begin begins the transaction of the run. It returns driver.ErrLost if the run has lost its claim.
func (s *session) begin(ctx context.Context) (*transaction, error) {
	t, err := s.store.awaitTransaction(ctx)
	if err != nil {
		return nil, err
	}
	r, err := load(t, s.claim.Key)
	if err == nil && (r.State != record.Started || !r.IsHeldBy(&s.claim, t.now)) {
		err = driver.ErrLost
	}
	if err == nil {
		err = t.execute("SAVEPOINT idem_run; SAVEPOINT idem_open")
	}
	if err != nil {
		t.release()
		return nil, s.store.explain(err)
	}
	s.store.holder.Store(&holder{s, t})
	return t, nil
}

// release ends an InTx. With keep it stores the transaction for the end of the run. Without keep it undoes what the function has
// done, and if the run has ended meanwhile, the whole transaction; then it returns driver.ErrLost if the function has returned no
// error.
func (s *session) release(ctx context.Context, t *transaction, isFirst, keep bool) (lost error) {
	s.mu.Lock()
	s.busy = false
	isLost := s.ended
	isOpen := t != nil && !isLost && (keep || !isFirst && t.undoPart())
	if isOpen {
		s.tx, s.joined = t, true
	}
	s.mu.Unlock()
	if t != nil && !isOpen {
		s.undo(ctx, t)
	}
	if isLost && keep {
		return driver.ErrLost
	}
	return nil
}

// undoPart undoes what the function of an InTx has done. It returns false if SQLite has ended the transaction.
func (t *transaction) undoPart() bool {
	return t.execute("ROLLBACK TO idem_part") == nil && t.execute("RELEASE idem_part; SAVEPOINT idem_open") == nil
}

// holder is the run of this process that holds the write lock of the file.
type holder struct {
	session *session
	tx      *transaction
}

// writeAs is write for a call of the owner of c. If the run of c holds the write lock, the call is a part of its transaction.
func writeAs[T any](ctx context.Context, s *Store, c *driver.Claim, change func(*transaction) (T, error)) (none T, err error) {
	h := s.holder.Load()
	if h == nil || h.session.claim.Owner != c.Owner {
		return write(ctx, s, change)
	}
	if ctx.Err() != nil {
		return none, ctx.Err()
	}
	return await(ctx, func() (T, error) {
		value, err := change(&transaction{Conn: h.tx.Conn, now: s.now().UnixMicro()})
		if err == nil {
			h.session.isExtended.Store(true)
		}
		return value, s.explain(err)
	})
}

// errRolledBack says that SQLite has rolled a transaction back by itself.
var errRolledBack = errors.New("sqlitestore: SQLite has rolled the run's transaction back")

// commit adds the outcome to the transaction and commits it. The caller has set mayBeCommitted.
func (s *session) commit(t *transaction, c *driver.Claim, outcome []byte) error {
	err := s.completeAndCommit(t, c, outcome)
	s.mayBeCommitted.Store(false)
	s.letGo(t)
	return err
}

// completeAndCommit is commit without its bookkeeping.
func (s *session) completeAndCommit(t *transaction, c *driver.Claim, outcome []byte) error {
	if err := t.execute("RELEASE idem_run"); err != nil {
		return errRolledBack
	}
	t.now = s.store.now().UnixMicro()
	if _, err := t.complete(c, outcome); err != nil {
		return err
	}
	t.afterCommit = func() { s.store.watches.Notify(c.Key) }
	return t.commit()
}

// undo rolls back what the run has done in its transaction, and ends the transaction. It takes at most a second, and ends with
// ctx. If ctx has ended already, it has that second.
func (s *session) undo(ctx context.Context, t *transaction) {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = await(ctx, func() (struct{}, error) {
		defer s.letGo(t)
		return struct{}{}, s.undoWithLock(t)
	})
}

// undoWithLock rolls back what the run has done. If the lease was extended in the transaction, that is rolled back as well; so
// the lease is extended anew before the lock is released, and no other run can take over in between.
func (s *session) undoWithLock(t *transaction) error {
	if !s.isExtended.Load() {
		return nil
	}
	if err := t.execute("ROLLBACK TO idem_run"); err != nil {
		return errRolledBack
	}
	t.now = s.store.now().UnixMicro()
	if err := t.renew(&s.claim, t.now+record.Microseconds(s.claim.Lease)); err != nil {
		return err
	}
	return t.commit()
}

// letGo ends the transaction of the run, and rolls it back unless it is committed.
func (s *session) letGo(t *transaction) {
	s.store.holder.Store(nil)
	t.release()
}
