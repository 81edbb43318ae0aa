package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// connection is what the store knows of one connection.
type connection struct {
	readCommitted bool // READ COMMITTED is its default; above it, calls for different keys could fail with serialization errors
	direct        bool // no pooler such as PgBouncer is between this process and the server
}

// connectionKey is the key under which a connection of pgx holds its *connection.
const connectionKey = "pgstore: connection"

// inspect asks the server about a connection, once for each connection. A pooler gives its clients process ids of its own, so
// a connection is direct if the id that was told when it was made is that of the server's process.
func inspect(ctx context.Context, conn *pgx.Conn) (*connection, error) {
	data := conn.PgConn().CustomData()
	if known, ok := data[connectionKey].(*connection); ok {
		return known, nil
	}
	var level string
	var process uint32
	const sql = "SELECT current_setting('default_transaction_isolation'), pg_backend_pid()::bigint"
	if err := conn.QueryRow(ctx, sql, pgx.QueryExecModeExec).Scan(&level, &process); err != nil {
		return nil, err
	}
	found := &connection{readCommitted: level == "read committed", direct: process == conn.PgConn().PID()}
	data[connectionKey] = found
	return found, nil
}

// isDirect reports whether conn is known to be direct.
func isDirect(conn *pgx.Conn) bool {
	known, _ := conn.PgConn().CustomData()[connectionKey].(*connection)
	return known != nil && known.direct
}

// querier is a connection of a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Conn() *pgx.Conn
}

// scan calls a function and scans its row into result.
func scan(ctx context.Context, q querier, result []any, function string, args []any) error {
	return q.QueryRow(ctx, function, withMode(q, args)...).Scan(result...)
}

// withMode returns the arguments of a statement. On a connection that may go through a pooler pgx then sends the whole call in
// one round trip without a prepared statement, whatever mode it is configured for: the next round trip may reach another process
// of the server, where the statement is missing or is that of another client.
func withMode(q querier, args []any) []any {
	if isDirect(q.Conn()) {
		return args
	}
	return append([]any{pgx.QueryExecModeExec}, args...)
}
