// Package storetest checks that a driver.Store keeps its contract. It needs nothing but the standard library, so that
// stores elsewhere can use it:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB) storetest.Harness {
//			return storetest.Harness{Store: newStore(tb), Advance: time.Sleep}
//		})
//	}
package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// Harness is a store under test. Tests use keys of their own, so one store may serve many.
type Harness struct {
	Store driver.Store

	// Advance lets at least d pass on the store's clock: time.Sleep for a store with a clock of its own.
	Advance func(d time.Duration)
}

// The durations of the suite: a lease or retention that does not end during a test, and one that ends at once.
const (
	long     = time.Hour
	longer   = 2 * time.Hour
	longest  = 100 * 365 * 24 * time.Hour // that an engine takes
	short    = 20 * time.Millisecond
	overtime = 25 * time.Millisecond
	moment   = 500 * time.Millisecond // ends during a test, but not between two calls on a busy machine
)

// Run runs the suite on stores from newHarness. There is nothing to opt out of: the abilities that a store has are
// checked, too.
func Run(t *testing.T, newHarness func(testing.TB) Harness) {
	tests := slices.Concat(contract, withdrawing)
	store := newHarness(t).Store
	if _, ok := store.(driver.Notifier); ok {
		tests = append(tests, notifying...)
	}
	if _, ok := store.(driver.Checkpointer); ok {
		tests = append(append(tests, checkpointing...), operations...)
	}
	if _, ok := store.(reopener); ok {
		tests = append(tests, reopening...)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			test.run(&suite{TB: t, store: h.Store, advance: h.Advance})
		})
	}
}

// NewClaim returns the claim of a new run of a key that nobody else uses.
func NewClaim(lease, retention time.Duration) driver.Claim {
	c := driver.Claim{Lease: lease, Retention: retention}
	rand.Read(c.Key[:])
	rand.Read(c.Owner[:])
	rand.Read(c.Fingerprint[:])
	return c
}

// suite is one test: a store and what is expected of it.
type suite struct {
	testing.TB
	store   driver.Store
	advance func(time.Duration)
}

// rival returns the claim of another run of the same request.
func rival(c driver.Claim) driver.Claim {
	rand.Read(c.Owner[:])
	c.Fence, c.Attempt, c.Operation, c.Takeover = 0, 0, 0, false
	return c
}

// other returns the claim of another request under the same key.
func other(c driver.Claim) driver.Claim {
	c = rival(c)
	rand.Read(c.Fingerprint[:])
	return c
}

func (s *suite) begin(c driver.Claim) driver.Entry {
	s.Helper()
	entry, err := s.store.Begin(context.Background(), c)
	if err != nil {
		s.Fatalf("Begin: %v", err)
	}
	return entry
}

// claim begins c, which must succeed, and fills in what the store answered.
func (s *suite) claim(c *driver.Claim) driver.Entry {
	s.Helper()
	entry := s.begin(*c)
	s.wantState(entry, driver.Claimed)
	c.Fence, c.Attempt, c.Operation, c.Takeover = entry.Fence, entry.Attempt, entry.Operation, entry.Takeover
	return entry
}

// claimed returns a claim that was just begun on a new key.
func (s *suite) claimed(lease time.Duration) driver.Claim {
	s.Helper()
	c := NewClaim(lease, longer)
	s.claim(&c)
	return c
}

func (s *suite) wantState(entry driver.Entry, want driver.State) {
	s.Helper()
	if entry.State != want {
		s.Fatalf("Begin says %q, want %q", entry.State, want)
	}
}

func (s *suite) wantError(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("error is %v, want %v", err, want)
	}
}

func (s *suite) extend(c driver.Claim) error {
	return s.store.Extend(context.Background(), c)
}

func (s *suite) complete(c driver.Claim, outcome string) error {
	return s.store.Complete(context.Background(), c, []byte(outcome))
}

func (s *suite) fail(c driver.Claim, free bool) error {
	return s.store.Fail(context.Background(), c, driver.Failure{Cause: "test", NoEffects: free})
}

// wantOutcome checks that a retry of c gets want.
func (s *suite) wantOutcome(c driver.Claim, want string) {
	s.Helper()
	retry := rival(c)
	entry := s.begin(retry)
	if s.wantState(entry, driver.Completed); entry.Remaining != 0 {
		s.Fatalf("%v are left, which nobody asked for", entry.Remaining)
	}
	retry.WantRemaining = true
	if told := s.begin(retry); told.Remaining <= 0 || told.Remaining > c.Retention || !bytes.Equal(told.Outcome, entry.Outcome) {
		s.Fatalf("%v are left of a retention of %v", told.Remaining, c.Retention)
	}
	if string(entry.Outcome) != want {
		s.Fatalf("outcome is %q, want %q", entry.Outcome, want)
	}
}

// calls are the three that need a claim.
var calls = []struct {
	name string
	do   func(*suite, driver.Claim) error
}{
	{"extend", func(s *suite, c driver.Claim) error { return s.extend(c) }},
	{"complete", func(s *suite, c driver.Claim) error { return s.complete(c, "late") }},
	{"fail", func(s *suite, c driver.Claim) error { return s.fail(c, false) }},
}

type test struct {
	name string
	run  func(*suite)
}

var contract = []test{
	{"a new key is claimed", func(s *suite) {
		c := NewClaim(long, longer)
		entry := s.claim(&c)
		if entry.Attempt != 1 || entry.Takeover || entry.Fence <= 0 || entry.Operation != entry.Fence || entry.Remaining <= 0 || entry.Remaining > long {
			s.Fatalf("entry is %+v", entry)
		}
	}},
	{"one of many rivals is claimed, the others are told it is in progress", func(s *suite) {
		c := NewClaim(long, longer)
		var claims sync.Map
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				entry, err := s.store.Begin(context.Background(), rival(c))
				if err != nil {
					s.Errorf("Begin: %v", err)
				}
				if entry.State == driver.Claimed {
					claims.Store(i, true)
				} else if entry.State != driver.InProgress || entry.Remaining <= 0 || entry.Remaining > long {
					s.Errorf("entry is %+v", entry)
				}
			})
		}
		wg.Wait()
		n := 0
		claims.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			s.Fatalf("%d rivals were claimed", n)
		}
	}},
	{"a begin that is sent again gets the same claim", func(s *suite) {
		c := NewClaim(long, longer)
		first := s.claim(&c)
		for range 3 {
			again := s.begin(c)
			if again.Remaining = first.Remaining; !sameEntry(again, first) {
				s.Fatalf("again %+v, first %+v", again, first)
			}
		}
	}},
	{"a takeover that is sent again is still a takeover", func(s *suite) {
		c := s.claimed(short)
		s.advance(overtime)
		heir := rival(c)
		heir.Lease = long
		first := s.claim(&heir)
		if again := s.begin(heir); !first.Takeover || !again.Takeover || again.Fence != first.Fence || again.Attempt != 2 {
			s.Fatalf("again %+v, first %+v", again, first)
		}
	}},
	{"a begin that arrives after its own fail is lost", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.fail(c, false), nil)
		_, err := s.store.Begin(context.Background(), c)
		s.wantError(err, driver.ErrLost)
		next := rival(c)
		if s.claim(&next); next.Attempt != 2 {
			s.Fatalf("attempt %d: the late begin changed the record", next.Attempt)
		}
	}},
	{"a mismatch is reported in every state and changes nothing", func(s *suite) {
		c := NewClaim(short, longer)
		s.claim(&c)
		mismatch := func() {
			entry := s.begin(other(c))
			if s.wantState(entry, driver.Mismatch); entry.Fingerprint != c.Fingerprint {
				s.Fatalf("the record's fingerprint is %x, not %x", c.Fingerprint, entry.Fingerprint)
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
				s.Fatalf("attempt %d is %+v after fence %d", attempt, entry, c.Fence)
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
				s.Fatalf("entry is %+v", entry)
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
			s.Fatalf("entry is %+v after fence %d", entry, c.Fence)
		}
	}},
	{"without takeover an ended lease is an unknown outcome", func(s *suite) {
		c := s.claimed(short)
		s.advance(overtime)
		cautious := rival(c)
		cautious.NoTakeover = true
		entry := s.begin(cautious)
		if s.wantState(entry, driver.Unknown); entry.Fence != c.Fence {
			s.Fatalf("the vanished claim's fence is %d, not %d", c.Fence, entry.Fence)
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
			s.Fatalf("entry is %+v", entry)
		}
	}},
	{"an extended claim outlives its first lease", func(s *suite) {
		c := s.claimed(short)
		c.Lease = long
		s.wantError(s.extend(c), nil)
		s.advance(overtime)
		s.wantState(s.begin(rival(c)), driver.InProgress)
	}},
	{"an owner whose lease ended is heard until it is taken over", func(s *suite) {
		for _, verb := range calls {
			c := s.claimed(short)
			s.advance(overtime)
			s.wantError(verb.do(s, c), nil)
		}
	}},
	{"after a takeover the old owner is lost and changes nothing", func(s *suite) {
		for _, verb := range calls {
			c := s.claimed(short)
			s.advance(overtime)
			heir := rival(c)
			heir.Lease = long
			s.claim(&heir)
			s.wantError(verb.do(s, c), driver.ErrLost)
			s.wantError(s.complete(heir, "heir"), nil)
			s.wantError(verb.do(s, c), driver.ErrLost)
			s.wantOutcome(c, "heir")
		}
	}},
	{"a stale fence is lost although the owner is right", func(s *suite) {
		for _, verb := range calls {
			c := s.claimed(long)
			c.Fence--
			s.wantError(verb.do(s, c), driver.ErrLost)
		}
	}},
	{"every verb on an absent key is lost and leaves it absent", func(s *suite) {
		for _, verb := range calls {
			c := NewClaim(long, longer)
			c.Fence = 1
			s.wantError(verb.do(s, c), driver.ErrLost)
			if s.claim(&c); c.Attempt != 1 {
				s.Fatalf("%s left something behind: attempt %d", verb.name, c.Attempt)
			}
		}
	}},
	{"complete, extend and fail sent again answer the same", func(s *suite) {
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
			s.Fatalf("attempt %d", next.Attempt)
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
	{"a failed claim can not be completed or extended", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.fail(c, false), nil)
		s.wantError(s.complete(c, "late"), driver.ErrLost)
		s.wantError(s.extend(c), driver.ErrLost)
	}},
	{"a fail that does not know its fence frees its own claim only", func(s *suite) {
		c := s.claimed(long)
		c.Fence = 0
		s.wantError(s.fail(rival(c), false), driver.ErrLost)
		s.wantError(s.fail(c, false), nil)
		next := rival(c)
		s.claim(&next)
		s.wantError(s.fail(c, false), driver.ErrLost)
	}},
	{"an outcome comes back as it was", func(s *suite) {
		random := make([]byte, 1<<20)
		rand.Read(random)
		for _, outcome := range []string{"", "\x00\r\n", "1", string(random[:512]), string(random)} {
			c := s.claimed(long)
			s.wantError(s.complete(c, outcome), nil)
			entry := s.begin(rival(c))
			if s.wantState(entry, driver.Completed); !bytes.Equal(entry.Outcome, []byte(outcome)) {
				s.Fatalf("%d bytes came back as %d others", len(outcome), len(entry.Outcome))
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
			s.Fatalf("attempt %d, fence %d after %d", next.Attempt, next.Fence, c.Fence)
		}
	}},
	{"a tombstone outlives an outcome when the claims ask for it", func(s *suite) {
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
	{"every verb starts the retention anew", func(s *suite) {
		for _, verb := range calls {
			c := NewClaim(moment/2, moment)
			s.claim(&c)
			c.Retention = longer
			s.wantError(verb.do(s, c), nil)
			s.advance(moment + overtime)
			if entry := s.begin(other(c)); entry.State != driver.Mismatch {
				s.Fatalf("after %s and the first retention, another request gets %q", verb.name, entry.State)
			}
		}
	}},
	{"the longest durations do not end", func(s *suite) {
		c := NewClaim(longest, longest)
		c.LateRetry = longest
		if entry := s.claim(&c); entry.Remaining < long {
			s.Fatalf("%v are left", entry.Remaining)
		}
		s.wantError(s.withdraw(rival(c)), driver.ErrLost)
		for _, verb := range []func(driver.Claim) error{s.extend, func(c driver.Claim) error { return s.fail(c, false) }} {
			s.wantError(verb(c), nil)
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
	{"an expired claim is lost", func(s *suite) {
		for _, verb := range calls {
			c := NewClaim(short/2, short)
			s.claim(&c)
			s.advance(overtime)
			s.wantError(verb.do(s, c), driver.ErrLost)
		}
	}},
	{"keys do not meet", func(s *suite) {
		a, b := s.claimed(long), s.claimed(long)
		s.wantError(s.complete(a, "a"), nil)
		s.wantError(s.fail(b, false), nil)
		s.wantOutcome(a, "a")
	}},
	{"a cancelled context is an error and no claim", func(s *suite) {
		c := NewClaim(long, longer)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if entry, err := s.store.Begin(ctx, c); err == nil {
			s.Fatalf("Begin: %+v", entry)
		}
		next := rival(c)
		s.claim(&next)
	}},
}

// sameEntry compares all that a claim is answered with.
func sameEntry(a, b driver.Entry) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
