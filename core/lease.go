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
	op  *operation
	run runContext // the handler's

	unwatch func() bool // ends the watch for the client's leaving; nil without one

	decided  atomic.Bool
	decision atomic.Int32 // the handler's own, by Decide
	steps    atomic.Bool  // the run has checkpoints
	streams  bool         // the answer goes on when the handler has returned
	stepping stepping

	mu        sync.Mutex
	over      bool        // stopped or lost: nothing is left to do
	lost      bool        // the handler was told that the claim is gone
	confirmed time.Time   // when the last verb was sent that the store confirmed: the lease is counted from then or later
	next      *time.Timer // extends; made by the first extension
	end       *time.Timer // ends the run when nothing is confirmed; made by the first extension
}

// keep starts the keeper of op's claim and returns the handler's context. That one does not end when the client leaves,
// because half an operation helps nobody; a deadline set outside still counts.
func (op *operation) keep() context.Context {
	k := &op.keeper
	k.op, k.confirmed = op, op.began
	k.run.keeper, k.run.at = k, place{op: op, keeper: k, outer: placeOf(op.ctx)}
	op.next.set(&op.engine.extensions, k, op.began.Add(op.claim.Lease/3))
	return &k.run
}

// decide makes the decision of the handler.
func (k *keeper) decide(d Disposition) {
	k.decision.Store(int32(d))
	k.decided.Store(true)
}

// decidedOn returns the handler's own decision.
func (k *keeper) decidedOn() (Disposition, bool) {
	return Disposition(k.decision.Load()), k.decided.Load()
}

// runs tells whether the keeper's run is one of record, and goes on.
func (k *keeper) runs(record [32]byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.over && (k.op.claim.Key == record || k.op.renamed && k.op.home == record)
}

// watchClient cancels the handler's context when the client leaves.
func (k *keeper) watchClient() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		k.watch()
	}
}

// watch is watchClient; the caller holds mu.
func (k *keeper) watch() {
	if k.unwatch == nil {
		k.unwatch = context.AfterFunc(k.op.ctx, func() { k.run.end(context.Cause(k.op.ctx)) })
	}
}

// stop ends the keeping and the handler's context. It returns when the lease ends at the earliest, by the confirmed
// calls, and whether the handler was told that it is lost.
func (k *keeper) stop() (leaseEnd time.Time, lost bool) {
	k.op.next.cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.halt()
	k.op.claim.Steps = k.steps.Load()
	if k.streams { // something may still work under it, for as long as under the client's
		k.watch()
		return k.confirmed.Add(k.op.claim.Lease), k.lost
	}
	k.run.end(nil)
	if k.unwatch != nil {
		k.unwatch()
	}
	return k.confirmed.Add(k.op.claim.Lease), k.lost
}

// halt stops the timers; the caller holds mu.
func (k *keeper) halt() {
	k.over = true
	if k.next != nil {
		k.next.Stop()
		k.end.Stop()
	}
}

// come extends for the first time.
func (k *keeper) come() { k.extend() }

// extend sends one extension and plans the next.
func (k *keeper) extend() {
	k.mu.Lock()
	over, claim := k.over, k.op.claim
	if !over {
		k.plan()
		k.op.engine.late.enter() // before stop can return, so that Close waits for it
		defer k.op.engine.late.done()
	}
	k.mu.Unlock()
	if over {
		return
	}
	sent := time.Now()
	claim.Steps = k.steps.Load()
	e := k.op.engine
	err := e.callUntil(k.detached(), sent.Add(e.patience()), func(ctx context.Context) error { return e.cfg.Store.Extend(ctx, claim) })
	if errors.Is(err, ErrLost) {
		k.lose(err)
		return
	}
	if err != nil {
		k.op.hear(k.op.engine.cfg.Hooks.StoreError, 0, err)
	}
	k.extended(sent, err)
}

// detached has the values of the client's context, and not its end.
func (k *keeper) detached() context.Context { return context.WithoutCancel(k.op.ctx) }

// plan makes the timers, once; the caller holds mu.
func (k *keeper) plan() {
	if k.next != nil {
		return
	}
	k.end = time.AfterFunc(time.Until(k.confirmed.Add(k.op.claim.Lease)), func() { k.lose(nil) })
	k.next = time.AfterFunc(k.op.claim.Lease, k.extend)
	k.next.Stop()
}

// extended sets the timers after an extension that was sent at sent: a confirmed one starts the lease anew, a failed one is
// tried again soon.
func (k *keeper) extended(sent time.Time, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.over:
	case err != nil:
		k.next.Reset(max(time.Until(sent.Add(k.op.claim.Lease/10)), firstPause))
	default:
		k.confirmed = sent
		k.next.Reset(time.Until(sent.Add(k.op.claim.Lease / 3)))
		k.end.Reset(time.Until(sent.Add(k.op.claim.Lease)))
	}
}

// lose tells the handler, once. A nil cause stands for a lease that ran out unconfirmed.
func (k *keeper) lose(cause error) {
	k.mu.Lock()
	over := k.over
	if !over {
		k.lost = true
		k.halt()
		k.run.end(ErrLost)
	}
	k.mu.Unlock()
	if over {
		return
	}
	if cause == nil {
		cause = errSilent
	}
	k.op.hear(k.op.engine.cfg.Hooks.Lost, 0, cause)
}
