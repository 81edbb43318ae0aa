package capture

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/go-idem/idem/core/driver"
)

// Read implements core.Request.Body: it returns the whole body, or an error that wraps *http.MaxBytesError or more than limit
// bytes when the body is longer than limit bytes. The handler can still read the body afterwards. If the request's form was parsed
// before, the body is gone, or only what follows the form is left, and Read returns what stands for it.
func (x *Exchange) Read(limit int64) ([]byte, error) {
	r := x.request
	if r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	if r.Body == nil || r.Body == http.NoBody {
		return takenBody(r, nil)
	}
	x.limited = io.LimitedReader{R: r.Body, N: limit + 1}
	body, err := readAll(&x.limited, r.ContentLength)
	if err != nil && x.isTooLarge(err) {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	x.buffered.reader.Reset(body)
	x.buffered.original = r.Body
	if err == nil && int64(len(body)) != r.ContentLength {
		return takenBody(r, body)
	}
	return body, err
}

// takenBody returns what stands for a body of which this rest is left to read: the rest if nothing was read. If middleware outside has
// parsed the form, or an option Scope has, the form stands for what was read. A reader of parts takes little of what follows them.
func takenBody(r *http.Request, rest []byte) ([]byte, error) {
	switch {
	case r.MultipartForm != nil && len(r.MultipartForm.Value)+len(r.MultipartForm.File) > 0:
		hash, err := HashForm(r.MultipartForm)
		return append(hash, rest...), err
	case len(rest) > 0:
		return rest, nil
	case len(r.PostForm) > 0:
		return []byte(r.PostForm.Encode()), nil
	case r.ContentLength > 0:
		return nil, driver.ErrBodyTaken
	}
	return nil, nil
}

// HashForm returns a hash of a multipart form that was parsed, which stands for the body: equal forms have equal hashes. Names and
// values are quoted, so that their ends are clear; the content of a file follows its length.
func HashForm(f *multipart.Form) ([]byte, error) {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(f.Value)) {
		fmt.Fprintf(h, "%q %q\n", name, f.Value[name])
	}
	for _, name := range slices.Sorted(maps.Keys(f.File)) {
		for _, part := range f.File[name] {
			fmt.Fprintf(h, "%q %q %d\n", name, part.Header, part.Size)
			if err := copyFile(h, part); err != nil {
				return nil, err
			}
		}
	}
	return h.Sum(nil), nil
}

// copyFile writes the content of a file of a form to w.
func copyFile(w io.Writer, part *multipart.FileHeader) error {
	file, err := part.Open()
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(w, file)
	return err
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

// bufferedBody is a request body that the engine has read into memory. After Close it can be read if the original body can, which
// one of net/http cannot. Close may be called while another goroutine reads, as http.Transport does.
type bufferedBody struct {
	reader   bytes.Reader
	original io.ReadCloser         // nil if the engine has not read the body
	closed   atomic.Pointer[error] // what the original body returns after Close, unless that is io.EOF
}

// Read implements io.Reader.
func (b *bufferedBody) Read(p []byte) (int, error) {
	if err := b.closed.Load(); err != nil {
		return 0, *err
	}
	return b.reader.Read(p)
}

// WriteTo implements io.WriterTo, so that io.Copy needs no buffer.
func (b *bufferedBody) WriteTo(w io.Writer) (int64, error) {
	if err := b.closed.Load(); err != nil {
		return 0, *err
	}
	return b.reader.WriteTo(w)
}

// Close implements io.Closer. It closes the original body, and asks it whether it can still be read.
func (b *bufferedBody) Close() error {
	closeErr := b.original.Close()
	if _, err := b.original.Read(make([]byte, 1)); err != nil && !errors.Is(err, io.EOF) {
		b.closed.Store(&err)
	}
	return closeErr
}

// hasBody reports whether a response with this status may have a body (RFC 9110, section 6.4.1).
func hasBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
