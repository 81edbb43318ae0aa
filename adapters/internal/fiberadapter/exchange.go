package fiberadapter

import (
	"context"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
)

// exchange is one request and its response. The run of a stream holds it until the stream ends, when Fiber may
// already use its context for another request: see Middleware.
type exchange[C any] struct {
	version  *Version[C]
	ctx      C
	fasthttp *fasthttp.RequestCtx // that of ctx
	template core.Request         // the functions by which the engine reads the request
	run      func(context.Context) (*core.Response, error)
	response handlerResponse // what the handlers leave; empty for a replay

	// The first call of header, which reads the key, puts its result into valueBuffer. That saves an allocation.
	valueBuffer  [1]string
	isBufferUsed bool
}

// newExchange returns the exchange of c under the options o. The scope is read without the trailers of the request (KEY-19), as
// the key is, so that no trailer can name another scope.
func (v *Version[C]) newExchange(c C, o *Options[C]) *exchange[C] {
	x := &exchange[C]{version: v, ctx: c, fasthttp: v.RequestCtx(c)}
	x.template = core.Request{Header: x.header, Body: x.body}
	if o.Scope != nil {
		x.template.Scope = func() string {
			defer hideTrailers(&x.fasthttp.Request.Header)()
			return strings.Clone(o.Scope(x.ctx)) // Fiber's strings change with the next request.
		}
	}
	x.run = func(ctx context.Context) (*core.Response, error) { return x.runHandlers(ctx, o.Keep.MaxBody) }
	return x
}

// do runs the request under e and writes the engine's response into the Fiber context. If the request is bypassed, the caller
// runs the handlers. If the handlers panic or the engine returns an error, do removes what they left of a response, because
// middleware outside that recovers or handles err writes a response of its own.
func (x *exchange[C]) do(e *core.Engine) (isBypassed bool, err error) {
	c, hasResult := x.fasthttp, false
	ctx, own := clientContextOf(x.version.Context(x.ctx), c)
	defer func() {
		if !hasResult {
			x.response.resetResponse(&c.Response)
		}
		if outlives := x.response.isStream && !x.version.Reuses || x.response.isTimedOut; !hasResult || !outlives {
			own.detach()
		}
	}()
	x.response.clientCtx = own
	result, err := e.Do(ctx, x.request(), x.run)
	hasResult = err == nil
	if result.Response != nil { // not if fasthttp sends the response of a stream, a hijack or a timeout
		x.response.send(c, result.Response)
		if c.Request.IsBodyStream() { // fasthttp would take the unread rest of the body for the next request.
			c.SetConnectionClose()
		}
	}
	return result.Bypassed, err
}
