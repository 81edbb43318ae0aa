package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// suite is one running test with its store. Its functions call the store and check the results. They send every call with a
// context that does not end; the tests of limiting call the store themselves. A suite belongs to one test, which may use it
// in many goroutines, except for the functions that end the test.
type suite struct {
	testing.TB
	store   driver.Store // the story, which calls the store under test
	story   *story
	advance func(time.Duration)

	maxOutcome int // how many bytes an outcome may have
}

// Fatalf fails and ends the test. The message ends with the calls of the test.
func (s *suite) Fatalf(format string, args ...any) {
	s.Helper()
	s.TB.Fatalf("%s\nThe calls of this test:\n%v", fmt.Sprintf(format, args...), s.story)
}

// Errorf fails the test. The message ends with the calls of the test.
func (s *suite) Errorf(format string, args ...any) {
	s.Helper()
	s.TB.Errorf("%s\nThe calls of this test:\n%v", fmt.Sprintf(format, args...), s.story)
}

// rival returns the claim of another run of the same request, as a retry or a duplicate that arrives beside the first request
// makes it. It has no fence yet.
func rival(c driver.Claim) driver.Claim {
	rand.Read(c.Owner[:])
	c.Fence, c.Attempt, c.Operation, c.Takeover = 0, 0, 0, false
	return c
}

// other returns the claim of another request under the same key: a client has used its key for something else.
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
		s.Fatalf("Begin returned the error %v, want none", err)
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

// claimed returns the claim of a new key after its Begin. Its retention does not end during a test, so that only what a test
// shortens can expire.
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
		s.Fatalf("Begin returned the state %q, want %q", entry.State, want)
	}
}

// wantError fails the test unless the last call has returned want, or an error that wraps it. ErrGone wraps ErrLost, so a
// test that wants ErrLost must refuse ErrGone: it would tell the engine that nothing protects the key.
func (s *suite) wantError(err, want error) {
	s.Helper()
	if !errors.Is(err, want) || errors.Is(err, driver.ErrGone) && want != driver.ErrGone {
		s.Fatalf("%s returned %s, want %s", s.story.lastCall(), errorText(err), errorText(want))
	}
}

// extend sends an Extend with the durations of c.
func (s *suite) extend(c driver.Claim) error {
	return s.store.Extend(context.Background(), c)
}

// complete sends a Complete with this outcome.
func (s *suite) complete(c driver.Claim, outcome string) error {
	return s.store.Complete(context.Background(), c, []byte(outcome))
}

// fail sends the Fail of a run. free says that the run had no effects, so that another request may have the key.
func (s *suite) fail(c driver.Claim, free bool) error {
	return s.store.Fail(context.Background(), c, driver.Failure{Cause: "test", NoEffects: free})
}

// wantOutcome fails the test unless a retry of c gets this outcome, and the rest of the retention only if it asks for that.
// Both forms are checked each time, because a store may read the outcome on two paths: the rest of the retention costs a
// further read.
func (s *suite) wantOutcome(c driver.Claim, want string) {
	s.Helper()
	retry := rival(c)
	entry := s.begin(retry)
	if s.wantState(entry, driver.Completed); entry.Remaining != 0 {
		s.Fatalf("Begin without WantRemaining returned the Remaining %v, want 0", entry.Remaining)
	}
	retry.WantRemaining = true
	timed := s.begin(retry)
	if timed.Remaining <= 0 || timed.Remaining > c.Retention {
		s.Fatalf("Begin with WantRemaining returned the Remaining %v, want more than 0 and at most %v", timed.Remaining, c.Retention)
	}
	for _, outcome := range [][]byte{entry.Outcome, timed.Outcome} {
		if string(outcome) != want {
			s.Fatalf("Begin returned the outcome %s, want %q", bytesText(outcome), want)
		}
	}
}

// calls are the three calls of a Store that need a claim. Tests of the rules that bind all three send each of them, since a
// store may have a statement for each and get one of the three wrong.
var calls = []struct {
	name string
	do   func(*suite, driver.Claim) error
}{
	{"Extend", func(s *suite, c driver.Claim) error { return s.extend(c) }},
	{"Complete", func(s *suite, c driver.Claim) error { return s.complete(c, "late") }},
	{"Fail", func(s *suite, c driver.Claim) error { return s.fail(c, false) }},
}

// sameEntry reports whether all fields of two entries are equal.
func sameEntry(a, b driver.Entry) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
