package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-idem/idem/core/driver"
)

var (
	_ driver.Store         = (*Store)(nil)
	_ driver.Notifier      = (*Store)(nil)
	_ driver.Checkpointer  = (*Store)(nil)
	_ driver.SessionOpener = (*Store)(nil)
	_ driver.Reopener      = (*Store)(nil)
	_ driver.Inspector     = (*Store)(nil)
)

// Store is a driver.Store in PostgreSQL. It has all optional abilities of package driver. It is safe for concurrent use. It runs
// a goroutine only while there are watches.
type Store struct {
	pool       *pgxpool.Pool
	schema     string // quoted
	listener   listener
	sweepStart struct{ records, tombstones atomic.Int64 } // where the next Sweep begins

	// The statements, with the name of the schema in them.
	begin, extend, complete, fail, checkpoint, checkpoints, sweep, reopen, exists string
}

// Option changes a Store. Pass the same options to New and Migrate.
type Option func(*options)

type options struct {
	schema string
	listen *pgxpool.Pool // nil stands for the pool of the Store
}

// schemaName matches the names that Schema accepts.
var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,49}$`)

// Schema sets the name of the PostgreSQL schema that holds the tables and functions of the store, and nothing else. Services
// with different schemas share no records. The name has 1 to 50 lower-case letters, digits and underscores, and begins with
// no digit. Default "idem".
func Schema(name string) Option { return func(o *options) { o.schema = name } }

// IsSchemaName reports whether Schema accepts a name, for programs that read the name from a flag: New panics for any other.
func IsSchemaName(name string) bool { return schemaName.MatchString(name) }

// ListenOn sets the pool from which Watch takes its connection. It needs a direct connection to the server, so set it if the
// pool of the Store goes through a pooler such as PgBouncer. The caller closes the pool after its last use. Default: the pool of
// the Store.
func ListenOn(pool *pgxpool.Pool) Option { return func(o *options) { o.listen = pool } }

// newOptions applies the options to the defaults and checks them.
func newOptions(opts []Option) (options, error) {
	o := options{schema: "idem"}
	for _, opt := range opts {
		opt(&o)
	}
	if !IsSchemaName(o.schema) {
		return o, fmt.Errorf("pgstore: Schema: %q must be 1 to 50 lower-case letters, digits and underscores, no digit first",
			o.schema)
	}
	return o, nil
}

// quoted returns the name of a schema as an SQL identifier.
func quoted(schema string) string { return pgx.Identifier{schema}.Sanitize() }

// New returns a store that uses pool. The caller closes the pool after its last use. Migrate makes the tables. New panics if
// pool is nil or an option is not valid.
func New(pool *pgxpool.Pool, opts ...Option) *Store {
	o, err := newOptions(opts)
	if err == nil && pool == nil {
		err = errors.New("pgstore: New: pool is nil; pass what pgxpool.New returns")
	}
	if err != nil {
		panic(err)
	}
	schema := quoted(o.schema)
	s := &Store{
		pool:        pool,
		schema:      schema,
		begin:       "SELECT * FROM " + schema + ".begin_2($1, $2, $3, $4, $5, $6, $7, $8)",
		extend:      "SELECT " + schema + ".extend($1, $2, $3, $4, $5)",
		complete:    "SELECT " + schema + ".complete($1, $2, $3, $4, $5, $6, $7)",
		fail:        "SELECT " + schema + ".fail_2($1, $2, $3, $4, $5, $6, $7, $8)",
		checkpoint:  "SELECT " + schema + ".checkpoint($1, $2, $3, $4, $5, $6)",
		checkpoints: "SELECT * FROM " + schema + ".checkpoints($1, $2, $3, $4)",
		sweep:       "SELECT * FROM " + schema + ".sweep_2($1, $2, $3)",
		exists:      "SELECT EXISTS (SELECT FROM " + schema + ".record WHERE key = $1 AND expires > " + schema + ".now())",
		reopen:      strings.ReplaceAll(reopenSQL, "idem.", schema+"."),
	}
	s.listener = listener{store: s, pool: cmp.Or(o.listen, pool), idleTimeout: 15 * time.Second, replyTimeout: 5 * time.Second}
	return s
}

// Begin implements driver.Store.
func (s *Store) Begin(ctx context.Context, c driver.Claim) (entry driver.Entry, err error) {
	var left int64
	var bytes []byte
	result := []any{&entry.State, &entry.Fence, &entry.Attempt, &entry.Operation, &entry.Takeover, &left, &bytes}
	err = s.query(ctx, result, s.begin, c.Key[:], c.Owner[:], c.Fingerprint[:], microseconds(c.Lease), microseconds(c.Retention),
		takeoverArgument(&c), c.Subscribed, c.LateRetry > 0)
	if err != nil {
		return driver.Entry{}, err
	}
	entry.Remaining = time.Duration(left) * time.Microsecond
	switch entry.State {
	case driver.Completed:
		entry.Outcome = bytes
		if !c.WantRemaining {
			entry.Remaining = 0
		}
	case driver.Mismatch:
		copy(entry.Fingerprint[:], bytes)
	case "lost":
		return driver.Entry{}, driver.ErrLost
	}
	return entry, nil
}

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, c driver.Claim) error {
	err := s.execute(ctx, s.extend, &c, microseconds(c.Lease), microseconds(c.Retention))
	return s.lostError(ctx, &c, err)
}

// Complete implements driver.Store. In a run with an [InTx] it commits the transaction, with the outcome in it.
func (s *Store) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	sess := sessionOf(ctx, &c)
	tx, joined := sess.finish()
	if joined {
		return s.commit(ctx, sess, tx, &c, outcome)
	}
	err := s.execute(ctx, s.complete, &c, completeArguments(&c, outcome)...)
	return s.lostError(ctx, &c, err)
}

// completeArguments returns the arguments of the function complete after those of the claim.
func completeArguments(c *driver.Claim, outcome []byte) []any {
	return []any{microseconds(c.Retention), microseconds(c.LateRetry), c.Steps, notNull(outcome)}
}

// Fail implements driver.Store. In a run with an [InTx] it first rolls the transaction back.
func (s *Store) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	if tx, _ := sessionOf(ctx, &c).finish(); tx != nil {
		rollback(ctx, tx)
	}
	err := s.execute(ctx, s.fail, &c, failArguments(&c, f)...)
	return s.lostError(ctx, &c, err)
}

// failArguments returns the arguments of the function fail_2 after those of the claim.
func failArguments(c *driver.Claim, f driver.Failure) []any {
	cause := f.Cause[:min(len(f.Cause), driver.MaxCauseBytes)]
	return []any{microseconds(c.Lease), microseconds(c.Retention), f.NoEffects, f.NotRun, []byte(cause)}
}

// Reopen turns the COMPLETED record of a dead message into a FAILED one, so that the message can run again. core.Engine.Resolve
// calls it. Reopen returns driver.ErrLost if the record does not hold exactly this outcome.
func (s *Store) Reopen(ctx context.Context, c driver.Claim, outcome []byte) error {
	return s.execute(ctx, s.reopen, &c, microseconds(c.Retention), notNull(outcome), []byte("an operator revived it"))
}

// reopenSQL has the arguments key, owner, fence, retention, outcome and cause; the fence has no effect. With operation 0 the
// next claim begins a new operation.
const reopenSQL = `
	WITH reopened AS (
		UPDATE idem.record SET
			state = 'FAILED', history = 1, attempt = 0, operation = 0, owner = $2, cause = $6, outcome = NULL, waited = false,
			withdrawn = NULL, expires = idem.now() + $4
		WHERE key = $1 AND state = 'COMPLETED' AND outcome = $5 AND expires > idem.now() AND $3::bigint IS NOT NULL
		RETURNING key
	), forgotten AS (
		DELETE FROM idem.tombstone WHERE key IN (SELECT key FROM reopened)
	)
	SELECT CASE WHEN EXISTS (SELECT FROM reopened) OR
		EXISTS (SELECT FROM idem.record WHERE key = $1 AND state = 'FAILED' AND owner = $2 AND expires > idem.now())
	THEN 'ok' ELSE 'lost' END`

// Sweep deletes expired records and tombstones, and the steps of these records. It deletes at most limit rows, so that it
// holds no locks for long, and returns how many it has deleted. If these are fewer than limit, no expired rows are left,
// except rows that another call has locked. Call Sweep from a timer, in any number of processes. Expired rows have no effect,
// they only take up space. Sweep returns an error if limit is not positive.
//
// A Sweep continues where the last one of the same Store has ended, until one has seen all rows. So it stays fast while a long
// transaction or a backup keeps PostgreSQL from removing the deleted rows.
func (s *Store) Sweep(ctx context.Context, limit int) (n int, err error) {
	if limit <= 0 {
		return 0, fmt.Errorf("pgstore: Sweep: limit %d must be positive", limit)
	}
	var records, tombstones int64
	start := &s.sweepStart
	err = s.query(ctx, []any{&n, &records, &tombstones}, s.sweep, int64(limit), start.records.Load(), start.tombstones.Load())
	if err != nil {
		return 0, err
	}
	start.records.Store(records)
	start.tombstones.Store(tombstones)
	return n, nil
}

// execute calls a function that returns only a status. Its arguments begin with key, owner and fence.
func (s *Store) execute(ctx context.Context, function string, c *driver.Claim, args ...any) error {
	var status string
	if err := s.query(ctx, []any{&status}, function, claimArguments(c, args)...); err != nil {
		return err
	}
	return statusError(status)
}

// claimArguments returns key, owner and fence of the claim, followed by args.
func claimArguments(c *driver.Claim, args []any) []any {
	return append([]any{c.Key[:], c.Owner[:], c.Fence}, args...)
}

// statusError returns the error that a status of a function stands for, or nil for 'ok'.
func statusError(status string) error {
	switch status {
	case "ok":
		return nil
	case "lost":
		return driver.ErrLost
	}
	return fmt.Errorf("pgstore: function answered %q", status)
}

// lostError returns driver.ErrGone in place of driver.ErrLost if the key has no record. The functions of schema.sql return 'lost'
// for both, because processes of earlier versions know no other status. So the record is looked for afterwards: a call that is
// lost has changed nothing, and this claim never gets the key again. If the store cannot look, the whole call may be repeated.
func (s *Store) lostError(ctx context.Context, c *driver.Claim, err error) error {
	if err != driver.ErrLost || c.Fence == 0 {
		return err
	}
	var exists bool
	if err := s.query(ctx, []any{&exists}, s.exists, c.Key[:]); err != nil {
		return err
	}
	if exists {
		return driver.ErrLost
	}
	return driver.ErrGone
}

// query calls a function on a connection of the pool and scans its row into result.
func (s *Store) query(ctx context.Context, result []any, function string, args ...any) error {
	return s.withConnection(ctx, func(q querier) error { return scan(ctx, q, result, function, args) })
}

// withConnection calls send with a connection of the pool. It repeats that after a serialization failure or a deadlock, since the
// call has changed nothing then.
func (s *Store) withConnection(ctx context.Context, send func(querier) error) error {
	for {
		err := s.sendOnce(ctx, send)
		if code := codeOf(err); code != "40001" && code != "40P01" || ctx.Err() != nil {
			return storeError(err)
		}
	}
}

// sendOnce calls send at READ COMMITTED, in a transaction if the connection has another default.
func (s *Store) sendOnce(ctx context.Context, send func(querier) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	found, err := inspect(ctx, conn.Conn())
	if err != nil {
		return err
	}
	if found.readCommitted {
		return send(conn)
	}
	return pgx.BeginTxFunc(ctx, conn, readCommitted, func(tx pgx.Tx) error { return send(tx) })
}

var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// codeOf returns the SQLSTATE of an error of the server, or "".
func codeOf(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// storeError adds to the error of a missing schema what to do about it.
func storeError(err error) error {
	switch codeOf(err) {
	case "3F000", "42P01", "42883": // no such schema, table, function
		return fmt.Errorf("pgstore: the schema is missing or of another version, run pgstore.Migrate: %w", err)
	}
	return err
}

// takeoverArgument returns the argument that says which vanished claims Begin may take over: 1 for any, 0 for none, or the
// fence of the only one.
func takeoverArgument(c *driver.Claim) int64 {
	if c.NoTakeover {
		return c.TakeoverFence
	}
	return 1
}

// microseconds rounds up, so that a lease or retention is never shorter than requested.
func microseconds(d time.Duration) int64 {
	n := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		n++
	}
	return n
}

// notNull returns an empty slice for nil, which pgx would send as NULL.
func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
