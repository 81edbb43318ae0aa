// Package idem puts an engine in front of Echo handlers.
package idem

import (
	"context"
	"net/http"
	"reflect"

	"github.com/labstack/echo/v4"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
)

// Option changes how Echo reads a request.
type Option func(*options)

type options struct {
	scope func(echo.Context) string
	skip  func(echo.Context) bool
}

// Scope takes the scope of a key from the Echo context, in place of Config.Scope.
func Scope(f func(echo.Context) string) Option { return func(o *options) { o.scope = f } }

// Skip lets requests for which f is true pass by the engine.
func Skip(f func(echo.Context) bool) Option { return func(o *options) { o.skip = f } }

// Echo returns a middleware that runs handlers under e. Put it behind middleware.Recover, authentication and rate limits,
// and inside compression. An error that the handler returns becomes its answer through the HTTPErrorHandler here, before
// it is kept; middleware outside sees the answer, not the error.
func Echo(e *core.Engine, opts ...Option) echo.MiddlewareFunc {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	keep := e.Config().Keep
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if o.skip != nil && o.skip(c) {
				return next(c)
			}
			x := capture.NewExchange(c.Request())
			x.TooLarge = echo.ErrStatusRequestEntityTooLarge // middleware.BodyLimit
			req := x.Request()
			if o.scope != nil {
				req.Scope = func() string { return o.scope(c) }
			}
			result, err := e.Do(c.Request().Context(), req, func(ctx context.Context) (*core.Response, error) {
				return run(ctx, c, x, keep, next)
			})
			switch {
			case result.Bypassed:
				return next(c)
			case result.Response != nil:
				return x.Send(c.Response(), result.Response)
			}
			return err
		}
	}
}

// run runs next with r, holding its answer back. It gets an echo.Response of its own, because functions that were
// registered on the outer one with Before are for the answer when it is sent, not when it is held.
func run(ctx context.Context, c echo.Context, x *capture.Exchange, keep core.KeepConfig, next echo.HandlerFunc) (*core.Response, error) {
	outer, request, r := c.Response(), c.Request(), x.RequestWithContext(ctx)
	held := x.NewWriter(ctx, informationalWriter{outer}, keep)
	inner := echo.NewResponse(held, c.Echo())
	inner.Status = http.StatusOK
	c.SetResponse(inner)
	c.SetRequest(r)
	defer func() {
		c.SetResponse(outer)
		c.SetRequest(request)
		x.Finish(r)
	}()
	if err := next(c); err != nil {
		c.Error(err)
		if held.Size() < 0 { // the error handler has no answer either
			return nil, err
		}
	}
	response := held.Response()
	response.Unrouted = isRouterHandler(c.Handler()) || isRouterHandler(next)
	return response, nil
}

// isRouterHandler tells whether h is what Echo's router puts in the place of a handler that it has not found.
func isRouterHandler(h echo.HandlerFunc) bool {
	p := reflect.ValueOf(h).Pointer()
	return p == reflect.ValueOf(echo.NotFoundHandler).Pointer() || p == reflect.ValueOf(echo.MethodNotAllowedHandler).Pointer()
}

// informationalWriter sends informational answers past Echo's response, which takes the first status for the final one.
type informationalWriter struct{ *echo.Response }

func (i informationalWriter) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		i.Writer.WriteHeader(status)
		return
	}
	i.Response.WriteHeader(status)
}
