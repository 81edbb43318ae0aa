package idem

import (
	"context"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/go-idem/idem/core"
)

// exchange is one request and its response.
type exchange struct {
	ctx      *fiber.Ctx
	template core.Request // the functions by which the engine reads the request
	run      func(context.Context) (*core.Response, error)
	response handlerResponse // what the handlers leave; empty for a replay

	// The first call of header, which reads the key, puts its result into valueBuffer. That saves an allocation.
	valueBuffer  [1]string
	isBufferUsed bool
}

// newExchange returns the exchange of c under the options o.
func newExchange(c *fiber.Ctx, o *options) *exchange {
	x := &exchange{ctx: c}
	x.template = core.Request{Header: x.header, Body: x.body}
	if o.scope != nil {
		x.template.Scope = func() string {
			defer hideTrailers(&x.ctx.Request().Header)()
			return strings.Clone(o.scope(x.ctx)) // Fiber's strings change with the next request.
		}
	}
	x.run = func(ctx context.Context) (*core.Response, error) { return x.response.run(ctx, x.ctx, &o.keep) }
	return x
}

// do runs the request under e and writes the engine's response into the Fiber context. If the request is bypassed, the caller
// runs the handlers. If the handlers panic or the engine returns an error, do removes what they left of a response, because
// middleware outside that recovers or handles err writes a response of its own.
func (x *exchange) do(e *core.Engine) (isBypassed bool, err error) {
	c, hasResult := x.ctx, false
	ctx, own := clientContextOf(c)
	defer func() {
		if !hasResult {
			x.response.resetResponse(c.Response())
		}
		if !hasResult || !x.response.isStream {
			own.detach()
		}
	}()
	x.response.clientCtx = own
	result, err := e.Do(ctx, x.request(), x.run)
	hasResult = err == nil
	if result.Response != nil {
		x.response.send(c, result.Response)
		if c.Request().IsBodyStream() { // fasthttp would take the unread rest of the body for the next request.
			c.Context().SetConnectionClose()
		}
	}
	return result.Bypassed, err
}
