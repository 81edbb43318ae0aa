package sqlitestore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/sqlitestore"
	"github.com/go-idem/idem/core/storetest"
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
func (h *hanging) endsInTime(t *testing.T, call func(context.Context, *hanging) error) {
	t.Helper()
	hangtest.EndInTime(t, 3, bound, func(ctx context.Context) error { return call(ctx, h) })
}

// calls are all exported functions that take a context, by their names. Those without a value do not use the file.
var calls = map[string]func(context.Context, *hanging) error{
	"Store.Begin": func(ctx context.Context, h *hanging) error {
		_, err := h.store.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
		return err
	},
	"Store.Extend":     func(ctx context.Context, h *hanging) error { return h.store.Extend(ctx, h.claim) },
	"Store.Complete":   func(ctx context.Context, h *hanging) error { return h.store.Complete(ctx, h.claim, nil) },
	"Store.Fail":       func(ctx context.Context, h *hanging) error { return h.store.Fail(ctx, h.claim, driver.Failure{}) },
	"Store.Reopen":     func(ctx context.Context, h *hanging) error { return h.store.Reopen(ctx, h.claim, nil) },
	"Store.Checkpoint": func(ctx context.Context, h *hanging) error { return h.store.Checkpoint(ctx, h.claim, "step", nil) },
	"Store.Checkpoints": func(ctx context.Context, h *hanging) error {
		_, err := h.store.Checkpoints(ctx, h.claim)
		return err
	},
	"Store.Sweep": func(ctx context.Context, h *hanging) error {
		_, err := h.store.Sweep(ctx, 10)
		return err
	},
	"Store.Look": func(ctx context.Context, h *hanging) error {
		_, err := h.store.Look(ctx, h.claim.Key)
		return err
	},
	"Store.Outcome": func(ctx context.Context, h *hanging) error {
		_, err := h.store.Outcome(ctx, h.claim.Key)
		return err
	},
	"Store.Steps": func(ctx context.Context, h *hanging) error {
		_, err := h.store.Steps(ctx, h.claim.Key)
		return err
	},
	"Store.Scan": func(ctx context.Context, h *hanging) error {
		return h.store.Scan(ctx, driver.Filter{}, func(driver.Record) bool { return true })
	},
	"Store.Forget": func(ctx context.Context, h *hanging) error {
		return h.store.Forget(ctx, driver.Record{Name: h.claim.Key})
	},
	"Store.Watch": func(ctx context.Context, h *hanging) error {
		stop, err := h.store.Watch(ctx, h.claim.Key, func() {})
		stop()
		return err
	},
	"Store.Check": func(ctx context.Context, h *hanging) error {
		_, err := h.store.Check(ctx)
		return err
	},
	"Store.InTx": func(ctx context.Context, h *hanging) error {
		return h.store.InTx(ctx, func(sqlitestore.Tx) error { return errTest })
	},
	"Open":                          nil, // see TestALockOfAnotherProcess…
	"Store.OpenSession":             nil,
	"Store.MayCheckpoint":           nil,
	"applicationTx.ExecContext":     nil, // those of database/sql
	"applicationTx.PrepareContext":  nil,
	"applicationTx.QueryContext":    nil,
	"applicationTx.QueryRowContext": nil,
}

// readers are the calls that take no lock.
var readers = map[string]bool{
	"Store.Look": true, "Store.Outcome": true, "Store.Steps": true, "Store.Scan": true, "Store.Watch": true, "Store.Check": true,
}

func TestTheListOfCallsThatCanHangIsComplete(t *testing.T) { hangtest.RequireAll(t, ".", calls) }

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
	for name, call := range calls {
		if call != nil && !readers[name] {
			t.Run(name, func(t *testing.T) { h.endsInTime(t, call) })
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
