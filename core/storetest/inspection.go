package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// inspector returns the store under test, which implements driver.Inspector. Calls through it are not in the list of calls
// that a failed test prints; forget adds its own.
func (s *suite) inspector() driver.Inspector { return s.story.store.(driver.Inspector) }

// look returns what Look says of the record of c.
func (s *suite) look(c driver.Claim) driver.Record {
	s.Helper()
	seen, err := s.inspector().Look(context.Background(), c.Key)
	if err != nil {
		s.Fatalf("Look returned the error %v, want none", err)
	}
	return seen
}

// forget sends a Forget and adds it to the list of calls. The list shows the state that was seen, because Forget depends on it.
func (s *suite) forget(seen driver.Record) error {
	err := s.inspector().Forget(context.Background(), seen)
	s.story.mu.Lock()
	defer s.story.mu.Unlock()
	s.story.last = "Forget"
	s.story.add(fmt.Sprintf("Forget of key %d, seen as %s -> %s", s.story.number(keyName(seen.Name)), seen.State, errorText(err)))
	return err
}

// scan returns the records that the filter selects, by their names.
func (s *suite) scan(filter driver.Filter) map[[32]byte]driver.Record {
	s.Helper()
	found := map[[32]byte]driver.Record{}
	err := s.inspector().Scan(context.Background(), filter, func(r driver.Record) bool {
		found[r.Name] = r
		return true
	})
	if err != nil {
		s.Fatalf("Scan returned the error %v, want none", err)
	}
	return found
}

// wantRecord fails the test unless seen is want in all fields but those that depend on time and on the store: of these it checks
// that they are there.
func (s *suite) wantRecord(seen, want driver.Record) {
	s.Helper()
	isThere := want.State != driver.Absent && want.State != driver.Expired
	hasClaim := isThere && want.State != driver.Completed
	switch {
	case (seen.Version != "") != isThere, (seen.Bytes > 0) != isThere:
		s.Fatalf("Look returned %+v, want a Version and Bytes if and only if there is a record", seen)
	case seen.ClaimedAt.IsZero() == hasClaim, (seen.Fence > 0) != hasClaim:
		s.Fatalf("Look returned %+v, want ClaimedAt and a Fence if and only if the record is of a claim without an outcome", seen)
	case (seen.Expires > 0) != (want.State != driver.Absent), seen.Expires > longer+longer:
		s.Fatalf("Look returned %+v, want the rest of the retention in Expires", seen)
	case (seen.Remaining > 0) != (want.State == driver.InProgress), (seen.Remaining < 0) != (want.State == driver.Unknown):
		s.Fatalf("Look returned %+v, want a lease that remains in progress, and one that is over where the outcome is unknown", seen)
	}
	want.Version, want.Bytes, want.ClaimedAt, want.Expires = seen.Version, seen.Bytes, seen.ClaimedAt, seen.Expires
	want.Remaining, want.Fence = seen.Remaining, seen.Fence
	if seen != want {
		s.Fatalf("Look returned\n%+v, want\n%+v", seen, want)
	}
}

// situation is a way to a record, and what Look says of it. want lacks what wantRecord does not compare. make returns the claim
// that the record has at the end, so that a test can send further calls of its owner.
type situation struct {
	name string
	make func(*suite) (c driver.Claim, want driver.Record)
}

// situations are all states of a record that an Inspector must distinguish, each made by calls of a Store alone.
var situations = []situation{
	{"absent", func(*suite) (driver.Claim, driver.Record) {
		c := NewClaim(long, longer)
		return c, driver.Record{Name: c.Key, State: driver.Absent}
	}},
	{"in progress", func(s *suite) (driver.Claim, driver.Record) {
		c := s.claimed(long)
		return c, driver.Record{Name: c.Key, State: driver.InProgress, Fingerprint: c.Fingerprint, Attempt: 1}
	}},
	{"unknown", func(s *suite) (driver.Claim, driver.Record) {
		c := s.claimed(short)
		s.advance(overtime)
		return c, driver.Record{Name: c.Key, State: driver.Unknown, Fingerprint: c.Fingerprint, Attempt: 1}
	}},
	{"taken over", func(s *suite) (driver.Claim, driver.Record) {
		c := s.claimed(short)
		s.advance(overtime)
		heir := rival(c)
		heir.Lease = long
		s.claim(&heir)
		return heir, driver.Record{Name: c.Key, State: driver.InProgress, Fingerprint: c.Fingerprint, Attempt: 2, Takeover: true}
	}},
	{"completed", func(s *suite) (driver.Claim, driver.Record) {
		c := s.claimed(long)
		s.wantError(s.complete(c, "kept"), nil)
		return c, driver.Record{Name: c.Key, State: driver.Completed, Fingerprint: c.Fingerprint, Attempt: 1}
	}},
	{"failed", func(s *suite) (driver.Claim, driver.Record) {
		c := s.claimed(long)
		s.wantError(s.fail(c, false), nil)
		return c, driver.Record{Name: c.Key, State: driver.Failed, Fingerprint: c.Fingerprint, Attempt: 1, Cause: "test"}
	}},
	{"failed without effects", func(s *suite) (driver.Claim, driver.Record) {
		c := s.claimed(long)
		s.wantError(s.fail(c, true), nil)
		return c, driver.Record{Name: c.Key, State: driver.Failed, Attempt: 1, Free: true, Cause: "test"}
	}},
	{"failed without a run", func(s *suite) (driver.Claim, driver.Record) {
		c := s.claimed(long)
		s.wantError(s.notRun(c), nil)
		return c, driver.Record{Name: c.Key, State: driver.Failed, Free: true, Cause: "test"}
	}},
}

// inspecting are the tests of an Inspector. Operators look for unknown outcomes and forget records by it, often during an
// incident, so a wrong result makes somebody delete the wrong record.
var inspecting = []test{
	// Operators decide by what Look returns, and a look at a record must not decide anything itself. The check compares two
	// calls in each situation. A store fails here if it implements Look by a call that renews the retention, or by a
	// takeover.
	{"OPR-01 Look says what became of a key, and changes nothing", func(s *suite) {
		for _, situation := range situations {
			c, want := situation.make(s)
			s.wantRecord(s.look(c), want)
			s.advance(overtime) // so that a time that is set anew has grown
			first, second := s.look(c), s.look(c)
			if first.Version != second.Version {
				s.Fatalf("%s: Look returned the versions %q and %q, want the same", situation.name, first.Version, second.Version)
			}
			if second.Expires > first.Expires || second.Remaining > first.Remaining {
				s.Fatalf("%s: Look returned %+v and then %+v, want neither Expires nor Remaining to grow", situation.name, first, second)
			}
		}
	}},
	// A retry is refused because of the tombstone, so an operator must see it. A store fails here if Look reads the record
	// alone.
	{"OPR-01 a tombstone is seen when its record has expired", func(s *suite) {
		c := s.claimed(long)
		c.Retention, c.LateRetry = short, longer
		s.wantError(s.complete(c, "kept"), nil)
		s.advance(overtime)
		s.wantRecord(s.look(c), driver.Record{Name: c.Key, State: driver.Expired})
	}},
	// Operators search by state, for example for unknown outcomes. A store fails here if it filters by what it has written,
	// since STARTED is InProgress or Unknown by the present time. Records of other tests may appear, so the check looks for
	// its own.
	{"OPR-02 Scan finds each record of a state, and only those", func(s *suite) {
		all := map[driver.State][][32]byte{}
		for _, situation := range situations {
			c, want := situation.make(s)
			all[want.State] = append(all[want.State], c.Key)
		}
		for state, names := range all {
			found := s.scan(driver.Filter{States: []driver.State{state}})
			for _, name := range names {
				if got, ok := found[name]; ok != (state != driver.Absent) || ok && got.State != state {
					s.Errorf("Scan of the state %q found %+v (%t) under a name of that state", state, got, ok)
				}
			}
			for _, r := range found {
				if r.State != state {
					s.Errorf("Scan of the state %q found %+v", state, r)
				}
			}
		}
	}},
	// All records of one caller can be found and deleted by a scan of its scope: one too few is data that stays, one too many
	// is data of somebody else. 500 records need several batches in most stores. A store fails here if it loses the place
	// between two batches, or goes on after found has returned false.
	{"OPR-03 Scan finds all records of a scope, and nobody else's", func(s *suite) {
		var scopes [2][]byte
		var names [2][][32]byte
		for i := range 500 {
			c := NewClaim(long, longer)
			if i < 2 {
				scopes[i] = slices.Clone(c.Key[:driver.ScopeBytes])
			}
			copy(c.Key[:], scopes[i%2])
			s.claim(&c)
			names[i%2] = append(names[i%2], c.Key)
		}
		for i, scope := range scopes {
			found := s.scan(driver.Filter{Scope: scope})
			if len(found) != len(names[i]) {
				s.Errorf("Scan of a scope found %d records, want %d", len(found), len(names[i]))
			}
			for _, name := range names[i] {
				if _, ok := found[name]; !ok {
					s.Errorf("Scan of a scope did not find %x", name)
				}
			}
		}
		calls := 0
		err := s.inspector().Scan(context.Background(), driver.Filter{Scope: scopes[0]}, func(driver.Record) bool {
			calls++
			return calls < 3
		})
		if err != nil || calls != 3 {
			s.Errorf("Scan called a function %d times that returned false at the third call, and returned %v; want 3 calls", calls, err)
		}
	}},
	// MinAge counts from the claim, by the clock of the store. A store fails here if it ignores MinAge, or if ClaimedAt is in
	// another unit than its clock.
	{"OPR-02 Scan selects by the age of the claim", func(s *suite) {
		c := s.claimed(long)
		s.advance(moment)
		if _, ok := s.scan(driver.Filter{MinAge: moment})[c.Key]; !ok {
			s.Errorf("Scan did not find a claim that is older than its MinAge")
		}
		if _, ok := s.scan(driver.Filter{MinAge: long})[c.Key]; ok {
			s.Errorf("Scan found a claim that is younger than its MinAge")
		}
	}},
	// A Scan that returned no error although it was cut short would pass for complete. A store fails here if it reads what it
	// has at hand and ignores the context.
	{"a call of an Inspector whose context has ended is an error and changes nothing", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.complete(c, "kept"), nil)
		seen := s.look(c)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := s.inspector().Look(ctx, c.Key)
		s.wantUnavailable("Look", err)
		_, err = s.inspector().Steps(ctx, c.Key)
		s.wantUnavailable("Steps", err)
		s.wantUnavailable("Forget", s.inspector().Forget(ctx, seen))
		s.wantUnavailable("Scan", s.inspector().Scan(ctx, driver.Filter{}, func(driver.Record) bool { return true }))
		s.wantOutcome(c, "kept")
	}},
	// After a Forget the next request is the first under its key, and the old owner learns that its record is gone. The fence
	// still grows (rule 3). The first Forget may be repeated; after the next claim, it is lost. A store fails here if it
	// takes the fence of a new record from a counter in the deleted one.
	{"a record that was forgotten is new, and its owner has lost it", func(s *suite) {
		for _, situation := range situations {
			c, want := situation.make(s)
			if want.State == driver.InProgress || want.State == driver.Absent {
				continue
			}
			seen := s.look(c)
			s.wantError(s.forget(seen), nil)
			s.wantError(s.forget(seen), nil)
			s.wantRecord(s.look(c), driver.Record{Name: c.Key, State: driver.Absent})
			s.wantError(s.complete(c, "late"), driver.ErrGone)
			s.advance(short) // a fence may be a time, and nothing else remembers the one of a record that is gone
			next := other(c)
			if s.claimAttempt(&next, 1, false); next.Fence <= c.Fence {
				s.Errorf("Begin after a Forget returned the fence %d, want more than %d", next.Fence, c.Fence)
			}
			s.wantError(s.forget(seen), driver.ErrLost)
		}
	}},
	// A page or a file shows an operator what would be forgotten, and the decision comes back later as JSON. A store fails
	// here if its Version is not UTF-8, because encoding/json replaces such bytes.
	{"a record that was seen can be forgotten after its way through JSON", func(s *suite) {
		for _, situation := range situations {
			c, want := situation.make(s)
			if want.State == driver.InProgress || want.State == driver.Absent {
				continue
			}
			text, err := json.Marshal(s.look(c))
			var seen driver.Record
			if err == nil {
				err = json.Unmarshal(text, &seen)
			}
			if err != nil {
				s.Fatalf("a Record cannot be JSON: %v", err)
			}
			s.wantError(s.forget(seen), nil)
			s.wantRecord(s.look(c), driver.Record{Name: c.Key, State: driver.Absent})
		}
	}},
	// To forget a run in progress would let a second one start beside it. A store fails here if it compares the version
	// alone, which is that of the record.
	{"OPR-04 a run in progress is not forgotten", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.forget(s.look(c)), driver.ErrLost)
		s.wantError(s.extend(c), nil)
	}},
	// Between look and decision the record may have been taken over, completed, failed or extended. The decision was not
	// about that record, so Forget must change nothing. A store fails here if it deletes by name, or compares the version in
	// one call and deletes in another.
	{"OPR-04 nothing is forgotten that has changed since it was seen", func(s *suite) {
		for _, change := range []func(*suite, driver.Claim){
			func(s *suite, c driver.Claim) {
				heir := rival(c)
				s.claim(&heir)
				s.advance(overtime)
			},
			func(s *suite, c driver.Claim) { s.wantError(s.complete(c, "kept"), nil) },
			func(s *suite, c driver.Claim) { s.wantError(s.fail(c, false), nil) },
			func(s *suite, c driver.Claim) {
				c.Lease = long
				s.wantError(s.extend(c), nil)
			},
		} {
			c := s.claimed(short)
			s.advance(overtime)
			seen := s.look(c)
			change(s, c)
			before := s.look(c)
			s.wantError(s.forget(seen), driver.ErrLost)
			if after := s.look(c); after.Version != before.Version || after.State != before.State {
				s.Errorf("a Forget that was lost left %+v, want %+v", after, before)
			}
		}
	}},
	// Whoever forgets a key wants it to be new. A store fails here if it leaves the tombstone, which would refuse the next
	// request as Expired.
	{"a tombstone is forgotten with its record, and alone", func(s *suite) {
		for _, retention := range []time.Duration{short, long} {
			c := s.claimed(long)
			c.Retention, c.LateRetry = retention, longer
			s.wantError(s.complete(c, "kept"), nil)
			if retention == short {
				s.advance(overtime)
			}
			s.wantError(s.forget(s.look(c)), nil)
			next := rival(c)
			next.LateRetry = longer
			s.claimAttempt(&next, 1, false)
		}
	}},
}

// readingOutcomes are the tests of an Inspector that is an OutcomeReader as well.
var readingOutcomes = []test{
	// A client may ask for the status of its request without a run. A store fails here if Outcome claims the key, renews the
	// retention, returns an outcome whose retention is over, or cuts a long one.
	{"OPR-07 Outcome returns what a completed record has, and nothing of any other", func(s *suite) {
		outcomeOf := func(c driver.Claim) []byte {
			outcome, err := s.inspector().(driver.OutcomeReader).Outcome(context.Background(), c.Key)
			s.wantError(err, nil)
			return outcome
		}
		for _, situation := range situations {
			c, want := situation.make(s)
			before := s.look(c)
			if got := outcomeOf(c); (got != nil) != (want.State == driver.Completed) {
				s.Fatalf("%s: Outcome returned %q", situation.name, got)
			}
			if after := s.look(c); after.Version != before.Version || after.Expires > before.Expires {
				s.Fatalf("%s: Look returned %+v after Outcome, and %+v before, want no change", situation.name, after, before)
			}
		}
		for _, outcome := range []string{"kept", strings.Repeat("long", 1<<16), "\x00\xff"} {
			c := s.claimed(long)
			s.wantError(s.complete(c, outcome), nil)
			if got := outcomeOf(c); string(got) != outcome {
				s.Fatalf("Outcome returned %d bytes, want the %d that were stored", len(got), len(outcome))
			}
		}
		c := s.claimed(long)
		c.Retention = short
		s.wantError(s.complete(c, "kept"), nil)
		s.advance(overtime)
		if got := outcomeOf(c); got != nil {
			s.Fatalf("Outcome returned %q after the retention, want none", got)
		}
	}},
	// A nil outcome without an error means that there is none, which a call that was cut short cannot know.
	{"OPR-07 an Outcome whose context has ended is an error", func(s *suite) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := s.inspector().(driver.OutcomeReader).Outcome(ctx, s.claimed(long).Key)
		s.wantUnavailable("Outcome", err)
	}},
}

// wantInspectedSteps fails the test unless Steps returns exactly these steps and results, and Look counts them.
func (s *suite) wantInspectedSteps(c driver.Claim, want map[string]string) {
	s.Helper()
	steps, err := s.inspector().Steps(context.Background(), c.Key)
	s.wantError(err, nil)
	got := map[string]string{}
	for step, result := range steps {
		got[step] = string(result)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.Fatalf("Steps returned %q, want %q", got, want)
	}
	if seen := s.look(c); seen.Steps != len(want) {
		s.Fatalf("Look returned %d steps, want %d", seen.Steps, len(want))
	}
}

// inspectingSteps are the tests of an Inspector that is a Checkpointer as well.
var inspectingSteps = []test{
	// The number of steps tells an operator how far a run came. A step that is stored twice counts once. A Forget deletes the
	// steps; a store fails here if the next run still finds them.
	{"OPR-01 Look counts the steps that the next run would find", func(s *suite) {
		c := s.claimed(short)
		for _, step := range []string{"charge", "notify", "charge"} {
			s.wantError(s.checkpoint(c, step, "1"), nil)
		}
		if seen := s.look(c); seen.Steps != 2 {
			s.Errorf("Look returned %d steps, want 2", seen.Steps)
		}
		s.advance(overtime)
		s.wantError(s.forget(s.look(c)), nil)
		next := rival(c)
		s.claim(&next)
		s.wantSteps(next, nil)
		if seen := s.look(next); seen.Steps != 0 {
			s.Errorf("Look returned %d steps, want 0", seen.Steps)
		}
	}},
	// An operator reads the results while a run is in progress, after its lease, and after a takeover, which keeps them; an
	// outcome replaces them. A store fails here if Steps renews the retention as Checkpoints does.
	{"OPR-08 Steps lists the steps that the next run would find, and changes nothing", func(s *suite) {
		c := s.claimed(moment)
		s.wantInspectedSteps(c, nil)
		s.wantError(s.checkpoint(c, "charge", "1"), nil)
		s.wantError(s.checkpoint(c, "notify \x00", "\x00\xff"), nil)
		s.wantInspectedSteps(c, map[string]string{"charge": "1", "notify \x00": "\x00\xff"})
		s.wantError(s.checkpoint(c, "\x00", "3"), nil)
		all := map[string]string{"charge": "1", "notify \x00": "\x00\xff", "\x00": "3"}
		s.wantInspectedSteps(c, all)
		s.advance(moment + overtime)
		before := s.look(c)
		s.wantInspectedSteps(c, all)
		if after := s.look(c); after.Expires > before.Expires {
			s.Errorf("Look returned %+v after Steps, and %+v before, want Expires not to grow", after, before)
		}
		next := rival(c)
		s.claim(&next)
		s.wantInspectedSteps(next, all)
		s.wantError(s.complete(next, "kept"), nil)
		s.wantInspectedSteps(next, nil)
	}},
	// Rows of an earlier operation may still be in the database. A store fails here if Steps lists them although no run would
	// find them.
	{"OPR-08 steps of an earlier operation are not listed", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.checkpoint(c, "charge", "1"), nil)
		s.wantError(s.fail(c, true), nil)
		s.wantInspectedSteps(c, nil)
		next := other(c)
		s.claim(&next)
		s.wantInspectedSteps(next, nil)
		s.wantInspectedSteps(NewClaim(long, longer), nil)
	}},
}
