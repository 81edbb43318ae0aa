package pgstore

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-idem/idem/core/driver"
)

// scanBatch is how many rows one query of Scan reads.
const scanBatch = 500

// The statements of an Inspector. In all of them present is the time of the server's clock. A row is a record, or a tombstone
// without a record; the columns after its key are those that [row] has.
const (
	recordColumns = `
		r.state, r.history, r.attempt, r.fence, r.lease_end - present, r.expires - present, r.fingerprint, r.cause,
		coalesce(octet_length(r.outcome), 0) + 150,
		(SELECT count(*) FROM idem.checkpoint c WHERE c.key = r.key AND c.fingerprint = r.fingerprint), present`
	tombstoneColumns = `'', 0, 0, 0, 0, t.expires - present, NULL, NULL, 0, 0, present`
	clock            = `(SELECT idem.now() AS present OFFSET 0) clock`

	lookSQL = `SELECT r.key, ` + recordColumns + ` FROM idem.record r, ` + clock + ` WHERE r.key = $1 AND r.expires > present
		UNION ALL SELECT t.key, ` + tombstoneColumns + ` FROM idem.tombstone t, ` + clock + ` WHERE t.key = $1 AND t.expires > present`

	scanRecordsSQL = `SELECT r.key, ` + recordColumns + ` FROM idem.record r, ` + clock + `
		WHERE r.key > $1 AND r.key <= $2 ORDER BY r.key LIMIT $3`
	scanTombstonesSQL = `SELECT t.key, ` + tombstoneColumns + ` FROM idem.tombstone t, ` + clock + ` WHERE t.key > $1 AND t.key <= $2 AND
		NOT EXISTS (SELECT FROM idem.record r WHERE r.key = t.key AND r.expires > present) ORDER BY t.key LIMIT $3`

	stepsSQL = `SELECT coalesce(c.name, c.step), c.result FROM idem.record r, idem.checkpoint c
		WHERE r.key = $1 AND r.state <> 'COMPLETED' AND r.expires > idem.now() AND c.key = r.key AND c.fingerprint = r.fingerprint`

	outcomeSQL = `SELECT outcome FROM idem.record WHERE key = $1 AND state = 'COMPLETED' AND expires > idem.now()`

	// The fence of a deleted record is kept, so that every later claim gets a higher one. The steps go with their record.
	forgetSQL = `WITH gone AS (
			DELETE FROM idem.record WHERE key = $1 AND
				(state || fence = $2 AND (state <> 'STARTED' OR lease_end <= idem.now()) OR expires <= idem.now())
			RETURNING key, fence
		), kept AS (
			UPDATE idem.store SET fence = gone.fence FROM gone WHERE store.fence < gone.fence
		), forgotten AS (
			DELETE FROM idem.tombstone WHERE key = $1 AND
				(EXISTS (SELECT FROM gone) OR NOT EXISTS (SELECT FROM idem.record WHERE key = $1))
		), woken AS (
			SELECT idem.wake(key) FROM gone
		)
		SELECT CASE WHEN EXISTS (SELECT FROM gone) OR NOT EXISTS (SELECT FROM idem.record WHERE key = $1)
			THEN 'ok' ELSE 'lost' END, (SELECT count(*) FROM woken)`
)

// inSchema puts the name of the store's schema into a statement.
func (s *Store) inSchema(statement string) string {
	return strings.ReplaceAll(statement, "idem.", s.schema+".")
}

// Look implements driver.Inspector.
func (s *Store) Look(ctx context.Context, name [32]byte) (driver.Record, error) {
	found, err := s.rows(ctx, lookSQL, name[:])
	if err != nil {
		return driver.Record{}, err
	}
	for _, r := range found {
		if seen, _ := r.inspect(); seen.State != driver.Absent {
			return seen, nil // the record comes before the tombstone
		}
	}
	return driver.Record{Name: name, State: driver.Absent}, nil
}

// Scan implements driver.Inspector. It reads the rows in the order of their keys, first the records and then the tombstones.
func (s *Store) Scan(ctx context.Context, filter driver.Filter, found func(driver.Record) bool) error {
	for _, statement := range []string{scanRecordsSQL, scanTombstonesSQL} {
		if more, err := s.scanTable(ctx, statement, &filter, found); err != nil || !more {
			return err
		}
	}
	return nil
}

// scanTable scans one table. It returns false if found has returned false.
func (s *Store) scanTable(ctx context.Context, statement string, filter *driver.Filter, found func(driver.Record) bool) (bool, error) {
	after, upto := append([]byte{}, filter.Scope...), append(bytes.Clone(filter.Scope), bytes.Repeat([]byte{0xff}, 32)...)
	for {
		batch, err := s.rows(ctx, statement, after, upto, scanBatch)
		if err != nil {
			return false, err
		}
		for _, r := range batch {
			if seen, now := r.inspect(); filter.Selects(&seen, now) && !found(seen) {
				return false, nil
			}
			after = r.key
		}
		if len(batch) < scanBatch {
			return true, nil
		}
	}
}

// Forget implements driver.Inspector.
func (s *Store) Forget(ctx context.Context, seen driver.Record) error {
	var status string
	var woken int
	if err := s.query(ctx, []any{&status, &woken}, s.inSchema(forgetSQL), seen.Name[:], seen.Version); err != nil {
		return err
	}
	return statusError(status)
}

// Steps implements driver.Inspector.
func (s *Store) Steps(ctx context.Context, name [32]byte) (map[string][]byte, error) {
	found := map[string][]byte{}
	err := s.withConnection(ctx, func(q querier) error {
		result, err := q.Query(ctx, s.inSchema(stepsSQL), withMode(q, []any{name[:]})...)
		if err != nil {
			return err
		}
		var step, kept []byte
		_, err = pgx.ForEachRow(result, []any{&step, &kept}, func() error {
			found[string(step)] = bytes.Clone(kept)
			return nil
		})
		return err
	})
	return found, err
}

// Outcome implements driver.OutcomeReader.
func (s *Store) Outcome(ctx context.Context, name [32]byte) (outcome []byte, err error) {
	err = s.query(ctx, []any{&outcome}, s.inSchema(outcomeSQL), name[:])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return outcome, err
}

// rows runs a statement that returns rows.
func (s *Store) rows(ctx context.Context, statement string, args ...any) (found []row, err error) {
	err = s.withConnection(ctx, func(q querier) error {
		result, err := q.Query(ctx, s.inSchema(statement), withMode(q, args)...)
		if err == nil {
			found, err = pgx.CollectRows(result, scanRow)
		}
		return err
	})
	return found, err
}

// row is a row of the tables record and tombstone. Times are in µs.
type row struct {
	key              []byte
	state            string // "" of a tombstone
	history, attempt int
	fence            int64
	leaseLeft, left  int64 // of the lease and of the retention
	fingerprint      []byte
	cause            []byte
	bytes, steps     int
	present          int64 // the time of the server's clock
}

// scanRow reads one row.
func scanRow(from pgx.CollectableRow) (r row, err error) {
	err = from.Scan(&r.key, &r.state, &r.history, &r.attempt, &r.fence, &r.leaseLeft, &r.left, &r.fingerprint, &r.cause,
		&r.bytes, &r.steps, &r.present)
	return r, err
}

// inspect returns what an operator can know of a row, and the time of the server's clock. The record is Absent if its retention
// is over.
func (r *row) inspect() (seen driver.Record, now time.Time) {
	now = time.UnixMicro(r.present)
	copy(seen.Name[:], r.key)
	seen.State, seen.Expires = driver.Absent, time.Duration(r.left)*time.Microsecond
	switch {
	case r.left <= 0:
		seen.Expires = 0
		return seen, now
	case r.state == "":
		seen.State = driver.Expired
		return seen, now
	}
	seen.Version, seen.Attempt, seen.Takeover, seen.Bytes = r.version(), r.attempt, r.history == 1, r.bytes
	copy(seen.Fingerprint[:], r.fingerprint)
	if r.state == "COMPLETED" {
		seen.State = driver.Completed
		return seen, now
	}
	seen.Fence, seen.ClaimedAt, seen.Steps = r.fence, time.UnixMicro(r.fence), r.steps
	switch {
	case r.state == "FAILED":
		seen.State, seen.Free, seen.Cause = driver.Failed, r.fingerprint == nil, string(r.cause)
	case r.leaseLeft > 0:
		seen.State, seen.Remaining = driver.InProgress, time.Duration(r.leaseLeft)*time.Microsecond
	default:
		seen.State, seen.Remaining = driver.Unknown, time.Duration(r.leaseLeft)*time.Microsecond
	}
	return seen, now
}

// version returns what a Record has as its Version.
func (r *row) version() string { return r.state + strconv.FormatInt(r.fence, 10) }
