package core

import (
	"context"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/waiting"
)

// wait blocks until the run in progress may have ended, so that Begin is worth sending again. It reports false when the request may
// not wait, or has waited for Wait.Timeout, which counts from the Begin that found the run.
func (op *operation) wait(leaseRemaining time.Duration) (retry bool) {
	if op.waiter != nil {
		return op.waiter.Wait(op.ctx, leaseRemaining)
	}
	e, config := op.engine, &op.engine.cfg.Wait
	if config.Timeout <= 0 {
		return false
	}
	limits := waiting.Limits{Max: config.Max, MaxPerKey: config.MaxPerKey}
	op.waiter = e.waiters.Waiter(op.claim.Key, limits, op.begun.Add(config.Timeout))
	if op.waiter == nil {
		return false
	}
	op.claim.Subscribed = true
	op.emit(e.cfg.Hooks.Wait, 0, nil)
	if err := op.subscribe(); err != nil && op.ctx.Err() == nil {
		op.emit(e.cfg.Hooks.StoreError, 0, err)
	}
	return op.ctx.Err() == nil // a run that ended before the subscription stood has notified nobody
}

// subscribe has the store notify the waiter when the claim of op's record ends.
func (op *operation) subscribe() error {
	e, w, key, client := op.engine, op.waiter, op.claim.Key, op.ctx
	deadline := time.Now().Add(e.cfg.Limits.StoreTimeout)
	if w.Deadline().Before(deadline) {
		deadline = w.Deadline()
	}
	return w.Subscribe(client, deadline, func(notify func()) (stop func(), err error) {
		panicked := true
		defer func() {
			if panicked && stop != nil { // a hook has panicked, and nobody gets stop
				stop()
			}
		}()
		err = e.callUntil(client, deadline, "Watch", func(ctx context.Context) error {
			stop, err = e.cfg.Store.(driver.Notifier).Watch(ctx, key, notify)
			return err
		})
		panicked = false
		return stop, err
	})
}

// stopWaiting ends the wait, if there was one.
func (op *operation) stopWaiting() {
	if op.waiter != nil {
		op.claim.Subscribed = false
		op.waited = max(time.Since(op.waiter.Deadline())+op.engine.cfg.Wait.Timeout, 1)
		op.waiter.Close()
	}
}
