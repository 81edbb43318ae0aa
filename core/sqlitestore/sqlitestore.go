package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/internal/record"
	"github.com/go-idem/idem/internal/watch"
)

var (
	_ driver.Store         = (*Store)(nil)
	_ driver.Notifier      = (*Store)(nil)
	_ driver.Checkpointer  = (*Store)(nil)
	_ driver.SessionOpener = (*Store)(nil)
	_ driver.Reopener      = (*Store)(nil)
	_ driver.Inspector     = (*Store)(nil)
	_ driver.OutcomeReader = (*Store)(nil)
)

// Store is a driver.Store in a file. It has all optional abilities of package driver. It is safe for concurrent use. It runs a
// goroutine only while there are watches or calls. Close it after its last use.
type Store struct {
	path         string // absolute
	now          func() time.Time
	maxBytes     int64         // 0 for no bound
	timeout      time.Duration // of each call; 0 for none
	synchronous  string
	watches      watch.Set
	pollInterval time.Duration
	holder       atomic.Pointer[holder] // the run with an InTx; nil without one

	// All pools are of the same file. The writer has one connection, so that the writes of this process do not meet in SQLite.
	writer, reader, application *sql.DB
}

// Option changes a Store. Pass options to Open.
type Option func(*options)

type options struct {
	synchronous string
	foreignKeys string
	maxBytes    int64
	timeout     time.Duration
	mustExist   bool
}

// NormalSync lets the file system decide when a commit reaches the disk (synchronous=NORMAL). After a loss of power, or a crash
// of the system, the last claims and outcomes may be missing, and their keys are new. The end of the process loses nothing.
// Default: each commit is on the disk when the call returns (synchronous=FULL).
func NormalSync() Option { return func(o *options) { o.synchronous = "NORMAL" } }

// ForeignKeys lets SQLite check the foreign keys of the application's tables, in [Store.InTx] and on [Store.DB]. Default: it does
// not.
func ForeignKeys() Option { return func(o *options) { o.foreignKeys = "1" } }

// MaxBytes bounds the part of the file that is in use, with the tables of the application. At the bound the store refuses new
// keys with [ErrFull]. It still accepts the outcomes, failures and steps of running claims, so the file can exceed the bound by
// these. Set it below what the disk has, so that the outcome of a run that has begun finds room. Default 0: only the disk bounds
// the file.
func MaxBytes(n int64) Option { return func(o *options) { o.maxBytes = n } }

// Timeout bounds each call of the store, for callers whose contexts have no end. Default 0: only the context of a call bounds it.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// MustExist lets Open return an error if there is no file, or no store in it, and makes neither. It is for programs that look at
// the records of a service. Default: Open makes both.
func MustExist() Option { return func(o *options) { o.mustExist = true } }

// readers is how many connections read at a time, beside one for the watches.
const readers = 4

// Open opens the file, makes it if it does not exist, and makes the tables of the store in it, beside those of the application.
// The directory must exist. A new file can be read by its owner only. Any number of processes of one machine may open a file.
//
// Open returns an error if the file cannot be written, is no SQLite database, cannot have a write-ahead log (as on many network
// file systems), or has the tables of a later version.
func Open(ctx context.Context, path string, opts ...Option) (*Store, error) {
	o := options{synchronous: "FULL", foreignKeys: "0"}
	for _, opt := range opts {
		opt(&o)
	}
	if o.maxBytes < 0 || o.timeout < 0 {
		return nil, fmt.Errorf("sqlitestore: MaxBytes: %d and Timeout: %v must not be negative", o.maxBytes, o.timeout)
	}
	path, err := findFile(path, o.mustExist)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, now: time.Now, maxBytes: o.maxBytes, synchronous: o.synchronous, timeout: o.timeout}
	s.watches.Poll, s.pollInterval = s.poll, pollInterval
	if err = s.openPools(&o); err == nil {
		_, err = await(ctx, func() (struct{}, error) { return struct{}{}, s.makeSchema(ctx, o.mustExist) })
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// findFile makes the file if it does not exist and need not, and returns its absolute path. It opens no file that exists: to
// close it would release the locks that this process has on it.
func findFile(path string, mustExist bool) (string, error) {
	if path == "" || path == ":memory:" {
		return "", fmt.Errorf("sqlitestore: Open: path %q names no file: for records in memory use memstore", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("sqlitestore: Open: %w", err)
	}
	if mustExist {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("sqlitestore: Open: %w", err)
		}
		return path, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	switch {
	case err == nil:
		return path, file.Close()
	case errors.Is(err, fs.ErrExist):
		return path, nil
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("sqlitestore: Open: the directory %s does not exist: make it: %w", filepath.Dir(path), err)
	}
	return "", fmt.Errorf("sqlitestore: Open: the file cannot be made: %w", err)
}

// openPools makes the pools, which connect when they are used.
func (s *Store) openPools(o *options) (err error) {
	sync, keys := "_sync="+o.synchronous, "_fk="+o.foreignKeys
	if s.writer, err = openPool(s.path, 1, "_busy_timeout=0", sync, keys); err != nil {
		return err
	}
	if s.reader, err = openPool(s.path, readers+1, "_busy_timeout=0", "_query_only=1"); err != nil {
		return err
	}
	s.application, err = openPool(s.path, readers, "_busy_timeout=5000", sync, keys)
	return err
}

// DB returns connections to the file for the application's own statements, with the settings of the store. A transaction of DB
// takes the write lock when it begins, and a statement that needs a lock waits for it for at most 5 seconds. A handler must not
// write with DB after its InTx, because it would wait for itself. The Store closes DB.
func (s *Store) DB() *sql.DB { return s.application }

// Close closes the file. The caller must have ended all calls, and closed the engine.
func (s *Store) Close() error {
	var errs []error
	for _, pool := range []*sql.DB{s.application, s.reader, s.writer} {
		if pool != nil {
			errs = append(errs, pool.Close())
		}
	}
	return errors.Join(errs...)
}

// Begin implements driver.Store. A Begin that changes nothing takes no lock.
func (s *Store) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	type reply struct {
		entry   driver.Entry
		isFinal bool
	}
	found, err := read(ctx, s, func(from querier) (found reply, err error) {
		r, err := load(from, c.Key)
		if err != nil {
			return found, err
		}
		// Another call may extend a lease or a retention between this read of the row and that of the clock. So what is over is decided
		// under the lock only.
		now := s.now().UnixMicro()
		found.entry, found.isFinal, err = r.Reply(&c, now)
		hasEnded := r.State != record.Absent && !r.IsThere(now) || found.entry.State == driver.Unknown
		found.isFinal = found.isFinal && !hasEnded
		return found, err
	})
	if found.isFinal || err != nil {
		return found.entry, err
	}
	return write(ctx, s, func(t *transaction) (driver.Entry, error) { return s.begin(t, &c) })
}

// begin is Begin under the lock.
func (s *Store) begin(t *transaction, c *driver.Claim) (driver.Entry, error) {
	r, err := load(t, c.Key)
	if err != nil {
		return driver.Entry{}, err
	}
	entry, isFinal, err := r.Reply(c, t.now)
	if isFinal || err != nil {
		return entry, err
	}
	if err := s.checkRoom(t); err != nil && r.State == record.Absent {
		return driver.Entry{}, err
	}
	if r.Claim(c, t.now) {
		err = t.deleteSteps(c.Key)
	}
	if err == nil {
		err = t.save(c.Key, r)
	}
	if err == nil {
		_, err = t.sweep(sweptByClaim)
	}
	return r.Entry(c.Lease), err
}

// checkRoom returns ErrFull if the file has reached MaxBytes.
func (s *Store) checkRoom(t *transaction) error {
	if s.maxBytes == 0 {
		return nil
	}
	var used int64
	const sql = `SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size`
	if err := t.QueryRowContext(background, sql).Scan(&used); err != nil {
		return err
	}
	if used >= s.maxBytes {
		return fmt.Errorf("sqlitestore: %s: %w: %d bytes are in use, and MaxBytes is %d", s.path, ErrFull, used, s.maxBytes)
	}
	return nil
}

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, c driver.Claim) error {
	_, err := writeAs(ctx, s, &c, func(t *transaction) (struct{}, error) {
		return struct{}{}, t.renew(&c, t.now+record.Microseconds(c.Lease))
	})
	return err
}

// renew starts the retention of a STARTED record anew. It returns an error like driver.ErrLost if c does not hold the record.
// leaseEnd is the new end of the lease, or 0 if that stays.
func (t *transaction) renew(c *driver.Claim, leaseEnd int64) error {
	const sql = `UPDATE idem_record SET lease_end = CASE ?1 WHEN 0 THEN lease_end ELSE ?1 END, expires = ?2
		WHERE key = ?3 AND owner = ?4 AND fence = ?5 AND state = 'STARTED' AND expires > ?6`
	expires := t.now + record.Microseconds(c.Retention)
	result, err := t.ExecContext(background, sql, leaseEnd, expires, c.Key[:], c.Owner[:], c.Fence, t.now)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); n > 0 || err != nil {
		return err
	}
	r, err := load(t, c.Key)
	if err != nil {
		return err
	}
	return r.LostError(c, t.now)
}

// Complete implements driver.Store. In a run with an [Store.InTx] it commits the transaction, with the outcome in it.
func (s *Store) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	sess := sessionOf(ctx, &c)
	t, joined := sess.finish()
	if joined {
		return s.commit(ctx, sess, t, &c, outcome)
	}
	return s.change(ctx, &c, func(t *transaction) (bool, error) { return t.complete(&c, outcome) })
}

// change calls apply under the lock, and notifies the waiting requests if apply reports that a claim has ended. apply may change
// the record and return driver.ErrLost.
func (s *Store) change(ctx context.Context, c *driver.Claim, apply func(*transaction) (hasEnded bool, err error)) error {
	lost, err := write(ctx, s, func(t *transaction) (lost error, err error) {
		hasEnded, err := apply(t)
		if hasEnded {
			t.afterCommit = func() { s.watches.Notify(c.Key) }
		}
		if errors.Is(err, driver.ErrLost) {
			return err, nil
		}
		return nil, err
	})
	if err != nil {
		return err
	}
	return lost
}

// complete is Complete in a transaction. It reports whether the record has become COMPLETED.
func (t *transaction) complete(c *driver.Claim, outcome []byte) (bool, error) {
	r, err := load(t, c.Key)
	if err != nil {
		return false, err
	}
	if hasChanged, err := r.Complete(c, outcome, t.now); !hasChanged {
		return false, err
	}
	if err := t.save(c.Key, r); err != nil {
		return false, err
	}
	if c.LateRetry > 0 {
		const sql = `INSERT INTO idem_tombstone VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET expires = excluded.expires`
		if err := t.execute(sql, c.Key[:], r.Tombstone); err != nil {
			return false, err
		}
	}
	return true, t.deleteSteps(c.Key)
}

// Fail implements driver.Store. In a run with an [Store.InTx] it also rolls the transaction back.
func (s *Store) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	sess := sessionOf(ctx, &c)
	if t, _ := sess.finish(); t != nil {
		sess.undo(ctx, t)
	}
	return s.change(ctx, &c, func(t *transaction) (bool, error) { return s.fail(t, &c, f) })
}

// fail is Fail in a transaction. It reports whether the record has become FAILED.
func (s *Store) fail(t *transaction, c *driver.Claim, f driver.Failure) (bool, error) {
	r, err := load(t, c.Key)
	if err != nil {
		return false, err
	}
	isWithdrawal := c.Fence == 0 && !r.IsHeldBy(c, t.now)
	if isWithdrawal && r.State == record.Absent && s.checkRoom(t) != nil {
		return false, driver.ErrLost // the store would refuse that Begin as well
	}
	isThere := r.IsThere(t.now)
	hasChanged, result := r.Fail(c, f, t.now)
	if !hasChanged {
		return false, result
	}
	if r.IsFree() && (!isWithdrawal || !isThere) {
		err = t.deleteSteps(c.Key)
	}
	if err == nil {
		err = t.save(c.Key, r)
	}
	if err != nil {
		return false, err
	}
	return !isWithdrawal, result
}

// Reopen turns the COMPLETED record of a dead message into a FAILED one, so that the message can run again. core.Engine.Resolve
// calls it. Reopen returns driver.ErrLost if the record does not hold exactly this outcome.
func (s *Store) Reopen(ctx context.Context, c driver.Claim, outcome []byte) error {
	return s.change(ctx, &c, func(t *transaction) (bool, error) {
		r, err := load(t, c.Key)
		if err != nil {
			return false, err
		}
		if hasChanged, err := r.Reopen(&c, outcome, t.now); !hasChanged {
			return false, err
		}
		if err := t.save(c.Key, r); err != nil {
			return false, err
		}
		return true, t.execute("DELETE FROM idem_tombstone WHERE key = ?", c.Key[:])
	})
}
