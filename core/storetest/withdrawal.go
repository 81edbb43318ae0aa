package storetest

import (
	"context"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// withdraw sends the Fail of an owner that has no response to its Begin.
func (s *suite) withdraw(c driver.Claim) error {
	c.Fence = 0
	return s.store.Fail(context.Background(), c, driver.Failure{Cause: "begin had no answer", NoEffects: true, NotRun: true})
}

// wantLateBeginLost fails the test unless a Begin of c is lost, because its owner has failed or withdrawn.
func (s *suite) wantLateBeginLost(c driver.Claim) {
	s.Helper()
	for _, c.NoTakeover = range []bool{false, true} {
		_, err := s.store.Begin(context.Background(), c)
		s.wantError(err, driver.ErrLost)
	}
}

// notRun sends the Fail of an owner that had a claim and never ran.
func (s *suite) notRun(c driver.Claim) error {
	return s.store.Fail(context.Background(), c, driver.Failure{Cause: "test", NoEffects: true, NotRun: true})
}

// claimAttempt claims c, and checks the attempt and whether it is a takeover.
func (s *suite) claimAttempt(c *driver.Claim, want int, takeover bool) {
	s.Helper()
	if entry := s.claim(c); entry.Attempt != want || entry.Takeover != takeover {
		s.Fatalf("Begin returned attempt %d, takeover %t; want attempt %d, takeover %t", entry.Attempt, entry.Takeover, want, takeover)
	}
}

// withdrawing are the tests of withdrawals, of claims without a run, and of operations.
var withdrawing = []test{
	{"LSE-18: a begin that comes after its own fail found nothing is lost, and the key is free at once", func(s *suite) {
		for _, next := range []func(driver.Claim) driver.Claim{rival, other} {
			for _, noTakeover := range []bool{false, true} {
				c := NewClaim(long, longer)
				c.NoTakeover = noTakeover
				s.wantError(s.withdraw(c), nil)
				s.wantError(s.withdraw(c), nil)
				s.wantLateBeginLost(c)
				n := next(c)
				s.claimAttempt(&n, 1, false)
				s.wantLateBeginLost(c)
				s.wantError(s.extend(n), nil)
				s.wantError(s.complete(n, "kept"), nil)
				s.wantOutcome(n, "kept")
			}
		}
	}},
	{"LSE-18: a begin that was withdrawn stays lost through failures and takeovers", func(s *suite) {
		c := NewClaim(long, longer)
		s.wantError(s.withdraw(c), nil)
		for attempt := 1; attempt < 4; attempt++ {
			n := rival(c)
			s.claimAttempt(&n, attempt, false)
			s.wantLateBeginLost(c)
			s.wantError(s.fail(n, false), nil)
			s.wantLateBeginLost(c)
			s.wantLateBeginLost(n)
		}
		vanished := rival(c)
		vanished.Lease = short
		s.claimAttempt(&vanished, 4, false)
		s.advance(overtime)
		s.wantLateBeginLost(c)
		heir := rival(c)
		s.claimAttempt(&heir, 5, true)
		s.wantLateBeginLost(c)
	}},
	{"LSE-18: a begin that is withdrawn while another holds the key is lost, and the other is not disturbed", func(s *suite) {
		c := s.claimed(long)
		w := other(c)
		for range 2 {
			s.wantError(s.withdraw(w), driver.ErrLost)
			s.wantLateBeginLost(w)
		}
		s.wantState(s.begin(rival(c)), driver.InProgress)
		s.wantState(s.begin(other(c)), driver.Mismatch)
		s.wantError(s.extend(c), nil)
		s.wantLateBeginLost(w)
		s.wantError(s.fail(c, true), nil)
		s.wantLateBeginLost(w)
		v := rival(w)
		s.wantError(s.withdraw(v), driver.ErrLost)
		s.wantLateBeginLost(w)
		s.wantLateBeginLost(v)
		s.wantLateBeginLost(c)
		next := other(c)
		s.claimAttempt(&next, 2, false)
		for _, ended := range []driver.Claim{w, v, c} {
			s.wantLateBeginLost(ended)
		}
		s.wantError(s.complete(next, "kept"), nil)
		s.wantError(s.withdraw(other(c)), driver.ErrLost)
		s.wantOutcome(next, "kept")
	}},
	{"LSE-18: a record notes the last 16 owners", func(s *suite) {
		absent, started, failed := NewClaim(long, longer), s.claimed(long), s.claimed(long)
		s.wantError(s.withdraw(absent), nil)
		s.wantError(s.fail(failed, false), nil)
		for _, c := range []driver.Claim{absent, started, failed} {
			var owners []driver.Claim
			for range 16 + 4 {
				w := rival(c)
				s.wantError(s.withdraw(w), driver.ErrLost)
				owners = append(owners, w)
			}
			for _, w := range owners[4:] {
				s.wantLateBeginLost(w)
			}
		}
		s.wantError(s.complete(started, "kept"), nil)
		s.wantOutcome(started, "kept")
	}},
	{"a withdrawal from an absent record lasts for a lease", func(s *suite) {
		c := NewClaim(moment, longer)
		s.wantError(s.withdraw(c), nil)
		s.wantLateBeginLost(c)
		s.advance(moment + overtime)
		s.claimAttempt(&c, 1, false)
	}},
	{"a withdrawal that a free record notes lasts for a lease", func(s *suite) {
		first := NewClaim(moment, longer)
		s.wantError(s.withdraw(first), nil)
		w := rival(first)
		w.Lease = long
		s.wantError(s.withdraw(w), driver.ErrLost)
		w.Lease = longer
		s.wantError(s.withdraw(w), driver.ErrLost)
		s.advance(moment + overtime)
		s.wantLateBeginLost(w)
		s.wantLateBeginLost(first)
		next := other(w)
		s.claimAttempt(&next, 1, false)
		s.wantLateBeginLost(w)
	}},
	{"a shorter withdrawal does not shorten a free record", func(s *suite) {
		first := s.claimed(long)
		s.wantError(s.fail(first, true), nil)
		w := rival(first)
		w.Lease = moment
		s.wantError(s.withdraw(w), driver.ErrLost)
		s.advance(moment + overtime)
		s.wantLateBeginLost(first)
		s.wantLateBeginLost(w)
	}},
	{"a withdrawal does not prolong the record of another", func(s *suite) {
		c := NewClaim(moment/2, moment)
		s.claim(&c)
		w := rival(c)
		w.Lease, w.Retention = long, longer
		s.wantError(s.withdraw(w), driver.ErrLost)
		s.advance(moment + overtime)
		next := other(c)
		next.Lease, next.Retention = long, longer
		s.claimAttempt(&next, 1, false)
	}},
	{"a withdrawal does not hide a tombstone", func(s *suite) {
		c := s.claimed(long)
		c.Retention, c.LateRetry = short, longer
		s.wantError(s.complete(c, "kept"), nil)
		s.advance(overtime)
		late := rival(c)
		late.Retention = longer
		s.wantState(s.begin(late), driver.Expired)
		s.wantError(s.withdraw(late), nil)
		s.wantLateBeginLost(late)
		s.wantState(s.begin(rival(late)), driver.Expired)
	}},
	{"EVT-08: a claim without a run gives its attempt back, and the key", func(s *suite) {
		c := NewClaim(long, longer)
		for range 5 {
			c = other(c)
			fence := c.Fence
			s.claimAttempt(&c, 1, false)
			if c.Fence <= fence {
				s.Fatalf("Begin returned the fence %d, want one above %d", c.Fence, fence)
			}
			s.wantError(s.notRun(c), nil)
			s.wantError(s.notRun(c), nil)
			s.wantLateBeginLost(c)
		}
	}},
	{"EVT-08: a claim without a run leaves what earlier runs have done", func(s *suite) {
		failed, vanished := s.claimed(long), s.claimed(short)
		s.wantError(s.fail(failed, false), nil)
		s.advance(overtime)
		for c, takeover := range map[driver.Claim]bool{failed: false, vanished: true} {
			for range 3 {
				next := rival(c)
				next.Lease = long
				s.claimAttempt(&next, 2, takeover)
				s.wantError(s.notRun(next), nil)
				s.wantState(s.begin(other(c)), driver.Mismatch)
			}
		}
	}},
	{"an operation lasts through failures and takeovers, and ends when the key is free or absent", func(s *suite) {
		c := s.claimed(long)
		next := func(want int64, end func(driver.Claim) error) {
			s.Helper()
			c = rival(c)
			if s.claim(&c); want == 0 {
				want = c.Fence
			}
			if again := s.begin(c); c.Operation != want || again.Operation != want {
				s.Fatalf("Begin returned the operation %d, and repeated %d; want %d", c.Operation, again.Operation, want)
			}
			s.wantError(end(c), nil)
		}
		vanish := func(driver.Claim) error { s.advance(overtime); return nil }
		failFree := func(c driver.Claim) error { return s.fail(c, true) }
		fail := func(c driver.Claim) error { return s.fail(c, false) }
		s.wantError(s.notRun(c), nil)
		next(0, failFree)
		next(0, fail)
		first := c.Operation
		next(first, s.notRun)
		next(first, failFree)
		c.Lease = short
		next(first, vanish)
		c.Lease = long
		next(first, s.notRun)
		next(first, func(c driver.Claim) error { c.Retention = short; return s.complete(c, "kept") })
		s.advance(overtime)
		c.Retention = longer
		next(0, fail)
	}},
}

var operations = []test{
	{"steps end with their operation", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.checkpoint(c, "charge", "1"), nil)
		s.wantError(s.fail(c, true), nil)
		next := rival(c)
		s.claim(&next)
		s.wantSteps(next, nil)
	}},
	{"steps outlive claims without a run, and withdrawals", func(s *suite) {
		c := s.claimed(short)
		s.wantError(s.checkpoint(c, "charge", "1"), nil)
		s.wantError(s.withdraw(rival(c)), driver.ErrLost)
		s.advance(overtime)
		heir := rival(c)
		heir.Lease = long
		s.claimAttempt(&heir, 2, true)
		s.wantError(s.notRun(heir), nil)
		s.wantError(s.withdraw(rival(c)), driver.ErrLost)
		next := rival(heir)
		s.claimAttempt(&next, 2, true)
		s.wantSteps(next, map[string]string{"charge": "1"})
	}},
	{"a waiting request is notified although others have withdrawn during the run", func(s *suite) {
		if _, ok := s.story.store.(driver.Notifier); !ok {
			s.Skip("the store is no Notifier")
		}
		c := s.claimed(time.Hour)
		woken, stop := s.watch(c.Key)
		defer stop()
		s.subscribe(c)
		s.wantError(s.withdraw(rival(c)), driver.ErrLost)
		s.wantError(s.complete(c, "kept"), nil)
		s.wantWake(woken)
	}},
}
