// Package idem makes Echo handlers idempotent: [Echo] is a middleware that runs them under a core.Engine.
//
//	e.Use(middleware.Recover(), authenticate)
//	e.POST("/payments", handler, idem.Echo(engine))
//
// # Where to put the middleware
//
// Put it after middleware.Recover, authentication and rate limits, so that the last two refuse a request before the
// engine looks at its key. Put it inside compression and CORS, so that both make their header fields anew for each response,
// replays included.
//
// An informational response (1xx) is sent at once. It commits echo.Response, as in Echo itself, so that the final status is 200.
// An error that the handler returns after it becomes the response, where Echo itself sends an empty 200; a retry runs the handler
// again.
//
// A handler reads its run from the request's context, c.Request().Context(), with core.FromContext, core.ChildKey and core.Step.
//
// # Options
//
//	Scope  whose key it is     default: Config.Scope of the engine
//	Skip   what is not guarded default: nothing
package idem

import (
	"context"
	"net/http"
	"reflect"

	"github.com/labstack/echo/v4"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
)

// Option changes how [Echo] treats a request.
type Option func(*options)

// options are what the options of Echo set. A nil field stands for the default.
type options struct {
	scope func(echo.Context) string
	skip  func(echo.Context) bool
}

// Scope takes the scope of a key from the Echo context. It MUST come from authentication. f is called for requests with a key and
// must be safe for concurrent use. Default: Config.Scope of the engine.
func Scope(f func(echo.Context) string) Option { return func(o *options) { o.scope = f } }

// Skip runs the handler without the engine for requests for which f returns true: nothing is stored or replayed, and a key in the
// request is ignored. f must be safe for concurrent use. Default: no request is skipped.
func Skip(f func(echo.Context) bool) Option { return func(o *options) { o.skip = f } }

// Echo returns a middleware that runs handlers under e. The middleware is safe for concurrent use.
//
// A response is held back until it is stored, unless the handler flushes, hijacks the connection, or writes more than
// Keep.MaxBody bytes (see package capture). An error of the handler becomes a response at once, by the HTTPErrorHandler, and that
// response is stored. Middleware outside sees the response, not the error. If the HTTPErrorHandler writes nothing, the middleware
// returns the handler's error, and a retry runs the handler again.
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
			x.TooLarge = echo.ErrStatusRequestEntityTooLarge // the error of middleware.BodyLimit
			req := x.Request()
			req.Route = c.Path()
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

// Status returns a handler that says what became of a key. Mount it for GET requests, behind the same authentication as the
// guarded routes, and with Key.PerRoute at their paths. The request has the key in its header field, as the guarded request had
// it. The response is JSON, such as {"state": "running"}, and never shows a body: see docs/guide.md. The option Skip has no
// effect. The handler is safe for concurrent use.
func Status(e *core.Engine, opts ...Option) echo.HandlerFunc {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return func(c echo.Context) error {
		x := capture.NewExchange(c.Request())
		req := x.Request()
		if o.scope != nil {
			req.Scope = func() string { return o.scope(c) }
		}
		return x.Send(c.Response(), capture.Status(c.Request().Context(), e, req))
	}
}

// run runs next under ctx, and returns its response for the engine. During the run c has a request with ctx, and an echo.Response
// of its own that holds the response back. Functions registered with Before on the outer echo.Response therefore run when the
// response is sent, not when it is captured.
func run(
	ctx context.Context, c echo.Context, x *capture.Exchange, keep core.KeepConfig, next echo.HandlerFunc,
) (*core.Response, error) {
	outer, request, r := c.Response(), c.Request(), x.RequestWithContext(ctx)
	held := x.NewWriter(ctx, outerWriter{outer, c}, keep)
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
		if held.Size() < 0 { // The error handler has written nothing either.
			return nil, err
		}
	}
	response := held.Response()
	response.Unrouted = isRouterHandler(c.Handler()) || isRouterHandler(next)
	return response, nil
}

// isRouterHandler reports whether h is the handler that Echo's router runs for an unknown route.
func isRouterHandler(h echo.HandlerFunc) bool {
	p := reflect.ValueOf(h).Pointer()
	return p == reflect.ValueOf(echo.NotFoundHandler).Pointer() || p == reflect.ValueOf(echo.MethodNotAllowedHandler).Pointer()
}

// outerWriter is the outer response as the capture writes to it during a run.
type outerWriter struct {
	*echo.Response
	context echo.Context
}

// WriteHeader implements http.ResponseWriter. It sends informational responses (1xx) directly to the writer inside echo.Response,
// which would take the first status for the final one.
func (o outerWriter) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		o.Writer.WriteHeader(status)
		return
	}
	defer o.showOuter()()
	o.Response.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (o outerWriter) Write(p []byte) (int, error) {
	defer o.showOuter()()
	return o.Response.Write(p)
}

// showOuter makes the outer response that of the context, because functions registered with Before and After look there for the
// header. The function that it returns puts the response of the run back.
func (o outerWriter) showOuter() (restore func()) {
	inner := o.context.Response()
	o.context.SetResponse(o.Response)
	return func() { o.context.SetResponse(inner) }
}
