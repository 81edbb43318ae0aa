package fiberadapter

import (
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
	isTimedOut    bool           // a handler still works, and uses Fiber's context and the response in it
	isStream      bool           // the run lasts until the response's stream ends
	clientCtx     *clientContext // to be detached at the end of the run; nil if nothing is to be detached
}

// runHandlers runs the handlers after the middleware under ctx and returns their response for the engine. Two kinds of response
// count as sent, because fasthttp sends them whatever becomes of the claim: that of a timeout, and that of a hijacked connection.
// A stream that is too long to be read now ends the run later, when fasthttp has sent it.
func (x *exchange[C]) runHandlers(ctx context.Context, limit int) (*core.Response, error) {
	a, c := &x.response, x.fasthttp
	c.Response.Header.CopyTo(&a.outer)
	a.ran = true
	isUnrouted, timedOut := x.callHandlers(ctx)
	r, response, isSent := &a.response, &c.Response, timedOut == nil && c.Hijacked()
	r.Hijacked, r.Unrouted = isSent, isUnrouted
	switch {
	case timedOut != nil:
		response, isSent, a.isTimedOut = timedOut, true, true
		core.Decide(ctx, core.LeaveUnknown) // The handler that was timed out still works.
	case !isUnrouted: // Only now does Fiber know the route: before, it is that of the middleware.
		r.Route = x.version.Route(x.ctx)
	}
	r.Status = response.StatusCode()
	isStream := hasBody(r.Status) && !isSent && response.IsBodyStream()
	isTyped := isSent || isStream
	if isStream && !response.SkipBody {
		if err := bufferStream(response, limit); err != nil {
			return nil, err
		}
		isStream = response.IsBodyStream()
	}
	if hasBody(r.Status) && !isSent && !isStream {
		r.Body = response.Body()
	}
	bypassesEngine := isSent || isStream && !response.SkipBody
	x.setEngineFields(ctx, &response.Header, bypassesEngine)
	a.noteChanges(&response.Header, isTyped || len(r.Body) > 0)
	if isStream && !response.SkipBody {
		return a.endWithStream(response, limit), nil
	}
	r.Omitted = isStream // With SkipBody, nobody reads the stream.
	if isSent {
		r.Sent, r.Omitted, r.Unfinished = true, true, true
	}
	return r, nil
}

// callHandlers calls the handlers under ctx, and the app's ErrorHandler if they return an error. It reports whether Fiber's
// router found no handler. If a middleware timed a handler out, callHandlers returns the response of that middleware, and leaves Fiber's
// context to the handler, which still works. Otherwise the context of the request and ContextKey are as before.
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

// endWithStream makes the run last until the response's stream ends. It returns the response that tells the engine so.
func (a *handlerResponse) endWithStream(response *fasthttp.Response, limit int) *core.Response {
	a.isStream = true
	s := wrapStream(response, limit, a.response)
	s.clientCtx = a.clientCtx
	return &core.Response{
		Status: a.response.Status, Sent: true, Route: a.response.Route,
		Later: func(end func(*core.Response, error)) { s.end = end },
	}
}

// resetResponse removes what the handlers left in response. The header is then as it was before them.
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
