// Package storetest checks that a driver.Store keeps its contract. It needs only the standard library, so stores in other
// modules can use it. One function is the whole test of a store:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB) storetest.Harness {
//			return storetest.Harness{Store: newStore(tb), Advance: time.Sleep}
//		})
//	}
//
// # What to use
//
// [Run] checks each promise of package driver by a test of its own, and is enough for most stores. [Differential] compares a
// store with another one on random calls, and finds combinations that nobody has thought of. [Faulty] is for the tests of
// code that uses a store: it makes calls fail in the ways in which a network lets them fail.
//
// # When a test fails
//
// The name of the test is the promise that is broken. The comment above it in the source says what a caller would lose, and
// which mistake of a store leads there. The message says what was returned and wanted, and ends with the last calls of the
// test, in the order in which they returned: keys, runs and requests have numbers there instead of random bytes. Two lines with the
// same run are calls of one owner; two lines with the same request have the same fingerprint.
//
// # What is not checked
//
// The suite sees a store only through its calls, on a machine where everything works. It does not check what the store keeps
// after a crash or a failover, whether Complete and Fail succeed in a full store, what happens when a connection breaks
// during a call, how damaged records are reported, and the ability driver.SessionOpener. A store needs tests of its own for
// these.
package storetest

import (
	"cmp"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// Harness is a store under test. Each test uses its own keys, so many tests may share a store, and the store need not be empty.
type Harness struct {
	Store driver.Store

	// Advance lets at least d pass on the store's clock, before it returns. For a store that counts on the clock of a server
	// it is time.Sleep. A clock that Advance moves makes a test fast; each Harness then needs a store and a clock of its own,
	// because tests run in parallel and one would end the leases of another.
	Advance func(d time.Duration)

	// MaxOutcome is how many bytes an outcome may have in a store that limits them. The suite stores an outcome of this length,
	// which must be at least 512, or 256 KiB if the store is a driver.OutcomeReader. Default 0: the suite stores 1 MiB.
	MaxOutcome int
}

// The durations of the suite: leases and retentions that do not end during a test, and some that do. Tests of a database wait
// for the latter in real time, so they are as short as a busy machine allows.
const (
	long     = time.Hour
	longer   = 2 * time.Hour
	longest  = 100 * 365 * 24 * time.Hour // the longest that an engine accepts
	short    = 20 * time.Millisecond      // may end between two calls: only for what is to be over when the next call comes
	overtime = 25 * time.Millisecond      // after it, what lasts for short is over
	moment   = 500 * time.Millisecond     // ends during a test, but not between two calls on a busy machine
)

// Run runs the suite on stores from newHarness. It calls newHarness once to learn which optional abilities the store has, and
// once for each test. Each test is a subtest that runs in parallel with the others; newHarness releases what it makes with
// Cleanup of its argument.
//
// An ability is checked if the store has its methods, so a wrapper that has the methods and not the ability fails. No test
// can be left out: a store that passes keeps all that the engine relies on, as far as the package documentation says.
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
			test.run(&suite{TB: t, store: story, story: story, advance: advance, maxOutcome: cmp.Or(h.MaxOutcome, 1<<20)})
		})
	}
}

// NewClaim returns the claim of a new run, with a random key, owner and fingerprint, as tests of a store need it beside the
// suite. What Begin returns is zero in it: the caller copies Fence, Attempt, Operation and Takeover from the Entry before it
// sends another call of the run.
func NewClaim(lease, retention time.Duration) driver.Claim {
	c := driver.Claim{Lease: lease, Retention: retention}
	rand.Read(c.Key[:])
	rand.Read(c.Owner[:])
	rand.Read(c.Fingerprint[:])
	return c
}

// test is one named test of the suite. Its name states the promise that it checks, so that a failure reads as a defect. An
// id before the name, such as LSE-18, is that of a statement in docs/checks.md.
type test struct {
	name string
	run  func(*suite)
}
