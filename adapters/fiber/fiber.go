// Package idem puts an engine in front of Fiber handlers.
package idem

import (
	"sync"

	"github.com/gofiber/fiber/v2"

	"github.com/go-idem/idem/core"
)

// Option changes how Fiber reads a request.
type Option func(*options)

type options struct {
	scope  func(*fiber.Ctx) string
	skip   func(*fiber.Ctx) bool
	marker string // the engine's
}

// Scope takes the scope of a key from the Fiber context, in place of Config.Scope. The string is not kept.
func Scope(f func(*fiber.Ctx) string) Option { return func(o *options) { o.scope = f } }

// Skip lets requests for which f is true pass by the engine.
func Skip(f func(*fiber.Ctx) bool) Option { return func(o *options) { o.skip = f } }

// Fiber returns a middleware that runs the handlers behind it under e. Put it behind recover, authentication and rate
// limits, and inside compression. Handlers find the run's context in UserContext. An error that a handler returns
// becomes its answer through the app's ErrorHandler here, before it is kept; middleware outside sees the answer, not the
// error. An answer whose body is a stream reaches the client whole; its replays come without the body. fasthttp does not tell
// that a client has left, so one that waits (Config.Wait) keeps its place until its time is over.
func Fiber(e *core.Engine, opts ...Option) fiber.Handler {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	o.marker = e.Config().Keep.Marker
	exchanges := sync.Pool{New: func() any { return newExchange(&o) }} // used again, as Fiber does with its contexts
	return func(c *fiber.Ctx) error {
		if o.skip != nil && o.skip(c) {
			return c.Next()
		}
		x := exchanges.Get().(*exchange)
		x.ctx = c
		isBypassed, err := x.do(e)
		x.clear()
		exchanges.Put(x)
		if isBypassed {
			return c.Next()
		}
		return err
	}
}
