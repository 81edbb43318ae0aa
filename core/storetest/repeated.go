package storetest

import (
	"context"

	"github.com/go-idem/idem/core/driver"
)

// repeating are the tests of calls that an owner repeats. Each repetition has longer durations than the first call, so that a
// store that applies it a second time is found without a race against the clock.
var repeating = []test{
	{"a repeated Begin does not renew the lease", func(s *suite) {
		c := s.claimed(short)
		repeated := c
		repeated.Lease = long
		s.wantState(s.begin(repeated), driver.Claimed)
		s.advance(overtime)
		heir := rival(c)
		s.wantState(s.begin(heir), driver.Claimed)
	}},
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

// wantAbsent fails the test unless a Begin of c finds a key that is as if it were new. The call is the one that was repeated.
func (s *suite) wantAbsent(call string, c driver.Claim) {
	s.Helper()
	entry, err := s.store.Begin(context.Background(), prolonged(c))
	if err != nil || entry.State != driver.Claimed || entry.Attempt != 1 || entry.Takeover {
		s.Fatalf("Begin returned %s, error %v, after the retention of a record with a repeated %s; want attempt 1 of a new key",
			entryText(entry), err, call)
	}
}
