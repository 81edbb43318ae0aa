package store

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

// table is a Table in memory. Its clock moves by advance.
type table struct {
	mu   sync.Mutex
	rows map[[32]byte]Row
	now  time.Time
}

func (t *table) Change(ctx context.Context, key [32]byte, f func(*Row, time.Time)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[key]
	f(&r, t.now)
	t.rows[key] = r
	return nil
}

func (t *table) clock() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

func (t *table) advance(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = t.now.Add(d)
}

// newStore returns an empty store for a test.
func newStore() (storetest.Harness, *table) {
	db := &table{rows: map[[32]byte]Row{}, now: time.Now()}
	return storetest.Harness{Store: Store{db}, Advance: db.advance}, db
}

func TestStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Harness {
		h, _ := newStore()
		return h
	})
}

func TestStoreReturnsWhatTheMemoryStoreReturns(t *testing.T) {
	for seed := range int64(500) {
		_, clock := newStore()
		tested, _ := newStore()
		reference := storetest.Harness{Store: memstore.New(memstore.Clock(clock.clock)), Advance: clock.advance}
		storetest.Differential(t, seed, 30, reference, tested)
	}
}

// The page shows this file as it is.
func TestThePageShowsTheSkeleton(t *testing.T) {
	page, err := os.ReadFile("../../docs/writing-a-store.md")
	require.NoError(t, err)
	source, err := os.ReadFile("store.go")
	require.NoError(t, err)
	_, shown, _ := strings.Cut(string(page), "```go\npackage store\n")
	shown, _, _ = strings.Cut(shown, "```")
	_, code, _ := strings.Cut(string(source), "\npackage store\n")
	assert.Equal(t, code, shown)
}
