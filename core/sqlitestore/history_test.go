package sqlitestore_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/sqlitestore"
	"github.com/go-idem/idem/internal/model"
	"github.com/go-idem/idem/internal/testclock"
)

func TestSQLiteAnswersAsTheModelDoesInEverySituation(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("takes three minutes: set SOAK")
	}
	t.Parallel()
	store, now := newStore(t), testclock.New(time.Unix(0, int64(model.Epoch)))
	store.SetClock(now.Now)
	clocked := &model.Clocked{
		Store: store, Now: func() time.Duration { return time.Duration(now.Now().UnixNano()) }, Advance: now.Advance,
	}
	clocked.PlayWays(t)
}

// newProcesses opens a new file twice.
func newProcesses(t *testing.T) model.Processes {
	path := newPath(t)
	return model.InTurn(open(t, path, sqlitestore.NormalSync()), open(t, path, sqlitestore.NormalSync()))
}

func TestHistoriesOfSQLiteAreLinearizable(t *testing.T) {
	model.EachLoad(t, func(t *testing.T, l model.Load, seed int64) {
		l.Calls = min(l.Calls, 60*l.Clients)
		l.Lease, l.Retention = 4*l.Lease, 4*l.Retention // a call that lasts for several leases may have found anything
		store := model.NewFlaky(newProcesses(t), seed, float64(seed%5+1)/100)
		l.IsLinearizable(t, store, seed)
		require.NotZero(t, store.Lost(), "no answer was lost")
	})
}

func TestHistoriesOfAWrongUseOfSQLiteAreNotLinearizable(t *testing.T) {
	t.Parallel()
	for name, wrong := range model.Misuses {
		t.Run(name, func(t *testing.T) { model.IsFoundWrong(t, wrong(newProcesses(t))) })
	}
	assert.NotEmpty(t, model.Misuses)
}
