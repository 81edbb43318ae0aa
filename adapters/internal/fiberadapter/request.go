package fiberadapter

import (
	"io"
	"net/http"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
	"github.com/go-idem/idem/core/driver"
)

// request returns the request as the engine reads it. Every string is a copy, because fasthttp uses its memory again.
func (x *exchange[C]) request() core.Request {
	header, r := &x.fasthttp.Request.Header, x.template
	r.Method = methodOf(header)
	r.Path, r.RawQuery, _ = strings.Cut(string(header.RequestURI()), "?")
	return r
}

// methodOf returns the request's method. The usual methods are constants, which saves the copy.
func methodOf(header *fasthttp.RequestHeader) string {
	for _, m := range []string{http.MethodPost, http.MethodPatch, http.MethodGet} {
		if string(header.Method()) == m {
			return m
		}
	}
	return string(header.Method())
}

// header implements core.Request.Header. It compares names itself, because fasthttp's PeekAll is case-sensitive if the app has
// DisableHeaderNormalizing. The values of a request in chunks are cut to those that came before the body: see trailers.go.
func (x *exchange[C]) header(name string) (values []string) {
	if strings.EqualFold(name, "Host") { // An absolute request target overrides the Host field.
		return []string{string(x.fasthttp.Request.URI().Host())}
	}
	if !x.isBufferUsed {
		x.isBufferUsed, values = true, x.valueBuffer[:0]
	}
	x.fasthttp.Request.Header.VisitAll(func(key, value []byte) {
		if len(key) == len(name) && strings.EqualFold(string(key), name) {
			values = append(values, string(value))
		}
	})
	if len(values) > 0 && isChunked(&x.fasthttp.Request.Header) {
		values = values[:min(len(values), countBeforeBody(&x.fasthttp.Request.Header, name))]
	}
	return values
}

// body implements core.Request.Body. If the app has StreamRequestBody, body reads the stream and stores it in the request for the
// handlers. A body that is longer than limit is returned with one byte more than limit, or as an error if its length is declared;
// the engine refuses both.
func (x *exchange[C]) body(limit int64) ([]byte, error) {
	r := &x.fasthttp.Request
	length := int64(r.Header.ContentLength())
	switch {
	case length > limit:
		return nil, &http.MaxBytesError{Limit: limit}
	case length > 0 && len(r.Header.MultipartFormBoundary()) > 0 && x.version.ParsesForms(x.ctx):
		return formDigest(r)
	case !r.IsBodyStream():
		return r.Body(), nil
	}
	b, err := io.ReadAll(io.LimitReader(r.BodyStream(), limit+1))
	if err != nil || int64(len(b)) > limit {
		return b, err
	}
	return takenBody(r, b)
}

// takenBody returns what stands for a streamed body of which this rest was left to read: the rest if nothing was read before, and then
// handlers get it. If middleware outside has parsed the form, the form stands for what was read, and stays for the handlers.
func takenBody(r *fasthttp.Request, rest []byte) ([]byte, error) {
	if f, err := r.MultipartForm(); err == nil { // parsed before, since an empty stream is no form
		hash, err := capture.HashForm(f)
		return append(hash, rest...), err
	}
	if len(rest) == 0 && r.Header.ContentLength() > 0 {
		return nil, driver.ErrBodyTaken
	}
	r.SetBody(rest)
	return rest, nil
}

// formDigest returns a hash of the multipart form, which stands for the body. fasthttp has parsed the form already, and would write
// the body in another order each time.
func formDigest(r *fasthttp.Request) ([]byte, error) {
	f, err := r.MultipartForm()
	if err != nil {
		return nil, err
	}
	return capture.HashForm(f)
}
