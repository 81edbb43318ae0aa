// Package idem gives outgoing requests a key, and sends them again with the same key until there is an outcome.
package idem

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Transport is an http.RoundTripper that mints a key for each request that has none, and sends the request again, with the
// same key and body, when the answer is lost or not an outcome: after an error of the network, 429, 502, 503, 504, and
// 409 with Retry-After, which says that an earlier attempt is still running. It waits as long as Retry-After says, or
// longer from attempt to attempt. Whatever it has in the end, an answer or an error, goes to the caller.
//
// The zero value is ready to use. It is safe for concurrent use, and must not be changed once it is used.
type Transport struct {
	// Base sends the requests. Default http.DefaultTransport.
	Base http.RoundTripper

	// Header is the name of the key's header line. Default "Idempotency-Key". A request that has the line keeps it.
	Header string

	// Methods get a key; others are sent once, as they are. Default POST and PATCH.
	Methods []string

	// Attempts is how often a request is sent at most. Default 5. A request whose body can not be read again (no GetBody)
	// is sent once.
	Attempts int

	// Window is how long the server keeps outcomes, counted from the first attempt: none is sent after it, because it
	// would run anew. Default 24 h.
	Window time.Duration

	// Pause is the wait before the n-th attempt, from 2 on, when the server names none. Default: 100 ms for the second, and
	// twice as long for each after it, up to 10 s, less up to a half at random.
	Pause func(attempt int) time.Duration
}

type contextKey struct{}

// WithKey gives the requests made with ctx a key of the caller's, such as the one core.ChildKey derives, or one that is
// stored with the operation and outlives this process.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, contextKey{}, key)
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	methods := t.Methods
	if methods == nil {
		methods = []string{http.MethodPost, http.MethodPatch}
	}
	if !slices.Contains(methods, req.Method) {
		return base.RoundTrip(req)
	}
	return t.repeat(base, t.keyed(req))
}

// keyed returns req with a key. A RoundTripper must not change the request it is given.
func (t *Transport) keyed(req *http.Request) *http.Request {
	header := cmp.Or(t.Header, "Idempotency-Key")
	if req.Header.Get(header) != "" {
		return req
	}
	key, _ := req.Context().Value(contextKey{}).(string)
	keyed := req.Clone(req.Context())
	keyed.Header.Set(header, cmp.Or(key, rand.Text()))
	return keyed
}

// repeat sends req until there is an outcome, or no use in another attempt.
func (t *Transport) repeat(base http.RoundTripper, req *http.Request) (*http.Response, error) {
	attempts := cmp.Or(t.Attempts, 5)
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		attempts = 1
	}
	end := time.Now().Add(cmp.Or(t.Window, 24*time.Hour))
	for attempt := 1; ; attempt++ {
		res, err := base.RoundTrip(req)
		if attempt >= attempts || !again(req, res, err) {
			return res, err
		}
		pause := t.pause(attempt+1, res)
		if !time.Now().Add(pause).Before(end) {
			return res, err
		}
		if !wait(req.Context(), pause) {
			return res, err
		}
		next, bodyErr := rewound(req) // now, since nobody else would close it
		if bodyErr != nil {
			return res, err
		}
		drop(res)
		req = next
	}
}

// again tells whether another attempt can learn the outcome.
func again(req *http.Request, res *http.Response, err error) bool {
	if err != nil {
		return req.Context().Err() == nil
	}
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return res.StatusCode == http.StatusConflict && res.Header.Get("Retry-After") != ""
}

// pause is the wait before an attempt.
func (t *Transport) pause(attempt int, res *http.Response) time.Duration {
	if res != nil {
		if named, err := retryAfter(res.Header.Get("Retry-After")); err == nil {
			return named
		}
	}
	if t.Pause != nil {
		return t.Pause(attempt)
	}
	longest := min(100*time.Millisecond<<min(attempt-2, 10), 10*time.Second)
	return longest - mathrand.N(longest/2)
}

// retryAfter reads seconds or a date: RFC 9110, section 10.2.3.
func retryAfter(value string) (time.Duration, error) {
	if seconds, err := strconv.Atoi(value); err == nil {
		if seconds < 0 || seconds > 1<<31 {
			return 0, errors.New("out of range")
		}
		return time.Duration(seconds) * time.Second, nil
	}
	date, err := http.ParseTime(value)
	return max(time.Until(date), 0), err
}

// rewound returns req with its body at the start.
func rewound(req *http.Request) (*http.Request, error) {
	next := req.Clone(req.Context())
	if req.GetBody == nil {
		return next, nil
	}
	body, err := req.GetBody()
	next.Body = body
	return next, err
}

// wait tells whether d has passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// drop reads an answer to its end, so that its connection can be used again.
func drop(res *http.Response) {
	if res == nil {
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	_ = res.Body.Close()
}
