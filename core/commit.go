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
}

// cause returns the error that hooks receive for a failure, and nil for an outcome.
func (f *commit) cause() error {
	if f.failure == nil {
		return nil
	}
	return errors.New(f.failure.Cause)
}

// commitClaim returns the claim to commit. It says whether the run has stored checkpoints, which the store then deletes.
func (op *operation) commitClaim() driver.Claim {
	claim := op.claim
	claim.Steps = op.run.steps.Load()
	return claim
}

// sendCommit sends the commit once. If the claim was lost, it deletes the blob of the outcome, unless a record may refer to
// the blob because an earlier call had no response. Such a blob stays until its own end.
func (op *operation) sendCommit(ctx context.Context) error {
	f, claim := &op.commit, op.commitClaim()
	if f.firstSent.IsZero() {
		f.firstSent = time.Now()
	}
	if f.failure != nil {
		return op.engine.cfg.Store.Fail(ctx, claim, *f.failure)
	}
	err := op.sendOutcome(ctx, &claim)
	switch {
	case errors.Is(err, ErrOutcomeUnknown):
	case errors.Is(err, ErrLost):
		if f.blob != "" && !f.isUncertain {
			_ = op.engine.cfg.Keep.Blobs.Delete(ctx, f.blob)
		}
	case err != nil:
		f.isUncertain = true
	}
	return err
}

// sendOutcome sends Complete. After omitBody it sends the outcome without its body first, and the whole outcome if the store
// reports the claim lost: the store may have accepted the whole outcome in an earlier call, and accepts an outcome again only
// unchanged.
func (op *operation) sendOutcome(ctx context.Context, c *driver.Claim) (err error) {
	f := &op.commit
	forms := [][]byte{f.outcome}
	if f.withoutBody != nil {
		forms = [][]byte{f.withoutBody, f.outcome}
	}
	for _, outcome := range forms {
		err = op.engine.cfg.Store.Complete(ctx, *c, outcome)
		if err == nil {
			op.engine.replays.Put(c.Key, c.Fingerprint, outcome, f.firstSent, c.Retention)
		}
		if !errors.Is(err, ErrLost) || errors.Is(err, ErrOutcomeUnknown) {
			return err
		}
	}
	return err
}

// omitBody prepares an outcome without its body, for a store that refuses the whole one. It does nothing if the store holds no
// body.
func (op *operation) omitBody() {
	f := &op.commit
	if f.outcome == nil || f.withoutBody != nil || f.blob != "" {
		return
	}
	r, _, err := op.engine.codecs.decode(op.claim.Key, f.outcome)
	if err != nil || r.Omitted || len(r.Body) == 0 {
		return
	}
	r.Omitted, r.Body = true, nil
	f.withoutBody = op.engine.codecs.encode(op.claim.Key, r, "")
	op.emit(op.engine.cfg.Hooks.StoreError, f.status, errBodyOmitted)
}

// finish stops the keeper and sends the commit. If the store is unavailable, the commit stays pending: in the background it is
// sent again for up to ten leases, and the claim is held meanwhile. finish then returns nil, so that the client gets its
// response, only while the lease is known to hold.
func (op *operation) finish(f commit) error {
	op.commit = f
	leaseEnd, lost := op.run.stop()
	if op.run.renewer.IsOverdue() {
		return errOverdue
	}
	var p *pendingCommit
	if lost || time.Until(leaseEnd) < op.engine.cfg.Limits.StoreTimeout { // the lease may end before the call
		p = op.addPending(lost)
	}
	err := op.sendFirstCommit()
	op.engine.reportCall(err)
	op.emitFirstCommit(p, lost, err)
	if isSettled(err) {
		if p != nil {
			p.remove()
		}
		return err
	}
	if p == nil {
		p = op.addPending(lost)
	}
	op.engine.commits.Failed()
	op.engine.inflight.Go(p.run)
	if lost || time.Until(leaseEnd) <= 0 {
		return err
	}
	return nil
}

// sendFirstCommit sends the commit for the first time. The call goes on when the client leaves.
func (op *operation) sendFirstCommit() error {
	e, ctx := op.engine, &op.commitContext
	ctx.Init(&e.timers, op.ctx, time.Now().Add(e.cfg.Limits.StoreTimeout), deadline.CancelNever)
	defer ctx.Cancel()
	return op.sendCommit(ctx)
}

// emitFirstCommit calls the hooks after the first call. If a hook panics, the commit is not sent again, so p is removed from
// the queue; otherwise all retries in this process would wait for it. p may be nil.
func (op *operation) emitFirstCommit(p *pendingCommit, lost bool, err error) {
	panicked := true
	defer func() {
		if panicked && p != nil {
			p.remove()
		}
	}()
	op.emitCommit(lost, err)
	panicked = false
}

// emitCommit calls the hook that fits the result of a commit. lost is whether Hooks.Lost was called for this run already.
func (op *operation) emitCommit(lost bool, err error) {
	hooks, f := &op.engine.cfg.Hooks, &op.commit
	switch {
	case err == nil:
		op.emit(f.hook, f.status, f.cause())
	case errors.Is(err, ErrOutcomeUnknown):
		op.emit(hooks.Unknown, f.status, err)
	case !errors.Is(err, ErrLost):
		op.emit(hooks.StoreError, f.status, err)
	case !lost:
		op.emit(hooks.Lost, f.status, err)
	}
}

// isSettled reports whether a commit that returned err is not to be sent again.
func isSettled(err error) bool {
	return err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrOutcomeUnknown)
}
