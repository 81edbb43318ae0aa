package idem

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	mathrand "math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	leastPause = 10 * time.Millisecond

	// What is read of an answer that is followed by another attempt, at most.
	asideTime  = time.Second
	asideBytes = 64 << 10
)

// repeat sends req until there is an outcome, or no use in another attempt.
func (t *Transport) repeat(op *operation, req *http.Request) (*http.Response, error) {
	end := op.began.Add(min(t.MaxElapsed, t.Window))
	attempts := t.Attempts
	if !repeatable(req) {
		attempts = 1
	}
	for attempt := 1; ; attempt++ {
		res, release, err := t.attempt(req)
		if attempt >= attempts || !again(req, res, err) {
			return held(res, release), err
		}
		pause := t.pause(attempt+1, res)
		until := time.Now().Add(pause)
		if pause > t.MaxPause || !until.Before(end) || !endsLater(req.Context(), until) {
			return held(res, release), err
		}
		setAside(req.Context(), res, release)
		next, ended := req, wait(req, until)
		if ended == nil {
			next, ended = rewound(req)
		}
		if ended != nil {
			return res, ending(ended, res, err)
		}
		req = next
	}
}

// attempt sends req once. release ends all that the answer still holds; without an answer nothing is left to end.
func (t *Transport) attempt(req *http.Request) (res *http.Response, release context.CancelFunc, err error) {
	ctx, release := context.WithCancel(req.Context())
	res, err = t.Base.RoundTrip(req.WithContext(ctx))
	if err != nil && res != nil && res.Body != nil { // not allowed, and an http.Client forgets such a response
		_ = res.Body.Close()
	}
	if err != nil {
		res = nil
	}
	if res == nil {
		release()
	}
	return res, release, err
}

// repeatable tells whether req can be sent more than once, or at all.
func repeatable(req *http.Request) bool {
	hasBody := req.Body != nil && req.Body != http.NoBody
	return req.URL != nil && req.URL.Host != "" && (!hasBody || req.GetBody != nil)
}

// ending is the error of the caller when the attempts end for a reason that lies with the request: none when there is an answer.
func ending(reason error, res *http.Response, err error) error {
	if res != nil {
		return nil
	}
	return fmt.Errorf("idem: not sent again: %w (the attempt before: %w)", reason, err)
}

// again tells whether another attempt can learn the outcome.
func again(req *http.Request, res *http.Response, err error) bool {
	if err != nil {
		var untrusted *tls.CertificateVerificationError // nothing was sent, and nothing will be
		return req.Context().Err() == nil && !errors.As(err, &untrusted)
	}
	if res == nil { // not allowed, and for the http.Client to report
		return false
	}
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return res.StatusCode == http.StatusConflict && res.Header.Get("Retry-After") != ""
}

// pause is the wait before an attempt. It exceeds MaxPause when the server asks for that.
func (t *Transport) pause(attempt int, res *http.Response) time.Duration {
	own := min(max(t.Pause(attempt), leastPause), t.MaxPause)
	if res == nil {
		return own
	}
	now, err := http.ParseTime(res.Header.Get("Date")) // a date in Retry-After is of the same clock
	if err != nil {
		now = time.Now()
	}
	named, err := retryAfter(res.Header.Get("Retry-After"), now)
	if err != nil {
		return own
	}
	return max(own, named)
}

// growing is the default of Transport.Pause.
func growing(attempt int) time.Duration {
	longest := min(100*time.Millisecond<<min(attempt-2, 10), 10*time.Second)
	return longest - mathrand.N(longest/2)
}

const longestRetryAfter = math.MaxInt32

// retryAfter reads seconds or a date: RFC 9110, section 10.2.3.
func retryAfter(value string, now time.Time) (time.Duration, error) {
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > longestRetryAfter {
			seconds = longestRetryAfter
		}
		return time.Duration(seconds) * time.Second, nil
	}
	date, err := http.ParseTime(value)
	return max(date.Sub(now), 0), err
}

// endsLater tells whether ctx leaves room for an attempt at a time.
func endsLater(ctx context.Context, at time.Time) bool {
	deadline, ok := ctx.Deadline()
	return !ok || at.Before(deadline)
}

// rewound returns req with its body at the start.
func rewound(req *http.Request) (*http.Request, error) {
	next := req.WithContext(req.Context())
	next.Header = req.Header.Clone()
	if req.GetBody == nil {
		return next, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	next.Body = body
	return next, nil
}

// wait returns nil at a time, or the reason why the caller gave up before it.
func wait(req *http.Request, until time.Time) error {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-req.Context().Done():
		return context.Cause(req.Context())
	//lint:ignore SA1019 deprecated, and an http.Client with a Timeout still sets it
	case <-req.Cancel:
		return context.Canceled
	}
}

// setAside reads the body of an answer that is probably not the last, within bounds, and closes it, so that nothing holds
// its connection during a pause. What was read stays readable.
func setAside(ctx context.Context, res *http.Response, release context.CancelFunc) {
	if res == nil || res.Body == nil {
		release()
		return
	}
	body, read := res.Body, make(chan io.ReadCloser, 1)
	go func() {
		start, err := io.ReadAll(io.LimitReader(body, asideBytes+1))
		if len(start) > asideBytes {
			start, err = start[:asideBytes], io.ErrUnexpectedEOF
		}
		_ = body.Close()
		read <- &aside{start: bytes.NewReader(start), end: err}
	}()
	timer := time.NewTimer(asideTime)
	defer timer.Stop()
	select {
	case res.Body = <-read:
		release()
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	release()                        // ends the read of an http.Transport, whose Close may wait for it
	go func() { _ = body.Close() }() // ends the read of others
	res.Body = &aside{start: bytes.NewReader(nil), end: io.ErrUnexpectedEOF}
}

// held returns the caller's answer, which calls release when it is read to its end or closed.
func held(res *http.Response, release context.CancelFunc) *http.Response {
	if res == nil || res.Body == nil {
		release()
		return res
	}
	body := &heldBody{res.Body, release}
	res.Body = body
	if w, ok := body.ReadCloser.(io.Writer); ok { // a connection that was switched to another protocol
		res.Body = struct {
			*heldBody
			io.Writer
		}{body, w}
	}
	return res
}

type heldBody struct {
	io.ReadCloser
	release context.CancelFunc
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

func (b *heldBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// aside is a body of which the start was read.
type aside struct {
	start *bytes.Reader
	end   error // what follows; nil when that was all
}

func (a *aside) Read(p []byte) (int, error) {
	n, err := a.start.Read(p)
	if err == io.EOF && a.end != nil {
		err = a.end
	}
	return n, err
}

func (a *aside) Close() error { return nil }
