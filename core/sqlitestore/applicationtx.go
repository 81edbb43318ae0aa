package sqlitestore

import (
	"context"
	"database/sql"
)

// applicationTx is the Tx that a function of the application gets. After an error it looks whether SQLite has rolled the
// transaction back: then a later statement would be committed by itself, without the outcome.
type applicationTx struct {
	*sql.Conn
	hasEnded bool
}

// run calls a function of the application with the transaction. It returns errEnded if the transaction has ended meanwhile.
func (t *transaction) run(f func(Tx) error) error {
	if err := t.execute(markSQL); err != nil {
		return err
	}
	tx := &applicationTx{Conn: t.Conn}
	if err := f(tx); err != nil {
		return err
	}
	if tx.check(); tx.hasEnded {
		return errEnded
	}
	return t.execute("RELEASE idem_mark")
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
	return checked(a, func() (*sql.Rows, error) { return a.Conn.QueryContext(ctx, query, args...) })
}

// QueryRowContext sends a query for one row.
func (a *applicationTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if a.hasEnded {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		ctx = ended
	}
	return a.Conn.QueryRowContext(ctx, query, args...)
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
