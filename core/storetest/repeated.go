package storetest

import "github.com/go-idem/idem/core/driver"

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
	{"a repeated Begin does not renew the retention", func(s *suite) {
		c := NewClaim(moment/2, moment)
		s.claim(&c)
		repeated := c
		repeated.Lease, repeated.Retention = long, longer
		s.wantState(s.begin(repeated), driver.Claimed)
		s.wantAbsentAfter(c)
	}},
	{"a repeated Complete does not renew the retention", func(s *suite) {
		c := s.claimed(long)
		c.Retention = moment
		s.wantError(s.complete(c, "kept"), nil)
		repeated := c
		repeated.Retention = longer
		s.wantError(s.complete(repeated, "kept"), nil)
		s.wantAbsentAfter(c)
	}},
	{"a repeated Fail does not renew the retention", func(s *suite) {
		c := s.claimed(long)
		c.Retention = moment
		s.wantError(s.fail(c, false), nil)
		repeated := c
		repeated.Retention = longer
		s.wantError(s.fail(repeated, false), nil)
		s.wantAbsentAfter(c)
	}},
	{"a repeated withdrawal does not last longer than the first", func(s *suite) {
		c := NewClaim(moment, longer)
		s.wantError(s.withdraw(c), nil)
		repeated := c
		repeated.Lease = long
		s.wantError(s.withdraw(repeated), nil)
		s.advance(moment + overtime)
		s.claimAttempt(&c, 1, false)
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

// wantAbsentAfter lets a moment pass, and fails the test unless the key of c is then as if it were new.
func (s *suite) wantAbsentAfter(c driver.Claim) {
	s.Helper()
	s.advance(moment + overtime)
	next := other(c)
	next.Lease, next.Retention = long, longer
	s.claim(&next)
	if next.Attempt != 1 || next.Takeover {
		s.Fatalf("Begin after the end of the record returned attempt %d, takeover %t; want attempt 1, no takeover",
			next.Attempt, next.Takeover)
	}
}
