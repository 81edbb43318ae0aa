package fiberadapter

import (
	"bytes"
	"context"

	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

// handlerResponse is the response that the handlers leave in the Fiber context. It stays there, because fasthttp sends nothing
// before the middleware returns.
type handlerResponse struct {
	outer         fasthttp.ResponseHeader // the header as it was before the handlers
	response      core.Response
	fieldBuffer   [8]core.Field  // the array of response.Header, unless that is longer; it saves an allocation
	handlerFields int            // how many fields of response.Header are the handlers' own
	ran           bool           // the handlers were called
	isTimedOut    bool           // others use Fiber's context: a handler, or what timed it out
	isStream      bool           // the run lasts until the response's stream ends
	clientCtx     *clientContext // to be detached at the end of the run; nil if nothing is to be detached
}

// runHandlers runs the handlers after the middleware under ctx and returns their response for the engine. It asks for a timeout
// again after capture, because a middleware that timed the request out meanwhile may have written over what capture has read.
func (x *exchange[C]) runHandlers(ctx context.Context, limit int) (*core.Response, error) {
	x.fasthttp.Response.Header.CopyTo(&x.response.outer)
	x.response.ran = true
	isUnrouted, timedOut := x.callHandlers(ctx)
	if timedOut == nil {
		r, err := x.capture(ctx, limit, isUnrouted)
		if timedOut = x.version.TimedOut(ctx, x.ctx); timedOut == nil {
			return r, err
		}
	}
	return x.leaveUnknown(ctx, timedOut), nil
}

// capture returns the response that the handlers have left. That of a hijacked connection counts as sent, because fasthttp sends
// it whatever becomes of the claim. A stream that is too long to be read now ends the run later, when fasthttp has sent it.
func (x *exchange[C]) capture(ctx context.Context, limit int, isUnrouted bool) (*core.Response, error) {
	a, response, isSent := &x.response, &x.fasthttp.Response, x.fasthttp.Hijacked()
	r := &a.response
	r.Hijacked, r.Unrouted, r.Status = isSent, isUnrouted, response.StatusCode()
	if !isUnrouted { // Only now does Fiber know the route: before, it is that of the middleware.
		r.Route = x.version.Route(x.ctx)
	}
	isStream := hasBody(r.Status) && !isSent && response.IsBodyStream()
	isTyped := isSent || isStream
	if isStream && !response.SkipBody {
		if err := bufferStream(response, limit); err != nil {
			return nil, err
		}
		isStream = response.IsBodyStream()
	}
	if hasBody(r.Status) && !isSent && !isStream {
		r.Body = x.bodyOf(ctx, response)
	}
	bypassesEngine := isSent || isStream && !response.SkipBody
	x.setEngineFields(ctx, &response.Header, bypassesEngine)
	a.noteChanges(&response.Header, isTyped || len(r.Body) > 0)
	if isStream && !response.SkipBody {
		return a.endWithStream(response, limit), nil
	}
	r.Omitted = isStream || x.version.Ends && isStreamSent(response) // With SkipBody, nobody reads the stream.
	if isSent {
		r.Sent, r.Omitted, r.Unfinished = true, true, true
	}
	return r, nil
}

// isStreamSent reports whether a handler may have sent the stream of response itself: the length is still there, and the bytes
// are not. An empty stream that a middleware inside has read looks the same.
func isStreamSent(response *fasthttp.Response) bool {
	return hasBody(response.StatusCode()) && !response.SkipBody && !response.IsBodyStream() &&
		response.Header.ContentLength() != 0 && len(response.Body()) == 0
}

// bodyOf returns the body of a response. It is a copy if the deadline of a middleware outside may end the request: that
// middleware would write its own response into the same memory.
func (x *exchange[C]) bodyOf(ctx context.Context, response *fasthttp.Response) []byte {
	if _, mayEnd := ctx.Deadline(); mayEnd && x.version.Reuses {
		return bytes.Clone(response.Body())
	}
	return response.Body()
}

// leaveUnknown ends the run of a request that was timed out. fasthttp sends timedOut, the response of the middleware that did
// that, whatever becomes of the claim. The handler still works, or that middleware has written over its response.
func (x *exchange[C]) leaveUnknown(ctx context.Context, timedOut *fasthttp.Response) *core.Response {
	core.Decide(ctx, core.LeaveUnknown)
	x.setEngineFields(ctx, &timedOut.Header, true)
	x.response.isTimedOut = true
	x.response.response = core.Response{Status: timedOut.StatusCode(), Sent: true, Omitted: true, Unfinished: true}
	return &x.response.response
}

// callHandlers calls the handlers under ctx, and the app's ErrorHandler if they return an error. It reports whether Fiber's
// router found no handler. If a middleware timed the request out, callHandlers returns the response of that middleware, and
// leaves Fiber's context alone. Otherwise the context of the request and ContextKey are as before.
func (x *exchange[C]) callHandlers(ctx context.Context) (isUnrouted bool, timedOut *fasthttp.Response) {
	v, c := x.version, x.ctx
	outer := v.Context(c)
	outerRun := x.fasthttp.UserValue(driver.ContextKey)
	v.SetContext(c, ctx)
	x.fasthttp.SetUserValue(driver.ContextKey, ctx)
	defer func() {
		if timedOut == nil {
			v.SetContext(c, outer)
			x.fasthttp.SetUserValue(driver.ContextKey, outerRun)
		}
	}()
	err := v.Next(c)
	if timedOut = v.TimedOut(ctx, c); timedOut != nil || err == nil {
		return false, timedOut
	}
	isUnrouted = v.IsUnrouted(c, err)
	if v.HandleError(c, err) != nil {
		v.SendError(c)
	}
	return isUnrouted, nil
}

// endWithStream makes the run last until the response's stream ends. It returns the response that tells the engine so: the engine
// calls Later with the function that ends the run, and stream.settle calls that function.
func (a *handlerResponse) endWithStream(response *fasthttp.Response, limit int) *core.Response {
	a.isStream = true
	s := wrapStream(response, limit, a.response)
	s.clientCtx = a.clientCtx
	return &core.Response{
		Status: a.response.Status, Sent: true, Route: a.response.Route,
		Later: func(end func(*core.Response, error)) { s.end = end },
	}
}

// resetResponse removes what the handlers left in response. The header is then as it was before them. It leaves the response of a
// middleware that timed the request out, and a response that the handlers have not touched because they did not run.
func (a *handlerResponse) resetResponse(response *fasthttp.Response) {
	if a.ran && !a.isTimedOut {
		a.outer.CopyTo(&response.Header)
		response.ResetBody()
		response.SkipBody, response.ImmediateHeaderFlush = false, false
	}
}

// hasBody reports whether a response with this status may have a body (RFC 9110, section 6.4.1).
func hasBody(status int) bool {
	return status >= 200 && status != fasthttp.StatusNoContent && status != fasthttp.StatusNotModified
}
