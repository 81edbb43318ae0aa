package capture

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// Read implements core.Request.Body: it returns the whole body, or an error that wraps *http.MaxBytesError or more than limit
// bytes when the body is longer than limit bytes. The handler can still read the body afterwards.
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

// isTooLarge reports whether err comes from a limit on the body that outer middleware has set.
func (x *Exchange) isTooLarge(err error) bool {
	tooLarge := (*http.MaxBytesError)(nil)
	return errors.As(err, &tooLarge) || x.TooLarge != nil && errors.Is(err, x.TooLarge)
}

// initialBuffer is the largest buffer, in bytes, that a request gets before the first byte of its body has arrived.
const initialBuffer = 4 << 10

// readAll reads r to its end, like io.ReadAll. length is the declared length in bytes, negative if there is none. The buffer
// grows by at most a factor of four as bytes arrive, because a client may declare a length and never send the bytes. It grows to
// the declared length in the end, so that the whole body lies in one buffer of the right size.
func readAll(r io.Reader, length int64) (body []byte, err error) {
	if length < 0 {
		return io.ReadAll(r)
	}
	body = make([]byte, 0, min(length, initialBuffer)+1) // The last byte stays free, so that Read can report io.EOF.
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

// bufferedBody is a request body that the engine has read into memory. Close closes the original body.
type bufferedBody struct {
	bytes.Reader
	io.Closer
}

// hasBody reports whether a response with this status may have a body (RFC 9110, section 6.4.1).
func hasBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
