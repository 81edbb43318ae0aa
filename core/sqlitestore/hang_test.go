package sqlitestore_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/sqlitestore"
	"github.com/go-idem/idem/internal/hangtest"
)

// bound is how long a call may take.
const bound = 100 * time.Millisecond

// hanging is a store whose file does not respond, and a claim that it has.
type hanging struct {
	store *sqlitestore.Store
	claim driver.Claim
}

// endsInTime checks that a call ends with its context.
func endsInTime(t *testing.T, call func(context.Context) error) {
	t.Helper()
	hangtest.EndInTime(t, 3, bound, call)
}

// calls returns all exported functions that take a context, by their names. Those without a value do not use the file.
func (h *hanging) calls() map[string]func(context.Context) error {
	calls := hangtest.StoreCalls(h.store, h.claim)
	maps.Copy(calls, map[string]func(context.Context) error{
		"Store.Sweep": func(ctx context.Context) error {
			_, err := h.store.Sweep(ctx, 10)
			return err
		},
		"Store.Watch": func(ctx context.Context) error {
			stop, err := h.store.Watch(ctx, h.claim.Key, func() {})
			stop()
			return err
		},
		"Store.Check": func(ctx context.Context) error {
			_, err := h.store.Check(ctx)
			return err
		},
		"Store.InTx": func(ctx context.Context) error {
			return h.store.InTx(ctx, func(sqlitestore.Tx) error { return errTest })
		},
		"Open":                          nil, // see TestALockOfAnotherProcess…
		"Store.OpenSession":             nil,
		"Store.MayCheckpoint":           nil,
		"applicationTx.ExecContext":     nil, // those of database/sql
		"applicationTx.PrepareContext":  nil,
		"applicationTx.QueryContext":    nil,
		"applicationTx.QueryRowContext": nil,
	})
	return calls
}

// readers are the calls that take no lock.
var readers = map[string]bool{
	"Store.Look": true, "Store.Outcome": true, "Store.Steps": true, "Store.Scan": true, "Store.Watch": true, "Store.Check": true,
}

func TestTheListOfCallsThatCanHangIsComplete(t *testing.T) {
	hangtest.RequireAll(t, ".", new(hanging).calls())
}

// The file does not respond at all, as on a disk that hangs: here each call that has the lock waits for the clock.
func TestAFileThatDoesNotRespondHoldsNoCallLongerThanItsContext(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	h := &hanging{store, claimed(t, store)}
	respond := make(chan struct{})
	store.SetClock(func() time.Time {
		<-respond
		return time.Now()
	})
	for name, call := range h.calls() {
		if call != nil && !readers[name] {
			t.Run(name, func(t *testing.T) { endsInTime(t, call) })
		}
	}
	close(respond)
}

// The lock comes after its InTx has returned.
func TestALockThatComesTooLateIsReleased(t *testing.T) {
	t.Parallel()
	s := newService(t)
	respond := make(chan struct{})
	s.store.SetClock(func() time.Time {
		<-respond
		return time.Now()
	})
	short, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	require.ErrorIs(t, s.inTx(short), context.DeadlineExceeded)
	close(respond)
	soon, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	require.NoError(t, s.inTx(soon))
	assert.Equal(t, 1, s.effects())
}

// PG-01: what the store says of a run's transaction whose end it did not hear.
func TestUnknownIsSaidOfATransactionThatMayBeCommitted(t *testing.T) {
	t.Parallel()
	s := newService(t)
	hang, respond := make(chan struct{}), make(chan struct{})
	s.store.SetClock(func() time.Time {
		select {
		case <-hang:
			<-respond
		default:
		}
		return time.Now()
	})
	_, err := s.do(func(run context.Context) (*core.Response, error) {
		require.NoError(t, s.inTx(run))
		c := s.claim(run)
		close(hang)
		for range 2 {
			short, cancel := context.WithTimeout(run, bound)
			err := s.store.Complete(short, c, []byte("kept"))
			cancel()
			assert.ErrorIs(t, err, driver.ErrOutcomeUnknown)
			assert.False(t, errors.Is(err, driver.ErrLost))
		}
		close(respond)
		require.NoError(t, s.store.Complete(run, c, []byte("kept")), "it was committed")
		return nil, errTest
	})
	require.ErrorIs(t, err, errTest)
	assert.Equal(t, 1, s.effects())
}
