// Package model is the state machine of one key as an executable specification: [Step] says what each verb answers and
// leaves behind, for every record and at any time. Its tests walk through all records that any calls can lead to, check
// the promises on the way, and hold the memory store and the Lua scripts to the same answers.
package model

import (
	"time"

	"github.com/go-idem/idem/core/driver"
)

// State is where a record is. A record without one is absent.
type State string

// The states of package core's documentation.
const (
	Absent    State = ""
	Started   State = "STARTED"
	Completed State = "COMPLETED"
	Failed    State = "FAILED"
)

// Record is what a store holds under one key. Times are read off the store's own clock. Records are compared with ==.
type Record struct {
	State       State
	Owner       [16]byte // of the last claim
	Fence       int64    // of the last claim
	Attempt     int
	Operation   int64 // fence of the first claim since the record was last absent or free; 0 in a free one
	Fingerprint [32]byte
	LeaseEnd    time.Duration
	Expires     time.Duration // when the retention ends
	Vanished    bool          // an earlier run of this request ended without a word
	Effects     bool          // an earlier run of this request may have had effects: it vanished, or failed and did not deny them
	Free        bool          // FAILED, and no run of this request had effects: another request may take the key
	Noted       string        // earlier owners that have failed or withdrawn, 16 bytes each, the last ones last
	Outcome     string
}

// A record notes this many owners.
const maxNoted = 16

// note returns the noted owners with one more. Who is there already stays where it is.
func note(noted string, owner [16]byte) string {
	if isNoted(noted, owner) {
		return noted
	}
	noted += string(owner[:])
	return noted[max(0, len(noted)-maxNoted*len(owner)):]
}

func isNoted(noted string, owner [16]byte) bool {
	for ; noted != ""; noted = noted[len(owner):] {
		if noted[:len(owner)] == string(owner[:]) {
			return true
		}
	}
	return false
}

// Verb is one of the four that a store knows.
type Verb string

// The verbs of driver.Store.
const (
	Begin    Verb = "begin"
	Extend   Verb = "extend"
	Complete Verb = "complete"
	Fail     Verb = "fail"
)

// Call is a verb with what it carries: Outcome belongs to Complete, Free and NotRun to Fail.
type Call struct {
	Verb              Verb
	Claim             driver.Claim
	Outcome           string
	NoEffects, NotRun bool
}

// Answer is what a call returns. Entry belongs to Begin; Err is nil or driver.ErrLost.
type Answer struct {
	Entry driver.Entry
	Err   error
}

var lost = Answer{Err: driver.ErrLost}

// Step applies one call to r at the given time and returns the record that it leaves and its answer.
func Step(r Record, c Call, now time.Duration) (Record, Answer) {
	if r.Expires <= now {
		r = Record{}
	}
	switch {
	case c.Verb == Begin:
		return begin(r, c.Claim, now)
	case !holds(r, c.Claim) && c.Verb == Fail && c.Claim.Fence == 0:
		return withdraw(r, c.Claim, now)
	case !holds(r, c.Claim):
		return r, lost
	case c.Verb == Extend:
		return extend(r, c.Claim, now)
	case c.Verb == Complete:
		return complete(r, c, now)
	}
	return fail(r, c, now)
}

// holds: is the record's last claim this one? A fence of 0 is one that the owner was never told. The lease is not asked:
// a claim is over when another takes its place.
func holds(r Record, c driver.Claim) bool {
	return r.State != Absent && r.Owner == c.Owner && (c.Fence == 0 || c.Fence == r.Fence)
}

// begin: the claim's own record first, then another request's, then what became of this one's.
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

// claim gives the record to c: under a higher fence than any before, which the clock sees to once the record is gone.
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

func claimed(r Record, now time.Duration) Answer {
	return Answer{Entry: driver.Entry{
		State: driver.Claimed, Fence: r.Fence, Attempt: r.Attempt, Operation: r.Operation, Takeover: r.Vanished, Remaining: r.LeaseEnd - now,
	}}
}

// withdraw sees to it that a begin of c that comes later gets nothing: an absent record becomes one that c has failed, a
// record of another owner notes c.
func withdraw(r Record, c driver.Claim, now time.Duration) (Record, Answer) {
	switch r.State {
	case Absent:
		return Record{State: Failed, Owner: c.Owner, Fence: now.Microseconds(), Free: true, Expires: now + c.Lease}, Answer{}
	case Started, Failed:
		r.Noted = note(r.Noted, c.Owner)
	}
	return r, lost
}

func extend(r Record, c driver.Claim, now time.Duration) (Record, Answer) {
	if r.State != Started {
		return r, lost
	}
	r.LeaseEnd, r.Expires = now+c.Lease, now+c.Retention
	return r, Answer{}
}

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
