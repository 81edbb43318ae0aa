package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"sync"

	"github.com/go-idem/idem/core/driver"
)

var contract = []test{
	{"a new key is claimed", func(s *suite) {
		c := NewClaim(long, longer)
		entry := s.claim(&c)
		if entry.Attempt != 1 || entry.Takeover || entry.Fence <= 0 || entry.Operation != entry.Fence ||
			entry.Remaining <= 0 || entry.Remaining > long {
			s.Fatalf("Begin of a new key returned %s, want attempt 1, a positive fence, which is also the operation, no takeover, "+
				"and at most %v remaining", entryText(entry), long)
		}
	}},
	{"one of many rivals is claimed, and the others are in progress", func(s *suite) {
		c := NewClaim(long, longer)
		var claims sync.Map
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				entry, err := s.store.Begin(context.Background(), rival(c))
				if err != nil {
					s.Errorf("Begin returned the error %v, want none", err)
				}
				if entry.State == driver.Claimed {
					claims.Store(i, true)
				} else if entry.State != driver.InProgress || entry.Remaining <= 0 || entry.Remaining > long {
					s.Errorf("Begin of a rival returned %s, want %q with at most %v remaining", entryText(entry), driver.InProgress, long)
				}
			})
		}
		wg.Wait()
		n := 0
		claims.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			s.Fatalf("Begin returned %q to %d of 32 rivals, want 1", driver.Claimed, n)
		}
	}},
	{"a repeated Begin returns the same claim", func(s *suite) {
		c := NewClaim(long, longer)
		first := s.claim(&c)
		for range 3 {
			again := s.begin(c)
			if again.Remaining = first.Remaining; !sameEntry(again, first) {
				s.Fatalf("the repeated Begin returned %s, want %s as at first", entryText(again), entryText(first))
			}
		}
	}},
	{"a repeated Begin of a takeover is still a takeover", func(s *suite) {
		c := s.claimed(short)
		s.advance(overtime)
		heir := rival(c)
		heir.Lease = long
		first := s.claim(&heir)
		if again := s.begin(heir); !first.Takeover || !again.Takeover || again.Fence != first.Fence || again.Attempt != 2 {
			s.Fatalf("Begin returned %s, and repeated %s; want attempt 2, a takeover, and the same fence",
				entryText(first), entryText(again))
		}
	}},
	{"a Begin that arrives after its own Fail is lost", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.fail(c, false), nil)
		_, err := s.store.Begin(context.Background(), c)
		s.wantError(err, driver.ErrLost)
		next := rival(c)
		if s.claim(&next); next.Attempt != 2 {
			s.Fatalf("Begin returned attempt %d, want 2: the late Begin has changed the record", next.Attempt)
		}
	}},
	{"a mismatch is reported in every state and changes nothing", func(s *suite) {
		c := NewClaim(short, longer)
		s.claim(&c)
		mismatch := func() {
			entry := s.begin(other(c))
			if s.wantState(entry, driver.Mismatch); entry.Fingerprint != c.Fingerprint {
				s.Fatalf("Begin returned the fingerprint %x, want %x, which is that of the record", entry.Fingerprint, c.Fingerprint)
			}
		}
		mismatch()
		s.advance(overtime)
		mismatch()
		s.wantError(s.fail(c, false), nil)
		mismatch()
		next := rival(c)
		next.Lease = long
		s.claim(&next)
		s.wantError(s.complete(next, "kept"), nil)
		mismatch()
		s.wantOutcome(c, "kept")
	}},
	{"a failed key is claimed by the next attempt under a higher fence", func(s *suite) {
		c := s.claimed(long)
		for attempt := 2; attempt < 5; attempt++ {
			s.wantError(s.fail(c, false), nil)
			next := rival(c)
			entry := s.claim(&next)
			if entry.Attempt != attempt || entry.Fence <= c.Fence || entry.Takeover {
				s.Fatalf("Begin returned %s, want attempt %d, no takeover, and a fence above %d", entryText(entry), attempt, c.Fence)
			}
			c = next
		}
	}},
	{"a key that failed free accepts another request", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.fail(c, true), nil)
		mended := other(c)
		s.claim(&mended)
		s.wantState(s.begin(rival(c)), driver.Mismatch)
	}},
	{"a key that fails free keeps its request when an earlier run may have had effects", func(s *suite) {
		failed, vanished := s.claimed(long), s.claimed(short)
		s.wantError(s.fail(failed, false), nil)
		s.advance(overtime)
		for _, c := range []driver.Claim{failed, vanished} {
			next := rival(c)
			next.Lease = long
			s.claim(&next)
			s.wantError(s.fail(next, true), nil)
			s.wantState(s.begin(other(c)), driver.Mismatch)
		}
	}},
	{"a takeover is remembered by the attempts that follow it", func(s *suite) {
		c := s.claimed(short)
		s.advance(overtime)
		for range 3 {
			c = rival(c)
			c.Lease = long
			if entry := s.claim(&c); !entry.Takeover {
				s.Fatalf("Begin returned %s, want a takeover", entryText(entry))
			}
			s.wantError(s.fail(c, false), nil)
		}
	}},
	{"a claim whose lease ended is taken over", func(s *suite) {
		c := s.claimed(moment)
		s.wantState(s.begin(rival(c)), driver.InProgress)
		s.advance(moment + overtime)
		heir := rival(c)
		entry := s.claim(&heir)
		if !entry.Takeover || entry.Attempt != 2 || entry.Fence <= c.Fence {
			s.Fatalf("Begin returned %s, want attempt 2, a takeover, and a fence above %d", entryText(entry), c.Fence)
		}
	}},
	{"without takeover an ended lease is an unknown outcome", func(s *suite) {
		c := s.claimed(short)
		s.advance(overtime)
		cautious := rival(c)
		cautious.NoTakeover = true
		entry := s.begin(cautious)
		if s.wantState(entry, driver.Unknown); entry.Fence != c.Fence {
			s.Fatalf("Begin returned the fence %d, want %d, which is that of the vanished claim", entry.Fence, c.Fence)
		}
		s.wantError(s.complete(c, "kept"), nil)
		s.wantOutcome(c, "kept")
	}},
	{"without takeover one vanished claim can be taken over, and no other", func(s *suite) {
		c := s.claimed(short)
		s.advance(overtime)
		cautious := rival(c)
		cautious.NoTakeover, cautious.TakeoverFence = true, c.Fence-1
		s.wantState(s.begin(cautious), driver.Unknown)
		cautious.TakeoverFence = c.Fence
		if entry := s.claim(&cautious); !entry.Takeover || entry.Attempt != 2 {
			s.Fatalf("Begin returned %s, want attempt 2 and a takeover", entryText(entry))
		}
	}},
	{"an extended claim outlives its first lease", func(s *suite) {
		c := s.claimed(short)
		c.Lease = long
		s.wantError(s.extend(c), nil)
		s.advance(overtime)
		s.wantState(s.begin(rival(c)), driver.InProgress)
	}},
	{"an owner whose lease has ended holds its claim until a takeover", func(s *suite) {
		for _, call := range calls {
			c := s.claimed(short)
			s.advance(overtime)
			s.wantError(call.do(s, c), nil)
		}
	}},
	{"after a takeover the old owner is lost and changes nothing", func(s *suite) {
		for _, call := range calls {
			c := s.claimed(short)
			s.advance(overtime)
			heir := rival(c)
			heir.Lease = long
			s.claim(&heir)
			s.wantError(call.do(s, c), driver.ErrLost)
			s.wantError(s.complete(heir, "heir"), nil)
			s.wantError(call.do(s, c), driver.ErrLost)
			s.wantOutcome(c, "heir")
		}
	}},
	{"a stale fence is lost although the owner is right", func(s *suite) {
		for _, call := range calls {
			c := s.claimed(long)
			c.Fence--
			s.wantError(call.do(s, c), driver.ErrLost)
		}
	}},
	{"a claim without a fence is lost although the owner is right, except for Fail", func(s *suite) {
		c := s.claimed(long)
		unknown := c
		unknown.Fence = 0
		s.wantError(s.extend(unknown), driver.ErrLost)
		s.wantError(s.complete(unknown, "kept"), driver.ErrLost)
		s.wantState(s.begin(rival(c)), driver.InProgress)
		s.wantError(s.complete(c, "kept"), nil)
		s.wantError(s.complete(unknown, "kept"), driver.ErrLost)
		s.wantOutcome(c, "kept")
	}},
	{"Extend, Complete and Fail of an absent key say that its record is gone and leave it absent", func(s *suite) {
		for _, call := range calls {
			c := NewClaim(long, longer)
			c.Fence = 1
			s.wantError(call.do(s, c), driver.ErrGone)
			if s.claim(&c); c.Attempt != 1 {
				s.Fatalf("Begin returned attempt %d, want 1: %s of an absent key has left a record", c.Attempt, call.name)
			}
		}
	}},
	{"repeated calls of Extend, Complete and Fail return the same", func(s *suite) {
		c := s.claimed(long)
		for range 3 {
			s.wantError(s.extend(c), nil)
		}
		for range 3 {
			s.wantError(s.complete(c, "kept"), nil)
		}
		s.wantOutcome(c, "kept")
		c = s.claimed(long)
		for range 3 {
			s.wantError(s.fail(c, false), nil)
		}
		next := rival(c)
		if s.claim(&next); next.Attempt != 2 {
			s.Fatalf("Begin after a repeated Fail returned attempt %d, want 2", next.Attempt)
		}
	}},
	{"a kept outcome never changes", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.complete(c, "first"), nil)
		s.wantError(s.complete(c, "second"), driver.ErrLost)
		s.wantError(s.fail(c, true), driver.ErrLost)
		s.wantError(s.extend(c), driver.ErrLost)
		s.wantOutcome(c, "first")
	}},
	{"a failed claim cannot be completed or extended", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.fail(c, false), nil)
		s.wantError(s.complete(c, "late"), driver.ErrLost)
		s.wantError(s.extend(c), driver.ErrLost)
	}},
	{"a Fail without a fence ends its own claim only", func(s *suite) {
		c := s.claimed(long)
		c.Fence = 0
		s.wantError(s.fail(rival(c), false), driver.ErrLost)
		s.wantError(s.fail(c, false), nil)
		next := rival(c)
		s.claim(&next)
		s.wantError(s.fail(c, false), driver.ErrLost)
	}},
	{"an outcome is returned unchanged", func(s *suite) {
		random := make([]byte, 1<<20)
		rand.Read(random)
		for _, outcome := range []string{"", "\x00\r\n", "1", string(random[:512]), string(random)} {
			c := s.claimed(long)
			s.wantError(s.complete(c, outcome), nil)
			entry := s.begin(rival(c))
			if s.wantState(entry, driver.Completed); !bytes.Equal(entry.Outcome, []byte(outcome)) {
				s.Fatalf("Begin returned the outcome %s, want %s", bytesText(entry.Outcome), bytesText([]byte(outcome)))
			}
		}
	}},
	{"retention counts from the outcome; then the key is new, but for its fence", func(s *suite) {
		c := s.claimed(long)
		c.Retention = short
		s.wantError(s.complete(c, "kept"), nil)
		s.advance(overtime)
		next := other(c)
		if s.claim(&next); next.Attempt != 1 || next.Fence <= c.Fence {
			s.Fatalf("Begin after the retention returned attempt %d, fence %d; want attempt 1 and a fence above %d",
				next.Attempt, next.Fence, c.Fence)
		}
	}},
	{"a tombstone outlives an outcome if the claims have a LateRetry", func(s *suite) {
		c := s.claimed(long)
		c.Retention, c.LateRetry = short, moment
		s.wantError(s.complete(c, "kept"), nil)
		s.advance(overtime)
		late := other(c)
		late.Retention = longer
		for range 2 {
			s.wantState(s.begin(late), driver.Expired)
		}
		careless := rival(c)
		careless.LateRetry, careless.Retention = 0, longer
		s.claim(&careless)
		c = s.claimed(long)
		c.Retention, c.LateRetry = short, short
		s.wantError(s.complete(c, "kept"), nil)
		s.advance(2 * overtime)
		next := other(c)
		next.Retention = longer
		s.claim(&next)
	}},
	{"a failed key leaves no tombstone", func(s *suite) {
		c := s.claimed(long)
		c.Retention, c.LateRetry = short, longer
		s.wantError(s.fail(c, false), nil)
		s.advance(overtime)
		next := rival(c)
		s.claim(&next)
	}},
	{"Extend, Complete and Fail renew the retention", func(s *suite) {
		claims := map[string]driver.Claim{}
		for _, call := range calls {
			c := NewClaim(moment/2, moment)
			s.claim(&c)
			c.Retention = longer
			s.wantError(call.do(s, c), nil)
			claims[call.name] = c
		}
		s.advance(moment + overtime)
		for name, c := range claims {
			if entry := s.begin(other(c)); entry.State != driver.Mismatch {
				s.Fatalf("Begin of another request returned %q after %s and the first retention, want %q", entry.State, name, driver.Mismatch)
			}
		}
	}},
	{"the longest durations do not end", func(s *suite) {
		c := NewClaim(longest, longest)
		c.LateRetry = longest
		if entry := s.claim(&c); entry.Remaining < long {
			s.Fatalf("Begin with the longest lease returned the Remaining %v, want about %v", entry.Remaining, longest)
		}
		s.wantError(s.withdraw(rival(c)), driver.ErrLost)
		for _, call := range []func(driver.Claim) error{s.extend, func(c driver.Claim) error { return s.fail(c, false) }} {
			s.wantError(call(c), nil)
			s.advance(overtime)
			s.wantState(s.begin(other(c)), driver.Mismatch)
		}
		next := rival(c)
		s.claim(&next)
		s.wantState(s.begin(rival(c)), driver.InProgress)
		s.wantError(s.complete(next, "kept"), nil)
		s.advance(overtime)
		s.wantOutcome(next, "kept")
		c = NewClaim(longest, longest)
		s.wantError(s.withdraw(c), nil)
		s.wantLateBeginLost(c)
	}},
	{"the record of an expired claim is gone", func(s *suite) {
		for _, call := range calls {
			c := NewClaim(short/2, short)
			s.claim(&c)
			s.advance(overtime)
			s.wantError(call.do(s, c), driver.ErrGone)
		}
	}},
	{"records of different keys are independent", func(s *suite) {
		a, b := s.claimed(long), s.claimed(long)
		s.wantError(s.complete(a, "a"), nil)
		s.wantError(s.fail(b, false), nil)
		s.wantOutcome(a, "a")
	}},
}
