// Package storetest checks that a driver.Store keeps its contract. It needs only the standard library, so stores in other
// modules can use it:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB) storetest.Harness {
//			return storetest.Harness{Store: newStore(tb), Advance: time.Sleep}
//		})
//	}
package storetest

import (
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// Harness is a store under test. Each test uses its own keys, so many tests may share a store.
type Harness struct {
	Store driver.Store

	// Advance lets at least d pass on the store's clock. For a store with a clock of its own that is time.Sleep.
	Advance func(d time.Duration)
}

// The durations of the suite: leases and retentions that do not end during a test, and some that do.
const (
	long     = time.Hour
	longer   = 2 * time.Hour
	longest  = 100 * 365 * 24 * time.Hour // the longest that an engine accepts
	short    = 20 * time.Millisecond
	overtime = 25 * time.Millisecond
	moment   = 500 * time.Millisecond // ends during a test, but not between two calls on a busy machine
)

// Run runs the suite on stores from newHarness, each test in parallel with the others. It also checks the optional abilities
// that the store has. No test can be left out.
func Run(t *testing.T, newHarness func(testing.TB) Harness) {
	tests := slices.Concat(contract, repeating, copying, limiting, withdrawing)
	store := newHarness(t).Store
	if _, ok := store.(driver.Notifier); ok {
		tests = append(tests, notifying...)
	}
	if _, ok := store.(driver.Checkpointer); ok {
		tests = slices.Concat(tests, checkpointing, copyingSteps, operations)
	}
	if _, ok := store.(driver.Reopener); ok {
		tests = append(tests, reopening...)
	}
	if _, ok := store.(driver.Inspector); ok {
		tests = append(tests, inspecting...)
		if _, ok := store.(driver.OutcomeReader); ok {
			tests = append(tests, readingOutcomes...)
		}
		if _, ok := store.(driver.Checkpointer); ok {
			tests = append(tests, inspectingSteps...)
		}
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			story := newStory(h.Store)
			advance := func(d time.Duration) {
				story.passed(d)
				h.Advance(d)
			}
			test.run(&suite{TB: t, store: story, story: story, advance: advance})
		})
	}
}

// NewClaim returns the claim of a new run, with a random key, owner and fingerprint.
func NewClaim(lease, retention time.Duration) driver.Claim {
	c := driver.Claim{Lease: lease, Retention: retention}
	rand.Read(c.Key[:])
	rand.Read(c.Owner[:])
	rand.Read(c.Fingerprint[:])
	return c
}

// test is one named test of the suite.
type test struct {
	name string
	run  func(*suite)
}
