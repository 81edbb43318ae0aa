// Package idem makes Fiber handlers idempotent: [Fiber] is a middleware that runs them under a core.Engine.
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
// # Options
//
//	Scope  whose key it is     default: Config.Scope of the engine
//	Skip   what is not guarded default: nothing
//
// # Contexts
//
// A handler reads its run with core.FromContext, core.ChildKey, core.Step and core.Decide, from c.UserContext(), or from
// c.Context() while the handler runs. Do not keep c.Context(): fasthttp uses it for another request afterwards.
//
// If outer middleware has set a UserContext that is made of c.Context(), the engine reads values from it while it renews the
// lease, for example in go-redis hooks that trace. Such a handler must not call c.Locals at the same time. Once the request is
// over, the context only has those values that were read before.
//
// fasthttp does not report that a client has left. A request that waits for another (Config.Wait) keeps its place until
// Wait.Timeout is over.
//
// # Errors and timeouts
//
// An error of the handler becomes a response at once, by the app's ErrorHandler, and that response is stored. Middleware outside
// sees the response, not the error.
//
// A timeout middleware inside the engine may respond while the handler still works (RequestCtx.TimeoutError). Then nobody knows
// the outcome. The key is held for the rest of the lease, and the next run is a takeover.
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
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/adapters/internal/fiberadapter"
	"github.com/go-idem/idem/core"
)

// Option changes how [Fiber] treats a request.
type Option func(*options)

// options are what the options of Fiber set.
type options = fiberadapter.Options[*fiber.Ctx]

// Scope takes the scope of a key from the Fiber context. It MUST come from authentication. f is called for requests with a key
// and must be safe for concurrent use. It may return a string of Fiber's own, such as that of c.Get: the adapter copies it. While
// f runs, the header of a chunked request has only the fields that came before the body; trailers, and fields that middleware has
// added, are hidden. Default: Config.Scope of the engine.
func Scope(f func(*fiber.Ctx) string) Option { return func(o *options) { o.Scope = f } }

// Skip runs the handler without the engine for requests for which f returns true: nothing is stored or replayed, and a key in the
// request is ignored. f must be safe for concurrent use. Default: no request is skipped.
func Skip(f func(*fiber.Ctx) bool) Option { return func(o *options) { o.Skip = f } }

// Fiber returns a middleware that runs the handlers after it under e. The middleware is safe for concurrent use. The package
// documentation says what it does with errors, timeouts and streams.
func Fiber(e *core.Engine, opts ...Option) fiber.Handler {
	o := apply(e, opts)
	return func(c *fiber.Ctx) error { return version.Middleware(e, o, c) }
}

// Status returns a handler that says what became of a key. Mount it for GET requests, behind the same authentication as the
// guarded routes, and with Key.PerRoute at their paths. The request has the key in its header field, as the guarded request had
// it. The response is JSON, such as {"state": "running"}, and never shows a body: see docs/guide.md. The option Skip has no
// effect. The handler is safe for concurrent use.
func Status(e *core.Engine, opts ...Option) fiber.Handler {
	o := apply(e, opts)
	return func(c *fiber.Ctx) error {
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

// version is what Fiber v2 does in its own way.
var version = fiberadapter.Version[*fiber.Ctx]{
	RequestCtx:  (*fiber.Ctx).Context,
	Context:     (*fiber.Ctx).UserContext,
	SetContext:  (*fiber.Ctx).SetUserContext,
	Next:        (*fiber.Ctx).Next,
	HandleError: func(c *fiber.Ctx, err error) error { return c.App().ErrorHandler(c, err) },
	SendError:   func(c *fiber.Ctx) { _ = c.SendStatus(fiber.StatusInternalServerError) },
	TimedOut: func(_ context.Context, c *fiber.Ctx) *fasthttp.Response {
		return c.Context().LastTimeoutErrorResponse()
	},
	IsUnrouted:  isRouterError,
	Route:       func(c *fiber.Ctx) string { return c.Route().Path },
	KeepsCase:   func(c *fiber.Ctx) bool { return c.App().Config().DisableHeaderNormalizing },
	ParsesForms: func(c *fiber.Ctx) bool { return !c.App().Config().DisablePreParseMultipartForm },
}

// isRouterError reports whether err is the one that Fiber's router returns when it finds no handler.
func isRouterError(c *fiber.Ctx, err error) bool {
	notFound := (*fiber.Error)(nil)
	if errors.As(err, &notFound) && notFound.Code == fiber.StatusNotFound {
		return strings.HasPrefix(notFound.Message, "Cannot "+c.Method()+" /")
	}
	return errors.Is(err, fiber.ErrMethodNotAllowed) && len(c.Response().Header.Peek(fiber.HeaderAllow)) > 0
}
