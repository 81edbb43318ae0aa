package model

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
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
