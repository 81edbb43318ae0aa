// Package idem makes handlers of Echo v5 idempotent: [Echo] is a middleware that runs them under a core.Engine.
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
	"net/http"
	"net/url"
	"reflect"

	"github.com/labstack/echo/v5"

	"github.com/go-idem/idem/adapters/internal/echoadapter"
	"github.com/go-idem/idem/core"
)

// Option changes how [Echo] treats a request.
type Option func(*options)

// options are what the options of Echo set.
type options = echoadapter.Options[*echo.Context]

// Scope takes the scope of a key from the Echo context. It MUST come from authentication. f is called for requests with a key and
// must be safe for concurrent use. Default: Config.Scope of the engine.
func Scope(f func(*echo.Context) string) Option { return func(o *options) { o.Scope = f } }

// Skip runs the handler without the engine for requests for which f returns true: nothing is stored or replayed, and a key in the
// request is ignored. f must be safe for concurrent use. Default: no request is skipped.
func Skip(f func(*echo.Context) bool) Option { return func(o *options) { o.Skip = f } }

// Echo returns a middleware that runs handlers under e. The middleware is safe for concurrent use.
//
// A response is held back until it is stored, unless the handler flushes, hijacks the connection, or writes more than
// Keep.MaxBody bytes (see package capture). An error of the handler becomes a response at once, by the HTTPErrorHandler, and that
// response is stored. Middleware outside sees the response, not the error. If the HTTPErrorHandler writes nothing, the middleware
// returns the handler's error, and a retry runs the handler again.
func Echo(e *core.Engine, opts ...Option) echo.MiddlewareFunc {
	o, keep := apply(opts), e.Config().Keep
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { return version.Middleware(e, keep, o, c, next) }
	}
}

// Status returns a handler that says what became of a key. Mount it for GET requests, behind the same authentication as the
// guarded routes, and with Key.PerRoute at their paths. The request has the key in its header field, as the guarded request had
// it. The response is JSON, such as {"state": "running"}, and never shows a body: see docs/guide.md. The option Skip has no
// effect. The handler is safe for concurrent use.
func Status(e *core.Engine, opts ...Option) echo.HandlerFunc {
	o := apply(opts)
	return func(c *echo.Context) error { return version.Status(e, o, c) }
}

// apply returns what opts set.
func apply(opts []Option) *options {
	o := new(options)
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// version is what Echo v5 does in its own way.
var version = echoadapter.Version[*echo.Context]{
	TooLarge:    echo.ErrStatusRequestEntityTooLarge,
	Response:    (*echo.Context).Response,
	SetResponse: (*echo.Context).SetResponse,
	NewResponse: func(c *echo.Context, w http.ResponseWriter) http.ResponseWriter {
		r := echo.NewResponse(w, c.Logger())
		r.Status = http.StatusOK
		return r
	},
	Inside:      inside,
	HandleError: func(c *echo.Context, err error) { c.Echo().HTTPErrorHandler(c, err) },
	IsUnrouted:  isUnrouted,
}

// inside returns the writer inside the echo.Response that w is or wraps. Without one it returns w.
func inside(w http.ResponseWriter) http.ResponseWriter {
	if r, err := echo.UnwrapResponse(w); err == nil {
		return r.ResponseWriter
	}
	return w
}

// isUnrouted reports whether Echo's router found no route. It names the route of the context so, or next is its handler: that of
// a group, which is a route for all paths.
func isUnrouted(c *echo.Context, next func(*echo.Context) error, status int) bool {
	if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
		return false
	}
	if name := c.RouteInfo().Name; name == echo.NotFoundRouteName || name == echo.MethodNotAllowedRouteName {
		return true
	}
	return reflect.ValueOf(next).Pointer() == routerHandler
}

// routerHandler is the handler that Echo's router runs for an unknown route. A router without routes returns it.
var routerHandler = reflect.ValueOf(
	echo.NewRouter(echo.RouterConfig{}).Route(echo.NewContext(&http.Request{URL: &url.URL{Path: "/"}}, nil)),
).Pointer()
