package storetest

import (
	"context"

	"github.com/go-idem/idem/core/driver"
)

// repeating are the tests of calls that an owner repeats, which is rule 1 of driver.Store: a caller whose connection broke
// cannot know whether its call took effect, so it repeats the call, and the store must not notice. Each repetition has longer
// durations than the first call, so that a store that applies it a second time is found without a race against the clock.
var repeating = []test{
	// A Begin that the network delivers a second time, later, must not prolong a claim: its owner may have vanished, and
	// retries would wait longer than the lease. A store fails here if it handles its own claim like an Extend.
	{"a repeated Begin does not renew the lease", func(s *suite) {
		c := s.claimed(short)
		repeated := c
		repeated.Lease = long
		s.wantState(s.begin(repeated), driver.Claimed)
		s.advance(overtime)
		heir := rival(c)
		s.wantState(s.begin(heir), driver.Claimed)
	}},
	// A repetition must not prolong a record either: nobody could say when a key is new again. The check repeats each call
	// with a longer retention, waits for the end of the first one, and wants a new key. A store fails here if it writes the
	// whole record again.
	{"a repeated call does not renew the retention", func(s *suite) {
		begun := NewClaim(moment/2, moment)
		s.claim(&begun)
		s.wantState(s.begin(prolonged(begun)), driver.Claimed)
		completed, failed, withdrawn := s.claimed(long), s.claimed(long), NewClaim(moment, longer)
		completed.Retention, failed.Retention = moment, moment
		for _, c := range []driver.Claim{completed, prolonged(completed)} {
			s.wantError(s.complete(c, "kept"), nil)
		}
		for _, c := range []driver.Claim{failed, prolonged(failed)} {
			s.wantError(s.fail(c, false), nil)
		}
		for _, c := range []driver.Claim{withdrawn, prolonged(withdrawn)} {
			s.wantError(s.withdraw(c), nil)
		}
		s.advance(moment + overtime)
		s.wantAbsent("Begin", other(begun))
		s.wantAbsent("Complete", other(completed))
		s.wantAbsent("Fail", other(failed))
		s.wantAbsent("Fail without a fence", withdrawn)
	}},
	// A Begin that arrives after the Complete of its own run finds a COMPLETED record, and the outcome is the true result. A
	// store fails here if it compares the owner first and calls the record claimed, or if this Begin makes a repeated
	// Complete fail.
	{"a Begin of the owner after its own Complete returns the outcome", func(s *suite) {
		c := s.claimed(long)
		s.wantError(s.complete(c, "kept"), nil)
		entry := s.begin(c)
		s.wantState(entry, driver.Completed)
		if string(entry.Outcome) != "kept" {
			s.Fatalf("Begin returned the outcome %q, want %q", entry.Outcome, "kept")
		}
		s.wantError(s.complete(c, "kept"), nil)
	}},
}

// prolonged returns c with durations that do not end during a test.
func prolonged(c driver.Claim) driver.Claim {
	c.Lease, c.Retention = long, longer
	return c
}

// wantAbsent fails the test unless a Begin of c finds a key that is as if it were new. The call is the one that was repeated,
// for the message.
func (s *suite) wantAbsent(call string, c driver.Claim) {
	s.Helper()
	entry, err := s.store.Begin(context.Background(), prolonged(c))
	if err != nil || entry.State != driver.Claimed || entry.Attempt != 1 || entry.Takeover {
		s.Fatalf("Begin returned %s, error %v, after the retention of a record with a repeated %s; want attempt 1 of a new key",
			entryText(entry), err, call)
	}
}
