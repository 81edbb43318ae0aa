package model

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/movestore"
)

// moveSteps are those in which a process asks both stores.
var moveSteps = map[string]func(from, to movestore.Backend) *movestore.Store{"Prepare": movestore.Prepare, "Move": movestore.Move}

func TestAMoveAnswersAsTheModelDoesInEverySituation(t *testing.T) {
	for name, step := range moveSteps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := epoch
			clock := memstore.Clock(func() time.Time { return time.Unix(0, int64(now)) })
			clocked := &Clocked{
				Store: step(memstore.New(clock), memstore.New(clock)),
				Now:   func() time.Duration { return now }, Advance: func(d time.Duration) { now += d },
			}
			if os.Getenv("SOAK") == "" {
				clocked.PlaySample(t, 4)
				return
			}
			clocked.PlayWays(t)
		})
	}
}

func TestHistoriesOfEachStepOfAMoveAreLinearizable(t *testing.T) {
	for name, step := range moveSteps {
		t.Run(name, func(t *testing.T) {
			EachLoad(t, func(t *testing.T, l Load, seed int64) {
				store := NewFlaky(step(memstore.New(), memstore.New()), seed, float64(seed%5+1)/100)
				l.IsLinearizable(t, store, seed)
				require.NotZero(t, store.Lost(), "no answer was lost")
			})
		})
	}
}

// stepsInOrder are the stores of processes in the four steps of a move.
var stepsInOrder = []func(from, to movestore.Backend) driver.Store{
	func(from, _ movestore.Backend) driver.Store { return from },
	func(from, to movestore.Backend) driver.Store { return movestore.Prepare(from, to) },
	func(from, to movestore.Backend) driver.Store { return movestore.Move(from, to) },
	func(_, to movestore.Backend) driver.Store { return to },
}

// inSteps returns the stores of processes in two steps, over the same two stores. The calls of one owner are all of one process.
func inSteps(one, other int) driver.Store {
	from, to := memstore.New(), memstore.New()
	stores := [2]driver.Store{stepsInOrder[one](from, to), stepsInOrder[other](from, to)}
	return Processes(func(c driver.Claim) driver.Store { return stores[c.Owner[0]%2] })
}

// Processes in two steps that claim one key at the same time may both be refused, so their answers are not those of one store. But
// no two of them have a key.
func TestProcessesInNeighbouringStepsNeverHaveOneKey(t *testing.T) {
	for lower, name := range []string{"0 and Prepare", "Prepare and Move", "Move and 3"} {
		t.Run(name, func(t *testing.T) {
			EachLoad(t, func(t *testing.T, l Load, seed int64) {
				store := NewFlaky(inSteps(lower, lower+1), seed, float64(seed%5+1)/100)
				assert.NoError(t, l.OneHolder(l.Record(store, seed)), "seed %d", seed)
				require.NotZero(t, store.Lost(), "no answer was lost")
			})
		})
	}
}

// The check of the test above sees what a deploy does that leaves out a step.
func TestProcessesTwoStepsApartHaveOneKey(t *testing.T) {
	for lower := range 2 {
		var found error
		for seed := int64(0); seed < 20 && found == nil; seed++ {
			found = HotKey.OneHolder(HotKey.Record(inSteps(lower, lower+2), seed))
		}
		t.Log(found)
		assert.Error(t, found, "steps %d and %d", lower, lower+2)
	}
}
