package sqlitestore_test

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/sqlitestore"
	"github.com/go-idem/idem/core/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// newPath returns the path of a file that does not exist.
func newPath(tb testing.TB) string { return filepath.Join(tb.TempDir(), "payments.db") }

// open opens a file, and closes it when the test ends.
func open(tb testing.TB, path string, opts ...sqlitestore.Option) *sqlitestore.Store {
	tb.Helper()
	store, err := sqlitestore.Open(ctx, path, opts...)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, store.Close()) })
	return store
}

// newStore returns a store in a new file. Its commits need not reach the disk, which no test takes away.
func newStore(tb testing.TB, opts ...sqlitestore.Option) *sqlitestore.Store {
	tb.Helper()
	return open(tb, newPath(tb), append(opts, sqlitestore.NormalSync())...)
}

// clock is a clock that moves only in Advance.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// withClock returns a store in a new file whose clock the test moves.
func withClock(tb testing.TB) storetest.Harness {
	tb.Helper()
	store, c := newStore(tb), &clock{now: time.Now()}
	store.SetClock(c.Now)
	return storetest.Harness{Store: store, Advance: c.Advance}
}

func begin(tb testing.TB, store driver.Store, c driver.Claim) driver.Entry {
	tb.Helper()
	entry, err := store.Begin(ctx, c)
	require.NoError(tb, err)
	return entry
}

// claimed returns the claim of a new key after its Begin.
func claimed(tb testing.TB, store driver.Store) driver.Claim {
	tb.Helper()
	c := storetest.NewClaim(time.Minute, time.Hour)
	entry := begin(tb, store, c)
	require.Equal(tb, driver.Claimed, entry.State)
	c.Fence, c.Attempt, c.Takeover, c.Operation = entry.Fence, entry.Attempt, entry.Takeover, entry.Operation
	return c
}

// rival returns the claim of another run of the same request.
func rival(c driver.Claim) driver.Claim {
	rand.Read(c.Owner[:])
	c.Fence, c.Attempt, c.Takeover, c.Operation = 0, 0, false, 0
	return c
}
