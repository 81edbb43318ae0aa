package capture

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// Read is core.Request.Body: the whole body, up to one byte over limit.
func (x *Exchange) Read(limit int64) ([]byte, error) {
	r := x.request
	if r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	x.limited = io.LimitedReader{R: r.Body, N: limit + 1}
	body, err := readAll(&x.limited, r.ContentLength)
	if err != nil && x.isTooLarge(err) {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	x.buffered.Reset(body)
	x.buffered.Closer = r.Body
	return body, err
}

// isTooLarge tells whether err is that of a limit outside.
func (x *Exchange) isTooLarge(err error) bool {
	tooLarge := (*http.MaxBytesError)(nil)
	return errors.As(err, &tooLarge) || x.TooLarge != nil && errors.Is(err, x.TooLarge)
}

// initialBuffer is how much memory a body of a known length gets before any of it has come, in bytes.
const initialBuffer = 4 << 10

// readAll is io.ReadAll for a body whose length may be known, or else is negative. It takes memory as bytes come, since who
// declares a length may never send it; the last growth is to that length.
func readAll(r io.Reader, length int64) (body []byte, err error) {
	if length < 0 {
		return io.ReadAll(r)
	}
	body = make([]byte, 0, min(length, initialBuffer)+1) // one more, to see the end
	for err == nil {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, min(max(length+1, int64(len(body))+512), 4*int64(cap(body)))), body...)
		}
		var n int
		n, err = r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return body, err
}

// bufferedBody is a body in memory that closes the one it came from.
type bufferedBody struct {
	bytes.Reader
	io.Closer
}

// hasBody reports whether a response with this status may have a body (RFC 9110, section 6.4.1).
func hasBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
