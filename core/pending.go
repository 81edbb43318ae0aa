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
	run    *run
	isLost bool // Hooks.Lost was called already
	queued *retry.Pending[*pendingCommit]
}

// addPending puts the run's commit into the queue: a Begin of the same record in this process waits for it from now on. isLost is
// whether the handler was told that its claim is lost.
func (r *run) addPending(isLost bool) *pendingCommit {
	claim := retry.Claim{Record: r.claim.Key, Fence: r.claim.Fence, Lease: r.claim.Lease, Confirmed: r.renewer.Confirmed()}
	p := &pendingCommit{run: r, isLost: isLost}
	p.queued = r.engine.commits.Add(claim, p)
	return p
}

// remove removes a commit from the queue that is not to be sent again.
func (p *pendingCommit) remove() { p.run.engine.commits.Remove(p.queued) }

// sendUntilSettled sends the commit until it is settled or given up.
func (p *pendingCommit) sendUntilSettled() { p.queued.Run(p.run.commit.firstSent) }

// Send implements retry.Commit.
func (p *pendingCommit) Send() (settled bool) {
	err := p.call("", p.run.sendCommit)
	p.run.emitCommit(p.isLost, err)
	return isSettled(err)
}

// Extend implements retry.Commit.
func (p *pendingCommit) Extend() retry.Extension {
	claim := p.run.commitClaim()
	err := p.call("Extend", func(ctx context.Context) error { return p.run.engine.cfg.Store.Extend(ctx, claim) })
	switch {
	case err == nil:
		return retry.Extended
	case errors.Is(err, ErrLost):
		return retry.Lost
	}
	return retry.NotExtended
}

// Refused implements retry.Commit. The store may be unable to accept the whole outcome, so the body is left out.
func (p *pendingCommit) Refused() { p.run.omitBody() }

// GivenUp implements retry.Commit. It calls Hooks.Lost, unless that was called already when the lease of the run ended.
func (p *pendingCommit) GivenUp() {
	if p.isLost {
		return
	}
	p.run.emit(p.run.engine.cfg.Hooks.Lost, p.run.commit.status, errCommitGivenUp)
}

// call makes one call to the store. While the store responds to other calls, the call may last longer than those of new
// requests, because the store serves these first.
func (p *pendingCommit) call(name string, f func(context.Context) error) error {
	e := p.run.engine
	bound := e.patience()
	if e.commits.IsSilent(bound) {
		bound = e.cfg.Limits.StoreTimeout
	}
	deadline := earlier(time.Now().Add(bound), p.queued.Deadline())
	return e.callUntil(p.run.detached(), deadline, name, func(ctx context.Context) error { return p.queued.Call(ctx, f) })
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

// awaitCommit waits while a commit of the record is pending in this process, for at most so long.
// If the commit is still pending then, awaitCommit returns what Begin would find, and true.
func (k *keyed) awaitCommit(bound time.Duration) (entry driver.Entry, isPending bool) {
	e := k.engine
	p := e.commits.Find(&k.claim.Key)
	if p == nil {
		return driver.Entry{}, false
	}
	if entry := p.Commit.entry(k); entry.State == driver.Mismatch {
		return entry, true
	}
	timer := time.NewTimer(bound)
	defer timer.Stop()
	for ; p != nil; p = e.commits.Find(&k.claim.Key) {
		select {
		case <-p.Done():
		case <-timer.C:
			return p.Commit.entry(k), true
		case <-k.ctx.Done():
			return p.Commit.entry(k), true
		}
	}
	return driver.Entry{}, false
}

// entry returns what a Begin of k's claim would find while p is pending.
func (p *pendingCommit) entry(k *keyed) driver.Entry {
	held := &p.run.claim
	acceptsOthers := p.run.commit.failure != nil && p.run.commit.failure.NoEffects
	if held.Fingerprint != k.claim.Fingerprint && !acceptsOthers {
		return driver.Entry{State: driver.Mismatch, Fingerprint: held.Fingerprint}
	}
	return driver.Entry{State: driver.InProgress, Remaining: k.engine.cfg.Limits.StoreTimeout}
}
