package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// suite is one running test with its store. Its functions call the store and check the results.
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

// begin sends a Begin, which must return no error.
func (s *suite) begin(c driver.Claim) driver.Entry {
	s.Helper()
	entry, err := s.store.Begin(context.Background(), c)
	if err != nil {
		s.Fatalf("Begin: %v", err)
	}
	return entry
}

// claim sends the Begin of c, which must return Claimed, and fills in the results.
func (s *suite) claim(c *driver.Claim) driver.Entry {
	s.Helper()
	entry := s.begin(*c)
	s.wantState(entry, driver.Claimed)
	c.Fence, c.Attempt, c.Operation, c.Takeover = entry.Fence, entry.Attempt, entry.Operation, entry.Takeover
	return entry
}

// claimed returns the claim of a new key after its Begin.
func (s *suite) claimed(lease time.Duration) driver.Claim {
	s.Helper()
	c := NewClaim(lease, longer)
	s.claim(&c)
	return c
}

// wantState fails the test unless entry has this state.
func (s *suite) wantState(entry driver.Entry, want driver.State) {
	s.Helper()
	if entry.State != want {
		s.Fatalf("Begin says %q, want %q", entry.State, want)
	}
}

// wantError fails the test unless err is or wraps want.
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

// wantOutcome fails the test unless a retry of c gets this outcome, and the rest of the retention only if it asks for that.
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

// calls are the three calls that need a claim.
var calls = []struct {
	name string
	do   func(*suite, driver.Claim) error
}{
	{"extend", func(s *suite, c driver.Claim) error { return s.extend(c) }},
	{"complete", func(s *suite, c driver.Claim) error { return s.complete(c, "late") }},
	{"fail", func(s *suite, c driver.Claim) error { return s.fail(c, false) }},
}

// sameEntry reports whether all fields of two entries are equal.
func sameEntry(a, b driver.Entry) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
