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
	"crypto/rand"
	"slices"
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

type test struct {
	name string
	run  func(*suite)
}
