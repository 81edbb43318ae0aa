package core

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// keeper keeps one claim alive while its handler runs. It extends at each third of the lease, so a handler that
// finishes sooner costs no call. When the claim is lost, or no extension was confirmed for a whole lease, it cancels
// the handler's context with ErrLost.
type keeper struct {
	op     *operation
	engine *Engine
	req    *Request
	claim  *Claim
	client context.Context // ends when the client leaves
	ctx    context.Context // the same values, without an end
	cancel context.CancelCauseFunc

	release context.CancelFunc // frees the timer of the handler's deadline; nil without one
	unwatch func() bool        // ends the watch for the client's leaving; nil without one

	decision atomic.Pointer[Disposition] // the handler's own, by Decide
	steps    atomic.Bool                 // the run has checkpoints
	stepping stepping

	mu        sync.Mutex
	over      bool        // stopped or lost: nothing is left to do
	lost      bool        // the handler was told that the claim is gone
	confirmed time.Time   // when the last verb was sent that the store confirmed: the lease is counted from then or later
	next      *time.Timer // extends
	end       *time.Timer // ends the run when nothing is confirmed; made by the first extension
}

// keep starts the keeper of op's claim and returns the handler's context. That one does not end when the client leaves,
// because half an operation helps nobody; a deadline set outside still counts.
func (op *operation) keep() context.Context {
	k := &op.keeper
	k.op, k.engine, k.req, k.claim, k.client, k.ctx, k.confirmed = op, op.engine, &op.req, &op.claim, op.ctx, context.WithoutCancel(op.ctx), op.began
	var ctx context.Context
	ctx, k.cancel = context.WithCancelCause(k.ctx)
	if deadline, ok := op.ctx.Deadline(); ok {
		ctx, k.release = context.WithDeadline(ctx, deadline)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next = time.AfterFunc(time.Until(op.began.Add(k.claim.Lease/3)), k.extend)
	return context.WithValue(context.WithValue(ctx, runKey{}, k), claimKey{}, k.claim)
}

// runs tells whether the keeper's run is one of record, and goes on.
func (k *keeper) runs(record [32]byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.over && k.claim.Key == record
}

// watchClient cancels the handler's context when the client leaves.
func (k *keeper) watchClient() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over && k.unwatch == nil {
		k.unwatch = context.AfterFunc(k.client, func() { k.cancel(context.Cause(k.client)) })
	}
}

// stop ends the keeping and the handler's context. It returns when the lease ends at the earliest, by the confirmed
// calls, and whether the handler was told that it is lost.
func (k *keeper) stop() (leaseEnd time.Time, lost bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.halt()
	k.cancel(nil)
	if k.release != nil {
		k.release()
	}
	if k.unwatch != nil {
		k.unwatch()
	}
	return k.confirmed.Add(k.claim.Lease), k.lost
}

// halt stops the timers; the caller holds mu.
func (k *keeper) halt() {
	k.over = true
	k.next.Stop()
	if k.end != nil {
		k.end.Stop()
	}
}

// extend sends one extension and plans the next.
func (k *keeper) extend() {
	k.mu.Lock()
	if k.end == nil && !k.over {
		k.end = time.AfterFunc(time.Until(k.confirmed.Add(k.claim.Lease)), func() { k.lose(nil) })
	}
	over := k.over
	if !over {
		k.engine.late.enter() // before stop can return, so that Close waits for it
		defer k.engine.late.done()
	}
	k.mu.Unlock()
	if over {
		return
	}
	sent, claim := time.Now(), *k.claim
	claim.Steps = k.steps.Load()
	err := k.engine.call(k.ctx, func(ctx context.Context) error { return k.engine.cfg.Store.Extend(ctx, claim) })
	if errors.Is(err, ErrLost) {
		k.lose(err)
		return
	}
	if err != nil {
		k.engine.cfg.Hooks.StoreError.call(k.ctx, k.req, k.claim, 0, err)
	}
	k.plan(sent, err)
}

// plan sets the timers after an extension that was sent at sent: a confirmed one starts the lease anew, a failed one is
// tried again soon.
func (k *keeper) plan(sent time.Time, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.over:
	case err != nil:
		k.next.Reset(k.claim.Lease / 10)
	default:
		k.confirmed = sent
		k.next.Reset(time.Until(sent.Add(k.claim.Lease / 3)))
		k.end.Reset(time.Until(sent.Add(k.claim.Lease)))
	}
}

// lose tells the handler, once. A nil cause stands for a lease that ran out unconfirmed.
func (k *keeper) lose(cause error) {
	k.mu.Lock()
	over := k.over
	if !over {
		k.lost = true
		k.halt()
		k.cancel(ErrLost)
	}
	k.mu.Unlock()
	if over {
		return
	}
	if cause == nil {
		cause = errSilent
	}
	k.engine.cfg.Hooks.Lost.call(k.ctx, k.req, k.claim, 0, cause)
}
