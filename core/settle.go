package core

import (
	"errors"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-idem/idem/core/driver"
)

// isValidResponse reports whether a response has a valid status, or the handler has taken over the connection.
func isValidResponse(response *Response) bool {
	return response != nil && (response.Hijacked || response.Status >= 100 && response.Status <= 999)
}

// errorOf returns the error of a handler, which has one too if it returned no valid response.
func errorOf(response *Response, err error) error {
	if err == nil && !isValidResponse(response) {
		return errNoResponse
	}
	return err
}

// isFinalResponse reports whether a response that no handler has written can be the outcome of a run. A server of net/http sends
// 200 in place of a status below 200, after which it expects another response.
func isFinalResponse(response *Response) bool {
	return isValidResponse(response) && !response.Hijacked && response.Status >= 200
}

// settle ends a run as the policy says, and returns what the client gets. response and err are what the handler has returned. The
// response is held back until it is stored. Calls to the store do not end when the client leaves.
func (r *run) settle(response *Response, err error) (Result, error) {
	if err = errorOf(response, err); err != nil {
		r.ending = endingOf(Retry, r.fail(driver.Failure{Cause: r.cause(err)}, 0))
		return Result{}, err
	}
	keep := &r.engine.cfg.Keep
	r.streams = response.Sent && response.Unfinished && !r.isStreaming
	response.Omitted = response.Omitted || len(response.Body) > keep.MaxBody
	decision := r.disposition(response)
	r.disposed = decision
	switch decision {
	case Retry:
		err = r.fail(driver.Failure{Cause: "status " + strconv.Itoa(response.Status)}, response.Status)
	case LeaveUnknown:
		err = r.abandon(response.Status, ErrOutcomeUnknown)
	case Release:
		err = r.fail(r.released(response), response.Status)
	default:
		response.Omitted = response.Omitted || keep.OmitBody != nil && keep.OmitBody(response)
		err = r.complete(response)
	}
	r.ending = endingOf(decision, err)
	return r.result(response, err), nil
}

// truncate cuts a text to so many bytes, between two characters.
func truncate(text string, size int) string {
	return strings.ToValidUTF8(text[:min(len(text), size)], "")
}

// cause returns what is stored of a handler's error. The text of an error is stored for tasks only, because an error of a
// request's handler may hold data of the request.
func (r *run) cause(err error) string {
	if r.isTask {
		return truncate(err.Error(), driver.MaxCauseBytes)
	}
	return "handler returned an error"
}

// complete stores what a replay of the response needs. It waits for steps that are still in progress.
func (r *run) complete(response *Response) error {
	var fields [16]Field // so that most responses need no allocation
	rules := r.engine.rules
	header, removed := rules.appendKept(fields[:0], response), rules.removals(response)
	kept := Response{Status: response.Status, Header: header, Removed: removed, Body: response.Body, Omitted: response.Omitted}
	if origin := r.engine.cfg.Keep.Origin; origin != nil {
		kept.origin = truncate(origin(r.detached()), maxLabel)
	}
	outcome, blob := r.storeBody(&kept)
	r.isEnded = true // even if a hook panics now
	r.awaitIdle(r.closeIfIdle())
	return r.finish(commit{hook: r.engine.cfg.Hooks.Kept, status: response.Status, outcome: outcome, blob: blob})
}

// endIncomplete ends a run whose handler panicked, or whose response was cut short. With Lease.OnUnknown, the claim is left to
// the end of its lease, so that OnUnknown is asked about the outcome. Otherwise the run fails, and a retry runs again.
func (r *run) endIncomplete(cause string) {
	if r.engine.cfg.Lease.OnUnknown == nil {
		r.ending = endingOf(Retry, r.fail(driver.Failure{Cause: cause}, 0))
		return
	}
	r.ending = endingOf(LeaveUnknown, r.abandon(0, errors.New(cause)))
}

// abandon leaves the claim to the end of its lease, because the outcome is unknown.
func (r *run) abandon(status int, cause error) error {
	return r.whenIdle(func(bool) error {
		if _, lost := r.stop(); lost {
			return r.lostError()
		}
		r.emit(r.engine.cfg.Hooks.Unknown, status, cause)
		return nil
	})
}

// fail ends the run without an outcome. If the run has stored steps, or has some in progress, the failure does not say that
// the run had no effects.
func (r *run) fail(f driver.Failure, status int) error {
	return r.whenIdle(func(hadEffects bool) error {
		if hadEffects {
			f.NoEffects, f.NotRun = false, false
		}
		return r.finish(commit{hook: r.engine.cfg.Hooks.Failed, status: status, failure: &f})
	})
}

// result returns what the client gets after a commit that returned err. If the run has lost its claim, or may have, its
// response is not the outcome and is not sent, unless it was streamed and is sent already.
func (r *run) result(response *Response, err error) Result {
	switch {
	case response.Sent:
		return Result{}
	case errors.Is(err, driver.ErrGone):
		return r.refuse(codeRecordLost, 0)
	case errors.Is(err, ErrLost) && !errors.Is(err, ErrOutcomeUnknown):
		return r.refuse(codeClaimLost, 0)
	case err != nil: // also ErrOutcomeUnknown: a retry finds what became of the commit
		return r.refuseAfterRun(codeStoreUnavailable)
	}
	return r.decorateFirst(response)
}

// disposition returns what becomes of the key after a response. The handler's decision overrides the policy, except that a
// hijacked connection has no response to keep (MTH-07). Without a decision, three kinds of responses release the key: those of
// a hijacked connection, those of an event stream whose client has left, which is a subscription and not an outcome, and those
// to a request for which no route was found.
func (r *run) disposition(response *Response) Disposition {
	decision, decided := r.ownDecision()
	endless := response.Unfinished && isEventStream(response)
	switch {
	case response.Hijacked && decision == Keep, (endless || response.Unrouted) && !decided: // Keep if nothing is decided
		return Release
	case decided:
		return decision
	}
	return r.engine.cfg.Keep.Policy(response).known()
}

// released is how the claim of r ends when its handler had no effects. The attempt of a task is given back: it was not
// handled, as when a database is unavailable.
func (r *run) released(response *Response) driver.Failure {
	failure := driver.Failure{Cause: "status " + strconv.Itoa(response.Status), NoEffects: true, NotRun: r.isTask}
	if r.releaseErr != nil {
		failure.Cause = truncate(r.releaseErr.Error(), driver.MaxCauseBytes)
	}
	return failure
}

// handlerEnded is called when the handler has returned, or panicked, or a hook has panicked before the handler had begun. It
// fails a run that nobody has settled. No panic is recovered here, so the stack reaches the recovery outside.
func (r *run) handlerEnded(hasBegun bool) {
	if r.isStreaming {
		return
	}
	defer r.endSessionUnlessHeld()
	switch {
	case r.isEnded:
	case hasBegun:
		r.endIncomplete("handler panicked")
	default:
		r.ending = endingOf(Release, r.fail(driver.Failure{Cause: "a hook panicked", NoEffects: true, NotRun: true}, 0))
	}
}

// whenIdle calls end when nothing is in progress in the run. If something is, it returns nil at once: the claim is held and end is
// called in the background, since the client need not wait for a run that stores no outcome. hadEffects is whether the store has
// results of steps, or something was in progress that may have had effects, even if it has failed since.
func (r *run) whenIdle(end func(hadEffects bool) error) error {
	r.isEnded = true // even if a hook panics now
	busy := r.closeIfIdle()
	if busy == nil {
		return end(r.hasEffects())
	}
	r.isHeld = true
	r.engine.inflight.Go(func(int) {
		defer r.endSession()
		r.awaitIdle(busy)
		_ = end(true)
	})
	return nil
}

// endLater ends the run when its stream ends. first.Later gets the function that does so, and may call it from any goroutine; the
// lease is renewed until then. If Later panics, nobody can end the run, so it counts as broken off.
func (r *run) endLater(first *Response) {
	var isTaken atomic.Bool
	route := first.Route // the function below must not hold first: an adapter finds out that nobody reads a stream when it is collected
	r.engine.inflight.Add()
	r.isStreaming = true
	isGiven := false
	defer func() {
		if !isGiven && isTaken.CompareAndSwap(false, true) {
			r.isStreaming = false
			r.engine.inflight.Done()
		}
	}()
	first.Later(func(response *Response, err error) {
		if !isTaken.CompareAndSwap(false, true) {
			return
		}
		defer r.engine.inflight.Done()
		defer func() { r.done(&Result{}, route) }()
		defer r.endSessionUnlessHeld()
		defer r.endUnlessEnded()
		if err != nil || r.isBrokenOff(response) {
			r.endIncomplete("the answer broke off")
			return
		}
		_, _ = r.settle(response, nil)
	})
	isGiven = true
}

// endUnlessEnded ends a run whose policy or codec panicked at the end of a stream, before the store was called.
func (r *run) endUnlessEnded() {
	if !r.isEnded {
		r.endIncomplete("the end of the answer panicked")
	}
}

// isBrokenOff reports whether a stream whose client has left is to be run again. It is not if the handler has decided what becomes
// of the key, nor if it is an event stream, which has no other end.
func (r *run) isBrokenOff(response *Response) bool {
	_, decided := r.ownDecision()
	return response.Unfinished && !decided && !isEventStream(response)
}
