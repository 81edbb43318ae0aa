// Package idem makes handlers of Fiber v3 idempotent: [Fiber] is a middleware that runs them under a core.Engine.
//
//	app.Use(recover.New(), authenticate)
//	app.Post("/payments", idem.Fiber(engine), handler)
//
// # Where to put the middleware
//
// Put it after recover, authentication and rate limits, so that the last two refuse a request before the engine looks at its key.
// Put it inside compression and CORS, so that both make their header fields anew for each response, replays included. A
// compressor inside the engine hides from it that the source of a stream has failed.
//
// A request with the target * (POST * HTTP/1.1) reaches a handler for all paths, but Fiber v3 calls no middleware for it that
// was registered without a path. Before such a handler, use app.Use("/*", idem.Fiber(engine)).
//
// # Options
//
//	Scope  whose key it is     default: Config.Scope of the engine
//	Skip   what is not guarded default: nothing
//
// # Contexts
//
// A handler reads its run with core.FromContext, core.ChildKey, core.Step and core.Decide, from c.Context(), or from c itself
// while the handler runs. Only c.Context() ends when the claim is lost or a deadline is over: give that one to calls that may
// take long. Do not keep c: Fiber uses it for another request afterwards.
//
// If outer middleware has set a context that is made of c, the engine reads values from it while it renews the lease, for example
// in go-redis hooks that trace. Such a handler must not call c.Locals at the same time. Once the handlers have returned, also
// while a stream is sent, the context only has those values that were read before.
//
// fasthttp does not report that a client has left. A request that waits for another (Config.Wait) keeps its place until
// Wait.Timeout is over.
//
// # Errors and timeouts
//
// An error of the handler becomes a response at once, by the app's ErrorHandler, and that response is stored. Middleware outside
// sees the response, not the error.
//
// The middleware timeout responds while the handler still works, and writes its response into the memory of the handler's. So the
// outcome of such a request is unknown, whether the middleware is inside the engine or outside. The key is held for the rest of
// the lease, and the next run is a takeover. A middleware that gives c.Context() a deadline and waits for the handler does not
// have that effect.
//
// # Unknown routes
//
// A 404 or 405 of the router frees the key. Fiber v3 returns fiber.ErrNotFound and fiber.ErrMethodNotAllowed for them. So these
// errors of a middleware that was registered with Use count as the router's, if no route has matched. If such a middleware has
// effects, as a proxy has, it calls core.Decide(c, core.Keep).
//
// # The connection
//
// c.End and c.Drop act on the connection at once, past the engine: with c.End the client has its response before that is stored.
// A stream that c.End has sent is replayed without its body, and the replay says so.
//
// # Informational responses
//
// fasthttp sends a response with a status of 1xx as the final one, with or without the engine. It is stored like any other.
//
// # Streams
//
// A stream is read into memory before it is sent, and stored like any other body, if its length is known and at most
// Keep.MaxBody, as with SendFile. fasthttp reads all other streams after the handlers have returned. The run, its claim and its
// context then last until the stream ends.
//
// A stream that comes to its end is stored, with its body if that has at most Keep.MaxBody bytes. A stream breaks off if its
// source fails, panics or does not have the declared length, or if its client leaves. Then it is not stored: the same request
// runs again, or its outcome is unknown if Lease.OnUnknown is set. If the client has left and the handler has called core.Decide,
// that decision counts.
//
// The function of a SetBodyStreamWriter learns from the error of Flush, and from its context, that its client has left. It must
// return then, because a retry may run. It can report that it failed only by core.Decide(ctx, core.Retry). A panic in it ends the
// process, as it does without the engine.
//
// # Chunked requests
//
// fasthttp mixes the trailers of a chunked request into its header. The engine ignores them: none of them is a key. It also
// ignores a key that outer middleware has added to a chunked request, because it cannot tell that one from a trailer.
package idem

import (
	"context"
	"errors"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/adapters/internal/fiberadapter"
	"github.com/go-idem/idem/core"
)

// Option changes how [Fiber] treats a request.
type Option func(*options)

// options are what the options of Fiber set.
type options = fiberadapter.Options[fiber.Ctx]

// Scope takes the scope of a key from the Fiber context. It MUST come from authentication. f is called for requests with a key
// and must be safe for concurrent use. It may return a string of Fiber's own, such as that of c.Get: the adapter copies it. While
// f runs, the header of a chunked request has only the fields that came before the body; trailers, and fields that middleware has
// added, are hidden. Default: Config.Scope of the engine.
func Scope(f func(fiber.Ctx) string) Option { return func(o *options) { o.Scope = f } }

// Skip runs the handler without the engine for requests for which f returns true: nothing is stored or replayed, and a key in the
// request is ignored. f must be safe for concurrent use. Default: no request is skipped.
func Skip(f func(fiber.Ctx) bool) Option { return func(o *options) { o.Skip = f } }

// Fiber returns a middleware that runs the handlers after it under e. The middleware is safe for concurrent use. The package
// documentation says what it does with errors, timeouts and streams.
func Fiber(e *core.Engine, opts ...Option) fiber.Handler {
	o := apply(e, opts)
	return func(c fiber.Ctx) error { return version.Middleware(e, o, c) }
}

// Status returns a handler that says what became of a key. Mount it for GET requests, behind the same authentication as the
// guarded routes, and with Key.PerRoute at their paths. The request has the key in its header field, as the guarded request had
// it. The response is JSON, such as {"state": "running"}, and never shows a body: see docs/guide.md. The option Skip has no
// effect. The handler is safe for concurrent use.
func Status(e *core.Engine, opts ...Option) fiber.Handler {
	o := apply(e, opts)
	return func(c fiber.Ctx) error {
		version.Status(e, o, c)
		return nil
	}
}

// apply returns what opts set for e.
func apply(e *core.Engine, opts []Option) *options {
	o := &options{Keep: e.Config().Keep}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// version is what Fiber v3 does in its own way.
var version = fiberadapter.Version[fiber.Ctx]{
	RequestCtx:  fiber.Ctx.RequestCtx,
	Context:     fiber.Ctx.Context,
	SetContext:  fiber.Ctx.SetContext,
	Reuses:      true,
	Ends:        true,
	Next:        fiber.Ctx.Next,
	HandleError: func(c fiber.Ctx, err error) error { return c.App().ErrorHandler(c, err) },
	SendError:   func(c fiber.Ctx) { _ = c.SendStatus(fiber.StatusInternalServerError) },
	TimedOut:    timedOut,
	IsUnrouted:  isRouterError,
	Route:       fiber.Ctx.FullPath,
	KeepsCase:   func(c fiber.Ctx) bool { return c.App().Config().DisableHeaderNormalizing },
	ParsesForms: func(c fiber.Ctx) bool { return !c.App().Config().DisablePreParseMultipartForm },
}

// timedOut returns the response of a middleware that has abandoned c because of a timeout. One inside the engine did that in this
// goroutine, so its response can be read. One outside ends ctx first, and writes its response into c meanwhile: the handlers' own
// cannot be told from it.
func timedOut(ctx context.Context, c fiber.Ctx) *fasthttp.Response {
	isAbandoned := c.IsAbandoned()
	if !isAbandoned || ctx.Err() == nil {
		if response := c.RequestCtx().LastTimeoutErrorResponse(); response != nil || !isAbandoned {
			return response
		}
	}
	response := new(fasthttp.Response)
	response.SetStatusCode(fiber.StatusRequestTimeout)
	return response
}

// isRouterError reports whether err is the one that Fiber's router returns when it finds no handler: no route has matched.
func isRouterError(c fiber.Ctx, err error) bool {
	return !c.Matched() && (errors.Is(err, fiber.ErrNotFound) || errors.Is(err, fiber.ErrMethodNotAllowed))
}
