package model

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
)

func TestEveryCallKeepsThePromisesInEverySituation(t *testing.T) {
	w := rightWalk()
	require.NoError(t, w.broken, "%v", w.way)
	t.Logf("%d situations, %d calls a situation, %d steps", len(w.places), len(moves)-1, w.steps)
	assert.Equal(t, 1480, len(w.places), "the number of situations changes only with the state machine")
	assert.Equal(t, len(w.places)*len(moves), w.steps)
}

// bug changes Step. It is given the right one.
type bug struct {
	name    string
	promise string
	do      step
	rare    bool // so seldom that a short history need not show it
}

// bugs are mistakes that a store may make. Each breaks a promise.
var bugs = []bug{
	{"begin does not compare the owner: a resent begin meets its own claim", itself, func(r Record, c Call, now time.Duration) (Record, Answer) {
		if c.Verb == Begin && r.State == Started && r.Owner == c.Claim.Owner && r.Expires > now {
			return r, Answer{Entry: driver.Entry{State: driver.InProgress, Remaining: r.LeaseEnd - now}}
		}
		return Step(r, c, now)
	}, false},
	{"a resent begin gets a new fence", itself, func(r Record, c Call, now time.Duration) (Record, Answer) {
		if c.Verb == Begin && r.State == Started && r.Owner == c.Claim.Owner && r.Expires > now {
			r.Fence++
		}
		return Step(r, c, now)
	}, false},
	{"a resent begin starts the lease anew", itself, func(r Record, c Call, now time.Duration) (Record, Answer) {
		if c.Verb == Begin && r.State == Started && r.Owner == c.Claim.Owner && r.Expires > now {
			r.LeaseEnd = now + c.Claim.Lease
		}
		return Step(r, c, now)
	}, true},
	{"a begin that comes after its own fail is claimed", itself, func(r Record, c Call, now time.Duration) (Record, Answer) {
		if c.Verb == Begin && r.State == Failed {
			r.Owner = [16]byte{}
		}
		return Step(r, c, now)
	}, false},
	{"fences begin again at 1 after a fail", fencesGrow, func(r Record, c Call, now time.Duration) (Record, Answer) {
		failed := r.State == Failed
		next, a := Step(r, c, now)
		if failed && next.State == Started {
			return refenced(next, a)
		}
		return next, a
	}, false},
	{"fences begin again at 1 after the retention", fencesGrow, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if a.Entry.State == driver.Claimed && r.Expires <= now {
			return refenced(next, a)
		}
		return next, a
	}, false},
	{"complete does not compare the fence", noStale, forgetting(Complete, false), false},
	{"complete compares nothing", noStale, forgetting(Complete, true), false},
	{"a dead owner can extend", noStale, forgetting(Extend, true), false},
	{"fail is blind", noStale, forgetting(Fail, true), false},
	{"complete can not be sent again", itself, func(r Record, c Call, now time.Duration) (Record, Answer) {
		if c.Verb == Complete && r.State == Completed {
			return r, lost
		}
		return Step(r, c, now)
	}, false},
	{"another outcome takes the place of the kept one", keptStays, func(r Record, c Call, now time.Duration) (Record, Answer) {
		if c.Verb == Complete && r.State == Completed && r.Expires > now {
			r.State = Started
		}
		return Step(r, c, now)
	}, false},
	{"a lease ends early", oneRun, func(r Record, c Call, now time.Duration) (Record, Answer) {
		if c.Verb == Begin && r.State == Started && r.Owner != c.Claim.Owner && r.LeaseEnd-now <= c.Claim.Lease/2 {
			r.LeaseEnd = now
		}
		return Step(r, c, now)
	}, false},
	{"a record does not outlive its lease", neverStuck, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if next != r && next.State == Started {
			next.Expires = next.LeaseEnd - tick
		}
		return next, a
	}, false},
	{"a fail forgets earlier effects", noMixing, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if c.Verb == Fail && next != r {
			next.Free = c.NoEffects
		}
		return next, a
	}, true},
	{"a fail forgets a takeover", pastKnown, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if r.State == Failed && a.Entry.State == driver.Claimed {
			next.Vanished, a.Entry.Takeover = false, false
		}
		return next, a
	}, false},
	{"the fingerprint is not compared", noMixing, func(r Record, c Call, now time.Duration) (Record, Answer) {
		if c.Verb == Begin && r.State != Absent {
			c.Claim.Fingerprint = r.Fingerprint
		}
		return Step(r, c, now)
	}, false},
	{"NoTakeover is not heard", noTakeover, func(r Record, c Call, now time.Duration) (Record, Answer) {
		c.Claim.NoTakeover = false
		return Step(r, c, now)
	}, false},
	{"LSE-18: a fail that finds no record leaves nothing", itself, func(r Record, c Call, now time.Duration) (Record, Answer) {
		if c.Verb == Fail && r.Expires <= now {
			return Record{}, lost
		}
		return Step(r, c, now)
	}, true},
	{"LSE-18: a fail that finds no record only says that it has", neverStuck, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if c.Verb == Fail && r.Expires <= now {
			return Record{}, a
		}
		return next, a
	}, true},
	{"LSE-18: a fail that finds another owner's record leaves nothing", itself, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if c.Verb == Fail && a.Err != nil {
			return r, a
		}
		return next, a
	}, true},
	{"LSE-18: the next claim forgets who has withdrawn", itself, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if r.State == Failed && next.State == Started {
			next.Noted = ""
		}
		return next, a
	}, true},
	{"LSE-18: a takeover forgets who has withdrawn", itself, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if r.State == Started && next.Fence != r.Fence {
			next.Noted = ""
		}
		return next, a
	}, true},
	{"a withdrawn begin counts an attempt", pastKnown, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if r.Expires <= now && next.State == Failed {
			next.Attempt = 1
		}
		return next, a
	}, true},
	{"a withdrawn begin holds the key for its request", pastKnown, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if r.Expires <= now && next.State == Failed {
			next.Free, next.Fingerprint = false, c.Claim.Fingerprint
		}
		return next, a
	}, true},
	{"a withdrawn begin is remembered for the retention", neverStuck, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if r.Expires <= now && next.State == Failed {
			next.Expires = now + c.Claim.Retention
		}
		return next, a
	}, true},
	{"LSE-18: a withdrawal that a free record notes ends with that record", neverStuck, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if c.Verb == Fail && a.Err != nil {
			next.Expires = r.Expires
		}
		return next, a
	}, true},
	{"a withdrawal prolongs a record that is not free", neverStuck, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if c.Verb == Fail && next.Noted != r.Noted {
			next.Expires = max(next.Expires, now+c.Claim.Lease)
		}
		return next, a
	}, true},
	{"EVT-08: a claim without a run counts an attempt", pastKnown, func(r Record, c Call, now time.Duration) (Record, Answer) {
		c.NoEffects, c.NotRun = c.NoEffects || c.NotRun, false
		return Step(r, c, now)
	}, false},
	{"EVT-08: a claim without a run frees what earlier runs did", noMixing, func(r Record, c Call, now time.Duration) (Record, Answer) {
		if c.Verb == Fail && c.NotRun && holds(r, c.Claim) && r.State == Started {
			r.Effects = false
		}
		return Step(r, c, now)
	}, true},
	{"a takeover begins another operation", pastKnown, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if r.State == Started && next.Fence != r.Fence {
			next.Operation, a.Entry.Operation = next.Fence, next.Fence
		}
		return next, a
	}, false},
	{"a key that failed free stays with its operation", pastKnown, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		switch {
		case c.Verb == Fail:
			next.Operation = r.Operation
		case r.State == Failed && next.State == Started && r.Operation != 0:
			next.Operation, a.Entry.Operation = r.Operation, r.Operation
		}
		return next, a
	}, false},
	{"an absent record counts as one of another claim", pastKnown, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if errors.Is(a.Err, driver.ErrLost) {
			a = lost
		}
		return next, a
	}, true},
	{"a takeover counts as an absent record", pastKnown, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if errors.Is(a.Err, driver.ErrLost) && c.Verb != Begin && c.Claim.Fence != 0 {
			a = absent
		}
		return next, a
	}, false},
	{"a refused extend prolongs the retention", noStale, func(r Record, c Call, now time.Duration) (Record, Answer) {
		next, a := Step(r, c, now)
		if c.Verb == Extend && a.Err != nil && next.State != Absent {
			next.Expires = now + c.Claim.Retention
		}
		return next, a
	}, true},
}

// refenced is a claim with fence 1.
func refenced(r Record, a Answer) (Record, Answer) {
	if r.Operation == r.Fence {
		r.Operation, a.Entry.Operation = 1, 1
	}
	r.Fence, a.Entry.Fence = 1, 1
	return r, a
}

// forgetting is a store whose call does not look at the fence, or not at the owner either.
func forgetting(verb Verb, ownerToo bool) step {
	return func(r Record, c Call, now time.Duration) (Record, Answer) {
		if c.Verb == verb {
			c.Claim.Fence = r.Fence
			if ownerToo {
				c.Claim.Owner = r.Owner
			}
		}
		return Step(r, c, now)
	}
}

func TestTheWalkFindsEveryMistake(t *testing.T) {
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			w := explore(b.do)
			require.Error(t, w.broken)
			found := w.broken.(*broken)
			assert.Equal(t, b.promise, found.promise, found)
			t.Logf("%v, by %s", found, strings.Join(strings.Fields(fmt.Sprint(w.way)), " "))
		})
	}
}
