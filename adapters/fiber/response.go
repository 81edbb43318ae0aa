package idem

import (
	"context"
	"errors"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
)

// handlerResponse is what the handlers leave in the Fiber context. It stays there, for nothing is sent before the middleware returns.
type handlerResponse struct {
	outer         fasthttp.ResponseHeader // as it was before the handlers
	response      core.Response
	lines         [8]core.Field  // memory for those of most responses
	handlerFields int            // how many lines of the response are the handlers'
	ran           bool           // the handlers, up to their end or not
	isStream      bool           // it goes on when the middleware has returned
	clientCtx     *clientContext // whose request it is; nil where no care is needed
}

// run runs the handlers behind the middleware, and says what they have left in the Fiber context. A timeout or a hijacked
// connection counts as sent: fasthttp sends it whatever becomes of the claim.
func (a *handlerResponse) run(ctx context.Context, c *fiber.Ctx, keep *core.KeepConfig) (*core.Response, error) {
	c.Response().Header.CopyTo(&a.outer)
	a.ran = true
	isUnrouted := runHandlers(ctx, c)
	r, response, isSent := &a.response, c.Response(), c.Context().Hijacked()
	r.Hijacked, r.Unrouted = isSent, isUnrouted
	if late := c.Context().LastTimeoutErrorResponse(); late != nil {
		response, isSent = late, true
		core.Decide(ctx, core.LeaveUnknown) // who had to be timed out still works
	}
	r.Status = response.StatusCode()
	streams := hasBody(r.Status) && !isSent && response.IsBodyStream()
	isTyped := isSent || streams
	if streams && !response.SkipBody {
		if err := bufferStream(response, keep.MaxBody); err != nil {
			return nil, err
		}
		streams = response.IsBodyStream()
	}
	if hasBody(r.Status) && !isSent && !streams {
		r.Body = response.Body()
	}
	deleteMarker(c, &response.Header, keep.Marker)
	a.noteChanges(&response.Header, isTyped || len(r.Body) > 0)
	if streams && !response.SkipBody {
		markUnprotected(ctx, response)
		return a.endWithStream(response, keep.MaxBody), nil
	}
	r.Omitted = streams // which nobody reads
	if isSent {
		markUnprotected(ctx, response)
		r.Sent, r.Omitted, r.Unfinished = true, true, true
	}
	return r, nil
}

// runHandlers runs the handlers under ctx, those of errors included, and tells whether Fiber's router has found none.
func runHandlers(ctx context.Context, c *fiber.Ctx) (isUnrouted bool) {
	client := c.UserContext()
	around := c.Context().UserValue(core.ContextKey)
	c.SetUserContext(ctx)
	c.Context().SetUserValue(core.ContextKey, ctx)
	defer func() {
		c.SetUserContext(client)
		c.Context().SetUserValue(core.ContextKey, around)
	}()
	err := c.Next()
	if err == nil {
		return false
	}
	isUnrouted = isRouterError(c, err)
	if c.App().ErrorHandler(c, err) != nil {
		_ = c.SendStatus(fiber.StatusInternalServerError)
	}
	return isUnrouted
}

// isRouterError tells of an error whether Fiber's router has made it, which has found no handler.
func isRouterError(c *fiber.Ctx, err error) bool {
	notFound := (*fiber.Error)(nil)
	if errors.As(err, &notFound) && notFound.Code == fiber.StatusNotFound {
		return strings.HasPrefix(notFound.Message, "Cannot "+c.Method()+" /")
	}
	return errors.Is(err, fiber.ErrMethodNotAllowed) && len(c.Response().Header.Peek(fiber.HeaderAllow)) > 0
}

// markUnprotected says of an answer that the engine does not send whether its run had no claim.
func markUnprotected(ctx context.Context, response *fasthttp.Response) {
	if run, _ := core.FromContext(ctx); run.Unprotected {
		response.Header.Set("Idempotent-Unprotected", "true")
	}
}

// endWithStream leaves the end of the run to the stream of response.
func (a *handlerResponse) endWithStream(response *fasthttp.Response, limit int) *core.Response {
	a.isStream = true
	s := wrapStream(response, limit, a.response)
	s.clientCtx = a.clientCtx
	return &core.Response{Status: a.response.Status, Sent: true, Later: func(end func(*core.Response, error)) { s.end = end }}
}

// resetResponse leaves of the handlers' answer nothing in the response.
func (a *handlerResponse) resetResponse(response *fasthttp.Response) {
	if a.ran {
		a.outer.CopyTo(&response.Header)
		response.ResetBody()
		response.SkipBody, response.ImmediateHeaderFlush = false, false
	}
}

// hasBody reports whether a response with this status may have a body (RFC 9110, section 6.4.1).
func hasBody(status int) bool {
	return status >= 200 && status != fiber.StatusNoContent && status != fiber.StatusNotModified
}
