package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

var (
	errSilent     = fmt.Errorf("%w: no extension was confirmed for a whole lease", ErrLost)
	errAway       = fmt.Errorf("%w: the store took nothing for ten leases", ErrLost)
	errLate       = fmt.Errorf("%w: begin was answered after the lease", ErrLost)
	errAlgorithm  = fmt.Errorf("%w: its fingerprint was made by an algorithm that this engine does not know, or that is weaker than its own: name it in Fingerprint.Previous", ErrUnreadable)
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
		_ = op.fail(Failure{Cause: op.cause(err)}, 0)
		return Result{}, err
	}
	keep := &op.engine.cfg.Keep
	op.keeper.streams = r.Sent && r.Unfinished && !op.goesOn
	r.Omitted = r.Omitted || len(r.Body) > keep.MaxBody
	switch op.disposition(r) {
	case Retry:
		err = op.fail(Failure{Cause: "status " + strconv.Itoa(r.Status)}, r.Status)
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
	outcome, blob := op.pack(&kept)
	return op.finish(final{hook: op.engine.cfg.Hooks.Kept, status: r.Status, outcome: outcome, blob: blob})
}

// brokeOff ends a run that did not come to its end. Who asks about unknown outcomes is asked about this one, when its lease
// is over.
func (op *operation) brokeOff(cause string) {
	if op.engine.cfg.Lease.OnUnknown == nil {
		_ = op.fail(Failure{Cause: cause}, 0)
		return
	}
	_ = op.abandon(0, errors.New(cause))
}

// abandon leaves the claim to the end of its lease: nobody knows the outcome.
func (op *operation) abandon(status int, cause error) error {
	op.ended = true
	if _, lost := op.keeper.stop(); lost {
		return ErrLost
	}
	op.hear(op.engine.cfg.Hooks.Unknown, status, cause)
	return nil
}

// fail ends the run without an outcome.
func (op *operation) fail(f Failure, status int) error {
	return op.finish(final{hook: op.engine.cfg.Hooks.Failed, status: status, failure: &f})
}

// final is the last verb of a run: Complete, or with a cause Fail.
type final struct {
	hook    Hook // hears that it is done
	status  int
	outcome []byte
	blob    string // where the body is
	failure *Failure
}

// cause is what hooks hear of a Fail.
func (f *final) cause() error {
	if f.failure == nil {
		return nil
	}
	return errors.New(f.failure.Cause)
}

// sendFinal sends the verb once.
func (op *operation) sendFinal(ctx context.Context) error {
	store, f := op.engine.cfg.Store, &op.final
	if f.failure != nil {
		return store.Fail(ctx, op.claim, *f.failure)
	}
	local, sent := op.engine.local, time.Time{}
	if local != nil {
		sent = time.Now()
	}
	err := store.Complete(ctx, op.claim, f.outcome)
	if err == nil {
		local.learn(&op.claim, f.outcome, sent, op.claim.Retention)
	}
	if f.blob != "" && errors.Is(err, ErrLost) {
		_ = op.engine.cfg.Keep.Blobs.Delete(ctx, f.blob) // nothing names it; its own end is the rest
	}
	return err
}

// result is what the client sees after err of the final verb. The answer of a run that lost its claim, or may have, is
// not the outcome and is never shown as one, unless it was streamed and is out already.
func (op *operation) result(r *Response, err error) Result {
	switch {
	case r.Sent:
		return Result{}
	case errors.Is(err, ErrLost):
		return op.engine.refusals.result(codeClaimLost, 0)
	case err != nil:
		return op.engine.refusals.result(codeStoreUnavailable, 0)
	}
	return op.engine.first(r)
}

// leasesAway is for how many leases a final verb is sent to a store that does not answer. It is fenced: however late, it
// changes nothing once another run has the key.
const leasesAway = 10

// finish stops the keeper and sends the final verb. When the store is away, the verb is sent again behind the client's back:
// a retry meets the running claim meanwhile, and once another run has the key the store refuses it. The client gets its
// answer, a nil error, only while the lease is known to last.
func (op *operation) finish(f final) error {
	op.final = f
	op.ended = true // also when a hook panics now
	leaseEnd, lost := op.keeper.stop()
	err := op.sendFirst()
	op.tell(lost, err)
	if err == nil || errors.Is(err, ErrLost) {
		return err
	}
	op.finishLater(lost)
	if lost || time.Until(leaseEnd) <= 0 {
		return err
	}
	return nil
}

// sendFirst sends the verb for the first time.
func (op *operation) sendFirst() error {
	op.last.detached = true
	defer op.last.end(context.Canceled)
	return op.sendFinal(op.last.start(op.engine, op.ctx, time.Now().Add(op.engine.cfg.Limits.StoreTimeout), &op.next))
}

// finishLater sends the final verb until the store has answered, or for ten leases.
func (op *operation) finishLater(lost bool) {
	op.engine.late.run(func() {
		time.Sleep(firstPause)
		ended := again(time.Now().Add(leasesAway*op.claim.Lease), func() bool {
			err := op.engine.call(op.keeper.detached(), op.sendFinal)
			op.tell(lost, err)
			return err == nil || errors.Is(err, ErrLost)
		})
		if !ended {
			op.hear(op.engine.cfg.Hooks.Lost, op.final.status, errAway)
		}
	})
}

// tell tells the hooks what a final verb has come to.
func (op *operation) tell(lost bool, err error) {
	hooks, f := &op.engine.cfg.Hooks, &op.final
	switch {
	case err == nil:
		op.hear(f.hook, f.status, f.cause())
	case !errors.Is(err, ErrLost):
		op.hear(hooks.StoreError, f.status, err)
	case !lost: // the keeper has not said so
		op.hear(hooks.Lost, f.status, err)
	}
}
