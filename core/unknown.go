package core

import "context"

// RefuseUnknown is a LeaseConfig.OnUnknown for operations that must rather stay open than happen twice. After a run that vanished
// the handler does not run again: requests are refused with 409 outcome-unknown until the retention ends (LSE-02), or until
// [Engine.Resolve] settles the outcome.
func RefuseUnknown(context.Context, *Request) (*Response, error) { return nil, ErrOutcomeUnknown }

// resolve asks Lease.OnUnknown what became of a run that vanished. It reports whether Begin is to be called again. If OnUnknown
// returns an outcome, a function that returns it takes the place of the handler, and runs under a claim that takes over. So only one
// of several requests stores the outcome.
func (op *operation) resolve(vanished int64) (again bool) {
	if !op.claim.NoTakeover || op.claim.TakeoverFence != 0 || vanished == 0 {
		return false
	}
	found, err := op.engine.cfg.Lease.OnUnknown(op.contextWithoutRun(), &op.req)
	if err == nil && found != nil && !isFinalResponse(found) {
		err = errNotFinal
	}
	op.emit(op.engine.cfg.Hooks.Unknown, 0, err)
	if err != nil {
		return false
	}
	if found != nil {
		op.found = found
		own := op.engine.ownCopy(found, op.isTask)
		op.handler = func(ctx context.Context) (*Response, error) {
			Decide(ctx, Keep)
			return own, nil
		}
	}
	op.claim.TakeoverFence = vanished // the answer is about that run, and no later one
	return true
}

// ownCopy returns what becomes the outcome of a response that Lease.OnUnknown, which may return one value for every request, or an
// operator has found. The fields of a task are not those of HTTP.
func (e *Engine) ownCopy(found *Response, isTask bool) *Response {
	own := found.copy()
	if !isTask {
		own = e.sendable(found)
		own.Omitted = found.Omitted
	}
	return own
}
