package core

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-idem/idem/core/internal/deadline"
	"github.com/go-idem/idem/core/internal/retry"
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
	over      bool           // stopped or lost: nothing is left to do
	closed    bool           // nothing more may begin in the run
	overdue   bool           // it has lasted longer than Lease.MaxRun
	underWay  int            // steps and runs inside
	idle      chan struct{}  // closed when none of these is left, or the claim is lost; made by who waits for it
	limit     *time.Timer    // ends the run when it has lasted too long; nil without Lease.MaxRun
	lost      bool           // the handler was told that the claim is gone
	confirmed time.Time      // when the last verb was sent that the store confirmed: the lease is counted from then or later
	first     deadline.Timer // sends the first extension
	next      *time.Timer    // extends; made by the first extension
	end       *time.Timer    // ends the run when nothing is confirmed; made by the first extension
}

// keep starts the keeper of op's claim and returns the handler's context. That one does not end when the client leaves,
// because half an operation helps nobody; a deadline set outside still counts.
func (op *operation) keep() context.Context {
	k := &op.keeper
	k.op, k.confirmed = op, op.began
	k.run.Init(op.ctx)
	k.run.at = place{op: op, keeper: k, outer: placeOf(op.ctx)}
	k.mu.Lock()
	defer k.mu.Unlock()
	op.engine.timers.AfterFunc(&k.first, time.Until(op.began.Add(op.claim.Lease/3)), k)
	if longest := op.engine.cfg.Lease.MaxRun; longest > 0 {
		k.limit = time.AfterFunc(time.Until(op.began.Add(longest)), k.endOverdue)
	}
	return &k.run
}

// enter lets a step, or a run inside, begin in the run. It returns false when the run has ended, or its claim is lost.
func (k *keeper) enter() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.over || k.lost {
		return false
	}
	k.underWay++
	return true
}

// leave ends what enter let begin.
func (k *keeper) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.underWay--; k.underWay == 0 {
		k.wakeIdle()
	}
}

// wakeIdle wakes who waits for the end of what is under way; the caller holds mu.
func (k *keeper) wakeIdle() {
	if k.idle != nil {
		close(k.idle)
		k.idle = nil
	}
}

// close lets nothing more begin in the run, and returns nil, unless something is under way: then it returns what is closed when that
// may be over.
func (k *keeper) close() (busy <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.underWay == 0 || k.over || k.lost {
		k.closed = true
		return nil
	}
	if k.idle == nil {
		k.idle = make(chan struct{})
	}
	return k.idle
}

// await returns when close would not say busy any more.
func (k *keeper) await(busy <-chan struct{}) {
	for ; busy != nil; busy = k.close() {
		<-busy
	}
}

// hasEffects tells whether steps were kept, or something is under way that may have effects.
func (k *keeper) hasEffects() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.underWay > 0 || k.steps.Load()
}

// isOverdue tells whether the run has lasted longer than Lease.MaxRun.
func (k *keeper) isOverdue() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.overdue
}

// endOverdue ends a run that has lasted too long: its claim ends with the lease, and its outcome is unknown.
func (k *keeper) endOverdue() {
	k.mu.Lock()
	ends := !k.over
	if ends {
		k.overdue = true
		k.cancel(errOverdue)
		k.halt()
	}
	k.mu.Unlock()
	if ends {
		k.op.emit(k.op.engine.cfg.Hooks.Unknown, 0, errOverdue)
	}
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
	return !k.over && !k.lost && (k.op.claim.Key == record || k.op.renamed && k.op.home == record)
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
		k.unwatch = context.AfterFunc(k.op.ctx, func() { k.run.Cancel(context.Cause(k.op.ctx)) })
	}
}

// stop ends the keeping and the handler's context. It returns when the lease ends at the earliest, by the confirmed
// calls, and whether the handler was told that it is lost.
func (k *keeper) stop() (leaseEnd time.Time, lost bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.halt()
	if k.streams { // something may still work under it, for as long as under the client's
		k.watch()
		return k.confirmed.Add(k.op.claim.Lease), k.lost
	}
	k.run.Cancel(nil)
	if k.unwatch != nil {
		k.unwatch()
	}
	return k.confirmed.Add(k.op.claim.Lease), k.lost
}

// halt stops the timers; the caller holds mu.
func (k *keeper) halt() {
	k.over = true
	k.wakeIdle()
	k.first.Stop()
	if k.limit != nil {
		k.limit.Stop()
	}
	if k.next != nil {
		k.next.Stop()
		k.end.Stop()
	}
}

// Fire sends the first extension.
func (k *keeper) Fire() { k.extend() }

// extend sends one extension and plans the next.
func (k *keeper) extend() {
	k.mu.Lock()
	over, claim := k.over, k.op.claim
	if !over {
		k.plan()
		k.op.engine.inflight.Add() // before stop can return, so that Close waits for it
		defer k.op.engine.inflight.Done()
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
	if err != nil && !k.isLost() { // else Hooks.Lost has heard of it
		k.op.emit(k.op.engine.cfg.Hooks.StoreError, 0, err)
	}
	k.extended(sent, err)
}

// isLost tells whether the handler was told that the claim is gone.
func (k *keeper) isLost() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lost
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
		pause := k.op.claim.Lease / 10
		if k.lost { // in silence: whoever asks first when the store is back has the key
			pause = min(pause, retry.MaxPause)
		}
		k.next.Reset(max(time.Until(sent.Add(pause)), retry.FirstPause))
	default:
		k.confirmed = sent
		k.next.Reset(time.Until(sent.Add(k.op.claim.Lease / 3)))
		k.end.Reset(time.Until(sent.Add(k.op.claim.Lease)))
	}
}

// lose tells the handler, once. A nil cause stands for a lease that ran out unconfirmed: the claim may be held again when the
// store is back, so it is extended until the handler has ended.
func (k *keeper) lose(cause error) {
	k.mu.Lock()
	told := k.over || k.lost
	if !k.over {
		k.cancel(ErrLost)
		if cause != nil {
			k.halt()
		}
	}
	k.mu.Unlock()
	if told {
		return
	}
	if cause == nil {
		cause = errNotRenewed
	}
	k.op.emit(k.op.engine.cfg.Hooks.Lost, 0, cause)
}

// cancel ends the handler's context, and the wait for what is under way; the caller holds mu.
func (k *keeper) cancel(cause error) {
	k.lost = true
	k.wakeIdle()
	k.run.Cancel(cause)
}
