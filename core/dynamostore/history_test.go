package dynamostore_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/internal/model"
	"github.com/go-idem/idem/internal/testclock"
)

func TestDynamoDBAnswersAsTheModelDoesInManySituations(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("takes minutes: set SOAK")
	}
	t.Parallel()
	store, now := newTable(t).store(), testclock.New(time.Unix(0, int64(model.Epoch)))
	store.SetClock(now.Now, 0)
	clocked := &model.Clocked{
		Store: store, Now: func() time.Duration { return time.Duration(now.Now().UnixNano()) }, Advance: now.Advance,
	}
	clocked.PlaySample(t, 10) // all ways take an hour
}

// newProcesses returns two stores, one of a server that returns the item when a condition is not met, in a table of their own.
func newProcesses(t *testing.T, leaseMargin time.Duration) model.Processes {
	table := newTable(t)
	one, other := table.store(), table.store(withItems())
	one.SetClock(time.Now, leaseMargin)
	other.SetClock(time.Now, leaseMargin)
	return model.InTurn(one, other)
}

func TestHistoriesOfDynamoDBAreLinearizable(t *testing.T) {
	model.EachLoad(t, func(t *testing.T, l model.Load, seed int64) {
		leaseMargin := time.Duration(0)
		if seed%2 == 0 { // each second seed
			leaseMargin = never
		}
		l.Clients = min(l.Clients, 6) // leases that may end late leave more orders to try
		l.Calls = min(l.Calls, 40*l.Clients)
		l.Lease, l.Retention, l.LateEnds, l.ClientClocks = 10*l.Lease, 10*l.Retention, leaseMargin != 0, true
		store := model.NewFlaky(newProcesses(t, leaseMargin), seed, float64(seed%5+3)/100)
		l.IsLinearizable(t, store, seed)
		require.NotZero(t, store.Lost(), "no answer was lost")
	})
}

func TestHistoriesOfAWrongUseOfDynamoDBAreNotLinearizable(t *testing.T) {
	t.Parallel()
	if os.Getenv("SOAK") == "" {
		t.Skip("takes a minute: set SOAK")
	}
	for name, wrong := range model.Misuses {
		t.Run(name, func(t *testing.T) { model.IsFoundWrong(t, wrong(newProcesses(t, 0))) })
	}
	assert.NotEmpty(t, model.Misuses)
}
