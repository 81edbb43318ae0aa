package idem

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// sendWithRetries sends req until there is an outcome, or no use in another attempt.
func (t *Transport) sendWithRetries(op *operation, req *http.Request) (*http.Response, error) {
	end := op.startedAt.Add(min(t.MaxElapsed, t.Window))
	attempts := t.Attempts
	if !isRepeatable(req) {
		attempts = 1
	}
	for attempt := 1; ; attempt++ {
		res, release, err := t.sendOnce(req)
		if attempt >= attempts || !shouldRetry(req, res, err) {
			return releaseAtEnd(res, release), err
		}
		pause := t.pause(attempt+1, res)
		until := time.Now().Add(pause)
		if pause > t.MaxPause || !until.Before(end) || !isBeforeDeadline(req.Context(), until) {
			return releaseAtEnd(res, release), err
		}
		bufferBody(req.Context(), res, release)
		next, ended := req, wait(req, until)
		if ended == nil {
			next, ended = rewind(req)
		}
		if ended != nil {
			return res, endError(ended, res, err)
		}
		req = next
	}
}

// sendOnce sends req once. release ends all that the answer still holds; without an answer nothing is left to end.
func (t *Transport) sendOnce(req *http.Request) (res *http.Response, release context.CancelFunc, err error) {
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

// isRepeatable tells whether req can be sent more than once, or at all.
func isRepeatable(req *http.Request) bool {
	hasBody := req.Body != nil && req.Body != http.NoBody
	return req.URL != nil && req.URL.Host != "" && (!hasBody || req.GetBody != nil)
}

// endError is the error of the caller when the attempts end for a reason that lies with the request: none when there is an answer.
func endError(reason error, res *http.Response, err error) error {
	if res != nil {
		return nil
	}
	return fmt.Errorf("idem: not sent again: %w (the attempt before: %w)", reason, err)
}

// shouldRetry tells whether another attempt can learn the outcome.
func shouldRetry(req *http.Request, res *http.Response, err error) bool {
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

// rewind returns req with its body at the start.
func rewind(req *http.Request) (*http.Request, error) {
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
