// Package idem puts an engine in front of net/http handlers.
package idem

import (
	"context"
	"net/http"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
)

// Option changes how HTTP reads a request.
type Option func(*options)

type options struct {
	scope func(*http.Request) string
	skip  func(*http.Request) bool
}

// Scope takes the scope of a key from the request, in place of Config.Scope.
func Scope(f func(*http.Request) string) Option { return func(o *options) { o.scope = f } }

// Skip lets requests for which f is true pass by the engine.
func Skip(f func(*http.Request) bool) Option { return func(o *options) { o.skip = f } }

// HTTP returns a middleware that runs handlers under e. Put it behind authentication and rate limits, and inside
// compression.
func HTTP(e *core.Engine, opts ...Option) func(http.Handler) http.Handler {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	keep := e.Config().Keep
	return func(next http.Handler) http.Handler {
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
			result, _ := e.Do(r.Context(), req, func(ctx context.Context) (*core.Response, error) {
				held := x.NewWriter(ctx, w, keep)
				inner := x.RequestWithContext(ctx)
				defer x.Finish(inner)
				next.ServeHTTP(held, inner)
				response := held.Response()
				response.Unrouted = isUnrouted(next, inner, response.Status)
				return response, nil
			})
			switch {
			case result.Bypassed:
				next.ServeHTTP(w, r)
			case result.Response != nil:
				_ = x.Send(w, result.Response)
			}
		})
	}
}

// isUnrouted tells of an answer to r whether it is a mux's own, which has found no pattern.
func isUnrouted(h http.Handler, r *http.Request, status int) bool {
	_, isMux := h.(*http.ServeMux)
	return isMux && r.Pattern == "" && (status == http.StatusNotFound || status == http.StatusMethodNotAllowed)
}
