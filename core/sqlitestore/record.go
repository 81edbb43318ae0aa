package sqlitestore

import (
	"github.com/go-idem/idem/internal/record"
)

// recordColumns are the columns that scan reads, of the key k.key.
const recordColumns = `
	k.key, coalesce(r.state, ''), coalesce(r.history, 0), coalesce(r.attempt, 0), coalesce(r.fence, 0), coalesce(r.operation, 0),
	coalesce(r.lease_end, 0), coalesce(r.expires, 0), r.owner, r.noted, r.fingerprint, coalesce(r.cause, ''),
	coalesce(t.expires, 0), (SELECT fence FROM idem_store)`

// loadSQL returns one row for a key, whether or not there is a record.
const loadSQL = `SELECT ` + recordColumns + `, 0, 0, r.outcome
	FROM (SELECT ?1 AS key) k LEFT JOIN idem_record r ON r.key = k.key LEFT JOIN idem_tombstone t ON t.key = k.key`

// saveSQL writes the row of a record.
const saveSQL = `INSERT INTO idem_record
	(key, state, history, attempt, fence, operation, lease_end, expires, owner, noted, fingerprint, cause, outcome)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (key) DO UPDATE SET
		state = excluded.state, history = excluded.history, attempt = excluded.attempt, fence = excluded.fence,
		operation = excluded.operation, lease_end = excluded.lease_end, expires = excluded.expires, owner = excluded.owner,
		noted = excluded.noted, fingerprint = excluded.fingerprint, cause = excluded.cause, outcome = excluded.outcome`

// place names where records lie, in errors.
const place = "the table idem_record"

// load returns the record of a key. Its state is record.Absent if there is none.
func load(from querier, key [32]byte) (*record.Record, error) {
	r, err := scanRecord(from.QueryRowContext(background, loadSQL, key[:]))
	if err != nil {
		return nil, err
	}
	return r, r.Check(place)
}

// scanRecord reads a row with the columns of recordColumns. The statement adds the number of steps, the length and the outcome.
func scanRecord(row interface{ Scan(...any) error }) (*record.Record, error) {
	r := &record.Record{}
	return r, row.Scan(&r.Key, &r.State, &r.History, &r.Attempt, &r.Fence, &r.Operation, &r.LeaseEnd, &r.Expires, &r.Owner, &r.Noted,
		&r.Fingerprint, &r.Cause, &r.Tombstone, &r.DeletedFence, &r.Steps, &r.StoredBytes, &r.Outcome)
}

// save writes the record of a key.
func (t *transaction) save(key [32]byte, r *record.Record) error {
	return t.execute(saveSQL, key[:], r.State, r.History, r.Attempt, r.Fence, r.Operation, r.LeaseEnd, r.Expires, r.Owner,
		record.NotNull(r.Noted), r.Fingerprint, []byte(r.Cause), r.Outcome)
}
