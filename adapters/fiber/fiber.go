// Package idem puts an engine in front of Fiber handlers.
package idem

import (
	"github.com/gofiber/fiber/v2"

	"github.com/go-idem/idem/core"
)

// Option changes how Fiber reads a request.
type Option func(*options)

type options struct {
	scope func(*fiber.Ctx) string
	skip  func(*fiber.Ctx) bool
	keep  core.KeepConfig // the engine's
}

// Scope takes the scope of a key from the Fiber context, in place of Config.Scope. The string is copied, so it may be one of
// Fiber's own, as c.Get returns them. Of a chunked request f sees the header lines that came before the body, and none that came
// behind it or that a middleware has added.
func Scope(f func(*fiber.Ctx) string) Option { return func(o *options) { o.scope = f } }

// Skip lets requests for which f is true pass by the engine.
func Skip(f func(*fiber.Ctx) bool) Option { return func(o *options) { o.skip = f } }

// Fiber returns a middleware that runs the handlers behind it under e. Put it behind recover, authentication and rate
// limits, and inside compression. Handlers find the run's context in UserContext; core.FromContext, ChildKey, Step and Decide
// take c.Context(), too, while the handler runs: fasthttp uses that one for another request afterwards. An error that a handler returns
// becomes its answer through the app's ErrorHandler here, before it is kept; middleware outside sees the answer, not the
// error. fasthttp does not tell that a client has left, so one that waits (Config.Wait) keeps its place until its time is over.
//
// A UserContext that is made of c.Context() is read while a lease is renewed, as by go-redis hooks that trace, so a handler must not
// call c.Locals beside that; once the request is over, its values are those that were asked for before.
//
// fasthttp mixes lines that come behind the body of a chunked request, as trailers, into its header: none of them is a key. Nor is
// one that a middleware outside has added to such a request.
//
// When a timeout inside has answered for a handler that works on (RequestCtx.TimeoutError), nobody knows the outcome: the key is
// held for the rest of the lease, and the run that follows is told so.
//
// A stream whose length is known and at most Keep.MaxBody, as that of SendFile, is read before it is sent, and kept like any
// other body. fasthttp reads others when the handlers have returned: the run, its claim and its context go on until then. A
// stream that comes to its end is kept, with its body where that fits. One that breaks off is not, and the same request runs
// again, or its outcome is unknown where Lease.OnUnknown is set: when its source fails, panics, or has not the declared length,
// and when its client leaves, unless the handler has decided (core.Decide). The function of a SetBodyStreamWriter learns from
// the error of Flush, and from its context, that its client has left, and must return then, since a retry may run; that it
// failed it can only say by core.Decide(ctx, core.Retry), and a panic in it ends the process, as without the engine. A
// compressor inside the engine hides that a source has failed.
func Fiber(e *core.Engine, opts ...Option) fiber.Handler {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	o.keep = e.Config().Keep
	return func(c *fiber.Ctx) error {
		if o.skip != nil && o.skip(c) {
			return c.Next()
		}
		x := newExchange(c, &o)
		isBypassed, err := x.do(e)
		x.ctx = nil // a stream's run goes on and holds x, and Fiber uses c again
		if isBypassed {
			return c.Next()
		}
		return err
	}
}
