package movestore_test

import (
	"testing"
	"time"

	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/movestore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/testclock"
)

// newStores returns an old and a new store with the same clock, which moves by Advance, and by a microsecond whenever it is read, so
// that no two claims of two stores have one fence.
func newStores() (c *testclock.Clock, from, to *memstore.Store) {
	c = testclock.Stepping(time.Now(), time.Microsecond)
	return c, memstore.New(memstore.Clock(c.Now)), memstore.New(memstore.Clock(c.Now))
}

// steps are those in which a process asks both stores.
var steps = map[string]func(from, to movestore.Backend) *movestore.Store{"Prepare": movestore.Prepare, "Move": movestore.Move}

func TestStoreKeepsTheContractInEachStep(t *testing.T) {
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(testing.TB) storetest.Harness {
				c, from, to := newStores()
				return storetest.Harness{Store: step(from, to), Advance: c.Advance}
			})
		})
	}
}

// In each step the two stores together return what one store returns.
func TestStoreReturnsWhatOneStoreReturns(t *testing.T) {
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range int64(200) {
				oneClock, one, _ := newStores()
				c, from, to := newStores()
				storetest.Differential(t, seed, 30, storetest.Harness{Store: one, Advance: oneClock.Advance},
					storetest.Harness{Store: step(from, to), Advance: c.Advance})
			}
		})
	}
}
