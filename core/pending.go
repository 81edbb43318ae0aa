package core

import (
	"context"
	"errors"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/retry"
)

// commitQueue holds the commits that a store has not responded to. Engines on the same store share one.
type commitQueue = retry.Queue[*pendingCommit]

// pendingCommit is a commit that the store has not responded to. Its claim is held meanwhile: the lease is extended until the
// store accepts the commit, or reports that the claim is lost, or until ten leases have passed.
type pendingCommit struct {
	op     *operation
	isLost bool // Hooks.Lost was called already
	queued *retry.Pending[*pendingCommit]
}

// addPending puts op's commit into the queue: a Begin of the same record in this process waits for it from now on. isLost is
// whether the handler was told that its claim is lost.
func (op *operation) addPending(isLost bool) *pendingCommit {
	claim := retry.Claim{Record: op.claim.Key, Fence: op.claim.Fence, Lease: op.claim.Lease, Confirmed: op.run.renewer.Confirmed()}
	p := &pendingCommit{op: op, isLost: isLost}
	p.queued = op.engine.commits.Add(claim, p)
	return p
}

// remove removes a commit from the queue that is not to be sent again.
func (p *pendingCommit) remove() { p.op.engine.commits.Remove(p.queued) }

// run sends the commit until it is settled or given up.
func (p *pendingCommit) run() { p.queued.Run(p.op.commit.firstSent) }

// Send implements retry.Commit.
func (p *pendingCommit) Send() (settled bool) {
	err := p.call(p.op.sendCommit)
	p.op.emitCommit(p.isLost, err)
	return isSettled(err)
}

// Extend implements retry.Commit.
func (p *pendingCommit) Extend() retry.Extension {
	claim := p.op.commitClaim()
	err := p.call(func(ctx context.Context) error { return p.op.engine.cfg.Store.Extend(ctx, claim) })
	switch {
	case err == nil:
		return retry.Extended
	case errors.Is(err, ErrLost):
		return retry.Lost
	}
	return retry.NotExtended
}

// Refused implements retry.Commit. The store may be unable to accept the whole outcome, so the body is left out.
func (p *pendingCommit) Refused() { p.op.omitBody() }

// GivenUp implements retry.Commit.
func (p *pendingCommit) GivenUp() {
	p.op.emit(p.op.engine.cfg.Hooks.Lost, p.op.commit.status, errCommitGivenUp)
}

// call makes one call to the store. While the store responds to other calls, the call may last longer than those of new
// requests, because the store serves these first.
func (p *pendingCommit) call(f func(context.Context) error) error {
	e := p.op.engine
	bound := e.patience()
	if e.commits.IsSilent(bound) {
		bound = e.cfg.Limits.StoreTimeout
	}
	deadline := earlier(time.Now().Add(bound), p.queued.Deadline())
	return e.callUntil(p.op.run.detached(), deadline, func(ctx context.Context) error { return p.queued.Call(ctx, f) })
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// reportCall tells the queue of commits what a call to the store returned. A response means that the store is available.
func (e *Engine) reportCall(err error) {
	if isResponse(err) {
		e.commits.Responded()
	}
}

// isResponse reports whether a call that returned err, which may be nil, had a response from the store.
func isResponse(err error) bool {
	return err == nil || errors.Is(err, ErrLost) || errors.Is(err, driver.ErrUnreadable) || errors.Is(err, driver.ErrNotDurable)
}

// awaitCommit waits while a commit of the record is pending in this process, at most as long as a call to the store may last.
// If the commit is still pending then, awaitCommit returns what Begin would find, and true.
func (op *operation) awaitCommit() (entry driver.Entry, isPending bool) {
	e := op.engine
	p := e.commits.Find(&op.claim.Key)
	if p == nil {
		return driver.Entry{}, false
	}
	if entry := p.Commit.entry(op); entry.State == driver.Mismatch {
		return entry, true
	}
	bound := e.cfg.Limits.StoreTimeout
	if op.waiter != nil { // the request has waited before
		bound = min(bound, time.Until(op.waiter.Deadline()))
	}
	timer := time.NewTimer(bound)
	defer timer.Stop()
	for ; p != nil; p = e.commits.Find(&op.claim.Key) {
		select {
		case <-p.Done():
		case <-timer.C:
			return p.Commit.entry(op), true
		case <-op.ctx.Done():
			return p.Commit.entry(op), true
		}
	}
	return driver.Entry{}, false
}

// entry returns what a Begin of op's claim would find while p is pending.
func (p *pendingCommit) entry(op *operation) driver.Entry {
	held := &p.op.claim
	acceptsOthers := p.op.commit.failure != nil && p.op.commit.failure.NoEffects
	if held.Fingerprint != op.claim.Fingerprint && !acceptsOthers {
		return driver.Entry{State: driver.Mismatch, Fingerprint: held.Fingerprint}
	}
	return driver.Entry{State: driver.InProgress, Remaining: op.engine.cfg.Limits.StoreTimeout}
}
