package idem

import (
	"context"
	"errors"
	"strings"

	"github.com/gofiber/fiber/v2"
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
	isStream      bool           // the run lasts until the response's stream ends
	clientCtx     *clientContext // to be detached at the end of the run; nil if nothing is to be detached
}

// run runs the handlers after the middleware under ctx and returns their response for the engine. Two kinds of response count as
// sent, because fasthttp sends them whatever becomes of the claim: that of a timeout, and that of a hijacked connection. A stream
// that is too long to be read now ends the run later, when fasthttp has sent it.
func (a *handlerResponse) run(ctx context.Context, c *fiber.Ctx, keep *core.KeepConfig) (*core.Response, error) {
	c.Response().Header.CopyTo(&a.outer)
	a.ran = true
	isUnrouted := runHandlers(ctx, c)
	r, response, isSent := &a.response, c.Response(), c.Context().Hijacked()
	r.Hijacked, r.Unrouted = isSent, isUnrouted
	if !isUnrouted { // Only now does Fiber know the route: before, it is that of the middleware.
		r.Route = c.Route().Path
	}
	if timedOut := c.Context().LastTimeoutErrorResponse(); timedOut != nil {
		response, isSent = timedOut, true
		core.Decide(ctx, core.LeaveUnknown) // The handler that was timed out still works.
	}
	r.Status = response.StatusCode()
	isStream := hasBody(r.Status) && !isSent && response.IsBodyStream()
	isTyped := isSent || isStream
	if isStream && !response.SkipBody {
		if err := bufferStream(response, keep.MaxBody); err != nil {
			return nil, err
		}
		isStream = response.IsBodyStream()
	}
	if hasBody(r.Status) && !isSent && !isStream {
		r.Body = response.Body()
	}
	bypassesEngine := isSent || isStream && !response.SkipBody
	setEngineFields(ctx, c, &response.Header, bypassesEngine)
	a.noteChanges(&response.Header, isTyped || len(r.Body) > 0)
	if isStream && !response.SkipBody {
		return a.endWithStream(response, keep.MaxBody), nil
	}
	r.Omitted = isStream // With SkipBody, nobody reads the stream.
	if isSent {
		r.Sent, r.Omitted, r.Unfinished = true, true, true
	}
	return r, nil
}

// runHandlers runs the handlers under ctx, and the app's ErrorHandler if they return an error. It reports whether Fiber's router
// found no handler. UserContext and ContextKey are as before when it returns.
func runHandlers(ctx context.Context, c *fiber.Ctx) (isUnrouted bool) {
	outer := c.UserContext()
	outerRun := c.Context().UserValue(driver.ContextKey)
	c.SetUserContext(ctx)
	c.Context().SetUserValue(driver.ContextKey, ctx)
	defer func() {
		c.SetUserContext(outer)
		c.Context().SetUserValue(driver.ContextKey, outerRun)
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

// isRouterError reports whether err is the one that Fiber's router returns when it finds no handler.
func isRouterError(c *fiber.Ctx, err error) bool {
	notFound := (*fiber.Error)(nil)
	if errors.As(err, &notFound) && notFound.Code == fiber.StatusNotFound {
		return strings.HasPrefix(notFound.Message, "Cannot "+c.Method()+" /")
	}
	return errors.Is(err, fiber.ErrMethodNotAllowed) && len(c.Response().Header.Peek(fiber.HeaderAllow)) > 0
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
