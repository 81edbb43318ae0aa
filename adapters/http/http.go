// Package idem makes net/http handlers idempotent: [HTTP] is a middleware that runs them under a core.Engine.
//
//	mux.Handle("POST /payments", idem.HTTP(engine)(handler))
//
// # Where to put the middleware
//
// Put it after authentication and rate limits, so that they refuse a request before the engine looks at its key. Put it inside
// compression and CORS, so that both make their header fields anew for each response, replays included.
//
// A handler reads its run from the request's context, with core.FromContext, core.ChildKey and core.Step.
//
// # Options
//
//	Scope  whose key it is     default: Config.Scope of the engine
//	Skip   what is not guarded default: nothing
//	Route  the router's route  default: http.Request.Pattern
package idem

import (
	"context"
	"net/http"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
)

// Option changes how [HTTP] treats a request.
type Option func(*options)

// options are what the options of HTTP set. A nil field stands for the default.
type options struct {
	scope func(*http.Request) string
	skip  func(*http.Request) bool
	route func(*http.Request) string
}

// Scope takes the scope of a key from the request. It MUST come from authentication. f is called for requests with a key and
// must be safe for concurrent use. Default: Config.Scope of the engine.
func Scope(f func(*http.Request) string) Option { return func(o *options) { o.scope = f } }

// Skip runs the handler without the engine for requests for which f returns true: nothing is stored or replayed, and a key in the
// request is ignored. f must be safe for concurrent use. Default: no request is skipped.
func Skip(f func(*http.Request) bool) Option { return func(o *options) { o.skip = f } }

// Route takes the route of a request from a router that does not set http.Request.Pattern, such as "/orders/{id}". f is called before
// the handler runs, and must be safe for concurrent use. The route is core.Event.Route. If f returns "", the router has no handler
// for the request, and a 404 or 405 frees the key instead of being stored: the next process of a deploy may have that route. Default:
// http.Request.Pattern.
func Route(f func(*http.Request) string) Option { return func(o *options) { o.route = f } }

// HTTP returns a middleware that runs handlers under e. The middleware is safe for concurrent use.
//
// A handler's response is held back until it is stored, unless the handler flushes, hijacks the connection, or writes more than
// Keep.MaxBody bytes (see package capture). If the handler is an *http.ServeMux, its own 404 or 405 for an unknown route frees
// the key. For other routers see [Route].
//
// Frameworks with handlers of their own need their own adapters. In Echo's WrapMiddleware and Fiber's adaptor.HTTPMiddleware the
// middleware refuses all requests with 500, since it does not see the responses there.
func HTTP(e *core.Engine, opts ...Option) func(http.Handler) http.Handler {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	keep := e.Config().Keep
	return func(next http.Handler) http.Handler {
		if refusing := refusingBridge(next); refusing != nil {
			return refusing
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if o.skip != nil && o.skip(r) {
				next.ServeHTTP(w, r)
				return
			}
			x := capture.NewExchange(r)
			req := x.Request()
			if o.scope != nil {
				req.Scope = func() string { return o.scope(r) }
			}
			if o.route != nil {
				req.Route = o.route(r)
			}
			route := req.Route // so that the function below does not hold a copy of req
			result, _ := e.Do(r.Context(), req, func(ctx context.Context) (*core.Response, error) {
				return o.run(x.NewWriter(ctx, w, keep), w, x, x.RequestWithContext(ctx), next, route), nil
			})
			switch {
			case result.Bypassed: // no key, a method that is not guarded, or a run around this request
				x.Bypass()
				next.ServeHTTP(w, r)
			case result.Response != nil:
				_ = x.Send(w, result.Response) // An error means that the client has left.
			}
		})
	}
}

// run runs next with a writer that holds the response back, and returns that. outer is the writer of the middleware, and route
// what the option Route has returned.
func (o *options) run(
	held *capture.Writer, outer http.ResponseWriter, x *capture.Exchange, r *http.Request, next http.Handler, route string,
) *core.Response {
	defer x.Finish(r)
	past := notePast(outer)
	next.ServeHTTP(held, r)
	if status := past(); status != 0 && held.Size() < 0 {
		return &core.Response{Status: status, Sent: true, Omitted: true, Route: o.routeOf(r, route)}
	}
	response := held.Response()
	response.Unrouted, response.Route = o.isUnrouted(next, r, route, response.Status), o.routeOf(r, route)
	return response
}

// Status returns a handler that says what became of a key. Mount it for GET requests, behind the same authentication as the
// guarded routes, and with Key.PerRoute at their paths. The request has the key in its header field, as the guarded request had
// it. The response is JSON, such as {"state": "running"}, and never shows a body: see docs/guide.md. The options Skip and
// Route have no effect. The handler is safe for concurrent use.
func Status(e *core.Engine, opts ...Option) http.Handler {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := capture.NewExchange(r)
		req := x.Request()
		if o.scope != nil {
			req.Scope = func() string { return o.scope(r) }
		}
		_ = x.Send(w, capture.Status(r.Context(), e, req)) // An error means that the client has left.
	})
}

// routeOf returns the route of a request that was handled. before is what Route has returned.
func (o *options) routeOf(r *http.Request, before string) string {
	if o.route != nil {
		return before
	}
	return capture.Route(r)
}

// isUnrouted reports whether the response with this status is a router's own, because it has no handler for r: h is a mux that found no
// pattern, or the option Route has returned the route "".
func (o *options) isUnrouted(h http.Handler, r *http.Request, route string, status int) bool {
	if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
		return false
	}
	_, isMux := h.(*http.ServeMux)
	return isMux && r.Pattern == "" || o.route != nil && route == ""
}
