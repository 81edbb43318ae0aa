package core

import (
	"context"
	"errors"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/deadline"
)

// commit is the last call of a run to the store: Complete with an outcome, or Fail with a failure.
type commit struct {
	hook        Hook            // called when the store has accepted the commit
	status      int             // of the response, for hooks; 0 if there is none
	outcome     []byte          // encoded; nil for a failure
	blob        string          // the ID of the blob that holds the body; "" if the outcome holds the body
	withoutBody []byte          // the outcome without its body, for a store that refuses the whole; else nil
	failure     *driver.Failure // nil for an outcome

	firstSent   time.Time
	isUncertain bool // a call had no response, so that commit may have taken effect, or may do so later
	isPending   bool // the first call had no response; the commit is sent again in the background
}

// cause returns the error that hooks receive for a failure, and nil for an outcome.
func (f *commit) cause() error {
	if f.failure == nil {
		return nil
	}
	return errors.New(f.failure.Cause)
}

// commitClaim returns the claim to commit. It says whether the run has stored checkpoints, which the store then deletes.
func (r *run) commitClaim() driver.Claim {
	claim := r.claim
	claim.Steps = r.hasSteps.Load()
	return claim
}

// sendCommit sends the commit once. If the claim was lost, it deletes the blob of the outcome, unless a record may refer to
// the blob because an earlier call had no response. Such a blob stays until its own end.
func (r *run) sendCommit(ctx context.Context) error {
	f, claim := &r.commit, r.commitClaim()
	if f.firstSent.IsZero() {
		f.firstSent = time.Now()
	}
	if f.failure != nil {
		began := r.engine.callBegins()
		err := r.engine.cfg.Store.Fail(ctx, claim, *f.failure)
		r.engine.callEnded(ctx, "Fail", began, err)
		return err
	}
	err := r.sendOutcome(ctx, &claim)
	switch {
	case errors.Is(err, ErrOutcomeUnknown):
	case errors.Is(err, ErrLost):
		if f.blob != "" && !f.isUncertain {
			_ = r.engine.cfg.Keep.Blobs.Delete(ctx, f.blob)
		}
	case err != nil:
		f.isUncertain = true
	}
	return err
}

// sendOutcome sends Complete. After omitBody it sends the outcome without its body first, and the whole outcome if the store
// reports the claim lost: the store may have accepted the whole outcome in an earlier call, and accepts an outcome again only
// unchanged.
func (r *run) sendOutcome(ctx context.Context, c *driver.Claim) (err error) {
	f := &r.commit
	forms := [][]byte{f.outcome}
	if f.withoutBody != nil {
		forms = [][]byte{f.withoutBody, f.outcome}
	}
	for _, outcome := range forms {
		began := r.engine.callBegins()
		err = r.engine.cfg.Store.Complete(ctx, *c, outcome)
		r.engine.callEnded(ctx, "Complete", began, err)
		if err == nil {
			r.engine.replays.Put(c.Key, c.Fingerprint, outcome, f.firstSent, c.Retention)
		}
		if !errors.Is(err, ErrLost) || errors.Is(err, ErrOutcomeUnknown) {
			return err
		}
	}
	return err
}

// omitBody prepares an outcome without its body, for a store that refuses the whole one. It does nothing if the store holds no
// body.
func (r *run) omitBody() {
	f := &r.commit
	if f.outcome == nil || f.withoutBody != nil || f.blob != "" {
		return
	}
	response, _, err := r.engine.codecs.decode(r.claim.Key, f.outcome)
	if err != nil || response.Omitted || len(response.Body) == 0 {
		return
	}
	response.Omitted, response.Body = true, nil
	f.withoutBody = r.engine.codecs.encode(r.claim.Key, response, "")
	r.emit(r.engine.cfg.Hooks.StoreError, f.status, errBodyOmitted)
}

// finish stops the renewal of the lease and sends the commit. If the store is unavailable, the commit stays pending: it is sent
// again in the background for up to ten leases, and the claim is held meanwhile. finish then returns nil, so that the client gets
// its response, only while the lease is known to hold.
func (r *run) finish(f commit) error {
	r.commit = f
	leaseEnd, lost := r.stop()
	if r.renewer.IsOverdue() {
		return errOverdue
	}
	var p *pendingCommit
	if time.Until(leaseEnd) < r.engine.cfg.Limits.StoreTimeout { // the lease may end before the call
		p = r.addPending(lost)
	}
	err := r.sendFirst(p, lost)
	if isSettled(err) {
		if p != nil {
			p.remove()
		}
		return err
	}
	if p == nil {
		p = r.addPending(lost)
	}
	r.commit.isPending = true
	r.engine.commits.Failed()
	r.engine.inflight.Go(func(int) { p.sendUntilSettled() })
	if lost || time.Until(leaseEnd) <= 0 {
		return err
	}
	return nil
}

// sendFirst sends the commit for the first time, and calls the hooks. If a hook panics, or the store does, the commit is not sent
// again, so p is removed from the queue; otherwise all retries in this process would wait for it. p may be nil.
func (r *run) sendFirst(p *pendingCommit, lost bool) (err error) {
	panicked := true
	defer func() {
		if panicked && p != nil {
			p.remove()
		}
	}()
	err = r.sendFirstCommit()
	r.engine.reportCall(err)
	r.emitCommit(lost, err)
	panicked = false
	return err
}

// sendFirstCommit calls the store. The call goes on when the client leaves.
func (r *run) sendFirstCommit() error {
	e, ctx := r.engine, &r.commitContext
	ctx.Init(&e.timers, r.ctx, time.Now().Add(e.cfg.Limits.StoreTimeout), deadline.CancelNever)
	defer ctx.Cancel()
	return r.sendCommit(ctx)
}

// emitCommit calls the hook that fits the result of a commit. lost is whether Hooks.Lost was called for this run already.
func (r *run) emitCommit(lost bool, err error) {
	hooks, f := &r.engine.cfg.Hooks, &r.commit
	switch {
	case err == nil:
		r.emitCommitted()
	case errors.Is(err, ErrOutcomeUnknown):
		r.emit(hooks.Unknown, f.status, err)
	case !errors.Is(err, ErrLost):
		r.emit(hooks.StoreError, f.status, err)
	case !lost:
		r.emit(hooks.Lost, f.status, err)
	}
}

// emitCommitted calls the hook for a commit that the store has accepted.
func (r *run) emitCommitted() {
	f := &r.commit
	if f.hook == nil {
		return
	}
	e := r.event(f.status, f.cause())
	e.Size, e.Took = len(f.outcome), f.firstSent.Sub(epoch)-r.started
	f.hook(r.detached(), e)
}

// isSettled reports whether a commit that returned err is not to be sent again.
func isSettled(err error) bool {
	return err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrOutcomeUnknown)
}
