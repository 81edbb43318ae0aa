// Package capture is for adapters of frameworks that are built on net/http. Applications do not need it.
//
// An adapter makes one [Exchange] for each request. Exchange.Request describes the request for core.Engine.Do. While the engine
// runs the handler, the handler writes into a [Writer], which holds the response back until the engine has stored it, so that no
// client sees a response that a retry could contradict. Exchange.Send then writes the response, or a replay, to the client.
// Package adapters/http is the shortest example.
package capture

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/go-idem/idem/core"
)

// Exchange is one request and its response. It changes nothing in the request but what [Exchange.Finish] and [Exchange.Bypass] hand
// back. An Exchange belongs to the goroutine of its request.
type Exchange struct {
	// TooLarge is an error by which outer middleware reports that the body exceeds its limit. Such an error counts like
	// *http.MaxBytesError, which is always recognised. Default: nil, no other error.
	TooLarge error

	request  *http.Request
	limited  io.LimitedReader // the body as the engine reads it
	buffered bufferedBody     // the body as the handler reads it after the engine did
	handler  *handlerSide     // nil until the handler runs; a replay has none
}

// handlerSide is the request and the response writer that the handler gets. They are one struct to save an allocation.
type handlerSide struct {
	request http.Request
	writer  Writer
}

// NewExchange returns the exchange of r.
func NewExchange(r *http.Request) *Exchange { return &Exchange{request: r} }

// Request returns the request as the engine reads it. Path and query are those that the client sent: two routes stay different
// when outer middleware strips a prefix from both.
func (x *Exchange) Request() core.Request {
	path, query, _ := strings.Cut(x.request.RequestURI, "?")
	if path == "" { // A test made the request: it has no RequestURI.
		path, query = x.request.URL.EscapedPath(), x.request.URL.RawQuery
	}
	return core.Request{
		Method:   x.request.Method,
		Path:     path,
		RawQuery: query,
		Route:    Route(x.request),
		Header:   x.header,
		Body:     x.Read,
	}
}

// Route returns the path of the pattern by which an http.ServeMux, or a router like it, has found the handler of r. It returns ""
// before that.
func Route(r *http.Request) string {
	return r.Pattern[max(strings.IndexByte(r.Pattern, '/'), 0):]
}

// header returns the values of all header fields with this name. net/http keeps Host outside of the header.
func (x *Exchange) header(name string) []string {
	if host := x.request.Host; host != "" && strings.EqualFold(name, "Host") {
		return []string{strings.ToLower(host)}
	}
	return x.request.Header.Values(name)
}

// RequestWithContext returns the request for the handler. It has ctx, and its body can be read although the engine has read it.
func (x *Exchange) RequestWithContext(ctx context.Context) *http.Request {
	r := &x.ensureHandler().request
	*r = *x.request.WithContext(ctx)
	if x.buffered.original != nil {
		r.Body = &x.buffered
	}
	return r
}

// Bypass must be called before the handler of a request that the engine has bypassed. The body of the request can then be read although
// a function of the config, such as Config.Scope, has read it.
func (x *Exchange) Bypass() {
	if x.buffered.original != nil {
		x.request.Body = &x.buffered
	}
}

// ensureHandler returns the handler's side of the exchange, and makes it at the first call.
func (x *Exchange) ensureHandler() *handlerSide {
	if x.handler == nil {
		x.handler = &handlerSide{}
	}
	return x.handler
}

// Finish must be called when the handler has returned or panicked. r is the request that RequestWithContext returned. Finish does
// two things:
//   - It hands the form and the pattern that the handler's side found in r to the original request. The server removes the form's
//     files, and logs read the pattern.
//   - It makes later writes to the Writer fail.
func (x *Exchange) Finish(r *http.Request) {
	x.request.MultipartForm, x.request.Pattern = r.MultipartForm, r.Pattern
	x.handler.writer.close()
}
