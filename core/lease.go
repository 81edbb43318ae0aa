package core

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-idem/idem/core/internal/lease"
)

// keeper is what belongs to one run: the claim, which it holds while the handler runs, the context of the handler, its steps, and its
// decision. When the claim is lost, or no extension was confirmed for a whole lease, it cancels the context with ErrLost.
type run struct {
	op      *operation
	run     runContext // the handler's
	renewer lease.Renewer

	unwatch func() bool // ends the watch for the client's leaving; nil without one

	decided  atomic.Bool
	decision atomic.Int32 // the handler's own, by Decide
	steps    atomic.Bool  // the run has checkpoints
	streams  bool         // the answer goes on when the handler has returned
	stepping stepResults

	mu       sync.Mutex
	isOver   bool          // the run was stopped, or told that its claim is lost
	closed   bool          // nothing more may begin in the run
	underWay int           // steps and runs inside
	idle     chan struct{} // closed when none of these is left, or the claim is lost; made by who waits for it
}

// keep starts the keeper of op's claim and returns the handler's context. That one does not end when the client leaves,
// because half an operation helps nobody; a deadline set outside still counts.
func (op *operation) startRun() context.Context {
	k, e := &op.run, op.engine
	k.op = op
	k.run.Init(op.ctx)
	k.run.at = place{op: op, run: k, outer: placeOf(op.ctx)}
	k.renewer.Start(lease.Config{
		Holder: (*holder)(k), Timers: &e.timers, Inflight: e.inflight,
		Began: op.begun, Lease: op.claim.Lease, MaxRun: e.cfg.Lease.MaxRun,
	})
	return &k.run
}

// enter lets a step, or a run inside, begin in the run. It returns false when the run has ended, or its claim is lost.
func (k *run) enter() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.isOver {
		return false
	}
	k.underWay++
	return true
}

// leave ends what enter let begin.
func (k *run) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.underWay--; k.underWay == 0 {
		k.notifyIdle()
	}
}

// wakeIdle wakes who waits for the end of what is under way; the caller holds mu.
func (k *run) notifyIdle() {
	if k.idle != nil {
		close(k.idle)
		k.idle = nil
	}
}

// close lets nothing more begin in the run, and returns nil, unless something is under way: then it returns what is closed when that
// may be over.
func (k *run) closeIfIdle() (busy <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.underWay == 0 || k.isOver {
		k.closed = true
		return nil
	}
	if k.idle == nil {
		k.idle = make(chan struct{})
	}
	return k.idle
}

// await returns when close would not say busy any more.
func (k *run) awaitIdle(busy <-chan struct{}) {
	for ; busy != nil; busy = k.closeIfIdle() {
		<-busy
	}
}

// hasEffects tells whether steps were kept, or something is under way that may have effects.
func (k *run) hasEffects() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.underWay > 0 || k.steps.Load()
}

// decide makes the decision of the handler.
func (k *run) decide(d Disposition) {
	k.decision.Store(int32(d))
	k.decided.Store(true)
}

// decidedOn returns the handler's own decision.
func (k *run) ownDecision() (Disposition, bool) {
	return Disposition(k.decision.Load()), k.decided.Load()
}

// runs tells whether the keeper's run is one of record, and goes on.
func (k *run) isOf(record [32]byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.isOver && (k.op.claim.Key == record || k.op.isRenamed && k.op.ownKey == record)
}

// watchClient cancels the handler's context when the client leaves.
func (k *run) watchClient() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.isOver {
		k.cancelWithClient()
	}
}

// watch is watchClient; the caller holds mu.
func (k *run) cancelWithClient() {
	if k.unwatch == nil {
		k.unwatch = context.AfterFunc(k.op.ctx, func() { k.run.Cancel(context.Cause(k.op.ctx)) })
	}
}

// stop ends the keeping and the handler's context. It returns when the lease ends at the earliest, by the confirmed
// calls, and whether the handler was told that it is lost.
func (k *run) stop() (leaseEnd time.Time, lost bool) {
	leaseEnd, lost = k.renewer.Stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end()
	if k.streams { // something may still work under it, for as long as under the client's
		k.cancelWithClient()
		return leaseEnd, lost
	}
	k.run.Cancel(nil)
	if k.unwatch != nil {
		k.unwatch()
	}
	return leaseEnd, lost
}

// end notes that the run is over, and ends the wait for what is under way; the caller holds mu.
func (k *run) end() {
	k.isOver = true
	k.notifyIdle()
}

// detached has the values of the client's context, and not its end.
func (k *run) detached() context.Context { return context.WithoutCancel(k.op.ctx) }

// holder is the keeper as its Renewer sees it.
type holder run

// Extend implements lease.Holder.
func (h *holder) Extend() (isLost bool, err error) {
	k, e := (*run)(h), h.op.engine
	claim := h.op.commitClaim()
	err = e.callUntil(k.detached(), time.Now().Add(e.patience()), func(ctx context.Context) error { return e.cfg.Store.Extend(ctx, claim) })
	return errors.Is(err, ErrLost), err
}

// Cancel implements lease.Holder: it ends the context of the handler.
func (h *holder) Cancel(why lease.Reason) {
	k := (*run)(h)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end()
	if why == lease.Overdue {
		k.run.Cancel(errOverdue)
		return
	}
	k.run.Cancel(ErrLost)
}

// Report implements lease.Holder.
func (h *holder) Report(why lease.Reason, err error) {
	hooks := &h.op.engine.cfg.Hooks
	switch why {
	case lease.Lost:
		h.op.emit(hooks.Lost, 0, err)
	case lease.Silent:
		h.op.emit(hooks.Lost, 0, errNotRenewed)
	case lease.Overdue: // the claim ends with its lease, and the outcome of the run is unknown
		h.op.emit(hooks.Unknown, 0, errOverdue)
	}
}

// ReportFailure implements lease.Holder.
func (h *holder) ReportFailure(err error) { h.op.emit(h.op.engine.cfg.Hooks.StoreError, 0, err) }
