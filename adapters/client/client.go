// Package idem is the client's side of idempotency. [Transport], an http.RoundTripper, gives each outgoing request a key, and
// sends the request again with the same key when the response is lost. It works with every server that reads idempotency keys.
//
//	client := &http.Client{Transport: &idem.Transport{}}
//
// The fields of Transport are its options; the comment of each one says what its default is.
package idem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-idem/idem/adapters/internal/attempts"
)

// Transport is an http.RoundTripper that gives each request one key. It sends a request again, with the same key and body, when
// the response is lost or is no outcome:
//   - after an error of the network,
//   - after 429, 502, 503 and 504,
//   - after 409 with Retry-After, which says that an earlier attempt is still running.
//
// After a 409 without Retry-After it does not: the outcome is unknown, or the service has lost the record of a run, and the
// operation may have happened (CLI-04).
//
// The attempts are bounded by Attempts, MaxElapsed, MaxPause, Window and the request's context. The caller gets the last response
// or error, which may be a 409 or a 503. If the context's deadline lies before the next attempt, there is no next attempt.
//
// # Keys
//
// The key is the first of these that exists: the value of the request's header field, the key that WithKey gave to the request's
// context, a new UUIDv7. The value of a header field is sent as it is; other keys are quoted, unless Bare is set. If the key
// cannot be sent, RoundTrip returns an error and sends nothing: an empty key, a key with bytes other than printable ASCII, or
// more than one header field.
//
// # Redirects
//
// An http.Client follows 307 and 308 with the same method and body. The new request gets the key of the request that was
// redirected (CLI-01) if it stays on the same origin, moves from http to https on the same host with default ports, or goes to
// one of Origins. To any other origin it is not sent, and the error is ErrOtherOrigin. The key would leave the service that knows
// it there, and under a new key an operation whose first response was lost could happen twice. Attempts are counted anew after a
// redirect; MaxElapsed and Window are not. After 301, 302 and 303 the http.Client sends a GET, which gets no key. Base must not
// follow redirects itself.
//
// # Bounds
//
// Before a pause, the transport reads a response's body for at most a second and 64 KiB, and closes it. If the context ends in
// the pause, the caller gets this response. Its body is cut if it is longer than 64 KiB, and has nothing if it took longer than a
// second; in both cases Read returns io.ErrUnexpectedEOF at its end. Base and the context bound how long one attempt takes: set
// http.Transport.ResponseHeaderTimeout to try again when a server does not respond.
//
// The zero value is ready to use. A Transport is safe for concurrent use, and must not be changed after its first use. If a field
// has an invalid value, each RoundTrip returns an error.
type Transport struct {
	// Base sends the requests. Default http.DefaultTransport.
	Base http.RoundTripper

	// Header is the name of the header field that carries the key. Default "Idempotency-Key".
	Header string

	// Bare sends keys without quotes. Default false: keys are quoted, as the draft of the header demands and as a server with
	// core.KeyConfig.Strict requires. Every server of this library takes both forms as the same key. Another server may refuse
	// the quotes, for example because a key must be a UUID: set Bare for it. A server that takes the quotes as part of the key
	// takes the two forms as two keys, so do not change Bare while requests may be sent again.
	Bare bool

	// Methods are the methods whose requests get a key. Other requests are sent once, as they are. Default POST and PATCH.
	Methods []string

	// Origins, such as "https://eu.provider.example", are those to which a redirect may take a request with its key. They must
	// belong to the same service as the origin that redirects, and know its keys. Default none.
	Origins []string

	// Attempts is how often a request is sent at most. Default 20, which is more than there is time for with the defaults of
	// MaxElapsed and Pause. A request with a body and without GetBody is sent once, because its body cannot be read again.
	Attempts int

	// MaxElapsed is how long after the first attempt another attempt may begin. Default 1 min. If the process that runs the first
	// attempt dies, a server of this library lets another attempt take over after 30 s (core.LeaseConfig.Duration). The default
	// is longer than that (CLI-02): raise both or neither.
	MaxElapsed time.Duration

	// Window is how long the server keeps outcomes, counted from the first attempt. No attempt is sent after that, because it
	// would run the operation again. If an earlier request has used the key of WithKey, set Window to the time that is left.
	// Default 24 h.
	Window time.Duration

	// Pause returns the pause before an attempt; attempt is 2 or more. A longer Retry-After of the server takes its place
	// (CLI-03). It must be safe for concurrent use. Default: 100 ms before the second attempt, and twice as long before each
	// further one, up to 10 s; up to half of that is subtracted at random.
	Pause func(attempt int) time.Duration

	// MaxPause is the longest pause. If the server asks for a longer one, there is no further attempt: the caller gets the
	// response with its Retry-After at once. A longer result of Pause is cut to MaxPause, and one under 10 ms counts as 10 ms.
	// Default 1 min.
	MaxPause time.Duration
}

// ErrOtherOrigin is the error of a request with a key that a redirect leads to another origin. The request was not sent there. If
// an earlier attempt had no response, the outcome of the operation is unknown.
var ErrOtherOrigin = errors.New("idem: a redirect to another origin is not followed with a key; " +
	"if both origins are one service, name it in Transport.Origins")

// keyContextKey is the context key of the key that WithKey sets.
type keyContextKey struct{}

// WithKey returns a context whose requests have this key. Use it for a key that core.ChildKey derives, or one that is stored with
// the operation and outlives the process. The key must be printable ASCII and not empty; otherwise RoundTrip sends nothing and
// returns an error, because a key of the transport's own could do the operation twice. Servers of this library take keys of up to
// 255 bytes.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyContextKey{}, key)
}

// RoundTrip implements http.RoundTripper. It does not change req. Besides the errors of Base it returns ErrOtherOrigin, and errors
// for invalid fields and invalid keys; a request with one of these errors was not sent. If the context ends between two attempts
// and there is no response, the error wraps the context's cause and the error of the last attempt.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := t.withDefaults()
	op, err := c.operationOf(req)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	if op == nil {
		return c.Base.RoundTrip(req)
	}
	sent := op.request(req, c.Header)
	if !op.hasKey {
		return op.tagResponse(sent)(c.Base.RoundTrip(sent))
	}
	return op.tagResponse(sent)(c.sendWithRetries(op, sent))
}

// CloseIdleConnections closes the idle connections of Base. http.Client.CloseIdleConnections calls it.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.withDefaults().Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// withDefaults returns a copy of t in which every field has a value.
func (t *Transport) withDefaults() *Transport {
	c := *t
	if c.Base == nil {
		c.Base = http.DefaultTransport
	}
	if c.Methods == nil {
		c.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	c.Header = cmp.Or(c.Header, "Idempotency-Key")
	b := c.bounds().WithDefaults()
	c.Attempts, c.MaxElapsed, c.Window, c.Pause, c.MaxPause = b.Attempts, b.MaxElapsed, b.Window, b.Pause, b.MaxPause
	return &c
}

// bounds returns the bounds of the attempts.
func (t *Transport) bounds() *attempts.Bounds {
	return &attempts.Bounds{Attempts: t.Attempts, MaxElapsed: t.MaxElapsed, Window: t.Window, Pause: t.Pause, MaxPause: t.MaxPause}
}

// validate returns one error that names every field with an invalid value.
func (t *Transport) validate() error {
	var bad []error
	refuse := func(field string, value any, fix string) {
		bad = append(bad, fmt.Errorf("idem: Transport.%s is %v; %s", field, value, fix))
	}
	if !attempts.IsToken(t.Header) {
		refuse("Header", fmt.Sprintf("%q", t.Header), "give it the name of a header line")
	}
	t.bounds().Validate(refuse)
	for i, name := range t.Origins {
		if _, err := parseOrigin(name); err != nil {
			refuse(fmt.Sprintf("Origins[%d]", i), fmt.Sprintf("%q", name), "give it a scheme and a host, such as https://api.example")
		}
	}
	return errors.Join(bad...)
}

// isKeyed reports whether requests with this method get a key. "" stands for GET, as in http.Request.
func (t *Transport) isKeyed(method string) bool {
	return slices.Contains(t.Methods, cmp.Or(method, http.MethodGet))
}

// closeBody closes the body of a request that is not sent. An http.RoundTripper must do that.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
