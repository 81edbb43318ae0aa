package sqlitestore

import (
	"bytes"
	"fmt"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// The states of a record in the table.
const (
	absent    = "" // there is no row
	started   = "STARTED"
	completed = "COMPLETED"
	failed    = "FAILED"
)

// The history of a request under its key: what earlier runs may have done.
const (
	withoutEffects = iota
	tookOver       // a run vanished
	withEffects    // a run failed that may have had effects
)

// maxNoted is how many owners a record notes. driver.Store.Fail demands at least 16.
const maxNoted = 16

// record is a row of the table idem_record, and what the other tables say of its key. Times are µs since 1970.
type record struct {
	key                string
	state              string
	history, attempt   int
	fence, operation   int64
	leaseEnd, expires  int64
	owner, noted       []byte
	fingerprint        []byte // nil if the record is free for another request
	cause              string
	outcome            []byte
	tombstone          int64 // when the tombstone of the key expires; 0 without one
	deletedFence       int64 // the highest fence of a deleted record of any key
	steps, storedBytes int   // how many results of steps, and the length of the row
}

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

// load returns the record of a key. Its state is absent if there is none.
func load(from querier, key [32]byte) (*record, error) {
	r := &record{}
	if err := r.scan(from.QueryRowContext(background, loadSQL, key[:])); err != nil {
		return nil, err
	}
	return r, r.check()
}

// scan reads a row with the columns of recordColumns, of a statement that adds the number of steps, the length and the outcome.
func (r *record) scan(row interface{ Scan(...any) error }) error {
	return row.Scan(&r.key, &r.state, &r.history, &r.attempt, &r.fence, &r.operation, &r.leaseEnd, &r.expires, &r.owner, &r.noted,
		&r.fingerprint, &r.cause, &r.tombstone, &r.deletedFence, &r.steps, &r.storedBytes, &r.outcome)
}

// check returns an error that wraps driver.ErrUnreadable if no version of this package can have written the row.
func (r *record) check() error {
	ownerBytes := len(driver.Claim{}.Owner)
	isKnown := r.state == started || r.state == completed || r.state == failed
	switch {
	case r.state == absent:
		return nil
	case !isKnown, len(r.owner) != ownerBytes, len(r.noted)%ownerBytes != 0, r.fence <= 0,
		r.fingerprint != nil && len(r.fingerprint) != len(driver.Claim{}.Fingerprint), r.fingerprint == nil && r.state != failed:
		return fmt.Errorf("%w: the row of %x in idem_record is damaged", driver.ErrUnreadable, r.key)
	}
	return nil
}

// save writes the record of a key.
func (t *transaction) save(key [32]byte, r *record) error {
	return t.execute(saveSQL, key[:], r.state, r.history, r.attempt, r.fence, r.operation, r.leaseEnd, r.expires, r.owner,
		notNull(r.noted), r.fingerprint, []byte(r.cause), r.outcome)
}

// isThere reports whether there is a record whose retention is not over.
func (r *record) isThere(now int64) bool { return r.state != absent && r.expires > now }

// isFree reports whether a request with another fingerprint may claim the record.
func (r *record) isFree() bool { return r.state == failed && r.fingerprint == nil }

// isHeldBy reports whether c is the last claim of the record. A Fence of 0 in c matches any fence, which only Fail accepts.
func (r *record) isHeldBy(c *driver.Claim, now int64) bool {
	return r.isThere(now) && bytes.Equal(r.owner, c.Owner[:]) && (c.Fence == 0 || c.Fence == r.fence)
}

// lostError returns the error of a claim that does not hold the record.
func (r *record) lostError(c *driver.Claim, now int64) error {
	if c.Fence != 0 && !r.isThere(now) {
		return driver.ErrGone
	}
	return driver.ErrLost
}

// isNoted reports whether the record notes that an owner has failed or withdrawn.
func (r *record) isNoted(owner []byte) bool {
	for rest := r.noted; len(rest) >= len(owner); rest = rest[len(owner):] {
		if bytes.Equal(rest[:len(owner)], owner) {
			return true
		}
	}
	return false
}

// note notes an owner that has failed or withdrawn. If there is no room, the oldest one is dropped.
func (r *record) note(owner []byte) {
	if r.isNoted(owner) {
		return
	}
	r.noted = append(bytes.Clone(r.noted), owner...)
	r.noted = r.noted[max(0, len(r.noted)-maxNoted*len(owner)):]
}

// reply returns what a Begin of c returns if it changes nothing. It returns false if the Begin claims the key.
func (r *record) reply(c *driver.Claim, now int64) (entry driver.Entry, isFinal bool, err error) {
	isThere := r.isThere(now)
	isOwner := isThere && bytes.Equal(r.owner, c.Owner[:])
	left := time.Duration(r.leaseEnd-now) * time.Microsecond
	switch {
	case isOwner && r.state == started:
		return r.claimed(left), true, nil
	case isOwner && r.state == failed, isThere && r.isNoted(c.Owner[:]):
		return driver.Entry{}, true, driver.ErrLost
	case c.LateRetry > 0 && r.tombstone > now && (!isThere || r.isFree() && r.attempt == 0):
		return driver.Entry{State: driver.Expired}, true, nil
	case !isThere:
		return driver.Entry{}, false, nil
	case !r.isFree() && !bytes.Equal(r.fingerprint, c.Fingerprint[:]):
		return driver.Entry{State: driver.Mismatch, Fingerprint: [32]byte(r.fingerprint)}, true, nil
	case r.state == completed:
		return r.completed(c, now), true, nil
	case r.state == started && left > 0:
		return driver.Entry{State: driver.InProgress, Remaining: left}, true, nil
	case r.state == started && c.NoTakeover && c.TakeoverFence != r.fence:
		return driver.Entry{State: driver.Unknown, Fence: r.fence}, true, nil
	}
	return driver.Entry{}, false, nil
}

// claimed returns the entry for the owner of r.
func (r *record) claimed(left time.Duration) driver.Entry {
	return driver.Entry{
		State: driver.Claimed, Fence: r.fence, Attempt: r.attempt, Operation: r.operation, Takeover: r.history == tookOver,
		Remaining: left,
	}
}

// completed returns the entry of a COMPLETED record.
func (r *record) completed(c *driver.Claim, now int64) driver.Entry {
	entry := driver.Entry{State: driver.Completed, Outcome: notNull(r.outcome)}
	if c.WantRemaining {
		entry.Remaining = time.Duration(r.expires-now) * time.Microsecond
	}
	return entry
}

// claim gives r to c, after reply has found that c claims the key. It reports whether an operation begins, so that steps of an
// earlier one are to be deleted.
func (r *record) claim(c *driver.Claim, now int64) (isNewOperation bool) {
	if !r.isThere(now) {
		*r = record{fence: r.fence, deletedFence: r.deletedFence}
	}
	switch {
	case r.state == absent || r.isFree():
		r.history, r.operation = withoutEffects, 0
	case r.state == started || r.history == tookOver:
		r.history = tookOver
	default:
		r.history = withEffects
	}
	if r.state == failed {
		r.note(r.owner)
	}
	r.fence = max(now, r.fence+1, r.deletedFence+1)
	if isNewOperation = r.operation == 0; isNewOperation {
		r.operation = r.fence
	}
	r.state, r.attempt, r.cause = started, r.attempt+1, ""
	r.owner, r.fingerprint = c.Owner[:], c.Fingerprint[:]
	r.leaseEnd, r.expires = now+microseconds(c.Lease), now+microseconds(c.Retention)
	return isNewOperation
}

// fail turns a STARTED record into a FAILED one.
func (r *record) fail(c *driver.Claim, f driver.Failure, now int64) {
	if (f.NoEffects || f.NotRun) && r.history == withoutEffects {
		r.fingerprint = nil
	}
	if f.NotRun {
		r.attempt--
	}
	r.state, r.cause, r.expires = failed, cause(f), now+microseconds(c.Retention)
}

// withdraw makes a later Begin of c return driver.ErrLost for at least one lease, if the record is absent or free. It reports
// whether the record has changed, and returns what Fail returns.
func (r *record) withdraw(c *driver.Claim, f driver.Failure, now int64) (hasChanged bool, err error) {
	ends := now + microseconds(c.Lease)
	switch {
	case !r.isThere(now):
		*r = record{
			state: failed, fence: max(now, r.fence, r.deletedFence), leaseEnd: now, expires: ends, owner: c.Owner[:], cause: cause(f),
		}
		return true, nil
	case r.state == completed || r.isNoted(c.Owner[:]):
		return false, driver.ErrLost
	}
	r.note(c.Owner[:])
	if r.isFree() {
		r.expires = max(r.expires, ends)
	}
	return true, driver.ErrLost
}

// cause returns what is stored of the cause of a failure.
func cause(f driver.Failure) string { return f.Cause[:min(len(f.Cause), driver.MaxCauseBytes)] }

// microseconds rounds up, so that a lease or retention is never shorter than requested.
func microseconds(d time.Duration) int64 {
	n := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		n++
	}
	return n
}

// notNull returns an empty slice for nil, which would be NULL in the table.
func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
