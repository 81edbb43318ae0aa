package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"sync"

	"github.com/go-idem/idem/core/driver"
)

// contract are the tests of what driver.Store says of each call and each state. They need no optional ability.
// The comment above a test says what the promise protects, and how stores usually break it.
var contract = []test{
	// The first request under a key gets a complete claim, because every later call of its run repeats the fields of this
	// claim. A store fails here if it counts fences from 0, which stands for no fence, or attempts from 0, or leaves the
	// Operation empty.
	{"a new key is claimed", func(s *suite) {
		c := NewClaim(long, longer)
		entry := s.claim(&c)
		if entry.Attempt != 1 || entry.Takeover || entry.Fence <= 0 || entry.Operation != entry.Fence ||
			entry.Remaining <= 0 || entry.Remaining > long {
			s.Fatalf("Begin of a new key returned %s, want attempt 1, a positive fence, which is also the operation, no takeover, "+
				"and at most %v remaining", entryText(entry), long)
		}
	}},
	// Of requests that arrive together exactly one may run: two claims are two runs of the handler, such as two charges. The
	// check begins 32 rivals at once. A store fails here if it reads the record and writes it in two steps, without a
	// transaction or a condition that holds both together.
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
	// A Begin may be sent again because its response was lost (rule 1). If the repetition found the owner's own claim in
	// progress, the request would wait for itself; with another fence, the calls under the first fence would be lost. A store
	// fails here if it looks at the state of the record before it compares the owner.
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
	// The repetition must also say that an earlier run vanished, since the handler may then look for effects of that run. A
	// store fails here if it derives Takeover from the record that it replaces, and does not keep it in the new one.
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
	// A network can deliver a Begin after the Fail of the same run. If this Begin claimed the key, no run would hold that
	// claim, and retries would wait for its lease to end. Attempt 2 of the next run shows that the late Begin claimed
	// nothing. A store fails here if a FAILED record does not keep its owner.
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
	// Without the mismatch a client that uses a key twice would get the response to its other request. The check sends
	// another request while a run is in progress, after its lease, after its failure and after its outcome. A store fails
	// here if it compares fingerprints in some of these states only, or if it writes before it compares them.
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
	// A retry of a failed run must run, with the next attempt and a higher fence, so that other systems can reject late
	// writes of the failed run. A store fails here if it deletes the record at Fail, which also forgets the attempt, or keeps
	// the fence.
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
	// A run without effects leaves its key to a corrected request. From then on the key belongs to that request, so the first
	// one is a mismatch. A store fails here if it keeps the first fingerprint, or does not store the second.
	{"a key that failed free accepts another request", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.fail(c, true), nil)
		mended := other(c)
		s.claim(&mended)
		s.wantState(s.begin(rival(c)), driver.Mismatch)
	}},
	// NoEffects is a statement about one run only. If an earlier run failed without it, or vanished, the effects of that run
	// may be there, and another request under the key would add effects of its own. A store fails here if it frees the key by
	// what the last Fail says, without the history of the record.
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
	// Each later attempt must learn that a run vanished, since nobody has reported what that run did. A store fails here if a
	// Fail, or the claim after it, resets Takeover.
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
	// After a crash the lease decides when the key can be used again. A lease that ends early lets two handlers run at once,
	// and one that never ends blocks the key. The check uses a lease of half a second, so a store also fails here if it
	// counts leases in whole seconds.
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
	// Some operations must rather stop than run a second time. For them Begin reports the vanished claim, by its fence, and
	// changes nothing: the owner may still return and complete. A store fails here if it takes over regardless, or if the
	// report itself replaces the owner.
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
	// A TakeoverFence stands for a decision about one vanished claim. A store fails here if it takes any TakeoverFence for a
	// permission: a claim that vanished later would then be repeated without a decision.
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
	// A handler that takes longer than its lease depends on Extend: without effect, a second run would start beside it. A
	// store fails here if Extend renews the retention and forgets the lease.
	{"an extended claim outlives its first lease", func(s *suite) {
		c := s.claimed(short)
		c.Lease = long
		s.wantError(s.extend(c), nil)
		s.advance(overtime)
		s.wantState(s.begin(rival(c)), driver.InProgress)
	}},
	// A run that was suspended beyond its lease still holds its claim if no other run has replaced it, so its outcome must be
	// stored: otherwise finished work is done again. A store fails here if it demands a running lease in the condition of its
	// writes.
	{"an owner whose lease has ended holds its claim until a takeover", func(s *suite) {
		for _, call := range calls {
			c := s.claimed(short)
			s.advance(overtime)
			s.wantError(call.do(s, c), nil)
		}
	}},
	// A run that returns after a takeover must learn that it was replaced, and must not touch the claim or the outcome of its
	// successor. The check sends each call before and after the successor completes. A store fails here if its writes depend
	// on the state of the record, but not on owner and fence.
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
	// An owner whose record expired may claim the same key again, so its owner bytes can stand for two claims. Only the fence
	// distinguishes calls of the earlier one. A store fails here if it compares owners alone.
	{"a stale fence is lost although the owner is right", func(s *suite) {
		for _, call := range calls {
			c := s.claimed(long)
			c.Fence--
			s.wantError(call.do(s, c), driver.ErrLost)
		}
	}},
	// A caller without a fence has no response to its Begin, so it does not know that it may run, and must neither extend nor
	// complete. A store fails here if it treats the fence 0 as any fence in all calls, because Fail needs that. The last call
	// repeats a Complete with the right outcome: it, too, is lost without a fence.
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
	// ErrGone tells the engine that nothing protects the key any more. A call that made a record instead would hide that
	// another run may already have begun and ended. A store fails here if its writes insert a row that is missing.
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
	// A call whose response was lost is sent again, and must not be told that its claim is lost: the client would get an
	// error although the outcome is stored. A store fails here if it accepts these calls in the state STARTED only, or if
	// each Fail counts an attempt.
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
	// Clients may have received the stored outcome, so not even its own owner may replace it, fail it or extend it. A store
	// fails here if it compares owner and fence, which still match, and forgets the state.
	{"a kept outcome never changes", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.complete(c, "first"), nil)
		s.wantError(s.complete(c, "second"), driver.ErrLost)
		s.wantError(s.fail(c, true), driver.ErrLost)
		s.wantError(s.extend(c), driver.ErrLost)
		s.wantOutcome(c, "first")
	}},
	// After a Fail the engine has told the client that the run failed. A later Complete of the same run would store a
	// response that contradicts this. A store fails here if it compares owner and fence, and forgets the state.
	{"a failed claim cannot be completed or extended", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.fail(c, false), nil)
		s.wantError(s.complete(c, "late"), driver.ErrLost)
		s.wantError(s.extend(c), driver.ErrLost)
	}},
	// A Fail with the fence 0 matches every fence of its owner. A store fails here if it drops the comparison of owners
	// together with that of fences: the Fail of one request would then end the run of another.
	{"a Fail without a fence ends its own claim only", func(s *suite) {
		c := s.claimed(long)
		c.Fence = 0
		s.wantError(s.fail(rival(c), false), driver.ErrLost)
		s.wantError(s.fail(c, false), nil)
		next := rival(c)
		s.claim(&next)
		s.wantError(s.fail(c, false), driver.ErrLost)
	}},
	// An outcome is arbitrary bytes, and a replay must not differ from the first response. The check stores an empty one,
	// control characters, a digit, and random bytes up to the limit of the store. A store fails here if it takes an empty
	// outcome for none, keeps text instead of bytes, or has a column that is too short.
	{"an outcome is returned unchanged", func(s *suite) {
		random := make([]byte, s.maxOutcome)
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
	// A client may retry until the retention after the outcome is over. Then the key is new for every request, except that
	// its fence must still grow (rule 3), because other systems remember the highest one. A store fails here if the retention
	// of Begin remains in force, or if a new record counts its fences from the start.
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
	// A retry after the retention would run as if it were the first. With a LateRetry it is refused as Expired while the
	// tombstone lasts. The check asks twice, since a refusal must not use the tombstone up; a claim without a LateRetry is
	// granted; and the second tombstone ends in time. A store fails here if it deletes the tombstone together with the
	// record.
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
	// A tombstone stands for an outcome. A failed run has none, so Expired would refuse the retry that is to do the work. A
	// store fails here if it leaves a tombstone at each end of a run.
	{"a failed key leaves no tombstone", func(s *suite) {
		c := s.claimed(long)
		c.Retention, c.LateRetry = short, longer
		s.wantError(s.fail(c, false), nil)
		s.advance(overtime)
		next := rival(c)
		s.claim(&next)
	}},
	// Each of these calls restarts the retention. If a record still ended by the schedule of Begin, its key would run again
	// during a run, or although there is an outcome. The check waits for the end of the first, short retention. A store fails
	// here if it sets the expiry only when it creates the record.
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
	// Durations of 100 years are valid. A store fails here if it overflows: the sum of such a duration and the present, or
	// its product with a unit, may not fit into its numbers, and then the record ends at once. The check covers claims,
	// extensions, failures, outcomes and withdrawals.
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
	// A run that outlasts its retention must learn that its record is gone, because another request may have run meanwhile. A
	// store fails here if its writes find a row that has expired and is not deleted yet.
	{"the record of an expired claim is gone", func(s *suite) {
		for _, call := range calls {
			c := NewClaim(short/2, short)
			s.claim(&c)
			s.advance(overtime)
			s.wantError(call.do(s, c), driver.ErrGone)
		}
	}},
	// A call must change its own record alone. A store fails here if the condition of a write lacks the key.
	{"records of different keys are independent", func(s *suite) {
		a, b := s.claimed(long), s.claimed(long)
		s.wantError(s.complete(a, "a"), nil)
		s.wantError(s.fail(b, false), nil)
		s.wantOutcome(a, "a")
	}},
}
