package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// limiting are the tests of the edges of the contract: contexts that have ended, the shortest durations, and when a tombstone is
// seen.
var limiting = []test{
	// The engine takes the result of a call with an ended context for a store that is unavailable. A store fails here if such
	// a call still takes effect, or returns ErrLost: the engine would then believe that the claim has another owner. The
	// later calls show that the record is unchanged. The context is that of a run that has lost its claim: a store fails here
	// if it returns the cause of its end.
	{"a call whose context has ended is an error and changes nothing", func(s *suite) {
		c := s.claimed(long)
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(driver.ErrLost)
		s.wantUnavailable("Extend", s.store.Extend(ctx, c))
		s.wantUnavailable("Complete", s.store.Complete(ctx, c, []byte("kept")))
		s.wantUnavailable("Fail", s.store.Fail(ctx, c, driver.Failure{Cause: "test"}))
		_, err := s.store.Begin(ctx, c)
		s.wantUnavailable("Begin", err)
		s.wantState(s.begin(rival(c)), driver.InProgress)
		if _, ok := s.story.store.(driver.Checkpointer); ok {
			s.wantUnavailable("Checkpoint", s.story.Checkpoint(ctx, c, "charge", []byte("1")))
			_, err := s.story.Checkpoints(ctx, c)
			s.wantUnavailable("Checkpoints", err)
			s.wantSteps(c, nil)
		}
		s.wantError(s.complete(c, "kept"), nil)
		absent := NewClaim(long, longer)
		_, err = s.store.Begin(ctx, absent)
		s.wantUnavailable("Begin", err)
		next := rival(absent)
		s.claim(&next)
	}},
	// Rounded to a coarser unit, 1 ns becomes 0, which a database may refuse or take for no expiry at all. A store fails here
	// if it hands such a 0 on.
	{"the shortest durations are accepted", func(s *suite) {
		for _, call := range calls {
			c := s.claimed(long)
			c.Lease, c.Retention, c.LateRetry = time.Nanosecond, time.Nanosecond, time.Nanosecond
			if err := call.do(s, c); err != nil {
				s.Fatalf("%s with durations of 1ns returned %v, want no error", call.name, err)
			}
		}
		c := NewClaim(time.Nanosecond, time.Nanosecond)
		s.wantState(s.begin(c), driver.Claimed)
		c = NewClaim(time.Nanosecond, longer)
		s.wantError(s.withdraw(c), nil)
	}},
	// As long as the outcome is there, a retry gets the outcome, and another request a mismatch. A store fails here if it
	// looks for the tombstone first.
	{"a tombstone is not seen before the retention of its outcome is over", func(s *suite) {
		c := s.claimed(long)
		c.LateRetry = longer
		s.wantError(s.complete(c, "kept"), nil)
		s.wantState(s.begin(rival(c)), driver.Completed)
		s.wantState(s.begin(other(c)), driver.Mismatch)
	}},
	// LateRetry is the time in which a retry after the retention is still recognised. A store fails here if it counts
	// LateRetry from Complete: a LateRetry that is no longer than the retention would then have no effect.
	{"a tombstone lasts from the end of the retention, and not from Complete", func(s *suite) {
		c := s.claimed(long)
		c.Retention, c.LateRetry = moment, moment
		s.wantError(s.complete(c, "kept"), nil)
		s.advance(moment + overtime)
		late := rival(c)
		late.Retention = longer
		s.wantState(s.begin(late), driver.Expired)
	}},
}

// wantUnavailable fails the test unless err says that the store could not do the call, and says nothing about the record. The
// three errors that it refuses are facts about a record: the engine would act on them, and a call that has not looked at the
// record cannot know them.
func (s *suite) wantUnavailable(call string, err error) {
	s.Helper()
	about := errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrUnreadable) || errors.Is(err, driver.ErrOutcomeUnknown)
	if err == nil || about {
		s.Fatalf("%s with a context that has ended returned the error %v, want one that says nothing about the record", call, err)
	}
}
