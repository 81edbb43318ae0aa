package storetest

import (
	"context"
	"sync"

	"github.com/go-idem/idem/core/driver"
)

// reopen calls the store's Reopen.
func (s *suite) reopen(c driver.Claim, outcome string) error {
	return s.store.(driver.Reopener).Reopen(context.Background(), c, []byte(outcome))
}

// deadClaim returns the claim of a record that was completed with the outcome "dead" at its third attempt.
func (s *suite) deadClaim() driver.Claim {
	s.Helper()
	c := s.claimed(long)
	for range 2 {
		s.wantError(s.fail(c, false), nil)
		c = rival(c)
		s.claim(&c)
	}
	s.wantError(s.complete(c, "dead"), nil)
	return c
}

// reopening are the tests of a driver.Reopener: an operator lets a dead message run again, and nothing else.
var reopening = []test{
	// A dead message that an operator revives gets all its attempts again, and an operation of its own, so that no step of
	// its first life is skipped. Its earlier runs may have had effects, so every later claim is a takeover and no other
	// request gets the key. A store fails here if it deletes the record instead, which loses that history.
	{"EVT-11 a record that is reopened is claimed as at first, by the same request, and tells of earlier runs", func(s *suite) {
		c := s.deadClaim()
		by := rival(c)
		s.wantError(s.reopen(by, "dead"), nil)
		s.wantError(s.reopen(by, "dead"), nil)
		s.wantState(s.begin(other(c)), driver.Mismatch)
		next := rival(c)
		entry := s.claim(&next)
		if entry.Attempt != 1 || !entry.Takeover || entry.Fence <= c.Fence || entry.Operation != entry.Fence {
			s.Errorf("Begin after a Reopen returned %s, want attempt 1, a takeover, a fence above %d, and an operation of its own",
				entryText(entry), c.Fence)
		}
		s.wantState(s.begin(rival(c)), driver.InProgress)
		s.wantError(s.fail(next, true), nil)
		s.wantState(s.begin(other(c)), driver.Mismatch)
		again := rival(c)
		if entry := s.claim(&again); entry.Attempt != 2 || !entry.Takeover || entry.Operation != next.Operation {
			s.Errorf("Begin after a Fail returned %s, want attempt 2 of the operation %d", entryText(entry), next.Operation)
		}
		s.wantError(s.complete(again, "kept"), nil)
		s.wantOutcome(rival(c), "kept")
	}},
	// An operator whose call ended in time must be able to rely on the outcome being as it was.
	{"EVT-11 a Reopen whose context has ended is an error and changes nothing", func(s *suite) {
		c := s.deadClaim()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.wantUnavailable("Reopen", s.store.(driver.Reopener).Reopen(ctx, rival(c), []byte("dead")))
		s.wantOutcome(c, "dead")
	}},
	// A consumer may give a revived message back before it runs. That costs no attempt, and the message stays a revived one:
	// same request, same operation, still a takeover. A store fails here if a Fail with NotRun turns the attempt 1 into a
	// record that is free for every request.
	{"EVT-11 a claim without a run leaves a record that is reopened as it was", func(s *suite) {
		c := s.deadClaim()
		s.wantError(s.reopen(rival(c), "dead"), nil)
		first := rival(c)
		s.claim(&first)
		s.wantError(s.notRun(first), nil)
		s.wantState(s.begin(other(c)), driver.Mismatch)
		next := rival(c)
		s.claimAttempt(&next, 1, true)
		if next.Operation != first.Operation {
			s.Errorf("Begin returned the operation %d, want %d", next.Operation, first.Operation)
		}
		if entry := s.begin(next); entry.Operation != next.Operation || entry.Attempt != 1 || !entry.Takeover {
			s.Errorf("the repeated Begin returned %s, want attempt 1 and a takeover of the operation %d", entryText(entry), next.Operation)
		}
		s.wantError(s.complete(next, "kept"), nil)
	}},
	// The operator has decided about one outcome. A store fails here if it compares the state and not the outcome, because a
	// later outcome, which may be a success, would be thrown away; or if it reopens a record whose run is in progress.
	{"EVT-11 only a record with this outcome is reopened, and no other is changed", func(s *suite) {
		c := s.deadClaim()
		s.wantError(s.reopen(rival(c), "other"), driver.ErrLost)
		s.wantError(s.reopen(NewClaim(long, longer), "dead"), driver.ErrLost)
		s.wantOutcome(rival(c), "dead")
		running := s.claimed(long)
		s.wantError(s.reopen(rival(running), "dead"), driver.ErrLost)
		s.wantError(s.reopen(running, "dead"), driver.ErrLost)
		s.wantError(s.extend(running), nil)
		s.wantError(s.fail(running, false), nil)
		s.wantError(s.reopen(rival(running), "dead"), driver.ErrLost)
	}},
	// A late repetition of the old Complete would bury the message again, and the owner that reopened it is an operator, not
	// a run. A store fails here if it keeps the old owner or fence in the record.
	{"EVT-11 the owner before a Reopen has lost its claim, and so has the owner that reopened the record", func(s *suite) {
		c := s.deadClaim()
		by := rival(c)
		s.wantError(s.reopen(by, "dead"), nil)
		s.wantError(s.complete(c, "dead"), driver.ErrLost)
		s.wantError(s.extend(c), driver.ErrLost)
		if _, err := s.store.Begin(context.Background(), by); err != driver.ErrLost {
			s.Errorf("Begin of the owner that reopened the record returned the error %v, want %v", err, driver.ErrLost)
		}
		next := rival(c)
		s.claim(&next)
		s.wantError(s.complete(c, "dead"), driver.ErrLost)
		s.wantError(s.reopen(rival(c), "dead"), driver.ErrLost)
		s.wantError(s.complete(next, "kept"), nil)
		s.wantOutcome(rival(c), "kept")
	}},
	// The tombstone belonged to the outcome that is gone. A store fails here if it leaves the tombstone: when the record
	// expires before the message comes again, that message would be refused as Expired.
	{"EVT-11 a record that is reopened leaves no tombstone behind", func(s *suite) {
		c := NewClaim(long, longer)
		c.LateRetry = longer
		s.claim(&c)
		s.wantError(s.complete(c, "dead"), nil)
		by := rival(c)
		by.Retention = short
		s.wantError(s.reopen(by, "dead"), nil)
		s.advance(overtime)
		next := rival(c)
		s.claim(&next)
	}},
	// Two operators may act at the same time, and only one of them has revived the message. A store fails here if it compares
	// the outcome and changes the record in two steps.
	{"EVT-11 of many calls that reopen a record at once one succeeds", func(s *suite) {
		c := s.deadClaim()
		var all sync.WaitGroup
		answers := make(chan error, 10)
		for range cap(answers) {
			all.Go(func() { answers <- s.reopen(rival(c), "dead") })
		}
		all.Wait()
		close(answers)
		done := 0
		for err := range answers {
			if err == nil {
				done++
			} else {
				s.wantError(err, driver.ErrLost)
			}
		}
		if done != 1 {
			s.Errorf("Reopen succeeded for %d of %d callers, want 1", done, cap(answers))
		}
	}},
}
