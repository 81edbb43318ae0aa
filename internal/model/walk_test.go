package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
)

// epoch is the time at which the walk looks at every situation.
const epoch = 1_000_000*tick + 123_457*time.Microsecond // so that what counts in milliseconds shows

// step is Step, or a wrong one.
type step func(Record, Call, time.Duration) (Record, Answer)

// situation is a record and what a witness knows of its past, moved to the epoch. Fences are numbered in their order,
// and a high number of attempts is cut: nothing but their order and growth counts.
type situation struct {
	record  Record
	witness witness
}

// at returns the situation as if now were the epoch.
func (s situation) at(now time.Duration) situation {
	r, w := &s.record, &s.witness
	if r.Expires <= now {
		*r = Record{}
	} else {
		r.LeaseEnd, r.Expires = moved(r.LeaseEnd, now), moved(r.Expires, now)
	}
	if w.expires <= now {
		*w = witness{fence: w.fence}
	} else {
		w.until, w.expires = moved(w.until, now), moved(w.expires, now)
	}
	if r.State != Started {
		r.LeaseEnd, w.until = 0, 0
	}
	if excess := w.attempt - 2; excess > 0 {
		w.attempt, r.Attempt = w.attempt-excess, r.Attempt-excess
	}
	s.numberFences()
	r.Noted, w.noted = sorted(r.Noted), sorted(w.noted)
	return s
}

// sorted brings noted owners into one order: they are fewer than a record notes, so that none is forgotten.
func sorted(noted string) string {
	var owners []string
	for ; noted != ""; noted = noted[16:] {
		owners = append(owners, noted[:16])
	}
	slices.Sort(owners)
	return strings.Join(owners, "")
}

func moved(t, now time.Duration) time.Duration { return epoch + max(0, t-now) }

func (s *situation) numberFences() {
	r, w := &s.record.Fence, &s.witness.fence
	firstOfRecord, firstOfWitness := s.record.Operation == *r, s.witness.operation == *w
	defer func() {
		number := func(operation *int64, first bool, fence int64) {
			if *operation != 0 {
				*operation = map[bool]int64{true: fence, false: 500}[first]
			}
		}
		number(&s.record.Operation, firstOfRecord, *r)
		number(&s.witness.operation, firstOfWitness, *w)
	}()
	before, same := *r < *w, *r == *w
	if *w != 0 {
		*w = 1000
	}
	switch {
	case *r != 0 && same:
		*r = 1000
	case *r != 0 && before:
		*r = 900
	case *r != 0:
		*r = 1100
	}
}

// place is a situation that the walk has been in, and how it came there.
type place struct {
	situation
	from int
	by   move
}

// walk is all situations that the moves lead to, in the order in which they were found, nearest first.
type walk struct {
	places []place
	steps  int
	broken error // the first promise that was found broken; the walk ends there
	way    []move
}

// explore walks from an absent record.
func explore(do step) *walk {
	w := &walk{places: []place{{from: -1}}}
	known := map[situation]bool{w.places[0].situation: true}
	for i := 0; i < len(w.places) && w.broken == nil; i++ {
		for _, m := range moves {
			w.steps++
			next, err := w.places[i].after(do, m)
			if err != nil {
				w.broken, w.way = err, append(w.to(i), m)
				break
			}
			if !known[next] {
				known[next] = true
				w.places = append(w.places, place{next, i, m})
			}
		}
	}
	return w
}

// rightWalk is that of the model itself.
var rightWalk = sync.OnceValue(func() *walk { return explore(Step) })

// to is the shortest way to a place.
func (w *walk) to(i int) (way []move) {
	if w.places[i].from < 0 {
		return nil
	}
	return append(w.to(w.places[i].from), w.places[i].by)
}

// after makes a move and checks all that must hold of it.
func (s situation) after(do step, m move) (situation, error) {
	if m.verb == "" {
		return s.at(epoch + tick), s.alive()
	}
	call := m.call(s.witness.fence)
	record, answer := do(s.record, call, epoch)
	w, err := s.witness.sees(call, answer, epoch)
	if err != nil {
		return s, err
	}
	if err := twice(do, record, call, answer); err != nil {
		return s, err
	}
	if changes := record != s.record; changes && w == s.witness {
		return s, &broken{noStale, "a call that was refused has changed the record"}
	}
	return situation{record, w}.at(epoch), nil
}

// twice: a call that arrives again is answered as the first time and changes nothing.
func twice(do step, r Record, c Call, first Answer) error {
	for range 2 {
		again, answer := do(r, c, epoch)
		if again != r || !equalAnswers(answer, first) {
			return &broken{itself, fmt.Sprintf("sent again, %s is answered %v, not %v", c.Verb, answer, first)}
		}
	}
	return nil
}

// alive: the record lives as long as its witness says, and no shorter than its lease; and after it a key is new.
func (s situation) alive() error {
	r, w := s.record, s.witness
	if r.State != w.state || r.Expires != w.expires || r.LeaseEnd > r.Expires {
		return &broken{neverStuck, fmt.Sprintf("%q until %v, not %q until %v", r.State, r.Expires, w.state, w.expires)}
	}
	return nil
}

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
