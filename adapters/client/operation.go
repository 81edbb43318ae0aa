package idem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-idem/idem/adapters/internal/attempts"
)

// operation is one logical request. It lasts through all attempts and redirects.
type operation struct {
	headerValue string    // the key as its header field carries it
	hasKey      bool      // false after a redirect that made the request a GET
	origin      *url.URL  // the URL of the first request, whose server knows the key
	startedAt   time.Time // when the first attempt began
}

// operationContextKey is the context key of the operation that a sent request belongs to.
type operationContextKey struct{}

// errLostOperation is the error of a redirected request whose operation the transport cannot find.
var errLostOperation = errors.New("idem: not sent: this request follows a redirect, and the key of the one that was redirected " +
	"is not known; give it one by WithKey, or send all requests of the http.Client through one Transport that no other " +
	"RoundTripper hides the request from")

// operationOf returns the operation that req belongs to, or nil if the request needs no key.
func (t *Transport) operationOf(req *http.Request) (*operation, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	if req.Response != nil {
		return t.redirected(req)
	}
	if !t.isKeyed(req.Method) {
		return nil, nil
	}
	return t.newOperation(req, req.URL)
}

// newOperation returns the operation of req with the caller's key, or with a new one. from is the URL whose server knows the key.
func (t *Transport) newOperation(req *http.Request, from *url.URL) (*operation, error) {
	key, isGiven, err := t.callerKey(req)
	if err != nil {
		return nil, err
	}
	if !isGiven {
		key, err = attempts.FormatKey(attempts.NewKey(), t.Bare)
	}
	return &operation{headerValue: key, hasKey: true, origin: from, startedAt: time.Now()}, err
}

// redirected returns the operation that continues in req, a request that an http.Client made from a redirect. Such a request is a
// copy of the caller's request. It does not have what the Transport had added, so the operation is found in the context of the
// request before it.
func (t *Transport) redirected(req *http.Request) (*operation, error) {
	before := req.Response.Request // the request as it was sent, by tagResponse
	if before == nil {
		before = &http.Request{}
	}
	op, _ := before.Context().Value(operationContextKey{}).(*operation)
	sameMethod := before.Method == req.Method
	switch {
	case op == nil && !t.isKeyed(req.Method):
		return nil, nil
	case op != nil && (!op.hasKey || !sameMethod || !t.isKeyed(req.Method)):
		return &operation{origin: op.origin, startedAt: op.startedAt}, nil
	case op == nil:
		_, isGiven, err := t.callerKey(req)
		if !isGiven || before.URL == nil {
			return nil, errors.Join(err, errLostOperation)
		}
		if op, err = t.newOperation(req, before.URL); err != nil {
			return nil, err
		}
	}
	if !t.mayFollow(op.origin, req.URL) {
		return nil, fmt.Errorf("%w: from %s to %s", ErrOtherOrigin, originOf(op.origin), originOf(req.URL))
	}
	if !time.Now().Before(op.startedAt.Add(t.Window)) {
		return nil, errors.New("idem: not sent: a redirect came after Transport.Window, when the server may have forgotten the key")
	}
	return op, nil
}

// request returns a copy of req with the operation in its context and the key in its header. The copy shares the trailer map with
// req, because the caller may set trailers when the body ends.
func (op *operation) request(req *http.Request, header string) *http.Request {
	sent := req.WithContext(context.WithValue(req.Context(), operationContextKey{}, op))
	sent.Header = make(http.Header, len(req.Header)+1)
	for name, values := range req.Header {
		if !strings.EqualFold(name, header) {
			sent.Header[name] = slices.Clone(values)
		}
	}
	if op.hasKey {
		sent.Header.Set(header, op.headerValue)
	}
	return sent
}

// tagResponse returns a function that sets res.Request to req, unless it is a request of the operation already. After a redirect,
// the operation is found there.
func (op *operation) tagResponse(req *http.Request) func(*http.Response, error) (*http.Response, error) {
	return func(res *http.Response, err error) (*http.Response, error) {
		if res != nil && (res.Request == nil || res.Request.Context().Value(operationContextKey{}) != op) {
			res.Request = req
		}
		return res, err
	}
}
