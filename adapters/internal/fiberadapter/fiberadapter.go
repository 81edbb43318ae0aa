// Package fiberadapter is what the adapters for the major versions of Fiber share: it guards requests of fasthttp. It imports no
// Fiber: what differs is in a [Version].
package fiberadapter

import (
	"context"

	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
)

// Version is what differs between the major versions. C is their context.
type Version[C any] struct {
	// RequestCtx returns fasthttp's context.
	RequestCtx func(C) *fasthttp.RequestCtx
	// Context returns the context that the application may have set, and SetContext sets it.
	Context    func(C) context.Context
	SetContext func(C, context.Context)
	// Reuses says that a context can be made of Fiber's own, which Fiber uses for another request when the handlers have
	// returned, also while a stream is sent; and that a middleware outside may write to the response while the handlers work.
	Reuses bool
	// Ends says that a handler can send its response at once, past the engine.
	Ends bool
	// Next calls the handlers after the middleware.
	Next func(C) error
	// HandleError calls the app's ErrorHandler. SendError responds if the ErrorHandler fails.
	HandleError func(C, error) error
	SendError   func(C)
	// TimedOut returns the response by which a middleware timed the request out; nil if none did. ctx is the context of the run.
	TimedOut func(ctx context.Context, c C) *fasthttp.Response
	// IsUnrouted reports whether an error of Next is that of the router, which found no handler.
	IsUnrouted func(C, error) bool
	// Route returns the path of the route whose handler was called last.
	Route func(C) string
	// KeepsCase reports whether the app has DisableHeaderNormalizing, and ParsesForms whether it parses forms before the
	// handlers.
	KeepsCase   func(C) bool
	ParsesForms func(C) bool
}

// Options are the options of an adapter. A nil function stands for the default.
type Options[C any] struct {
	Scope func(C) string
	Skip  func(C) bool
	Keep  core.KeepConfig // the configuration of the engine
}

// Middleware calls the handlers after the middleware under e, or without it if the request is skipped or bypassed.
func (v *Version[C]) Middleware(e *core.Engine, o *Options[C], c C) error {
	if o.Skip != nil && o.Skip(c) {
		return v.Next(c)
	}
	x := v.newExchange(c, o)
	isBypassed, err := x.do(e)
	var none C
	x.ctx, x.fasthttp = none, nil // The run of a stream still holds x, and Fiber uses c for another request.
	if isBypassed {
		return v.Next(c)
	}
	return err
}

// Status sends what became of the key of the request of c. No handler runs, and the record does not change.
func (v *Version[C]) Status(e *core.Engine, o *Options[C], c C) {
	x := v.newExchange(c, o)
	ctx, own := clientContextOf(v.Context(c), x.fasthttp)
	defer own.detach()
	sendResponse(x.fasthttp, capture.Status(ctx, e, x.request()))
}
