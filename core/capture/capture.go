// Package capture lets the adapters of net/http frameworks hand requests to the engine, and hold answers back until they are
// kept. Applications do not use it; a new adapter for such a framework does.
package capture

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/go-idem/idem/core"
)

// Exchange is one request on its way through the engine, and its answer on the way back. The request itself is not changed.
type Exchange struct {
	TooLarge error // what a limit outside says of a body, besides http.MaxBytesError; nil: nothing

	request  *http.Request
	limited  io.LimitedReader // the body for the engine
	buffered bufferedBody     // for the handler, once the engine has read it
	handler  *handlerSide     // nil until the handler runs: a replay does without
}

// handlerSide is what the handler gets, in one piece.
type handlerSide struct {
	request http.Request
	writer  Writer
}

// NewExchange wraps r.
func NewExchange(r *http.Request) *Exchange { return &Exchange{request: r} }

// Request is the request as the engine reads it. Path and query are the client's own, so that a prefix stripped on the way
// makes no two routes the same.
func (x *Exchange) Request() core.Request {
	path, query, _ := strings.Cut(x.request.RequestURI, "?")
	if path == "" { // a request that came over no wire
		path, query = x.request.URL.EscapedPath(), x.request.URL.RawQuery
	}
	return core.Request{
		Method:   x.request.Method,
		Path:     path,
		RawQuery: query,
		Header:   x.header,
		Body:     x.Read,
	}
}

// header returns the values of the lines named name. That of the host net/http keeps beside the others.
func (x *Exchange) header(name string) []string {
	if host := x.request.Host; host != "" && strings.EqualFold(name, "Host") {
		return []string{strings.ToLower(host)}
	}
	return x.request.Header.Values(name)
}

// RequestWithContext returns the request with ctx and a body that can be read, also after the engine has read it.
func (x *Exchange) RequestWithContext(ctx context.Context) *http.Request {
	r := &x.ensureHandler().request
	*r = *x.request.WithContext(ctx)
	if x.buffered.Closer != nil {
		r.Body = &x.buffered
	}
	return r
}

func (x *Exchange) ensureHandler() *handlerSide {
	if x.handler == nil {
		x.handler = &handlerSide{}
	}
	return x.handler
}

// Finish ends the run, however it does. It hands what a mux and a form parser left in r, which came from For, to the request
// that the server knows: it is who removes the files of a multipart form, and logs read the pattern. The header around the
// handler is as it was before, unless the answer is out or was left there.
func (x *Exchange) Finish(r *http.Request) {
	x.request.MultipartForm, x.request.Pattern = r.MultipartForm, r.Pattern
	x.handler.writer.close()
}
