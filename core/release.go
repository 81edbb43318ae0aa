package core

import (
	"context"
	"errors"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/retry"
)

// maxBackground is how many goroutines may retry a release at a time. It bounds what an outage of the store costs: one refused
// request after the other leaves a claim to release.
const maxBackground = 1000

// causeNoResponse is stored as the cause of a claim that was released because its Begin had no response in time.
const causeNoResponse = "begin had no response"

// releaseAsync releases, in the background, a claim that was granted or may have been granted, and whose handler is not going to
// run under it. cause says why. If the handler runs without protection instead, the release does not promise that nothing ran.
func (k *keyed) releaseAsync(cause string, runsUnprotected bool) {
	failure := driver.Failure{Cause: cause, NoEffects: !runsUnprotected, NotRun: !runsUnprotected}
	k.engine.retryAsync(k.claim.Lease, k.releaseCall(k.claim, failure))
}

// The causes of claims that were granted, or may have been, and under which nothing has run.
const (
	causeOtherName = "the record has another name"
	causePanic     = "the store or a function of the config panicked"
)

// withdraw releases the claims that op may have after a panic: that of its record, and that under the engine's own name while it
// looks under another.
func (op *operation) withdraw() {
	if op.isRenamed() {
		own := op.claim
		own.Key, own.Fence = *op.ownKey, 0
		defer op.release(own, causePanic)
	}
	op.release(op.claim, causePanic)
}

// release releases a claim under which nothing has run. It calls the store before it returns; if the store does not respond, it
// tries again in the background.
func (k *keyed) release(claim driver.Claim, cause string) {
	send := k.releaseCall(claim, driver.Failure{Cause: cause, NoEffects: true, NotRun: true})
	if !send() {
		k.engine.retryAsync(claim.Lease, send)
	}
}

// releaseCall returns a function that fails the claim once, and reports whether the store has responded. The function does not
// use k, which may be in use for another claim by then.
func (k *keyed) releaseCall(claim driver.Claim, failure driver.Failure) func() (responded bool) {
	e, ctx := k.engine, context.WithoutCancel(k.ctx)
	return func() bool {
		err := e.call(ctx, "Fail", func(ctx context.Context) error { return e.cfg.Store.Fail(ctx, claim, failure) })
		return err == nil || errors.Is(err, ErrLost)
	}
}

// retryAsync calls send in the background until send returns true or the time d has passed. If maxBackground goroutines are at
// work already, it calls send once.
func (e *Engine) retryAsync(d time.Duration, send func() (responded bool)) {
	e.inflight.Go(func(running int) {
		if running > maxBackground {
			d = 0
		}
		retry.Until(time.Now().Add(d), send)
	})
}
