package movestore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/movestore"
	"github.com/go-idem/idem/core/storetest"
)

// clock is a clock that moves by Advance, and by a microsecond whenever it is read, so that no two claims of two stores have one fence.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Microsecond)
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// newStores returns an old and a new store with the same clock.
func newStores() (c *clock, from, to *memstore.Store) {
	c = &clock{now: time.Now()}
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
