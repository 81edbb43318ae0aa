// Package capture lets the adapters of net/http frameworks hand requests to the engine, and hold answers back until they are
// kept. Applications do not use it; a new adapter for such a framework does.
package capture

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/go-idem/idem/core"
)

// Exchange is one request on its way through the engine, and its answer on the way back. The request itself is not changed.
type Exchange struct {
	TooLarge error // what a limit outside says of a body, besides http.MaxBytesError; nil: nothing

	request *http.Request
	limited io.LimitedReader // the body for the engine
	again   rereadable       // for the handler, once the engine has read it
	run     *run             // nil until the handler runs: a replay does without
}

// run is what the handler gets, in one piece.
type run struct {
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
	r := &x.running().request
	*r = *x.request.WithContext(ctx)
	if x.again.Closer != nil {
		r.Body = &x.again
	}
	return r
}

func (x *Exchange) running() *run {
	if x.run == nil {
		x.run = &run{}
	}
	return x.run
}

// Finish ends the run, however it does. It hands what a mux and a form parser left in r, which came from For, to the request
// that the server knows: it is who removes the files of a multipart form, and logs read the pattern. The header around the
// handler is as it was before, unless the answer is out or was left there.
func (x *Exchange) Finish(r *http.Request) {
	x.request.MultipartForm, x.request.Pattern = r.MultipartForm, r.Pattern
	x.run.writer.close()
}

// Read is core.Request.Body: the whole body, up to one byte over limit.
func (x *Exchange) Read(limit int64) ([]byte, error) {
	r := x.request
	if r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	x.limited = io.LimitedReader{R: r.Body, N: limit + 1}
	body, err := readAll(&x.limited, r.ContentLength)
	if err != nil && x.isTooLarge(err) {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	x.again.Reset(body)
	x.again.Closer = r.Body
	return body, err
}

// isTooLarge tells whether err is that of a limit outside.
func (x *Exchange) isTooLarge(err error) bool {
	tooLarge := (*http.MaxBytesError)(nil)
	return errors.As(err, &tooLarge) || x.TooLarge != nil && errors.Is(err, x.TooLarge)
}

// firstRead is how much memory a body of a known length gets before any of it has come, in bytes.
const firstRead = 4 << 10

// readAll is io.ReadAll for a body whose length may be known, or else is negative. It takes memory as bytes come, since who
// declares a length may never send it; the last growth is to that length.
func readAll(r io.Reader, length int64) (body []byte, err error) {
	if length < 0 {
		return io.ReadAll(r)
	}
	body = make([]byte, 0, min(length, firstRead)+1) // one more, to see the end
	for err == nil {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, min(max(length+1, int64(len(body))+512), 4*int64(cap(body)))), body...)
		}
		var n int
		n, err = r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return body, err
}

// rereadable is a body in memory that closes the one it came from.
type rereadable struct {
	bytes.Reader
	io.Closer
}

// Send writes a response: the headers around it stay, those it names are replaced. It is the end of the exchange.
func (x *Exchange) Send(w http.ResponseWriter, r *core.Response) error {
	if x.run == nil || r != &x.run.writer.response {
		return send(w, r)
	}
	err := x.run.writer.send(w)
	x.run.writer.trail(w.Header())
	return err
}

// send is Send for an answer that no writer has captured.
func send(w http.ResponseWriter, r *core.Response) error {
	header := w.Header()
	for _, name := range r.Removed {
		header[name] = nil
	}
	replaceLines(header, r.Header)
	addLines(header, r.Added)
	w.WriteHeader(r.Status)
	if len(r.Body) == 0 {
		return nil
	}
	_, err := w.Write(r.Body)
	return err
}

// replaceLines puts lines in the place of those of the same names.
func replaceLines(header http.Header, lines []core.Field) {
	for _, f := range lines {
		delete(header, f.Name)
	}
	addLines(header, lines)
}

func addLines(header http.Header, lines []core.Field) {
	for _, f := range lines {
		header[f.Name] = append(header[f.Name], f.Value)
	}
}
