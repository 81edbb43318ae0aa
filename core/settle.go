package core

import (
	"errors"
	"strconv"
	"strings"

	"github.com/go-idem/idem/core/driver"
)

// isValidResponse reports whether r has a valid status, or the handler has taken over the connection.
func isValidResponse(r *Response) bool {
	return r != nil && (r.Hijacked || r.Status >= 100 && r.Status <= 999)
}

// settle ends a run as the policy says, and returns what the client gets. r and err are what the handler has returned. The
// response is held back until it is stored. Calls to the store do not end when the client leaves.
func (op *operation) settle(r *Response, err error) (Result, error) {
	if err == nil && !isValidResponse(r) {
		err = errNoResponse
	}
	if err != nil {
		_ = op.fail(driver.Failure{Cause: op.cause(err)}, 0)
		return Result{}, err
	}
	keep := &op.engine.cfg.Keep
	op.run.streams = r.Sent && r.Unfinished && !op.isStreaming
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

// maxCauseBytes bounds the cause of a failure, as it is stored.
const maxCauseBytes = 200

// truncate cuts a text to maxCauseBytes, between two characters.
func truncate(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxCauseBytes)], "")
}

// cause returns what is stored of a handler's error. The text of an error is stored for tasks only, because an error of a
// request's handler may hold data of the request.
func (op *operation) cause(err error) string {
	if op.task != nil {
		return truncate(err.Error())
	}
	return "handler returned an error"
}

// complete stores what a replay of r needs. It waits for steps that are still in progress.
func (op *operation) complete(r *Response) error {
	var fields [16]Field // so that most responses need no allocation
	rules := op.engine.rules
	header, removed := rules.appendKept(fields[:0], r), rules.removals(r)
	kept := Response{Status: r.Status, Header: header, Removed: removed, Body: r.Body, Omitted: r.Omitted}
	outcome, blob := op.encodeOutcome(&kept)
	op.isEnded = true // also when a hook panics now
	if busy := op.run.closeIfIdle(); busy != nil {
		op.run.awaitIdle(busy)
	}
	return op.finish(commit{hook: op.engine.cfg.Hooks.Kept, status: r.Status, outcome: outcome, blob: blob})
}

// endIncomplete ends a run whose handler panicked, or whose response was cut short. With Lease.OnUnknown, the claim is left to
// the end of its lease, so that OnUnknown is asked about the outcome. Otherwise the run fails, and a retry runs again.
func (op *operation) endIncomplete(cause string) {
	if op.engine.cfg.Lease.OnUnknown == nil {
		_ = op.fail(driver.Failure{Cause: cause}, 0)
		return
	}
	_ = op.abandon(0, errors.New(cause))
}

// abandon leaves the claim to the end of its lease, because the outcome is unknown.
func (op *operation) abandon(status int, cause error) error {
	return op.whenIdle(func() error {
		if _, lost := op.run.stop(); lost {
			return ErrLost
		}
		op.emit(op.engine.cfg.Hooks.Unknown, status, cause)
		return nil
	})
}

// fail ends the run without an outcome. If the run has stored steps, or has some in progress, the failure does not say that
// the run had no effects.
func (op *operation) fail(f driver.Failure, status int) error {
	hadEffects := op.run.hasEffects() // a step that is in progress now may have failed by then
	return op.whenIdle(func() error {
		if hadEffects || op.run.hasEffects() { // of a step that began since
			f.NoEffects, f.NotRun = false, false
		}
		return op.finish(commit{hook: op.engine.cfg.Hooks.Failed, status: status, failure: &f})
	})
}

// result returns what the client gets after a commit that returned err. If the run has lost its claim, or may have, its
// response is not the outcome and is not sent, unless it was streamed and is sent already.
func (op *operation) result(r *Response, err error) Result {
	switch {
	case r.Sent:
		return Result{}
	case errors.Is(err, ErrLost) && !errors.Is(err, ErrOutcomeUnknown):
		return op.engine.refusals.refuse(codeClaimLost, 0)
	case err != nil: // also ErrOutcomeUnknown: a retry finds what became of the commit
		return op.engine.refusals.refuse(codeStoreUnavailable, 0)
	}
	return op.engine.decorateFirst(r)
}
