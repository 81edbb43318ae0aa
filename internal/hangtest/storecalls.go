package hangtest

import (
	"context"
	"errors"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// Store is a driver.Store with all the abilities whose calls are the same for every store.
type Store interface {
	driver.Store
	driver.Checkpointer
	driver.Reopener
	driver.Inspector
	driver.OutcomeReader
}

// StoreCalls returns the calls of a store by the names that RequireAll demands of a type Store. Each is for claim, but for Begin,
// which claims another key with the same durations. Those of driver.Notifier and driver.SessionOpener are not among them, because
// they reach a server in some stores only. The store may be a nil pointer as long as no call is made.
func StoreCalls(store Store, claim driver.Claim) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Store.Begin": func(ctx context.Context) error {
			_, err := store.Begin(ctx, anotherKey(claim))
			return err
		},
		"Store.Extend":     func(ctx context.Context) error { return store.Extend(ctx, claim) },
		"Store.Complete":   func(ctx context.Context) error { return store.Complete(ctx, claim, []byte("outcome")) },
		"Store.Fail":       func(ctx context.Context) error { return store.Fail(ctx, claim, driver.Failure{}) },
		"Store.Reopen":     func(ctx context.Context) error { return store.Reopen(ctx, claim, nil) },
		"Store.Checkpoint": func(ctx context.Context) error { return store.Checkpoint(ctx, claim, "step", nil) },
		"Store.Checkpoints": func(ctx context.Context) error {
			_, err := store.Checkpoints(ctx, claim)
			return err
		},
		"Store.Look": func(ctx context.Context) error {
			_, err := store.Look(ctx, claim.Key)
			return err
		},
		"Store.Outcome": func(ctx context.Context) error {
			_, err := store.Outcome(ctx, claim.Key)
			return err
		},
		"Store.Steps": func(ctx context.Context) error {
			_, err := store.Steps(ctx, claim.Key)
			return err
		},
		"Store.Scan": func(ctx context.Context) error {
			return store.Scan(ctx, driver.Filter{}, func(driver.Record) bool { return true })
		},
		"Store.Forget": func(ctx context.Context) error { return store.Forget(ctx, driver.Record{Name: claim.Key}) },
	}
}

// anotherKey returns a new claim with the durations of c.
func anotherKey(c driver.Claim) driver.Claim {
	another := storetest.NewClaim(c.Lease, c.Retention)
	another.LateRetry = c.LateRetry
	return another
}

// errWatched is the error of a Watch that succeeds.
var errWatched = errors.New("the subscription was confirmed")

// Watch watches a key on a server that does not reply, or not to all. It returns an error also if the subscription was confirmed,
// because half of what the server sends to many calls may be all of the reply to this one. The caller names a key that nobody
// watches, for which the store has to call the server.
func Watch(ctx context.Context, store driver.Notifier, key [32]byte) error {
	stop, err := store.Watch(ctx, key, func() {})
	if err == nil {
		stop()
		return errWatched
	}
	return err
}
