package core

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-idem/idem/core/internal/sfv"
)

// askOnReplay calls Keep.OnReplay, if it is set, with a copy of the stored response, and returns what is to be sent. It returns
// the code of a problem if the replay is refused. Keep.OnReplay is for requests: a task gets what is stored.
func (op *operation) askOnReplay(stored *Response) (response *Response, problem string, err error) {
	onReplay := op.engine.cfg.Keep.OnReplay
	if onReplay == nil || op.isTask {
		return stored, "", nil
	}
	ctx := op.engine.timers.WithDeadline(op.contextWithoutRun(), time.Now().Add(op.engine.cfg.Limits.StoreTimeout))
	defer ctx.Cancel()
	response, err = onReplay(ctx, &op.req, stored.copy())
	switch {
	case err != nil:
		return nil, codeReplayUnavailable, err
	case response == nil:
		return nil, codeReplayRefused, nil
	case !isFinalResponse(response) && (response.Hijacked || response.Status != stored.Status): // Fiber can send, and store, a 1xx
		return nil, codeReplayUnavailable, errNotFinal
	}
	return op.engine.sendable(response), "", nil
}

// contextWithoutRun returns the context of a function that belongs to the operation and to no run. The function can derive child
// keys, and read the body of the request.
func (op *operation) contextWithoutRun() context.Context {
	op.identify()
	body := op.body
	op.req.Body = func(int64) ([]byte, error) { return body, nil }
	return in(op.ctx, place{keyed: &op.keyed})
}

// copy returns a copy of what a stored response has. It shares no memory with r, which may be that of the store or of the cache.
func (r *Response) copy() *Response {
	return &Response{
		Status: r.Status, Header: slices.Clone(r.Header), Removed: slices.Clone(r.Removed), Body: slices.Clone(r.Body),
		Omitted: r.Omitted,
	}
}

// sendable returns what the engine sends of a response that Keep.OnReplay or Lease.OnUnknown has returned. The header fields that
// HTTP forbids to repeat, and those that only the engine sets, are left out. A body that is there is not omitted.
func (e *Engine) sendable(r *Response) *Response {
	own := r.copy()
	own.Omitted = r.Omitted && len(r.Body) == 0
	if !hasBody(r.Status) {
		own.Body = nil
	}
	hops := hopNames(r.Header)
	own.Header = slices.DeleteFunc(validFields(own.Header), func(f Field) bool {
		name := strings.ToLower(f.Name)
		return neverKept[name] || slices.Contains(hops, name) || e.cfg.isEngineField(name)
	})
	for i, name := range own.Removed {
		own.Removed[i] = http.CanonicalHeaderKey(name)
	}
	return own
}

// validFields returns a copy of the header fields of a response that no handler has written. Names that are none are left out,
// and the others are in canonical form, since net/http finds a Content-Type in no other. Values have no line breaks.
func validFields(fields []Field) []Field {
	own := slices.DeleteFunc(slices.Clone(fields), func(f Field) bool { return !sfv.IsToken(f.Name) })
	for i, f := range own {
		own[i] = Field{http.CanonicalHeaderKey(f.Name), withoutBreaks(f.Value)}
	}
	return own
}
