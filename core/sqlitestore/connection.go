package sqlitestore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// background is the context of statements. A statement takes no lock for which it waits, so it ends soon, unless the disk hangs;
// then await returns without it. A context that ends during a statement would roll the whole transaction back.
var background = context.Background()

// querier sends statements: a connection, or a transaction on it.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// transaction is a transaction that holds the write lock of the file. While it lasts, no other process and no other connection
// writes to the file.
type transaction struct {
	*sql.Conn
	now         int64  // the time at which it got the lock, in µs since 1970
	afterCommit func() // nil for nothing
}

// dataSource returns the data source name of the file for the driver. The settings are those of each connection. No connection
// waits for a lock in SQLite: retryBusy waits, with a context. A file that was deleted is not made anew (mode=rw).
func dataSource(path string, settings ...string) string {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // the volume of Windows
	}
	file := url.URL{Scheme: "file", Path: slashed, RawQuery: "mode=rw&_txlock=immediate&" + strings.Join(settings, "&")}
	return file.String()
}

// openPool returns a pool of at most size connections to the file.
func openPool(path string, size int, settings ...string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dataSource(path, settings...))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db, nil
}

// connect returns a connection of a pool. A new one reads the file, for which another process may be in its way.
func connect(ctx context.Context, pool *sql.DB) (conn *sql.Conn, err error) {
	err = retryBusy(ctx, func() (err error) {
		conn, err = pool.Conn(ctx)
		return err
	})
	return conn, err
}

// The pauses between tries to get a lock that another connection holds double from the first value to the second one.
const (
	minPause = time.Millisecond
	maxPause = 4 * time.Millisecond
)

// retryBusy calls try until another connection's lock is no longer in its way, or ctx ends.
func retryBusy(ctx context.Context, try func() error) error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := try()
		if !isBusy(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

// errNoReply is the error of a call whose context has ended before SQLite was done. The call may still take effect.
var errNoReply = errors.New("the file did not respond in time: another transaction holds its write lock, or the disk is slow")

// await calls f, also if ctx has ended, and returns its results. If ctx ends first, await returns an error that wraps errNoReply,
// and f goes on: it may be waiting for a disk that hangs. Its results are then passed to each function of discard.
func await[T any](ctx context.Context, f func() (T, error), discard ...func(T, error)) (value T, err error) {
	type result struct {
		value T
		err   error
	}
	done, abandoned := make(chan result), make(chan struct{})
	go func() {
		value, err := f()
		select {
		case done <- result{value, err}:
		case <-abandoned:
			for _, end := range discard {
				end(value, err)
			}
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		close(abandoned)
		return value, fmt.Errorf("sqlitestore: %w: %w", errNoReply, ctx.Err())
	}
}

// bound returns the context of a call, which ends with Timeout.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.timeout)
}

// write calls change in a transaction that holds the write lock, and commits it if change returns no error.
func write[T any](ctx context.Context, s *Store, change func(*transaction) (T, error)) (none T, err error) {
	if err := errors.Join(ctx.Err(), s.checkNesting(ctx)); err != nil {
		return none, err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	return await(ctx, func() (value T, err error) {
		t, err := s.beginTransaction(ctx)
		if err != nil {
			return value, s.explain(err)
		}
		defer t.release()
		if value, err = change(t); err != nil {
			return value, s.explain(err)
		}
		return value, s.explain(t.commit())
	})
}

// read calls look with a connection that changes nothing.
func read[T any](ctx context.Context, s *Store, look func(querier) (T, error)) (none T, err error) {
	if ctx.Err() != nil {
		return none, ctx.Err()
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	return await(ctx, func() (value T, err error) {
		conn, err := connect(ctx, s.reader)
		if err != nil {
			return value, s.explain(err)
		}
		defer func() { _ = conn.Close() }()
		err = retryBusy(ctx, func() (err error) {
			value, err = look(conn)
			return err
		})
		return value, s.explain(err)
	})
}

// errNested refuses a claim for which a run would wait for itself.
var errNested = errors.New("sqlitestore: this call is made inside a run with an InTx, which holds the write lock of the file " +
	"until that run ends: make the call before the InTx")

// checkNesting returns an error if ctx belongs to a run of this store that holds the write lock.
func (s *Store) checkNesting(ctx context.Context) error {
	if sess := sessionIn(ctx); sess != nil && sess.store == s && sess.holdsLock() {
		return errNested
	}
	return nil
}

// beginTransaction waits for the write lock of the file, and returns a transaction that holds it. Transactions of this process
// wait in the order in which they came; the pool of writers has one connection.
func (s *Store) beginTransaction(ctx context.Context) (*transaction, error) {
	conn, err := connect(ctx, s.writer)
	if err != nil {
		return nil, err
	}
	t := &transaction{Conn: conn}
	if err := retryBusy(ctx, func() error { return t.execute("BEGIN IMMEDIATE") }); err != nil {
		_ = conn.Close()
		return nil, err
	}
	t.now = s.now().UnixMicro()
	return t, nil
}

// execute executes a statement.
func (t *transaction) execute(statement string, args ...any) error {
	_, err := t.ExecContext(background, statement, args...)
	return err
}

// commit commits the transaction. After an error it is not committed.
func (t *transaction) commit() error {
	if err := t.execute("COMMIT"); err != nil {
		return err
	}
	if t.afterCommit != nil {
		t.afterCommit()
	}
	return nil
}

// release rolls the transaction back unless it is committed, and gives its connection back.
func (t *transaction) release() {
	if err := t.execute("ROLLBACK"); err != nil && !strings.Contains(err.Error(), "no transaction is active") {
		_ = t.Raw(func(any) error { return sqldriver.ErrBadConn }) // the pool closes it, and SQLite rolls back
	}
	_ = t.Close()
}

// codeOf returns the primary result code of an error of SQLite, or 0.
func codeOf(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// isBusy reports whether the lock of another connection was in the way of a statement.
func isBusy(err error) bool {
	code := codeOf(err)
	return code == sqlite3.SQLITE_BUSY || code == sqlite3.SQLITE_PROTOCOL
}

// ErrFull is the error of a call for which the disk, or the file under MaxBytes, has no room. Nothing was stored.
var ErrFull = errors.New("no room for the record")

// explain adds to an error of SQLite which file it is about, and what to do.
func (s *Store) explain(err error) error {
	if codeOf(err) == 0 {
		return err
	}
	return explain(s.path, err)
}

// advice says what to do after an error with a result code.
var advice = map[int]string{
	sqlite3.SQLITE_READONLY: "the file cannot be written: let this process write to the file and to its directory",
	sqlite3.SQLITE_CANTOPEN: "the file cannot be opened: it was deleted, or this process may not write to it and its directory",
	sqlite3.SQLITE_NOTADB:   "the file is no SQLite database: name another one",
	sqlite3.SQLITE_CORRUPT:  "the file is damaged: restore it from a backup",
	sqlite3.SQLITE_IOERR:    "the disk of the file failed: look at the log of the system",
	sqlite3.SQLITE_BUSY:     "another connection holds the lock of the file",
}

// explain is Store.explain for the file at path.
func explain(path string, err error) error {
	code := codeOf(err)
	switch text := advice[code]; {
	case code == sqlite3.SQLITE_FULL:
		return fmt.Errorf("sqlitestore: %s: %w: free space on its disk: %w", path, ErrFull, err)
	case text != "":
		return fmt.Errorf("sqlitestore: %s: %s: %w", path, text, err)
	}
	return fmt.Errorf("sqlitestore: %s: %w", path, err)
}
