package sqlitestore

import (
	"bytes"
	"context"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/internal/record"
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
		r, err := scanRecord(from.QueryRowContext(background, lookSQL, name[:]))
		return r.Inspect(s.now().UnixMicro()), err
	})
}

// Scan implements driver.Inspector. It reads the keys in their order.
func (s *Store) Scan(ctx context.Context, filter driver.Filter, found func(driver.Record) bool) error {
	after, upto := append([]byte{}, filter.Scope...), append(bytes.Clone(filter.Scope), bytes.Repeat([]byte{0xff}, 32)...)
	for {
		batch, err := read(ctx, s, func(from querier) ([]*record.Record, error) { return scan(from, after, upto) })
		if err != nil {
			return err
		}
		now := s.now()
		for _, r := range batch {
			if seen := r.Inspect(now.UnixMicro()); filter.Selects(&seen, now) && !found(seen) {
				return nil
			}
			after = []byte(r.Key)
		}
		if len(batch) < scanBatch {
			return nil
		}
	}
}

// scan reads the rows of a batch.
func scan(from querier, after, upto []byte) (batch []*record.Record, err error) {
	rows, err := from.QueryContext(background, scanSQL, after, upto, scanBatch)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		r, err := scanRecord(rows)
		if err != nil {
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
		r, err := scanRecord(t.QueryRowContext(background, lookSQL, seen.Name[:]))
		if err == nil {
			err = r.MayForget(&seen, t.now)
		}
		if err != nil {
			return false, err
		}
		isThere := r.IsThere(t.now)
		if err := t.raiseFence(r.Fence); err != nil {
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
		if err != nil || !r.IsThere(s.now().UnixMicro()) {
			return nil, err
		}
		return readSteps(from, name)
	})
}

// Outcome implements driver.OutcomeReader.
func (s *Store) Outcome(ctx context.Context, name [32]byte) ([]byte, error) {
	return read(ctx, s, func(from querier) ([]byte, error) {
		r, err := load(from, name)
		if err != nil || r.State != record.Completed || !r.IsThere(s.now().UnixMicro()) {
			return nil, err
		}
		return record.NotNull(r.Outcome), nil
	})
}
