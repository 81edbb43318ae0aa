package core

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/deadline"
	"github.com/go-idem/idem/core/internal/lease"
)

// run is one run of a handler under a claim, from the claim to the commit. It holds the claim: when the claim is lost, or no
// extension was confirmed for a whole lease, it cancels the handler's context with ErrLost.
type run struct {
	*keyed
	context      runContext // the handler's
	renewer      lease.Renewer
	enclosing    *run   // counts this run as in progress; nil without one
	closeSession func() // of the store

	isDecided   atomic.Bool
	decision    atomic.Int32 // the handler's own, by Decide
	hasSteps    atomic.Bool  // the store has results of steps
	isStreaming bool         // the run ends when its stream does: see Response.Later
	isHeld      bool         // the handler has returned, and the run ends when its steps have
	isEnded     bool         // the claim is committed or abandoned, or that is under way
	streams     bool         // the response goes on after the handler has returned
	disposed    Disposition  // what became of the key, after settle
	releaseErr  error        // of a task that has decided on Release

	commit        commit
	commitContext deadline.Context // of the first call
	steps         stepResults

	mu         sync.Mutex
	inProgress int32         // steps and enclosed runs
	isOver     bool          // the run has ended, or its claim is lost, and nothing may begin in it
	isGone     bool          // an extension found no record
	ending     ending        // how the run has ended, for Hooks.Done; only its own goroutine uses it
	idle       chan struct{} // closed when none is in progress, or the claim is lost; nil while nobody waits for that
	unwatch    func() bool   // ends the watch for the client's leaving; nil without one
}

// start starts a run under the claim of k, and returns the handler's context. That context does not end when the client leaves,
// because half an operation helps nobody. A deadline that was set outside still counts.
func (r *run) start(k *keyed) context.Context {
	e := k.engine
	r.keyed = k
	outer := placeOf(r.ctx)
	r.openSession(outer)
	r.context.Init(r.ctx)
	r.context.at = place{keyed: k, run: r, outer: outer}
	r.renewer.Start(lease.Config{
		Holder: (*holder)(r), Timers: &e.timers, Inflight: e.inflight,
		Began: k.begun, Lease: k.claim.Lease, MaxRun: e.cfg.Lease.MaxRun,
	})
	return &r.context
}

// openSession counts the run in the run that encloses it, and tells the store that the run begins, if the store opens sessions. outer
// is the place of the request.
func (r *run) openSession(outer *place) {
	if outer != nil && outer.run != nil && outer.run.enter() {
		r.enclosing = outer.run
	}
	r.closeSession = func() {}
	store, hasSessions := r.engine.cfg.Store.(driver.SessionOpener)
	if !hasSessions {
		return
	}
	isOpen := false
	defer func() {
		if !isOpen { // the store has panicked
			r.endSession()
			r.releaseAsync("the store panicked", false)
		}
	}()
	r.ctx, r.closeSession = store.OpenSession(r.ctx, r.claim)
	isOpen = true
}

// endSession undoes openSession. The enclosing run goes on even if the store panics.
func (r *run) endSession() {
	if r.enclosing != nil {
		defer r.enclosing.leave()
	}
	r.closeSession()
}

// enter lets a step or an enclosed run begin. It returns false if the run has ended, or its claim is lost.
func (r *run) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isOver {
		return false
	}
	r.inProgress++
	return true
}

// leave is called at the end of what enter let begin.
func (r *run) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inProgress--; r.inProgress == 0 {
		r.notifyIdle()
	}
}

// notifyIdle wakes the goroutines that wait until nothing is in progress. The caller holds mu.
func (r *run) notifyIdle() {
	if r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// closeIfIdle closes the run, so that nothing more can begin in it, and returns nil. If something is in progress, it returns a
// channel instead, which is closed when that may have ended.
func (r *run) closeIfIdle() (busy <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inProgress == 0 || r.isOver {
		r.isOver = true
		return nil
	}
	r.idle = make(chan struct{})
	return r.idle
}

// awaitIdle waits until the run is closed. busy is the result of closeIfIdle.
func (r *run) awaitIdle(busy <-chan struct{}) {
	for ; busy != nil; busy = r.closeIfIdle() {
		<-busy
	}
}

// hasEffects reports whether the store has results of steps, or something is in progress that may have effects.
func (r *run) hasEffects() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inProgress > 0 || r.hasSteps.Load()
}

// decide stores the decision of the handler.
func (r *run) decide(d Disposition) {
	r.decision.Store(int32(d.known()))
	r.isDecided.Store(true)
}

// ownDecision returns the decision of the handler, and whether there is one. Without one it is Keep.
func (r *run) ownDecision() (Disposition, bool) {
	return Disposition(r.decision.Load()), r.isDecided.Load()
}

// isOf reports whether this is a run of the record, under any of its names, and has not ended.
func (r *run) isOf(record [32]byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.isOver && (r.claim.Key == record || r.isRenamed() && *r.ownKey == record)
}

// watchClient makes the handler's context end when the client leaves.
func (r *run) watchClient() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isOver {
		r.cancelWithClient()
	}
}

// cancelWithClient is watchClient for a caller that holds mu.
func (r *run) cancelWithClient() {
	if r.unwatch == nil {
		r.unwatch = context.AfterFunc(r.ctx, func() { r.context.Cancel(context.Cause(r.ctx)) })
	}
}

// stop ends the renewal of the lease, and the handler's context, of a closed run. It returns when the lease ends at the earliest,
// by the calls that the store has confirmed, and whether Hooks.Lost was called.
func (r *run) stop() (leaseEnd time.Time, lost bool) {
	leaseEnd, lost = r.renewer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams { // the stream goes on under the context, until the client leaves
		r.cancelWithClient()
		return leaseEnd, lost
	}
	r.context.Cancel(nil)
	if r.unwatch != nil {
		r.unwatch()
	}
	return leaseEnd, lost
}

// end marks the run as over, and wakes the goroutines that wait for it. The caller holds mu.
func (r *run) end() {
	r.isOver = true
	r.notifyIdle()
}

// holder is the run as its Renewer sees it.
type holder run

// Extend implements lease.Holder.
func (h *holder) Extend() (isLost bool, err error) {
	r, e := (*run)(h), h.engine
	claim := r.commitClaim()
	err = e.callUntil(r.detached(), time.Now().Add(e.patience()), "Extend", func(ctx context.Context) error { return e.cfg.Store.Extend(ctx, claim) })
	if errors.Is(err, driver.ErrGone) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.isGone = true
	}
	return errors.Is(err, ErrLost), err
}

// lostError returns the error of a run whose claim is lost.
func (r *run) lostError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lostErrorLocked()
}

// lostErrorLocked is lostError for a caller that holds mu.
func (r *run) lostErrorLocked() error {
	if r.isGone {
		return driver.ErrGone
	}
	return ErrLost
}

// Cancel implements lease.Holder: it ends the context of the handler.
func (h *holder) Cancel(why lease.Reason) {
	r := (*run)(h)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
	if why == lease.Overdue {
		r.context.Cancel(errOverdue)
		return
	}
	r.context.Cancel(r.lostErrorLocked())
}

// Report implements lease.Holder.
func (h *holder) Report(why lease.Reason, err error) {
	hooks := &h.engine.cfg.Hooks
	switch why {
	case lease.Lost:
		h.emit(hooks.Lost, 0, err)
	case lease.Silent:
		h.emit(hooks.Lost, 0, errNotRenewed)
	case lease.Overdue: // the claim ends with its lease, and the outcome of the run is unknown
		h.emit(hooks.Unknown, 0, errOverdue)
	}
}

// ReportFailure implements lease.Holder.
func (h *holder) ReportFailure(err error) { h.emit(h.engine.cfg.Hooks.StoreError, 0, err) }

// endSessionUnlessHeld is called at the end of the handler. Steps that are still in progress end the session later.
func (r *run) endSessionUnlessHeld() {
	if r.isHeld {
		return
	}
	r.endSession()
}
