// Package capture lets the adapters of net/http frameworks hand requests to the engine and hold answers back until they
// are kept. Applications do not use it; a new adapter does.
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

// Incoming is an http.Request on its way through the engine. The request itself is not changed.
type Incoming struct {
	request *http.Request
	body    io.ReadCloser // what the handler reads, once the engine has read the body
}

// NewIncoming wraps r.
func NewIncoming(r *http.Request) *Incoming { return &Incoming{request: r, body: r.Body} }

// Request is r as the engine reads it. Path and query are the client's own, so that a prefix stripped on the way makes no
// two routes the same.
func (in *Incoming) Request() core.Request {
	path, query := in.request.URL.EscapedPath(), in.request.URL.RawQuery
	if target := in.request.RequestURI; strings.HasPrefix(target, "/") {
		path, query, _ = strings.Cut(target, "?")
	}
	return core.Request{
		Method:   in.request.Method,
		Path:     path,
		RawQuery: query,
		Header:   in.request.Header.Values,
		Body:     in.Read,
	}
}

// For returns r with ctx and a body that can be read, also after the engine has read it.
func (in *Incoming) For(ctx context.Context) *http.Request {
	r := in.request.WithContext(ctx)
	r.Body = in.body
	return r
}

// Return hands what a mux and a form parser left in r, which came from For, to the request that the server knows: it is
// who removes the files of a multipart form, and logs read the pattern.
func Return(r, request *http.Request) {
	request.MultipartForm, request.Pattern = r.MultipartForm, r.Pattern
}

// Read is core.Request.Body: the whole body, up to one byte over limit.
func (in *Incoming) Read(limit int64) ([]byte, error) {
	r := in.request
	if r.ContentLength > limit {
		return nil, core.ErrBodyTooLarge
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	var buf bytes.Buffer
	buf.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead)
	_, err := buf.ReadFrom(io.LimitReader(r.Body, limit+1))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, core.ErrBodyTooLarge
	}
	in.body = rereadable{bytes.NewReader(buf.Bytes()), r.Body}
	return buf.Bytes(), err
}

// rereadable is a body in memory that closes the one it came from.
type rereadable struct {
	*bytes.Reader
	io.Closer
}

// Send writes a response: the headers around it stay, those it names are replaced.
func Send(w http.ResponseWriter, r *core.Response) error {
	header := w.Header()
	replaceHeader(header, r)
	w.WriteHeader(r.Status)
	var err error
	if len(r.Body) > 0 {
		_, err = w.Write(r.Body)
	}
	replaceLines(header, r.Trailer)
	return err
}

// replaceHeader applies what a handler did to header.
func replaceHeader(header http.Header, r *core.Response) {
	for _, name := range r.Removed {
		header[name] = nil
	}
	replaceLines(header, r.Header)
	addLines(header, r.Added)
}

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
