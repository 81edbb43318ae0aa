// Package idem gives outgoing requests a key, and sends them again with the same key when an answer is lost.
package idem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Transport is an http.RoundTripper that gives each request one key, and sends the request again, with the same key and
// body, when the answer is lost or is not an outcome: after an error of the network, after 429, 502, 503 and 504, and after
// 409 with Retry-After, which says that an earlier attempt is still running. What it has in the end, an answer or an
// error, goes to the caller; that may be a 409 or a 503, since the attempts are bounded by Attempts, MaxElapsed, MaxPause,
// Window and the request's context. A context whose deadline lies before the next attempt ends them at once.
//
// # Keys
//
// The key is the one that the request has a header line for, else the one that WithKey gave to its context, else a new
// UUIDv7. A line is sent as it stands; other keys are quoted, unless Bare is set. A key that cannot be sent is an error, and
// then nothing is sent: an empty one, one with bytes outside of printable ASCII, more than one line.
//
// # Redirects
//
// An http.Client follows 307 and 308 with the same method and body. Such a request has the key of the request that was
// redirected (CLI-01), as long as it stays on the same origin, moves from http to https on the same host and the default
// ports, or goes to one of Origins. Anywhere else it is not sent, and the error is ErrOtherOrigin: the key would leave the
// service that knows it, and under a new key an operation whose first answer was lost could happen twice. The attempts are
// counted anew behind a redirect; MaxElapsed and Window are not. After 301, 302 and 303 the http.Client sends a GET, which
// has no key. Base must not follow redirects by itself.
//
// # Bounds
//
// An answer that is followed by another attempt is read for at most a second and 64 KiB and closed before the pause. If
// the context ends in the pause, the caller gets this answer, with as much of its body. How long one attempt may take is
// for Base and the context to say: set http.Transport.ResponseHeaderTimeout to try again when a server does not answer.
//
// The zero value is ready to use. A Transport is safe for concurrent use, and must not be changed once it is used. Bad
// values of its fields are errors of each RoundTrip.
type Transport struct {
	// Base sends the requests. Default http.DefaultTransport.
	Base http.RoundTripper

	// Header is the name of the key's header line. Default "Idempotency-Key".
	Header string

	// Bare sends keys as they are. By default they are quoted, as the draft of the header wants it and as a server
	// with core.KeyConfig.Strict insists on; every server of this library takes both forms of a key for one. Others may take
	// the quotes for a part of the key, which does no harm while all clients send them, or refuse them, for example
	// where the key must be a UUID: set Bare for those. A server that does not read quotes takes the two forms for two
	// keys, so do not change Bare while requests may be sent again.
	Bare bool

	// Methods get a key; others are sent once, as they are. Default POST and PATCH.
	Methods []string

	// Origins, such as "https://eu.provider.example", may get keyed requests by a redirect, key included. They must be one
	// service with the origin that redirects, and know its keys. Default none.
	Origins []string

	// Attempts is how often a request is sent at most. Default 20, which is more than MaxElapsed leaves room for when both
	// it and Pause have their defaults. A request whose body cannot be read again (no GetBody) is sent once.
	Attempts int

	// MaxElapsed is how long after the first attempt another one may begin. Default 1 min: a server of this library lets
	// another attempt take over 30 s after the process that had the first one died (core.LeaseConfig.Duration), so the default
	// reaches past that (CLI-02). Raise both or neither.
	MaxElapsed time.Duration

	// Window is how long the server keeps outcomes, counted from the first attempt: none is sent after it, because it
	// would run anew. With a key from WithKey that an earlier request has used, set it to what is left. Default 24 h.
	Window time.Duration

	// Pause is the wait before the n-th attempt, from 2 on; a longer Retry-After of the server takes its place (CLI-03). It
	// must be safe for concurrent use. Default: 100 ms for the second attempt, and twice as long for each after it, up to
	// 10 s, less up to a half at random.
	Pause func(attempt int) time.Duration

	// MaxPause is the longest pause. A server that asks for a longer one ends the attempts: the caller gets its answer at
	// once, with the Retry-After. A longer Pause is cut to it, and one under 10 ms is taken for 10 ms. Default 1 min.
	MaxPause time.Duration
}

// ErrOtherOrigin is the error of a request with a key that a redirect sends to another origin. It was not sent there.
// When an earlier attempt had no answer, its outcome is unknown.
var ErrOtherOrigin = errors.New("idem: a redirect to another origin is not followed with a key; if both origins are one service, name it in Transport.Origins")

type keyContextKey struct{}

// WithKey gives the requests made with ctx a key of the caller's, such as the one core.ChildKey derives, or one that is
// stored with the operation and outlives this process. A key is printable ASCII; with an empty one, or another byte, the
// requests are not sent and RoundTrip returns an error, since a key of another making could do the operation twice. Servers
// of this library take up to 255 bytes.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyContextKey{}, key)
}

// RoundTrip implements http.RoundTripper. It never changes req.
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

// CloseIdleConnections closes those of Base, for http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.withDefaults().Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// withDefaults returns a copy with every field set.
func (t *Transport) withDefaults() *Transport {
	c := *t
	if c.Base == nil {
		c.Base = http.DefaultTransport
	}
	if c.Methods == nil {
		c.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	if c.Pause == nil {
		c.Pause = defaultPause
	}
	c.Header = cmp.Or(c.Header, "Idempotency-Key")
	c.Attempts = cmp.Or(c.Attempts, 20)
	c.MaxElapsed = cmp.Or(c.MaxElapsed, time.Minute)
	c.Window = cmp.Or(c.Window, 24*time.Hour)
	c.MaxPause = cmp.Or(c.MaxPause, time.Minute)
	return &c
}

// validate names every bad field.
func (t *Transport) validate() error {
	var bad []error
	refuse := func(field string, value any, fix string) {
		bad = append(bad, fmt.Errorf("idem: Transport.%s is %v; %s", field, value, fix))
	}
	if !isToken(t.Header) {
		refuse("Header", fmt.Sprintf("%q", t.Header), "give it the name of a header line")
	}
	if t.Attempts < 0 {
		refuse("Attempts", t.Attempts, "give it 1 or more, or 0 for the default")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"MaxElapsed", t.MaxElapsed}, {"Window", t.Window}, {"MaxPause", t.MaxPause}} {
		if d.value < 0 {
			refuse(d.field, d.value, "give it a positive duration, or 0 for the default")
		}
	}
	for i, name := range t.Origins {
		if _, err := parseOrigin(name); err != nil {
			refuse(fmt.Sprintf("Origins[%d]", i), fmt.Sprintf("%q", name), "give it a scheme and a host, such as https://api.example")
		}
	}
	return errors.Join(bad...)
}

// isKeyed tells whether requests of a method get a key.
func (t *Transport) isKeyed(method string) bool {
	return slices.Contains(t.Methods, cmp.Or(method, http.MethodGet))
}

// closeBody closes the body of a request that is not sent, as an http.RoundTripper must.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
