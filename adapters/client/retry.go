package idem

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-idem/idem/adapters/internal/attempts"
)

// sendWithRetries sends req until there is an outcome, or until the bounds allow no further attempt. It returns the last response
// or error.
func (t *Transport) sendWithRetries(op *operation, req *http.Request) (*http.Response, error) {
	bounds := t.bounds()
	if !isRepeatable(req) {
		bounds.Attempts = 1
	}
	for attempt := 1; ; attempt++ {
		res, release, err := t.sendOnce(req)
		if !shouldRetry(req, res, err) {
			return releaseAtEnd(res, release), err
		}
		until, hasNext := bounds.Next(req.Context(), attempt, op.startedAt, askedPause(res))
		if !hasNext {
			return releaseAtEnd(res, release), err
		}
		bufferBody(req.Context(), res, release)
		//lint:ignore SA1019 An http.Client with a Timeout still sets Cancel.
		next, ended := req, attempts.Wait(req.Context(), req.Cancel, until)
		if ended == nil && !time.Now().Before(bounds.End(op.startedAt)) { // the body was read for too long
			return res, err
		}
		if ended == nil {
			next, ended = rewind(req)
		}
		if ended != nil {
			return res, endError(ended, res, err)
		}
		req = next
	}
}

// sendOnce sends req once. release must be called when the response is no longer needed: it ends the attempt's context. If there
// is no response, sendOnce has called it.
func (t *Transport) sendOnce(req *http.Request) (res *http.Response, release context.CancelFunc, err error) {
	ctx, release := context.WithCancel(req.Context())
	res, err = t.Base.RoundTrip(req.WithContext(ctx))
	if err != nil && res != nil && res.Body != nil { // A RoundTripper must not return both; http.Client does not close such a body.
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

// isRepeatable reports whether it is worth sending req more than once: it has a host and a valid header, without which Base
// refuses it each time, and its body can be read again.
func isRepeatable(req *http.Request) bool {
	hasBody := req.Body != nil && req.Body != http.NoBody
	return req.URL != nil && req.URL.Host != "" && isValid(req.Header) && (!hasBody || req.GetBody != nil)
}

// isValid reports whether a header can be sent (RFC 9110, section 5.5).
func isValid(header http.Header) bool {
	for name, values := range header {
		hasControls := strings.ContainsFunc(strings.Join(values, ""), func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7F })
		if !attempts.IsToken(name) || hasControls {
			return false
		}
	}
	return true
}

// endError returns the caller's error when the attempts end because of the request: its context ended, or its body cannot be read
// again. If there is a response, the caller gets that and no error.
func endError(reason error, res *http.Response, err error) error {
	if res != nil {
		return nil
	}
	return fmt.Errorf("idem: not sent again: %w (the attempt before: %w)", reason, err)
}

// shouldRetry reports whether another attempt can learn the outcome. res and err are those of the last attempt.
func shouldRetry(req *http.Request, res *http.Response, err error) bool {
	if err != nil {
		var untrusted *tls.CertificateVerificationError // Nothing was sent, and nothing will be.
		return req.Context().Err() == nil && !errors.As(err, &untrusted)
	}
	if res == nil { // A RoundTripper must not return neither; http.Client reports it.
		return false
	}
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return res.StatusCode == http.StatusConflict && res.Header.Get("Retry-After") != ""
}

// rewind returns a copy of req whose body begins at its start.
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
