package core

import (
	"errors"
	"net/http"

	"github.com/go-idem/idem/core/driver"
)

// readBody reads the body and makes the fingerprint of the request, or returns the code of what is wrong with the body.
func (op *operation) readBody() (problem string, err error) {
	e := op.engine
	body, err := op.req.Body(e.cfg.Limits.RequestBody)
	switch {
	case err == nil:
		op.claim.Fingerprint = e.cfg.Fingerprint.of(e.hasher, e.algorithm, &op.req, body)
		return "", nil
	case isTooLarge(err):
		return codeBodyTooLarge, nil
	}
	return codeBodyUnreadable, err
}

// bodyState says what came of reading the body of a request. It takes one byte of an operation.
type bodyState uint8

const (
	bodyUnread bodyState = iota
	bodyRead
	bodyTooLarge
	bodyUnreadable
	bodyTaken
)

// readOnce is Request.Body for the engine and for the functions of the configuration, which may call it before the engine does. It
// calls read, which is that of the adapter and cannot be called again, at the first call only.
func (op *operation) readOnce(read func(limit int64) ([]byte, error)) ([]byte, error) {
	limit, compares := op.engine.cfg.Limits.RequestBody, &op.engine.cfg.Fingerprint
	if op.bodyState == bodyUnread {
		body, err := read(limit)
		isTaken := errors.Is(err, driver.ErrBodyTaken)
		switch {
		case err == nil && int64(len(body)) <= limit, isTaken && (compares.Off || compares.Func != nil):
			op.body, op.bodyState = body, bodyRead
		case isTaken: // different requests would be the same
			op.bodyState = bodyTaken
		case err == nil || isTooLarge(err):
			op.bodyState = bodyTooLarge
		default:
			op.bodyState = bodyUnreadable
		}
	}
	switch op.bodyState {
	case bodyTooLarge:
		return nil, &http.MaxBytesError{Limit: limit}
	case bodyUnreadable:
		return nil, errBodyUnreadable
	case bodyTaken:
		return nil, driver.ErrBodyTaken
	}
	return op.body, nil
}

// isTooLarge reports whether err says that a body is longer than the limit.
func isTooLarge(err error) bool {
	tooLarge := (*http.MaxBytesError)(nil)
	return errors.As(err, &tooLarge)
}
