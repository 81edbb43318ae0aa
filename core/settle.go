package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-idem/idem/core/driver"
)

var (
	errSilent     = fmt.Errorf("%w: no extension was confirmed for a whole lease", ErrLost)
	errAway       = fmt.Errorf("%w: the store took nothing for ten leases", ErrLost)
	errOverdue    = fmt.Errorf("%w: the run has lasted longer than Lease.MaxRun", ErrLost)
	errTooMuch    = errors.New("idem: the store answers, and has refused this outcome for a whole lease: it is kept without its body")
	errLate       = fmt.Errorf("%w: begin was answered after the lease", ErrLost)
	errAlgorithm  = fmt.Errorf("%w: its fingerprint was made by an algorithm that this engine does not know, or that is weaker than its own: name it in Fingerprint.Previous", driver.ErrUnreadable)
	errNoResponse = errors.New("idem: run returned neither an error nor a response with a status from 100 to 999")
)

func isAnswer(r *Response) bool {
	return r != nil && (r.Hijacked || r.Status >= 100 && r.Status <= 999)
}

// settle takes what the handler left, stores what the policy says, and returns what the client is to see. The answer is
// held back until it is kept. All this happens on a context that outlives the client.
func (op *operation) settle(r *Response, err error) (Result, error) {
	if err == nil && !isAnswer(r) {
		err = errNoResponse
	}
	if err != nil {
		_ = op.fail(driver.Failure{Cause: op.cause(err)}, 0)
		return Result{}, err
	}
	keep := &op.engine.cfg.Keep
	op.keeper.streams = r.Sent && r.Unfinished && !op.goesOn
	r.Omitted = r.Omitted || len(r.Body) > keep.MaxBody
	switch op.disposition(r) {
	case Retry:
		err = op.fail(driver.Failure{Cause: "status " + strconv.Itoa(r.Status)}, r.Status)
	case LeaveUnknown:
		err = op.abandon(r.Status, ErrOutcomeUnknown)
	case Release:
		err = op.fail(op.released(r), r.Status)
	default:
		r.Omitted = r.Omitted || keep.OmitBody != nil && keep.OmitBody(r)
		err = op.complete(r)
	}
	return op.result(r, err), nil
}

// maxCause is how long the cause of a failure may be, in bytes.
const maxCause = 200

// short cuts a text to that length, between two characters.
func short(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxCause)], "")
}

// cause is what is kept of an error. That of a request's handler may hold request data.
func (op *operation) cause(err error) string {
	if op.isMessage {
		return short(err.Error())
	}
	return "handler returned an error"
}

// complete keeps what a replay needs of r.
func (op *operation) complete(r *Response) error {
	var lines [16]Field // what most answers need no allocation for
	rules := op.engine.rules
	kept := Response{Status: r.Status, Header: rules.appendKept(lines[:0], r), Removed: rules.removals(r), Body: r.Body, Omitted: r.Omitted}
	outcome, blob := op.encodeOutcome(&kept)
	op.ended = true // also when a hook panics now
	if busy := op.keeper.close(); busy != nil {
		op.keeper.await(busy) // the answer is held back until it is kept
	}
	return op.finish(commit{hook: op.engine.cfg.Hooks.Kept, status: r.Status, outcome: outcome, blob: blob})
}

// brokeOff ends a run that did not come to its end. Who asks about unknown outcomes is asked about this one, when its lease
// is over.
func (op *operation) brokeOff(cause string) {
	if op.engine.cfg.Lease.OnUnknown == nil {
		_ = op.fail(driver.Failure{Cause: cause}, 0)
		return
	}
	_ = op.abandon(0, errors.New(cause))
}

// abandon leaves the claim to the end of its lease: nobody knows the outcome.
func (op *operation) abandon(status int, cause error) error {
	return op.whenIdle(func() error {
		if _, lost := op.keeper.stop(); lost {
			return ErrLost
		}
		op.emit(op.engine.cfg.Hooks.Unknown, status, cause)
		return nil
	})
}

// fail ends the run without an outcome. One that has kept steps, or has some under way, had effects.
func (op *operation) fail(f driver.Failure, status int) error {
	hadEffects := op.keeper.hasEffects() // also of a step that fails before the run is idle
	return op.whenIdle(func() error {
		if hadEffects || op.keeper.hasEffects() { // of a step that a goroutine began after the first look
			f.NoEffects, f.NotRun = false, false
		}
		return op.finish(commit{hook: op.engine.cfg.Hooks.Failed, status: status, failure: &f})
	})
}

// commit is the last verb of a run: Complete, or with a cause Fail.
type commit struct {
	hook    Hook // hears that it is done
	status  int
	outcome []byte
	blob    string // where the body is
	bare    []byte // outcome without its body, once the store is believed to take no more
	failure *driver.Failure

	sent    time.Time // first
	doubted bool      // one that was sent had no answer: it may have taken effect, or may yet
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
	if f.sent.IsZero() {
		f.sent = time.Now()
	}
	if f.failure != nil {
		return op.engine.cfg.Store.Fail(ctx, claim, *f.failure)
	}
	err := op.sendOutcome(ctx, &claim)
	switch {
	case errors.Is(err, ErrOutcomeUnknown):
	case errors.Is(err, ErrLost):
		if f.blob != "" && !f.doubted { // else a record may name it: its own end is the rest
			_ = op.engine.cfg.Keep.Blobs.Delete(ctx, f.blob)
		}
	case err != nil:
		f.doubted = true
	}
	return err
}

// sendOutcome keeps the outcome, or what is left of it. Whichever form the store has taken before is kept, so a store that
// refuses the one is asked for the other.
func (op *operation) sendOutcome(ctx context.Context, c *driver.Claim) (err error) {
	f := &op.commit
	forms := [][]byte{f.outcome}
	if f.bare != nil {
		forms = [][]byte{f.bare, f.outcome}
	}
	for _, outcome := range forms {
		err = op.engine.cfg.Store.Complete(ctx, *c, outcome)
		if err == nil {
			op.engine.replays.Put(c.Key, c.Fingerprint, outcome, f.sent, c.Retention)
		}
		if !errors.Is(err, ErrLost) || errors.Is(err, ErrOutcomeUnknown) {
			return err
		}
	}
	return err
}

// giveUpBody makes the outcome one without its body, if it has got one in the store.
func (op *operation) giveUpBody() {
	f := &op.commit
	if f.outcome == nil || f.bare != nil || f.blob != "" {
		return
	}
	r, _, err := op.engine.codecs.decode(op.claim.Key, f.outcome)
	if err != nil || r.Omitted || len(r.Body) == 0 {
		return
	}
	r.Omitted, r.Body = true, nil
	f.bare = op.engine.codecs.encode(op.claim.Key, r, "")
	op.emit(op.engine.cfg.Hooks.StoreError, f.status, errTooMuch)
}

// result is what the client sees after err of the final verb. The answer of a run that lost its claim, or may have, is
// not the outcome and is never shown as one, unless it was streamed and is out already.
func (op *operation) result(r *Response, err error) Result {
	switch {
	case r.Sent:
		return Result{}
	case errors.Is(err, ErrLost) && !errors.Is(err, ErrOutcomeUnknown):
		return op.engine.refusals.refuse(codeClaimLost, 0)
	case err != nil: // also ErrOutcomeUnknown: a retry finds what has become of it
		return op.engine.refusals.refuse(codeStoreUnavailable, 0)
	}
	return op.engine.decorateFirst(r)
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
