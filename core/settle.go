package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	errSilent     = fmt.Errorf("%w: no extension was confirmed for a whole lease", ErrLost)
	errAway       = fmt.Errorf("%w: the store took nothing for another lease", ErrLost)
	errLate       = fmt.Errorf("%w: begin was answered after the lease", ErrLost)
	errNoResponse = errors.New("idem: run returned neither an error nor a response with a status from 100 to 999")
)

// settlement is the end of one run: its claim is completed or failed, on a context that outlives the client.
type settlement struct {
	engine *Engine
	keeper *keeper
	ctx    context.Context
	req    *Request
	claim  *Claim
}

func isAnswer(r *Response) bool {
	return r != nil && (r.Hijacked || r.Status >= 100 && r.Status <= 999)
}

// settle takes what the handler left, stores what the policy says, and returns what the client is to see. The answer is
// held back until it is kept.
func (s *settlement) settle(r *Response, err error) (Result, error) {
	if err == nil && !isAnswer(r) {
		err = errNoResponse
	}
	if err != nil {
		_ = s.fail(Failure{Cause: "handler returned an error"}, 0)
		return Result{}, err
	}
	keep := &s.engine.cfg.Keep
	r.Omitted = r.Omitted || len(r.Body) > keep.MaxBody
	switch s.engine.disposition(r, s.keeper.decision.Load()) {
	case Retry:
		err = s.fail(Failure{Cause: "status " + strconv.Itoa(r.Status)}, r.Status)
	case LeaveUnknown:
		err = s.abandon(r.Status, ErrOutcomeUnknown)
	case Release:
		err = s.fail(Failure{Cause: "status " + strconv.Itoa(r.Status), Free: true}, r.Status)
	default:
		r.Omitted = r.Omitted || keep.OmitBody != nil && keep.OmitBody(r)
		err = s.complete(r)
	}
	return s.result(r, err), nil
}

func (s *settlement) complete(r *Response) error {
	header := keptHeader(r, s.engine.cfg.Keep.Marker)
	outcome := encodeOutcome(&Response{Status: r.Status, Header: header, Removed: keptRemovals(r), Body: r.Body, Omitted: r.Omitted})
	return s.finish(s.engine.cfg.Hooks.Kept, r.Status, nil, func(ctx context.Context) error {
		return s.engine.cfg.Store.Complete(ctx, *s.claim, outcome)
	})
}

// panicked ends a run that did not return. Who asks about unknown outcomes is asked about this one, when its lease is over.
func (s *settlement) panicked() {
	cause := Failure{Cause: "handler panicked"}
	if s.engine.cfg.Lease.OnUnknown == nil {
		_ = s.fail(cause, 0)
		return
	}
	_ = s.abandon(0, errors.New(cause.Cause))
}

// abandon leaves the claim to the end of its lease: nobody knows the outcome.
func (s *settlement) abandon(status int, cause error) error {
	if _, lost := s.keeper.stop(); lost {
		return ErrLost
	}
	s.engine.cfg.Hooks.Unknown.call(s.ctx, s.req, s.claim, status, cause)
	return nil
}

// fail ends the run without an outcome.
func (s *settlement) fail(f Failure, status int) error {
	return s.finish(s.engine.cfg.Hooks.Failed, status, errors.New(f.Cause), func(ctx context.Context) error {
		return s.engine.cfg.Store.Fail(ctx, *s.claim, f)
	})
}

// result is what the client sees after err of the final verb. The answer of a run that lost its claim, or may have, is
// not the outcome and is never shown as one, unless it was streamed and is out already.
func (s *settlement) result(r *Response, err error) Result {
	switch {
	case r.Sent:
		return Result{}
	case errors.Is(err, ErrLost):
		return s.engine.refusals.result(codeClaimLost, 0)
	case err != nil:
		return s.engine.refusals.result(codeStoreUnavailable, 0)
	}
	return s.engine.unmarked(r)
}

// unmarked sends an answer of a handler, who can not set the marker (RPL-25).
func (e *Engine) unmarked(r *Response) Result {
	r.Header = slices.DeleteFunc(r.Header, func(f Field) bool { return strings.EqualFold(f.Name, e.cfg.Keep.Marker) })
	return Result{Response: r}
}

// finish stops the keeper and sends the final verb. When the store is away, the verb is sent again behind the client's back
// for another lease: a retry meets the running claim meanwhile, and once another run has the key the store refuses it. The
// client gets its answer, a nil error, only while the lease is known to last.
func (s *settlement) finish(done Hook, status int, cause error, verb func(context.Context) error) error {
	leaseEnd, lost := s.keeper.stop()
	err := s.try(done, status, cause, lost, verb)
	if err == nil || errors.Is(err, ErrLost) {
		return err
	}
	s.engine.late.run(func() {
		time.Sleep(firstPause)
		ended := s.engine.again(time.Now().Add(s.claim.Lease), func() bool {
			err := s.try(done, status, cause, lost, verb)
			return err == nil || errors.Is(err, ErrLost)
		})
		if !ended {
			s.engine.cfg.Hooks.Lost.call(s.ctx, s.req, s.claim, status, errAway)
		}
	})
	if lost || time.Until(leaseEnd) <= 0 {
		return err
	}
	return nil
}

// try sends the final verb once and tells the hooks.
func (s *settlement) try(done Hook, status int, cause error, lost bool, verb func(context.Context) error) error {
	err := s.engine.call(s.ctx, verb)
	hooks := &s.engine.cfg.Hooks
	switch {
	case err == nil:
		done.call(s.ctx, s.req, s.claim, status, cause)
	case !errors.Is(err, ErrLost):
		hooks.StoreError.call(s.ctx, s.req, s.claim, status, err)
	case !lost: // the keeper has not said so
		hooks.Lost.call(s.ctx, s.req, s.claim, status, err)
	}
	return err
}
