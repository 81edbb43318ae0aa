package core

import (
	"context"
	"errors"
)

// ErrOutcomeUnknown is what a LeaseConfig.OnUnknown returns when it can not tell what became of a run.
var ErrOutcomeUnknown = errors.New("idem: outcome unknown")

// RefuseUnknown is a LeaseConfig.OnUnknown for operations that must rather stay open than happen twice: no run follows one
// that vanished, and requests are refused with 409 outcome-unknown until the retention ends (LSE-02).
func RefuseUnknown(context.Context, *Request) (*Response, error) { return nil, ErrOutcomeUnknown }

// resolve answers a request whose key was claimed by a run that vanished. What OnUnknown finds out is settled like the
// outcome of a run, under a claim that takes over, so that of many who ask one settles it.
func (e *Engine) resolve(ctx context.Context, req *Request, claim *Claim, vanished int64, run handler) (Result, error) {
	found, err := e.cfg.Lease.OnUnknown(context.WithValue(ctx, claimKey{}, claim), req)
	if err == nil && found != nil && !isAnswer(found) {
		err = errNoResponse
	}
	e.cfg.Hooks.Unknown.call(ctx, req, claim, 0, err)
	if err != nil {
		return e.refusals.result(codeOutcomeUnknown, 0), nil
	}
	if found != nil {
		run = func(ctx context.Context) (*Response, error) {
			Decide(ctx, Keep)
			return found, nil
		}
	}
	claim.Over = vanished // what was found is about that run, and no later one
	return e.begin(ctx, req, claim, run)
}
