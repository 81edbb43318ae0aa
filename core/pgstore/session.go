package pgstore

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/go-idem/idem/core/driver"
)

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

// check returns an error if the transaction cannot be committed: f has rolled it back, has left rows open, or has ignored the
// error of a statement, after which PostgreSQL accepts no commit.
func (g *handlerTx) check() error {
	switch {
	case g.ended:
		return errEnded
	case g.Conn().PgConn().IsBusy():
		return errRowsOpen
	case g.Conn().PgConn().TxStatus() != 'T':
		return pgx.ErrTxCommitRollback
	}
	return nil
}
