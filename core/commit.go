package core

import (
	"context"
	"errors"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// commit is the last verb of a run: Complete, or with a cause Fail.
type commit struct {
	hook        Hook // hears that it is done
	status      int
	outcome     []byte
	blob        string // where the body is
	withoutBody []byte // outcome without its body, once the store is believed to take no more
	failure     *driver.Failure

	firstSent   time.Time // first
	isUncertain bool      // one that was sent had no answer: it may have taken effect, or may yet
}

// cause is what hooks hear of a Fail.
func (f *commit) cause() error {
	if f.failure == nil {
		return nil
	}
	return errors.New(f.failure.Cause)
}

// commitClaim is the claim that final verbs carry.
func (op *operation) commitClaim() driver.Claim {
	claim := op.claim
	claim.Steps = op.keeper.steps.Load()
	return claim
}

// sendCommit sends the verb once.
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
		if f.blob != "" && !f.isUncertain { // else a record may name it: its own end is the rest
			_ = op.engine.cfg.Keep.Blobs.Delete(ctx, f.blob)
		}
	case err != nil:
		f.isUncertain = true
	}
	return err
}

// sendOutcome keeps the outcome, or what is left of it. Whichever form the store has taken before is kept, so a store that
// refuses the one is asked for the other.
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

// omitBody makes the outcome one without its body, if it has got one in the store.
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

// finish stops the keeper and sends the final verb. When it has no answer, it stays pending behind the client's back: the claim is
// held, retries meet it, and the verb is sent again until the store takes it. The client gets its answer, a nil error, only
// while the lease is known to last.
func (op *operation) finish(f commit) error {
	op.commit = f
	leaseEnd, lost := op.keeper.stop()
	if op.keeper.isOverdue() {
		return errOverdue
	}
	var p *pendingCommit
	if lost || time.Until(leaseEnd) < op.engine.cfg.Limits.StoreTimeout { // it may end before the call
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

// sendFirstCommit sends the verb for the first time.
func (op *operation) sendFirstCommit() error {
	op.last.detached = true
	defer op.last.end(context.Canceled)
	return op.sendCommit(op.last.start(op.engine, op.ctx, time.Now().Add(op.engine.cfg.Limits.StoreTimeout), &op.next))
}

// emitFirstCommit is tell of the first verb. When a hook panics, nobody sends another, so p, if there is one, is not pending any more.
func (op *operation) emitFirstCommit(p *pendingCommit, lost bool, err error) {
	told := false
	defer func() {
		if !told && p != nil {
			p.remove()
		}
	}()
	op.emitCommit(lost, err)
	told = true
}

// emitCommit tells the hooks what a final verb has come to.
func (op *operation) emitCommit(lost bool, err error) {
	hooks, f := &op.engine.cfg.Hooks, &op.commit
	switch {
	case err == nil:
		op.emit(f.hook, f.status, f.cause())
	case errors.Is(err, ErrOutcomeUnknown):
		op.emit(hooks.Unknown, f.status, err)
	case !errors.Is(err, ErrLost):
		op.emit(hooks.StoreError, f.status, err)
	case !lost: // the keeper has not said so
		op.emit(hooks.Lost, f.status, err)
	}
}

// isSettled reports whether a commit that returned err is not to be sent again.
func isSettled(err error) bool {
	return err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrOutcomeUnknown)
}
