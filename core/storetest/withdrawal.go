package storetest

import (
	"context"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// withdraw sends the Fail of an owner that has no response to its Begin: nothing ran, and the owner does not know any fence.
func (s *suite) withdraw(c driver.Claim) error {
	c.Fence = 0
	return s.store.Fail(context.Background(), c, driver.Failure{Cause: "begin had no answer", NoEffects: true, NotRun: true})
}

// wantLateBeginLost fails the test unless a Begin of c is lost, because its owner has failed or withdrawn. It sends the Begin
// with and without NoTakeover, since both forms may have been on their way.
func (s *suite) wantLateBeginLost(c driver.Claim) {
	s.Helper()
	for _, c.NoTakeover = range []bool{false, true} {
		_, err := s.store.Begin(context.Background(), c)
		s.wantError(err, driver.ErrLost)
	}
}

// notRun sends the Fail of an owner that had a claim and never ran, so that the attempt does not count.
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

// withdrawing are the tests of withdrawals, of claims without a run, and of operations. They are where a
// record must remember owners that hold nothing, so the simplest layout of a record is not enough.
var withdrawing = []test{
	// A Begin without a response may still be on its way when its owner gives up. The withdrawal makes it come too late, and
	// leaves the key free for the same request and for others. A store fails here if a Fail that finds no record does
	// nothing: the late Begin would then claim the key for nobody, and retries would wait for the end of its lease.
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
	// A call may be late by more than one run of somebody else. A store fails here if a new claim replaces the list of noted
	// owners in place of adding the owner of the FAILED record to it.
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
	// A withdrawal that finds a claim of somebody else only notes its owner. The run in progress goes on, its request still
	// owns the key, and its later Fail frees the key as usual. A store fails here if the withdrawal ends that claim, or if a
	// Fail or the next claim drops the noted owners.
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
	// Many requests may give up on one key while its server is slow. The check withdraws 20 owners and wants the last 16 to
	// be noted, in an absent, a STARTED and a FAILED record. A store fails here if it notes only one owner.
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
	// A record that only stands for a withdrawal must go by itself, after the lease in which the late Begin would have
	// mattered. A store fails here if it keeps such a record for the retention.
	{"a withdrawal from an absent record lasts for a lease", func(s *suite) {
		c := NewClaim(moment, longer)
		s.wantError(s.withdraw(c), nil)
		s.wantLateBeginLost(c)
		s.advance(moment + overtime)
		s.claimAttempt(&c, 1, false)
	}},
	// A later withdrawal needs a lease of its own, which may end after the record would. A store fails here if it notes the
	// owner and leaves the expiry. The second call, with a longer lease, is a repetition by the same owner.
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
	// The record also stands for the run that failed. A store fails here if it sets the expiry to the end of the new lease
	// without a comparison.
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
	// A record that holds its key for one request ends by the schedule of that request. A store fails here if every note
	// renews the retention.
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
	// The record that a withdrawal leaves has no outcome, so it must not stand before a tombstone: the retry would run
	// although there was an outcome. A store fails here if it looks for tombstones only where there is no record.
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
	// A consumer may claim a message and then not run it, for example because it shuts down. That must not use up attempts,
	// or the message would be given up without having been handled. A store fails here if a repeated Fail gives the attempt
	// back twice, or if the fence goes back as well.
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
	// A claim without a run says nothing of the runs before it. A store fails here if a Fail with NotRun frees the key
	// although an earlier run failed with effects or vanished.
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
	// Steps and keys that are derived from the operation connect the attempts of one request. The check leads one key through
	// all ways in which a claim can end, and looks at the operation of the next claim. A store fails here if it takes the
	// fence of each claim, which repeats steps, or keeps the operation of a request that is over, which skips them.
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

// operations are the tests of how long the steps of an operation live, for a store that is a driver.Checkpointer.
var operations = []test{
	// A key that failed free begins another operation, even for the same request. A store fails here if it finds steps by key
	// and fingerprint.
	{"steps end with their operation", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.checkpoint(c, "charge", "1"), nil)
		s.wantError(s.fail(c, true), nil)
		next := rival(c)
		s.claim(&next)
		s.wantSteps(next, nil)
	}},
	// Neither a withdrawal nor a claim without a run is an end of the operation. A store fails here if it deletes the steps
	// at each Fail with NoEffects.
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
	// A withdrawal rewrites the record of a run in progress. A store fails here if it loses the note that requests are
	// subscribed.
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
