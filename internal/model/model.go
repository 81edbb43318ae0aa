// Package model is the state machine of one key as an executable specification. [Step] says what each call of a store
// returns, and what record it leaves, for every record and any time. The tests of this package visit every record that calls
// can lead to. They check the promises of package core there, and compare the memory store and the Lua scripts with the
// model.
package model

import (
	"time"

	"github.com/go-idem/idem/core/driver"
)

// State is the state of a record. A key without a record is in state Absent.
type State string

// The states of package core's documentation.
const (
	Absent    State = ""
	Started   State = "STARTED"
	Completed State = "COMPLETED"
	Failed    State = "FAILED"
)

// Record is what a store holds under one key. Its times are those of the store's own clock. Records are compared with ==.
type Record struct {
	State       State
	Owner       [16]byte // of the last claim
	Fence       int64    // of the last claim
	Attempt     int
	Operation   int64 // fence of the first claim since the record was last absent or free; 0 if it is free
	Fingerprint [32]byte
	LeaseEnd    time.Duration
	Expires     time.Duration // when the retention ends
	Vanished    bool          // the lease of an earlier run of this request ended without an outcome
	Effects     bool          // an earlier run of this request may have had effects: it vanished, or failed without NoEffects
	Free        bool          // FAILED, and no run of this request had effects: another request may claim the key
	Noted       string        // earlier owners that have failed or withdrawn, 16 bytes each, the latest last
	Outcome     string
}

// maxNoted is how many owners a record notes.
const maxNoted = 16

// note returns the noted owners with one more. An owner that is noted already keeps its place.
func note(noted string, owner [16]byte) string {
	if isNoted(noted, owner) {
		return noted
	}
	noted += string(owner[:])
	return noted[max(0, len(noted)-maxNoted*len(owner)):]
}

// isNoted reports whether owner is among the noted owners.
func isNoted(noted string, owner [16]byte) bool {
	for ; noted != ""; noted = noted[len(owner):] {
		if noted[:len(owner)] == string(owner[:]) {
			return true
		}
	}
	return false
}

// Verb names one of the four functions of driver.Store.
type Verb string

// The functions of driver.Store.
const (
	Begin    Verb = "begin"
	Extend   Verb = "extend"
	Complete Verb = "complete"
	Fail     Verb = "fail"
)

// Call is a call of a store with its arguments. Outcome belongs to Complete; NoEffects and NotRun belong to Fail.
type Call struct {
	Verb              Verb
	Claim             driver.Claim
	Outcome           string
	NoEffects, NotRun bool
}

// Answer is what a call returns. Entry belongs to Begin; Err is nil, driver.ErrLost or driver.ErrGone.
type Answer struct {
	Entry driver.Entry
	Err   error
}

// The answers to claims that do not hold the key. The first is for a key that has a record.
var (
	lost   = Answer{Err: driver.ErrLost}
	absent = Answer{Err: driver.ErrGone}
)

// Step applies one call to r at the given time. It returns the record afterwards, and the answer to the call.
func Step(r Record, c Call, now time.Duration) (Record, Answer) {
	if r.Expires <= now {
		r = Record{}
	}
	switch {
	case c.Verb == Begin:
		return begin(r, c.Claim, now)
	case r.State == Absent && c.Claim.Fence != 0:
		return r, absent
	case !holds(r, c.Claim) && c.Verb == Fail && c.Claim.Fence == 0:
		return withdraw(r, c.Claim, now)
	case !holds(r, c.Claim), c.Verb != Fail && c.Claim.Fence == 0:
		return r, lost
	case c.Verb == Extend:
		return extend(r, c.Claim, now)
	case c.Verb == Complete:
		return complete(r, c, now)
	}
	return fail(r, c, now)
}

// holds reports whether c is the last claim of r. A fence of 0 matches any; only the Fail of an owner that has had no answer to
// Begin may have it. The lease does not matter: a claim is over when another claim takes its place.
func holds(r Record, c driver.Claim) bool {
	return r.State != Absent && r.Owner == c.Owner && (c.Fence == 0 || c.Fence == r.Fence)
}

// begin is the step of Begin. It checks first whether the record is the claim's own, then whether it belongs to another
// request, then the state.
func begin(r Record, c driver.Claim, now time.Duration) (Record, Answer) {
	own := r.State != Absent && r.Owner == c.Owner
	switch {
	case own && r.State == Started:
		return r, claimed(r, now)
	case own && r.State == Failed, isNoted(r.Noted, c.Owner):
		return r, lost // this begin comes after its own fail
	case r.State == Absent:
		return claim(r, c, now)
	case r.Fingerprint != c.Fingerprint && !r.Free:
		return r, Answer{Entry: driver.Entry{State: driver.Mismatch, Fingerprint: r.Fingerprint}}
	case r.State == Completed:
		return r, Answer{Entry: driver.Entry{State: driver.Completed, Outcome: []byte(r.Outcome)}}
	case r.State == Failed:
		r.Effects, r.Noted = !r.Free, note(r.Noted, r.Owner)
		return claim(r, c, now)
	case r.LeaseEnd > now:
		return r, Answer{Entry: driver.Entry{State: driver.InProgress, Remaining: r.LeaseEnd - now}}
	case c.NoTakeover && c.TakeoverFence != r.Fence:
		return r, Answer{Entry: driver.Entry{State: driver.Unknown, Fence: r.Fence}}
	}
	r.Vanished, r.Effects = true, true
	return claim(r, c, now)
}

// claim gives the record to c. The new fence is above all earlier ones of the key: above the record's, and, since it is at
// least the time in µs, also above those of records that have expired.
func claim(r Record, c driver.Claim, now time.Duration) (Record, Answer) {
	next := Record{
		State: Started, Owner: c.Owner, Fingerprint: c.Fingerprint,
		Fence: max(r.Fence+1, now.Microseconds()), Attempt: r.Attempt + 1, Operation: r.Operation,
		LeaseEnd: now + c.Lease, Expires: now + c.Retention,
		Vanished: r.Vanished, Effects: r.Effects, Noted: r.Noted,
	}
	if r.State == Absent || r.Free {
		next.Operation = next.Fence
	}
	return next, claimed(next, now)
}

// claimed is the answer to the owner of r.
func claimed(r Record, now time.Duration) Answer {
	return Answer{Entry: driver.Entry{
		State: driver.Claimed, Fence: r.Fence, Attempt: r.Attempt, Operation: r.Operation, Takeover: r.Vanished,
		Remaining: r.LeaseEnd - now,
	}}
}

// withdraw makes a later Begin of c lost. An absent record becomes one that c has failed. The record of another owner notes c,
// and a free one lives for at least one lease of c from then on.
func withdraw(r Record, c driver.Claim, now time.Duration) (Record, Answer) {
	switch r.State {
	case Absent:
		return Record{State: Failed, Owner: c.Owner, Fence: now.Microseconds(), Free: true, Expires: now + c.Lease}, Answer{}
	case Started, Failed:
		if r.Free && !isNoted(r.Noted, c.Owner) {
			r.Expires = max(r.Expires, now+c.Lease)
		}
		r.Noted = note(r.Noted, c.Owner)
	}
	return r, lost
}

// extend is the step of Extend for the last claim.
func extend(r Record, c driver.Claim, now time.Duration) (Record, Answer) {
	if r.State != Started {
		return r, lost
	}
	r.LeaseEnd, r.Expires = now+c.Lease, now+c.Retention
	return r, Answer{}
}

// complete is the step of Complete for the last claim.
func complete(r Record, c Call, now time.Duration) (Record, Answer) {
	switch {
	case r.State == Completed && r.Outcome == c.Outcome:
		return r, Answer{}
	case r.State != Started:
		return r, lost
	}
	r.State, r.Outcome, r.Noted, r.Expires = Completed, c.Outcome, "", now+c.Claim.Retention
	return r, Answer{}
}

// fail is the step of Fail for the last claim.
func fail(r Record, c Call, now time.Duration) (Record, Answer) {
	switch r.State {
	case Failed:
		return r, Answer{}
	case Completed:
		return r, lost
	}
	r.State, r.Free, r.Expires = Failed, (c.NoEffects || c.NotRun) && !r.Effects, now+c.Claim.Retention
	if r.Free {
		r.Operation = 0
	}
	if c.NotRun {
		r.Attempt--
	}
	return r, Answer{}
}
