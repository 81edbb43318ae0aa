package core

import (
	"errors"
	"strconv"
	"strings"

	"github.com/go-idem/idem/core/driver"
)

func isValidResponse(r *Response) bool {
	return r != nil && (r.Hijacked || r.Status >= 100 && r.Status <= 999)
}

// settle takes what the handler left, stores what the policy says, and returns what the client is to see. The answer is
// held back until it is kept. All this happens on a context that outlives the client.
func (op *operation) settle(r *Response, err error) (Result, error) {
	if err == nil && !isValidResponse(r) {
		err = errNoResponse
	}
	if err != nil {
		_ = op.fail(driver.Failure{Cause: op.cause(err)}, 0)
		return Result{}, err
	}
	keep := &op.engine.cfg.Keep
	op.keeper.streams = r.Sent && r.Unfinished && !op.goesOn
	r.Omitted = r.Omitted || len(r.Body) > keep.MaxBody
	decision := op.disposition(r)
	if op.task != nil {
		op.task.decision = decision
	}
	switch decision {
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

// maxCauseBytes is how long the cause of a failure may be, in bytes.
const maxCauseBytes = 200

// truncate cuts a text to that length, between two characters.
func truncate(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxCauseBytes)], "")
}

// cause is what is kept of an error. That of a request's handler may hold request data.
func (op *operation) cause(err error) string {
	if op.task != nil {
		return truncate(err.Error())
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

// endIncomplete ends a run that did not come to its end. Who asks about unknown outcomes is asked about this one, when its lease
// is over.
func (op *operation) endIncomplete(cause string) {
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
