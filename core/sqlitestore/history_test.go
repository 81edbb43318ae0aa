package sqlitestore_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
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

// processes are the same file, opened as often as there are processes. Each call is that of the next one.
type processes struct {
	all  []driver.Store
	next atomic.Int64
}

// newProcesses opens a new file twice.
func newProcesses(t *testing.T) *processes {
	path := newPath(t)
	return &processes{all: []driver.Store{open(t, path, sqlitestore.NormalSync()), open(t, path, sqlitestore.NormalSync())}}
}

func (p *processes) store() driver.Store { return p.all[int(p.next.Add(1))%len(p.all)] }

func (p *processes) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	return p.store().Begin(ctx, c)
}

func (p *processes) Extend(ctx context.Context, c driver.Claim) error {
	return p.store().Extend(ctx, c)
}

func (p *processes) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	return p.store().Complete(ctx, c, outcome)
}

func (p *processes) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	return p.store().Fail(ctx, c, f)
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
