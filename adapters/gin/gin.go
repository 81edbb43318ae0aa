// Package idem puts an engine in front of Gin handlers.
package idem

import (
	"context"

	"github.com/gin-gonic/gin"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
)

// Option changes how Gin reads a request.
type Option func(*options)

type options struct {
	scope func(*gin.Context) string
	skip  func(*gin.Context) bool
}

// Scope takes the scope of a key from the Gin context, in place of Config.Scope.
func Scope(f func(*gin.Context) string) Option { return func(o *options) { o.scope = f } }

// Skip lets requests for which f is true pass by the engine.
func Skip(f func(*gin.Context) bool) Option { return func(o *options) { o.skip = f } }

// Gin returns a middleware that runs the handlers behind it under e. Put it behind gin.Recovery, authentication and rate
// limits, and inside compression. Handlers may give the *gin.Context to core.FromContext, ChildKey, Step and Decide, or the
// request's context. A 404 or 405 of the handlers of NoRoute and NoMethod counts as the router's own and frees the key; where they
// have effects, as a proxy's, they call core.Decide(c, core.Keep). A goroutine that outlives its handler needs c.Copy(), as always: Gin uses the context for another request.
func Gin(e *core.Engine, opts ...Option) gin.HandlerFunc {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	keep := e.Config().Keep
	return func(c *gin.Context) {
		if o.skip != nil && o.skip(c) {
			return
		}
		x := capture.NewExchange(c.Request)
		req := x.Request()
		if o.scope != nil {
			req.Scope = func() string { return o.scope(c) }
		}
		ran := false
		result, _ := e.Do(c.Request.Context(), req, func(ctx context.Context) (*core.Response, error) {
			ran = true
			return run(ctx, c, x, keep)
		})
		if result.Bypassed {
			if c.Request.Context().Value(core.ContextKey) != nil {
				setRunContext(c) // Engine.HandleContext, inside of a run, has forgotten it
			}
			return
		}
		if !ran {
			c.Abort()
		}
		if result.Response != nil {
			_ = x.Send(c.Writer, result.Response)
			c.Writer.WriteHeaderNow()
		}
	}
}
