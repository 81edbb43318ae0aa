package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// limiting are the tests of contexts that have ended, of the shortest durations, and of when a tombstone is seen.
var limiting = []test{
	{"a call whose context has ended is an error and changes nothing", func(s *suite) {
		c := s.claimed(long)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
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
	{"a tombstone is not seen before the retention of its outcome is over", func(s *suite) {
		c := s.claimed(long)
		c.LateRetry = longer
		s.wantError(s.complete(c, "kept"), nil)
		s.wantState(s.begin(rival(c)), driver.Completed)
		s.wantState(s.begin(other(c)), driver.Mismatch)
	}},
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

// wantUnavailable fails the test unless err says that the store could not do the call, and says nothing about the record.
func (s *suite) wantUnavailable(call string, err error) {
	s.Helper()
	about := errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrUnreadable) || errors.Is(err, driver.ErrOutcomeUnknown)
	if err == nil || about {
		s.Fatalf("%s with a context that has ended returned the error %v, want one that says nothing about the record", call, err)
	}
}
