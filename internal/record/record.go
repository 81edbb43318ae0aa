// Package record is the state machine of one key for stores that read a record, decide, and write it. The calls of a store are
// functions of the record and of the time. The model of internal/model says what they must return.
package record

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// The states of a record.
const (
	Absent    = "" // there is no record
	Started   = "STARTED"
	Completed = "COMPLETED"
	Failed    = "FAILED"
)

// The history of a request under its key: what earlier runs may have done.
const (
	WithoutEffects = iota
	TookOver       // a run vanished
	WithEffects    // a run failed that may have had effects
)

// maxNoted is how many owners a record notes. driver.Store.Fail demands at least 16.
const maxNoted = 16

// Record is what a store keeps of a key. Times are µs since 1970. A record whose retention is over counts as absent.
type Record struct {
	Key                string // its 32 bytes
	State              string
	History, Attempt   int
	Fence, Operation   int64
	LeaseEnd, Expires  int64
	Owner, Noted       []byte
	Fingerprint        []byte // nil if the record is free for another request
	Cause              string
	Outcome            []byte
	Tombstone          int64 // when the tombstone of the key expires; 0 without one
	DeletedFence       int64 // the highest fence of a deleted record of any key, if the store keeps that
	Steps, StoredBytes int   // how many results of steps, and the length of the record, for operators
}

// Check returns an error that wraps driver.ErrUnreadable if no store can have written the record. place names where it lies.
func (r *Record) Check(place string) error {
	ownerBytes := len(driver.Claim{}.Owner)
	isKnown := r.State == Started || r.State == Completed || r.State == Failed
	switch {
	case r.State == Absent:
		return nil
	case !isKnown, len(r.Owner) != ownerBytes, len(r.Noted)%ownerBytes != 0, r.Fence <= 0,
		r.Fingerprint != nil && len(r.Fingerprint) != len(driver.Claim{}.Fingerprint), r.Fingerprint == nil && r.State != Failed:
		return fmt.Errorf("%w: the record of %x in %s is damaged", driver.ErrUnreadable, r.Key, place)
	}
	return nil
}

// IsThere reports whether there is a record whose retention is not over.
func (r *Record) IsThere(now int64) bool { return r.State != Absent && r.Expires > now }

// IsFree reports whether a request with another fingerprint may claim the record.
func (r *Record) IsFree() bool { return r.State == Failed && r.Fingerprint == nil }

// IsHeldBy reports whether c is the last claim of the record. A Fence of 0 in c matches any fence, which only Fail accepts.
func (r *Record) IsHeldBy(c *driver.Claim, now int64) bool {
	return r.IsThere(now) && bytes.Equal(r.Owner, c.Owner[:]) && (c.Fence == 0 || c.Fence == r.Fence)
}

// LostError returns the error of a claim that does not hold the record.
func (r *Record) LostError(c *driver.Claim, now int64) error {
	if c.Fence != 0 && !r.IsThere(now) {
		return driver.ErrGone
	}
	return driver.ErrLost
}

// isNoted reports whether the record notes that an owner has failed or withdrawn.
func (r *Record) isNoted(owner []byte) bool {
	for rest := r.Noted; len(rest) >= len(owner); rest = rest[len(owner):] {
		if bytes.Equal(rest[:len(owner)], owner) {
			return true
		}
	}
	return false
}

// note notes an owner that has failed or withdrawn. If there is no room, the oldest one is dropped.
func (r *Record) note(owner []byte) {
	if r.isNoted(owner) {
		return
	}
	r.Noted = append(bytes.Clone(r.Noted), owner...)
	r.Noted = r.Noted[max(0, len(r.Noted)-maxNoted*len(owner)):]
}

// Reply returns what a Begin of c returns if it changes nothing. It returns false if the Begin claims the key.
func (r *Record) Reply(c *driver.Claim, now int64) (entry driver.Entry, isFinal bool, err error) {
	isThere := r.IsThere(now)
	isOwner := isThere && bytes.Equal(r.Owner, c.Owner[:])
	left := time.Duration(r.LeaseEnd-now) * time.Microsecond
	switch {
	case isOwner && r.State == Started:
		return r.Entry(left), true, nil
	case isOwner && r.State == Failed, isThere && r.isNoted(c.Owner[:]):
		return driver.Entry{}, true, driver.ErrLost
	case c.LateRetry > 0 && r.Tombstone > now && (!isThere || r.IsFree() && r.Attempt == 0):
		return driver.Entry{State: driver.Expired}, true, nil
	case !isThere:
		return driver.Entry{}, false, nil
	case !r.IsFree() && !bytes.Equal(r.Fingerprint, c.Fingerprint[:]):
		return driver.Entry{State: driver.Mismatch, Fingerprint: [32]byte(r.Fingerprint)}, true, nil
	case r.State == Completed:
		return r.completedEntry(c, now), true, nil
	case r.State == Started && left > 0:
		return driver.Entry{State: driver.InProgress, Remaining: left}, true, nil
	case r.State == Started && c.NoTakeover && c.TakeoverFence != r.Fence:
		return driver.Entry{State: driver.Unknown, Fence: r.Fence}, true, nil
	}
	return driver.Entry{}, false, nil
}

// Entry returns the entry for the owner of the record.
func (r *Record) Entry(left time.Duration) driver.Entry {
	return driver.Entry{
		State: driver.Claimed, Fence: r.Fence, Attempt: r.Attempt, Operation: r.Operation, Takeover: r.History == TookOver,
		Remaining: left,
	}
}

// completedEntry returns the entry of a COMPLETED record.
func (r *Record) completedEntry(c *driver.Claim, now int64) driver.Entry {
	entry := driver.Entry{State: driver.Completed, Outcome: NotNull(r.Outcome)}
	if c.WantRemaining {
		entry.Remaining = time.Duration(r.Expires-now) * time.Microsecond
	}
	return entry
}

// Claim gives the record to c, after Reply has found that c claims the key. It reports whether an operation begins, so that steps
// of an earlier one are to be deleted.
func (r *Record) Claim(c *driver.Claim, now int64) (isNewOperation bool) {
	if !r.IsThere(now) {
		*r = Record{Key: r.Key, Fence: r.Fence, DeletedFence: r.DeletedFence, Tombstone: r.Tombstone}
	}
	switch {
	case r.State == Absent || r.IsFree():
		r.History, r.Operation = WithoutEffects, 0
	case r.State == Started || r.History == TookOver:
		r.History = TookOver
	default:
		r.History = WithEffects
	}
	if r.State == Failed {
		r.note(r.Owner)
	}
	r.Fence = max(now, r.Fence+1, r.DeletedFence+1)
	if isNewOperation = r.Operation == 0; isNewOperation {
		r.Operation = r.Fence
	}
	r.State, r.Attempt, r.Cause = Started, r.Attempt+1, ""
	r.Owner, r.Fingerprint = c.Owner[:], c.Fingerprint[:]
	r.LeaseEnd, r.Expires = now+Microseconds(c.Lease), now+Microseconds(c.Retention)
	return isNewOperation
}

// Extend starts the lease and the retention of a STARTED record anew, and returns what Extend returns.
func (r *Record) Extend(c *driver.Claim, now int64) error {
	if err := r.Renew(c, now); err != nil {
		return err
	}
	r.LeaseEnd = now + Microseconds(c.Lease)
	return nil
}

// Renew starts the retention of a STARTED record anew. It returns an error like driver.ErrLost if c does not hold the record.
func (r *Record) Renew(c *driver.Claim, now int64) error {
	if !r.IsHeldBy(c, now) || c.Fence == 0 || r.State != Started {
		return r.LostError(c, now)
	}
	r.Expires = now + Microseconds(c.Retention)
	return nil
}

// Complete turns a STARTED record into a COMPLETED one. It reports whether the record has changed, and returns what Complete
// returns. Steps are to be deleted then.
func (r *Record) Complete(c *driver.Claim, outcome []byte, now int64) (hasChanged bool, err error) {
	switch {
	case !r.IsHeldBy(c, now) || c.Fence == 0:
		return false, r.LostError(c, now)
	case r.State == Completed && bytes.Equal(r.Outcome, outcome):
		return false, nil
	case r.State != Started:
		return false, driver.ErrLost
	}
	r.State, r.Outcome, r.Noted, r.Expires = Completed, NotNull(outcome), nil, now+Microseconds(c.Retention)
	if c.LateRetry > 0 {
		r.Tombstone = max(r.Tombstone, r.Expires+Microseconds(c.LateRetry))
	}
	return true, nil
}

// Fail ends the claim of a record that c holds, or that a Begin of c which has no result must not claim any more. It reports
// whether the record has changed, and returns what Fail returns.
func (r *Record) Fail(c *driver.Claim, f driver.Failure, now int64) (hasChanged bool, err error) {
	isHeld := r.IsHeldBy(c, now)
	switch {
	case !isHeld && c.Fence == 0:
		return r.withdraw(c, f, now)
	case !isHeld || r.State == Completed:
		return false, r.LostError(c, now)
	case r.State == Failed:
		return false, nil
	}
	if (f.NoEffects || f.NotRun) && r.History == WithoutEffects {
		r.Fingerprint = nil
	}
	if f.NotRun {
		r.Attempt--
	}
	r.State, r.Cause, r.Expires = Failed, Cause(f), now+Microseconds(c.Retention)
	return true, nil
}

// withdraw makes a later Begin of c return driver.ErrLost for at least one lease, if the record is absent or free.
func (r *Record) withdraw(c *driver.Claim, f driver.Failure, now int64) (hasChanged bool, err error) {
	ends := now + Microseconds(c.Lease)
	switch {
	case !r.IsThere(now):
		*r = Record{
			Key: r.Key, State: Failed, Fence: max(now, r.Fence, r.DeletedFence), LeaseEnd: now, Expires: ends, Owner: c.Owner[:],
			Cause: Cause(f), Tombstone: r.Tombstone,
		}
		return true, nil
	case r.State == Completed || r.isNoted(c.Owner[:]):
		return false, driver.ErrLost
	}
	r.note(c.Owner[:])
	if r.IsFree() {
		r.Expires = max(r.Expires, ends)
	}
	return true, driver.ErrLost
}

// Reopen turns a COMPLETED record with this outcome into a FAILED one, without its tombstone. It reports whether the record has
// changed, and returns what driver.Reopener returns.
func (r *Record) Reopen(c *driver.Claim, outcome []byte, now int64) (hasChanged bool, err error) {
	switch {
	case !r.IsThere(now):
		return false, driver.ErrLost
	case r.State == Failed && bytes.Equal(r.Owner, c.Owner[:]): // a repeated call
		return false, nil
	case r.State != Completed || !bytes.Equal(r.Outcome, outcome):
		return false, driver.ErrLost
	}
	r.State, r.History, r.Attempt, r.Operation = Failed, TookOver, 0, 0
	r.Owner, r.Cause, r.Outcome, r.Noted, r.Tombstone = c.Owner[:], "an operator revived it", nil, nil, 0
	r.Expires = now + Microseconds(c.Retention)
	return true, nil
}

// Version returns what a driver.Record has as its Version.
func (r *Record) Version() string { return r.State + strconv.FormatInt(r.Fence, 10) }

// MayForget returns driver.ErrLost if a Forget of what was seen must not delete the record.
func (r *Record) MayForget(seen *driver.Record, now int64) error {
	isRunning := r.State == Started && r.LeaseEnd > now
	if r.IsThere(now) && (r.Version() != seen.Version || isRunning || r.Check("") != nil) {
		return driver.ErrLost
	}
	return nil
}

// Inspect returns what an operator can know of a record.
func (r *Record) Inspect(present int64) (seen driver.Record) {
	left := func(until int64) time.Duration { return time.Duration(until-present) * time.Microsecond }
	copy(seen.Name[:], r.Key)
	switch {
	case r.IsThere(present):
		seen.Expires = left(r.Expires)
	case r.Tombstone > present:
		seen.State, seen.Expires = driver.Expired, left(r.Tombstone)
		return seen
	default:
		seen.State = driver.Absent
		return seen
	}
	seen.Version, seen.Bytes = r.Version(), r.StoredBytes
	if r.Check("") != nil {
		seen.State = driver.Unreadable
		return seen
	}
	seen.Attempt, seen.Takeover = r.Attempt, r.History == TookOver
	copy(seen.Fingerprint[:], r.Fingerprint)
	if r.State == Completed {
		seen.State = driver.Completed
		return seen
	}
	seen.Fence, seen.ClaimedAt, seen.Steps = r.Fence, time.UnixMicro(r.Fence), r.Steps
	switch {
	case r.State == Failed:
		seen.State, seen.Free, seen.Cause = driver.Failed, r.IsFree(), r.Cause
	case r.LeaseEnd > present:
		seen.State, seen.Remaining = driver.InProgress, left(r.LeaseEnd)
	default:
		seen.State, seen.Remaining = driver.Unknown, left(r.LeaseEnd)
	}
	return seen
}

// Cause returns what is stored of the cause of a failure.
func Cause(f driver.Failure) string { return f.Cause[:min(len(f.Cause), driver.MaxCauseBytes)] }

// Microseconds rounds up, so that a lease or retention is never shorter than requested.
func Microseconds(d time.Duration) int64 {
	n := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		n++
	}
	return n
}

// NotNull returns an empty slice for nil, which some stores do not tell from an absent one.
func NotNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
