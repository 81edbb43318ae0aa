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
)

// operation is one logical request: its key, and the time of its first attempt, last through all attempts and redirects.
type operation struct {
	headerValue string // the key as its header line carries it
	hasKey      bool   // false behind a redirect that made it a GET
	origin      *url.URL
	startedAt   time.Time
}

type operationContextKey struct{}

var errLostOperation = errors.New("idem: not sent: this request follows a redirect, and the key of the one that was redirected is not known; " +
	"give it one by WithKey, or send all requests of the http.Client through one Transport that no other RoundTripper hides the request from")

// operationOf returns the operation that req belongs to, or nil for a request that has nothing to do with keys.
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

func (t *Transport) newOperation(req *http.Request, from *url.URL) (*operation, error) {
	line, given, err := t.callerKey(req)
	if err != nil {
		return nil, err
	}
	if !given {
		line, err = t.formatKey(newKey())
	}
	return &operation{headerValue: line, hasKey: true, origin: from, startedAt: time.Now()}, err
}

// redirected returns the operation that goes on in req, which an http.Client made of a redirect: a copy of the caller's
// request, with its context and its header, and without what the Transport had added.
func (t *Transport) redirected(req *http.Request) (*operation, error) {
	before := req.Response.Request // the one that was sent, since operation.sent sees to it
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
		_, given, err := t.callerKey(req)
		if !given || before.URL == nil {
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

// request returns a copy of req that carries the operation. It shares the trailer with req, whose values may come with the
// end of the body.
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

// tagResponse returns a function that makes an answer name the request that it belongs to, so that a redirect finds the operation.
func (op *operation) tagResponse(req *http.Request) func(*http.Response, error) (*http.Response, error) {
	return func(res *http.Response, err error) (*http.Response, error) {
		if res != nil && (res.Request == nil || res.Request.Context().Value(operationContextKey{}) != op) {
			res.Request = req
		}
		return res, err
	}
}
