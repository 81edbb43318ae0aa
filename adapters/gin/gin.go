// Package idem makes Gin handlers idempotent: [Gin] is a middleware that runs them under a core.Engine.
//
//	router.Use(gin.Recovery(), authenticate)
//	router.POST("/payments", idem.Gin(engine), handler)
//
// # Where to put the middleware
//
// Put it after gin.Recovery, authentication and rate limits, so that the last two refuse a request before the engine
// looks at its key. Put it inside compression and CORS, so that both make their header fields anew for each response, replays
// included.
//
// Error middleware, which turns c.Errors into a response, belongs inside: idem.Gin(engine), errors, handler. Outside, its
// response is not stored, and a retry runs the handler again.
//
// Middleware that buffers the response itself, as gin-contrib/gzip and gin-contrib/timeout do, sees a response from outside as
// net/http does: status and header are fixed with the first write, and a status without a body is sent before the middleware
// returns.
//
// An informational response (1xx) is sent at once when the handler calls c.Writer.WriteHeaderNow or writes a body. As in Gin
// itself, the final status is 200 then. Gin remembers a 1xx that another status follows first, and does not send it. Middleware
// that buffers the response drops a 1xx.
//
// # Contexts
//
// A handler reads its run with core.FromContext, core.ChildKey, core.Step and core.Decide, from the *gin.Context or from the
// request's context. A goroutine that outlives its handler needs c.Copy(), because Gin uses the context for another request.
//
// # Options
//
//	Scope  whose key it is     default: Config.Scope of the engine
//	Skip   what is not guarded default: nothing
package idem

import (
	"context"

	"github.com/gin-gonic/gin"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
	"github.com/go-idem/idem/core/driver"
)

// Option changes how [Gin] treats a request.
type Option func(*options)

// options are what the options of Gin set. A nil field stands for the default.
type options struct {
	scope func(*gin.Context) string
	skip  func(*gin.Context) bool
}

// Scope takes the scope of a key from the Gin context. It MUST come from authentication. f is called for requests with a key and
// must be safe for concurrent use. Default: Config.Scope of the engine.
func Scope(f func(*gin.Context) string) Option { return func(o *options) { o.scope = f } }

// Skip runs the handler without the engine for requests for which f returns true: nothing is stored or replayed, and a key in the
// request is ignored. f must be safe for concurrent use. Default: no request is skipped.
func Skip(f func(*gin.Context) bool) Option { return func(o *options) { o.skip = f } }

// Gin returns a middleware that runs the handlers after it under e. The middleware is safe for concurrent use.
//
// A response is held back until it is stored, unless the handler flushes, hijacks the connection, or writes more than
// Keep.MaxBody bytes (see package capture).
//
// A 404 or 405 of the handlers of NoRoute and NoMethod counts as the router's own and frees the key. If such a handler has
// effects, as a proxy has, it calls core.Decide(c, core.Keep).
func Gin(e *core.Engine, opts ...Option) gin.HandlerFunc {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	keep := e.Config().Keep
	return func(c *gin.Context) {
		ran, goesOn := false, false
		defer func() {
			if !goesOn { // Also after a panic: not every recovery middleware aborts, and the handlers would run without the engine.
				c.Abort()
			}
		}()
		if o.skip != nil && o.skip(c) {
			goesOn = true
			return
		}
		x := capture.NewExchange(c.Request)
		req := x.Request()
		req.Route = c.FullPath()
		if o.scope != nil {
			req.Scope = func() string { return o.scope(c) }
		}
		result, _ := e.Do(c.Request.Context(), req, func(ctx context.Context) (*core.Response, error) {
			ran = true
			return run(ctx, c, x, keep)
		})
		goesOn = ran || result.Bypassed
		if result.Bypassed {
			x.Bypass()
			if c.Request.Context().Value(driver.ContextKey) != nil {
				setRunContext(c) // gin.Engine.HandleContext has cleared the keys of c during a run.
			}
			return
		}
		if result.Response != nil {
			_ = x.Send(c.Writer, result.Response)
			c.Writer.WriteHeaderNow()
		}
	}
}

// Status returns a handler that says what became of a key. Mount it for GET requests, behind the same authentication as the
// guarded routes, and with Key.PerRoute at their paths. The request has the key in its header field, as the guarded request had
// it. The response is JSON, such as {"state": "running"}, and never shows a body: see docs/guide.md. The option Skip has no
// effect. The handler is safe for concurrent use.
func Status(e *core.Engine, opts ...Option) gin.HandlerFunc {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return func(c *gin.Context) {
		x := capture.NewExchange(c.Request)
		req := x.Request()
		if o.scope != nil {
			req.Scope = func() string { return o.scope(c) }
		}
		_ = x.Send(c.Writer, capture.Status(c.Request.Context(), e, req)) // An error means that the client has left.
	}
}
