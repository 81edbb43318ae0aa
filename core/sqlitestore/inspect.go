package sqlitestore

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// scanBatch is how many rows one statement of Scan reads.
const scanBatch = 500

// The columns that a statement of an Inspector reads. It reads no outcome, only its length. recordBytes is about what a row takes
// besides.
const (
	inspectedColumns = recordColumns + `,
		CASE WHEN r.fingerprint IS NULL OR r.state = 'COMPLETED' THEN 0
			ELSE (SELECT count(*) FROM idem_checkpoint c WHERE c.key = r.key) END,
		coalesce(length(r.outcome), 0) + coalesce(length(r.cause) + length(r.noted), 0) + ` + recordBytes + `, NULL`
	recordBytes = "150"

	lookSQL = `SELECT ` + inspectedColumns + `
		FROM (SELECT ?1 AS key) k LEFT JOIN idem_record r ON r.key = k.key LEFT JOIN idem_tombstone t ON t.key = k.key`

	// The keys of both tables in their order, after the first argument and up to the second one.
	scanSQL = `SELECT ` + inspectedColumns + ` FROM (
			SELECT key FROM idem_record WHERE key > ?1 AND key <= ?2
			UNION SELECT key FROM idem_tombstone WHERE key > ?1 AND key <= ?2 ORDER BY key LIMIT ?3
		) k LEFT JOIN idem_record r ON r.key = k.key LEFT JOIN idem_tombstone t ON t.key = k.key ORDER BY k.key`
)

// Look implements driver.Inspector.
func (s *Store) Look(ctx context.Context, name [32]byte) (driver.Record, error) {
	return read(ctx, s, func(from querier) (driver.Record, error) {
		r := &record{}
		err := r.scan(from.QueryRowContext(background, lookSQL, name[:]))
		return r.inspect(s.now()), err
	})
}

// Scan implements driver.Inspector. It reads the keys in their order.
func (s *Store) Scan(ctx context.Context, filter driver.Filter, found func(driver.Record) bool) error {
	after, upto := append([]byte{}, filter.Scope...), append(bytes.Clone(filter.Scope), bytes.Repeat([]byte{0xff}, 32)...)
	for {
		batch, err := read(ctx, s, func(from querier) ([]*record, error) { return scan(from, after, upto) })
		if err != nil {
			return err
		}
		now := s.now()
		for _, r := range batch {
			if seen := r.inspect(now); filter.Selects(&seen, now) && !found(seen) {
				return nil
			}
			after = []byte(r.key)
		}
		if len(batch) < scanBatch {
			return nil
		}
	}
}

// scan reads the rows of a batch.
func scan(from querier, after, upto []byte) (batch []*record, err error) {
	rows, err := from.QueryContext(background, scanSQL, after, upto, scanBatch)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		r := &record{}
		if err := r.scan(rows); err != nil {
			return nil, err
		}
		batch = append(batch, r)
	}
	return batch, rows.Err()
}

// Forget implements driver.Inspector.
func (s *Store) Forget(ctx context.Context, seen driver.Record) error {
	c := driver.Claim{Key: seen.Name}
	return s.change(ctx, &c, func(t *transaction) (bool, error) {
		r := &record{}
		if err := r.scan(t.QueryRowContext(background, lookSQL, seen.Name[:])); err != nil {
			return false, err
		}
		isThere := r.isThere(t.now)
		isRunning := r.state == started && r.leaseEnd > t.now
		if isThere && (r.version() != seen.Version || isRunning || r.check() != nil) {
			return false, driver.ErrLost
		}
		if err := t.raiseFence(r.fence); err != nil {
			return false, err
		}
		if err := t.deleteRecord(seen.Name); err != nil {
			return false, err
		}
		return isThere, t.execute("DELETE FROM idem_tombstone WHERE key = ?", seen.Name[:])
	})
}

// Steps implements driver.Inspector.
func (s *Store) Steps(ctx context.Context, name [32]byte) (map[string][]byte, error) {
	return read(ctx, s, func(from querier) (map[string][]byte, error) {
		r, err := load(from, name)
		if err != nil || !r.isThere(s.now().UnixMicro()) {
			return nil, err
		}
		return readSteps(from, name)
	})
}

// Outcome implements driver.OutcomeReader.
func (s *Store) Outcome(ctx context.Context, name [32]byte) ([]byte, error) {
	return read(ctx, s, func(from querier) ([]byte, error) {
		r, err := load(from, name)
		if err != nil || r.state != completed || !r.isThere(s.now().UnixMicro()) {
			return nil, err
		}
		return notNull(r.outcome), nil
	})
}

// inspect returns what an operator can know of a record.
func (r *record) inspect(now time.Time) (seen driver.Record) {
	present := now.UnixMicro()
	left := func(until int64) time.Duration { return time.Duration(until-present) * time.Microsecond }
	copy(seen.Name[:], r.key)
	switch {
	case r.isThere(present):
		seen.Expires = left(r.expires)
	case r.tombstone > present:
		seen.State, seen.Expires = driver.Expired, left(r.tombstone)
		return seen
	default:
		seen.State = driver.Absent
		return seen
	}
	seen.Version, seen.Bytes = r.version(), r.storedBytes
	if r.check() != nil {
		seen.State = driver.Unreadable
		return seen
	}
	seen.Attempt, seen.Takeover = r.attempt, r.history == tookOver
	copy(seen.Fingerprint[:], r.fingerprint)
	if r.state == completed {
		seen.State = driver.Completed
		return seen
	}
	seen.Fence, seen.ClaimedAt, seen.Steps = r.fence, time.UnixMicro(r.fence), r.steps
	switch {
	case r.state == failed:
		seen.State, seen.Free, seen.Cause = driver.Failed, r.isFree(), r.cause
	case r.leaseEnd > present:
		seen.State, seen.Remaining = driver.InProgress, left(r.leaseEnd)
	default:
		seen.State, seen.Remaining = driver.Unknown, left(r.leaseEnd)
	}
	return seen
}

// version returns what a Record has as its Version.
func (r *record) version() string { return r.state + strconv.FormatInt(r.fence, 10) }
