package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"modernc.org/sqlite"
)

// applicationTx is the Tx that a function of the application gets. After an error it looks whether SQLite has rolled the
// transaction back, so that a later statement gets an error that says so. It closes the rows that the function has left open, as
// sql.Tx does: they would keep the connection, without which nothing is written.
type applicationTx struct {
	*sql.Conn
	hasEnded bool

	mu      sync.Mutex
	queries []func() // each closes the rows of a query
}

// run calls a function of the application with the transaction. Its error wraps errEnded if the transaction has ended meanwhile.
func (t *transaction) run(f func(Tx) error) error {
	if err := t.execute(markSQL); err != nil {
		return err
	}
	if err := t.onCommit(refuse); err != nil {
		return err
	}
	defer func() { _ = t.onCommit(nil) }() // also when f panics
	tx := &applicationTx{Conn: t.Conn}
	err := tx.call(f)
	tx.check()
	switch {
	case tx.hasEnded && !errors.Is(err, errEnded):
		return errors.Join(errEnded, err)
	case err != nil:
		return err
	}
	return t.execute("RELEASE idem_mark")
}

// call calls a function of the application, and closes the rows that it leaves open.
func (a *applicationTx) call(f func(Tx) error) error {
	defer func() { // also when f panics
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, end := range a.queries {
			end()
		}
	}()
	return f(a)
}

// closeLater has call close the rows of a query.
func (a *applicationTx) closeLater(end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queries = append(a.queries, end)
}

// refuse refuses a commit. While a function of the application has the transaction, a commit is either its own, or one of SQLite's:
// after SQLite has rolled a transaction back, it commits each later statement by itself, without the outcome.
func refuse() int32 { return 1 }

// onCommit sets the function that SQLite asks before it commits on the connection; nil stands for none.
func (t *transaction) onCommit(ask sqlite.CommitHookFn) error {
	return t.Raw(func(conn any) error {
		conn.(sqlite.HookRegisterer).RegisterCommitHook(ask)
		return nil
	})
}

// markSQL makes a savepoint that is there as long as the transaction.
const markSQL = "SAVEPOINT idem_mark"

// check looks whether the transaction has ended.
func (a *applicationTx) check() {
	if _, err := a.Conn.ExecContext(background, "RELEASE idem_mark"); err != nil {
		a.hasEnded = true
		return
	}
	if _, err := a.Conn.ExecContext(background, markSQL); err != nil {
		a.hasEnded = true
	}
}

// ExecContext executes a statement.
func (a *applicationTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return checked(a, func() (sql.Result, error) { return a.Conn.ExecContext(ctx, query, args...) })
}

// PrepareContext prepares a statement.
func (a *applicationTx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return checked(a, func() (*sql.Stmt, error) { return a.Conn.PrepareContext(ctx, query) })
}

// QueryContext sends a query.
func (a *applicationTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := checked(a, func() (*sql.Rows, error) { return a.Conn.QueryContext(ctx, query, args...) })
	if err == nil {
		a.closeLater(func() { _ = rows.Close() })
	}
	return rows, err
}

// QueryRowContext sends a query for one row.
func (a *applicationTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if a.hasEnded {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		ctx = ended
	}
	row := a.Conn.QueryRowContext(ctx, query, args...)
	a.closeLater(func() { _ = row.Scan() }) // which closes the rows of a row that nobody has scanned
	return row
}

// checked sends a statement unless the transaction has ended.
func checked[T any](a *applicationTx, send func() (T, error)) (result T, err error) {
	if a.hasEnded {
		return result, errEnded
	}
	if result, err = send(); err != nil {
		a.check()
	}
	return result, err
}
