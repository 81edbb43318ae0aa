package sqlitestore_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/sqlitestore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/servicetest"
	"github.com/go-idem/idem/internal/testclock"
)

func TestMain(m *testing.M) {
	if name := os.Getenv("SQLITESTORE_CHILD"); name != "" {
		runChild(name, os.Getenv("SQLITESTORE_PATH"))
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/go-idem/idem/internal/tied.startAll"))
}

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

// withClock returns a store in a new file whose clock the test moves.
func withClock(tb testing.TB) storetest.Harness {
	tb.Helper()
	store, c := newStore(tb), testclock.New(time.Now())
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

// service is an engine on a store, and a table that its handlers write to.
type service struct {
	*core.Engine
	tb    testing.TB
	store *sqlitestore.Store
	key   string
	runs  atomic.Int64
	lost  atomic.Pointer[core.Event]
}

func newService(tb testing.TB, changes ...func(*core.Config)) *service {
	tb.Helper()
	return serviceOn(tb, newStore(tb, sqlitestore.ForeignKeys()), changes...)
}

// serviceOn returns a service on a store, with a key of its own.
func serviceOn(tb testing.TB, store *sqlitestore.Store, changes ...func(*core.Config)) *service {
	tb.Helper()
	s := &service{tb: tb, store: store, key: rand.Text()}
	_, err := store.DB().ExecContext(ctx, "CREATE TABLE IF NOT EXISTS effect (key TEXT NOT NULL)")
	require.NoError(tb, err)
	s.Engine = servicetest.NewEngine(tb, store, append(changes, func(c *core.Config) {
		c.Hooks.Lost = func(_ context.Context, e core.Event) { s.lost.Store(&e) }
	})...)
	return s
}

type handler = func(context.Context) (*core.Response, error)

// do sends the service's request.
func (s *service) do(h handler) (core.Result, error) {
	return s.Do(ctx, servicetest.Order(s.key), func(ctx context.Context) (*core.Response, error) {
		s.runs.Add(1)
		return h(ctx)
	})
}

func (s *service) send(h handler) core.Result {
	s.tb.Helper()
	result, err := s.do(h)
	require.NoError(s.tb, err)
	return result
}

// effect is what a handler does in a transaction.
func (s *service) effect(tx sqlitestore.Tx) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effect VALUES (?)", s.key)
	return err
}

// inTx has one effect in the run's transaction.
func (s *service) inTx(ctx context.Context) error { return s.store.InTx(ctx, s.effect) }

// order is a handler with one effect in the run's transaction.
func (s *service) order(ctx context.Context) (*core.Response, error) {
	if err := s.inTx(ctx); err != nil {
		return nil, err
	}
	return created()
}

func created() (*core.Response, error) { return &core.Response{Status: 201, Body: []byte("made")}, nil }

// effects is how many are to be seen.
func (s *service) effects() (n int) {
	s.tb.Helper()
	require.NoError(s.tb, s.store.DB().QueryRowContext(ctx, "SELECT count(*) FROM effect WHERE key = ?", s.key).Scan(&n))
	return n
}

// replays tells whether a retry, now, gets a kept outcome. If it runs instead, it fails, and has no effects.
func (s *service) replays() bool {
	s.tb.Helper()
	result, err := s.Do(ctx, servicetest.Order(s.key), func(context.Context) (*core.Response, error) {
		return &core.Response{Status: 500}, nil
	})
	require.NoError(s.tb, err)
	return result.Replayed
}

// both checks that the effect and the outcome are there, once, and that a retry replays them.
func (s *service) both() {
	s.tb.Helper()
	assert.Equal(s.tb, 1, s.effects(), "effects")
	assert.True(s.tb, s.replays(), "the outcome is not there")
}

// neither checks that neither effect nor outcome is there.
func (s *service) neither() {
	s.tb.Helper()
	assert.Zero(s.tb, s.effects(), "effects")
	assert.False(s.tb, s.replays(), "there is an outcome")
}
