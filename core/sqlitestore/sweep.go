package sqlitestore

import (
	"context"
	"fmt"
)

// sweptByClaim is how many expired rows each new claim deletes. A claim makes at most one record and one tombstone, so the file
// does not grow while the traffic is even.
const sweptByClaim = 4

// Sweep deletes at most limit expired records and tombstones, and the steps of these records, and returns how many it has
// deleted. If these are fewer than limit, no expired rows are left. No service must call it, because each claim of a key deletes
// up to 4 expired rows. The space of deleted rows is used again; the file does not get smaller. Sweep returns an error if limit
// is not positive.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	if limit <= 0 {
		return 0, fmt.Errorf("sqlitestore: Sweep: limit %d must be positive", limit)
	}
	return write(ctx, s, func(t *transaction) (int, error) { return t.sweep(limit) })
}

// sweep is Sweep in a transaction.
func (t *transaction) sweep(limit int) (deleted int, err error) {
	deleted, fence, err := t.sweepRecords(limit)
	if err != nil {
		return 0, err
	}
	if deleted > 0 {
		if err := t.raiseFence(fence); err != nil {
			return 0, err
		}
	}
	const sql = `DELETE FROM idem_tombstone
		WHERE key IN (SELECT key FROM idem_tombstone WHERE expires <= ? ORDER BY expires LIMIT ?)`
	result, err := t.ExecContext(background, sql, t.now, limit-deleted)
	if err != nil {
		return 0, err
	}
	tombstones, err := result.RowsAffected()
	return deleted + int(tombstones), err
}

// sweepRecords deletes expired records with their steps. It returns how many, and the highest of their fences.
func (t *transaction) sweepRecords(limit int) (deleted int, fence int64, err error) {
	const sql = "SELECT key, fence FROM idem_record WHERE expires <= ? ORDER BY expires LIMIT ?"
	rows, err := t.QueryContext(background, sql, t.now, limit)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = rows.Close() }()
	var keys [][32]byte
	for rows.Next() {
		var key []byte
		var of int64
		if err := rows.Scan(&key, &of); err != nil {
			return 0, 0, err
		}
		keys, fence = append(keys, [32]byte(key)), max(fence, of)
	}
	for _, key := range keys {
		if err := t.deleteRecord(key); err != nil {
			return 0, 0, err
		}
	}
	return len(keys), fence, rows.Err()
}

// deleteRecord deletes a record and its steps. The caller keeps its fence.
func (t *transaction) deleteRecord(key [32]byte) error {
	if err := t.deleteSteps(key); err != nil {
		return err
	}
	return t.execute("DELETE FROM idem_record WHERE key = ?", key[:])
}

// raiseFence stores the fence of a deleted record, so that every later claim gets a higher one.
func (t *transaction) raiseFence(fence int64) error {
	return t.execute("UPDATE idem_store SET fence = max(fence, ?)", fence)
}
