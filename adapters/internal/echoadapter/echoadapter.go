// Package echoadapter is what the adapters for the major versions of Echo share. It imports no Echo: what differs is in a
// [Version].
package echoadapter

import (
	"context"
	"net/http"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
)

// Context is what the contexts of all versions have.
type Context interface {
	Request() *http.Request
	SetRequest(*http.Request)
	Path() string
}

// Version is what differs between the major versions. C is their context.
type Version[C Context] struct {
	// TooLarge is the error of a request body that is longer than middleware.BodyLimit allows.
	TooLarge error
	// Response returns the response of a context, and SetResponse sets it.
	Response    func(C) http.ResponseWriter
	SetResponse func(C, http.ResponseWriter)
	// NewResponse returns an echo.Response around a writer.
	NewResponse func(C, http.ResponseWriter) http.ResponseWriter
	// Inside returns the writer inside the echo.Response that the given response is or wraps.
	Inside func(http.ResponseWriter) http.ResponseWriter
	// HandleError calls the HTTPErrorHandler.
	HandleError func(C, error)
	// IsUnrouted reports whether the response to a context came from Echo's router, which found no route. next is the handler
	// after the middleware.
	IsUnrouted func(c C, next func(C) error, status int) bool
}

// Options are the options of an adapter. A nil field stands for the default.
type Options[C any] struct {
	Scope func(C) string
	Skip  func(C) bool
}

// Middleware runs next under e, or without it if the request is skipped or bypassed.
func (v *Version[C]) Middleware(e *core.Engine, keep core.KeepConfig, o *Options[C], c C, next func(C) error) error {
	if o.Skip != nil && o.Skip(c) {
		return next(c)
	}
	x := capture.NewExchange(c.Request())
	x.TooLarge = v.TooLarge
	req := requestOf(x, c, o)
	req.Route = c.Path()
	result, err := e.Do(c.Request().Context(), req, func(ctx context.Context) (*core.Response, error) {
		return v.run(ctx, c, x, keep, next)
	})
	switch {
	case result.Bypassed:
		x.Bypass()
		return next(c)
	case result.Response != nil:
		return x.Send(v.Response(c), result.Response)
	}
	return err
}

// Status sends what became of the key of c's request.
func (v *Version[C]) Status(e *core.Engine, o *Options[C], c C) error {
	x := capture.NewExchange(c.Request())
	return x.Send(v.Response(c), capture.Status(c.Request().Context(), e, requestOf(x, c, o)))
}

// requestOf returns the request of c with the scope of the options.
func requestOf[C Context](x *capture.Exchange, c C, o *Options[C]) core.Request {
	req := x.Request()
	if o.Scope != nil {
		req.Scope = func() string { return o.Scope(c) }
	}
	return req
}

// run runs next under ctx, and returns its response for the engine. During the run c has a request with ctx, and an echo.Response
// of its own that holds the response back. Functions registered with Before on the outer echo.Response therefore run when the
// response is sent, not when it is captured.
func (v *Version[C]) run(
	ctx context.Context, c C, x *capture.Exchange, keep core.KeepConfig, next func(C) error,
) (*core.Response, error) {
	outer, request, r := v.Response(c), c.Request(), x.RequestWithContext(ctx)
	held := x.NewWriter(ctx, &outerWriter[C]{outer, v, c}, keep)
	v.SetResponse(c, v.NewResponse(c, held))
	c.SetRequest(r)
	defer func() {
		v.SetResponse(c, outer)
		c.SetRequest(request)
		x.Finish(r)
	}()
	if err := next(c); err != nil {
		v.HandleError(c, err)
		if held.Size() < 0 { // The error handler has written nothing either.
			return nil, err
		}
	}
	response := held.Response()
	response.Unrouted = v.IsUnrouted(c, next, response.Status)
	return response, nil
}

// outerWriter is the outer response as the capture writes to it during a run.
type outerWriter[C Context] struct {
	http.ResponseWriter
	version *Version[C]
	context C
}

// Unwrap returns the outer response, for http.ResponseController.
func (o *outerWriter[C]) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// WriteHeader implements http.ResponseWriter. It sends informational responses (1xx) directly to the writer inside echo.Response,
// which would take the first status for the final one.
func (o *outerWriter[C]) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		o.version.Inside(o.ResponseWriter).WriteHeader(status)
		return
	}
	defer o.showOuter()()
	o.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (o *outerWriter[C]) Write(p []byte) (int, error) {
	defer o.showOuter()()
	return o.ResponseWriter.Write(p)
}

// showOuter makes the outer response that of the context, because functions registered with Before and After look there for the
// header. The function that it returns puts the response of the run back.
func (o *outerWriter[C]) showOuter() (restore func()) {
	inner := o.version.Response(o.context)
	o.version.SetResponse(o.context, o.ResponseWriter)
	return func() { o.version.SetResponse(o.context, inner) }
}
