// Package storecheck has tests that the stores of this repository pass besides the suite of storetest. It needs no module besides
// testify, because `go mod tidy` in the module of a user also counts what the tests of a store import.
package storecheck

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/testclock"
)

// AnswersAsMemory plays n random sequences of calls on a store and in memory, one sequence after the other, or soak of them if SOAK
// is set. It fails the test at the first answer in which the two differ, with the seed of the sequence. tested needs a clock that
// Advance moves: a store that waits for leases to end would take long.
func AnswersAsMemory(tb testing.TB, tested storetest.Harness, n, soak int) {
	tb.Helper()
	for _, seed := range seeds(tb, n, soak) {
		compareWithMemory(tb, tested, seed)
	}
}

// AnswersAsMemoryInRealTime is AnswersAsMemory for a store whose clock nobody can move. Most of the time is spent waiting for leases
// to end, so 64 sequences are played at a time.
func AnswersAsMemoryInRealTime(tb testing.TB, store driver.Store, n, soak int) {
	tb.Helper()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	for _, seed := range seeds(tb, n, soak) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			compareWithMemory(tb, storetest.Harness{Store: store, Advance: time.Sleep}, seed)
		})
	}
	wg.Wait()
}

// seeds returns n new seeds, or soak of them if SOAK is set, and logs them.
func seeds(tb testing.TB, n, soak int) (all []int64) {
	tb.Helper()
	if os.Getenv("SOAK") != "" {
		n = soak
	}
	first := time.Now().UnixNano()
	for i := range int64(n) {
		all = append(all, first+i)
	}
	tb.Logf("seeds %d to %d", first, first+int64(n)-1)
	return all
}

// compareWithMemory plays one random sequence on a store, and on a new memory store with a clock of its own.
func compareWithMemory(tb testing.TB, tested storetest.Harness, seed int64) {
	tb.Helper()
	clock := testclock.New(time.Now())
	memory := storetest.Harness{Store: memstore.New(memstore.Clock(clock.Now)), Advance: clock.Advance}
	storetest.Differential(tb, seed, 30, memory, tested)
}
