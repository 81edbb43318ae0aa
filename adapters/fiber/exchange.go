package idem

import (
	"context"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/go-idem/idem/core"
)

// exchange is one request on its way through the engine, and its answer on the way back.
type exchange struct {
	ctx      *fiber.Ctx
	template core.Request // what the engine reads of it by functions
	run      func(context.Context) (*core.Response, error)
	asked    bool            // for a header
	line     [1]string       // memory for the first header that is asked for
	response handlerResponse // of the handlers. A replay does without
}

func newExchange(c *fiber.Ctx, o *options) *exchange {
	x := &exchange{ctx: c}
	x.template = core.Request{Header: x.header, Body: x.body}
	if o.scope != nil {
		x.template.Scope = func() string {
			defer hideTrailers(&x.ctx.Request().Header)()
			return strings.Clone(o.scope(x.ctx)) // what Fiber returns is memory that is used again
		}
	}
	x.run = func(ctx context.Context) (*core.Response, error) { return x.response.run(ctx, x.ctx, &o.keep) }
	return x
}

// do lets an engine take the request, and writes what it answers.
func (x *exchange) do(e *core.Engine) (isBypassed bool, err error) {
	c, answered := x.ctx, false
	ctx, own := clientContextOf(c)
	defer func() {
		if !answered {
			x.response.resetResponse(c.Response()) // who recovers, or handles err, has an answer of its own
		}
		if !answered || !x.response.isStream {
			own.detach()
		}
	}()
	x.response.clientCtx = own
	result, err := e.Do(ctx, x.request(), x.run)
	answered = err == nil
	if result.Response != nil {
		x.response.send(c, result.Response)
		if c.Request().IsBodyStream() { // what nobody has read would be taken for the next request
			c.Context().SetConnectionClose()
		}
	}
	return result.Bypassed, err
}
