package capture

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"sync"

	"github.com/go-idem/idem/core"
)

// Writer is the http.ResponseWriter of one run. It holds the answer back, so that it is kept before it is seen, until
// the handler flushes, hijacks, or writes more than is kept: then it passes everything through, and still captures up to
// the limit.
//
// It has neither Unwrap nor ReadFrom: both would lead past the capture. Flush, Hijack and the deadlines of
// http.ResponseController work; Push does not.
//
// A goroutine that a handler leaves behind has nothing to write to once the handler has returned.
type Writer struct {
	outer  http.ResponseWriter
	ctx    context.Context // the run's
	limit  int
	marker string

	mu           sync.Mutex  // over what reaches outer
	header       http.Header // the handler's own copy of outer's
	sharedHeader bool        // header is outer's, which was empty and will be again
	response     core.Response
	size         int  // of the body, as the handler wrote it; -1 before there is a status
	committed    bool // outer has the answer
	returned     bool // the handler has returned
	exceeded     bool // the handler wrote more than it has declared

	frozenHeader
}

var errHandlerReturned = errors.New("idem: the handler has returned")

// NewWriter returns a writer on top of outer for a run under ctx, within the limits of keep. An exchange has one.
func (x *Exchange) NewWriter(ctx context.Context, outer http.ResponseWriter, keep core.KeepConfig) *Writer {
	w := &x.ensureHandler().writer
	w.outer, w.ctx, w.limit, w.marker, w.size = outer, ctx, keep.MaxBody, keep.Marker, -1
	w.header = outer.Header()
	if w.sharedHeader = len(w.header) == 0; !w.sharedHeader {
		w.header = w.header.Clone()
	}
	return w
}

// restoreHeader leaves outer's header as it was before the handler, which has header from now on.
func (w *Writer) restoreHeader(header http.Header) {
	if w.sharedHeader {
		clear(w.header)
		w.header, w.sharedHeader = header, false
	}
}

// Header returns the header map of the answer.
func (w *Writer) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// Size returns how many bytes of body the handler has written, -1 before it has a status.
func (w *Writer) Size() int { return w.size }

// WriteHeader sets the status and freezes the header, as in net/http. Informational answers go out at once.
func (w *Writer) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(status)
}

// writeHeader is WriteHeader; the caller holds mu, as for all that follows.
func (w *Writer) writeHeader(status int) {
	switch {
	case w.returned || w.response.Hijacked || w.response.Status != 0:
		return
	case status < 100 || status > 999:
		panic("idem: invalid WriteHeader code " + strconv.Itoa(status))
	case status < 200 && status != http.StatusSwitchingProtocols:
		w.sendInformational(status)
		return
	}
	w.response.Status, w.size = status, 0
	w.response.Header, w.response.Removed = headerChanges(w.originalHeader(), w.header)
	w.freeze()
}

// Write appends p to the answer.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.prepareWrite(len(p)); err != nil {
		return 0, err
	}
	if len(w.response.Body)+len(p) > w.limit && !w.response.Omitted {
		if !w.committed {
			w.sniff(p)
			w.commit()
		}
		w.dropBody()
	}
	w.size += len(p)
	if !w.response.Omitted {
		w.response.Body = append(w.response.Body, p...)
	}
	if !w.committed {
		return len(p), nil
	}
	n, err := w.outer.Write(p)
	w.response.Unfinished = w.response.Unfinished || err != nil
	return n, err
}

// prepareWrite makes the answer ready for n more bytes: with a status, and passed through when they are too many.
func (w *Writer) prepareWrite(n int) error {
	switch {
	case w.response.Hijacked:
		return http.ErrHijacked
	case w.returned:
		return errHandlerReturned
	case w.response.Status == 0:
		w.writeHeader(http.StatusOK)
	}
	if n > 0 && !hasBody(w.response.Status) {
		return http.ErrBodyNotAllowed
	}
	if declared, ok := w.declaredLength(); ok && (w.exceeded || w.size+n > declared) {
		w.exceeded = true
		return http.ErrContentLength
	}
	return nil
}

// declaredLength returns the length that the handler has promised.
func (w *Writer) declaredLength() (int, bool) {
	length := firstValue(w.response.Header, "Content-Length")
	if length == "" {
		return 0, false
	}
	n, err := strconv.Atoi(length)
	return n, err == nil && n >= 0
}

// dropBody gives the body up: what is kept of it would not be the whole.
func (w *Writer) dropBody() { w.response.Omitted, w.response.Body = true, nil }

// ForwardHeader hands the header to outer as the handler left it: for a handler that leaves its answer to code outside, so that
// there is none to keep.
func (w *Writer) ForwardHeader() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sharedHeader {
		w.sharedHeader = false
		return
	}
	outer := w.outer.Header()
	clear(outer)
	maps.Copy(outer, w.header)
}

// MarkBypassed is for a handler whose answer did not come through w: the header around it is that answer's.
func (w *Writer) MarkBypassed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sharedHeader = false
}

// Response ends the capture and returns the answer. A stream whose client left is not whole.
func (w *Writer) Response() *core.Response {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &w.response
	r.Sent = w.committed
	if r.Hijacked {
		return r
	}
	if r.Status == 0 {
		w.writeHeader(http.StatusOK)
	}
	r.Trailer = append(fieldsOf(w.header, w.declaredTrailers), prefixedTrailers(w.header)...)
	if n, ok := w.declaredLength(); ok && w.size < n && hasBody(r.Status) {
		r.Omitted = true // net/http breaks the connection off
	}
	if !w.committed {
		if len(r.Body) > 0 {
			w.sniff(nil)
		}
		return r
	}
	if r.Unfinished = r.Unfinished || w.ctx.Err() != nil; r.Unfinished {
		w.dropBody()
	}
	w.setTrailers(w.outer.Header())
	return r
}

// close is when the handler has returned, however it did.
func (w *Writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.returned = true
	w.restoreHeader(nil)
}
