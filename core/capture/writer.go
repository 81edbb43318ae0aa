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

// Writer is the http.ResponseWriter that a handler writes to during one run. It holds the response back, so that the engine can
// store it before the client sees it. Three things end that and make the response a stream: the handler flushes, hijacks the
// connection, or writes more than KeepConfig.MaxBody bytes. Then the Writer sends everything through. It still captures
// the body, which the engine stores when the stream ends; a body longer than MaxBody is dropped, and the outcome has none.
//
// Writer has neither Unwrap nor ReadFrom, because both would write past the capture. Flush, Hijack, deadlines and full duplex
// work through http.ResponseController; Push does not.
//
// WriteHeader, Write, Size, Flush and Hijack are safe for concurrent use; the header map is not, as in net/http. Once the handler has
// returned, Write returns an error: a goroutine that the handler left behind has nothing to write to.
type Writer struct {
	outer http.ResponseWriter
	ctx   context.Context // the run's context
	limit int             // KeepConfig.MaxBody, in bytes

	mu        sync.Mutex  // guards all fields below, and the order of what is sent to outer
	header    http.Header // the header that the handler sees; nil until it asks, if outer has none
	response  core.Response
	size      int  // bytes of body that the handler has written; -1 before there is a status
	committed bool // the status and header were sent to outer
	returned  bool // the handler has returned
	exceeded  bool // the handler wrote more than its Content-Length

	frozenHeader
}

// errHandlerReturned is the error of a write after the handler has returned.
var errHandlerReturned = errors.New("idem: the handler has returned")

// NewWriter returns the exchange's writer, which sends to outer. ctx is the run's context, and keep the engine's Config().Keep.
// Call it once.
func (x *Exchange) NewWriter(ctx context.Context, outer http.ResponseWriter, keep core.KeepConfig) *Writer {
	w := &x.ensureHandler().writer
	w.outer, w.ctx, w.limit, w.size = outer, ctx, keep.MaxBody, -1
	if header := outer.Header(); len(header) > 0 {
		w.header = header.Clone()
	}
	return w
}

// Header implements http.ResponseWriter. The map begins as a copy of the outer header, and is never the outer header itself: a
// handler may keep it, and set trailers in it when the response is under way.
func (w *Writer) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// Size returns how many bytes of body the handler has written, or -1 if it has not written a status yet.
func (w *Writer) Size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size
}

// WriteHeader implements http.ResponseWriter. It fixes status and header, and ignores all calls but the first. Informational
// responses (1xx) are sent at once, and do not count. A status below 100 or above 999 panics, as in net/http.
func (w *Writer) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(status)
}

// writeHeader does the work of WriteHeader. Like all unexported methods of Writer it needs mu held.
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
	w.response.Header, w.response.Removed = headerChanges(w.outer.Header(), w.header)
	w.freeze()
}

// Write implements http.ResponseWriter. It appends p to the captured body while that fits, and sends p if the response is a
// stream. The first Write that makes the body longer than the limit turns the response into a stream.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.prepareWrite(len(p)); err != nil {
		return 0, err
	}
	if len(w.response.Body)+len(p) > w.limit && !w.response.Omitted {
		if !w.committed {
			w.sniff(p)
			w.commit(true)
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

// prepareWrite sets the status if the handler has not, and returns the error that net/http has for n more bytes of body.
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

// declaredLength returns the Content-Length that the handler has set, and whether there is a valid one.
func (w *Writer) declaredLength() (int, bool) {
	length := firstValue(w.response.Header, "Content-Length")
	if length == "" {
		return 0, false
	}
	n, err := strconv.Atoi(length)
	return n, err == nil && n >= 0
}

// dropBody forgets the captured body, because an incomplete body must not be stored.
func (w *Writer) dropBody() { w.response.Omitted, w.response.Body = true, nil }

// ForwardHeader copies the handler's header to the outer writer, with the fields of [EngineFields] as the engine sets them. An
// adapter calls it when the handler has left the response to middleware outside, so that there is nothing to store. Call it before
// Finish.
func (w *Writer) ForwardHeader() {
	w.mu.Lock()
	defer w.mu.Unlock()
	outer := w.outer.Header()
	clear(outer)
	maps.Copy(outer, w.header)
	w.removeEngineFields(outer)
	for _, own := range EngineFields(w.ctx) {
		if own.Value != "" {
			outer[own.Name] = []string{own.Value}
		}
	}
}

// MarkBypassed tells the writer that the handler wrote to the outer writer directly. It has no effect: the Writer leaves the outer
// header alone as long as it sends nothing.
func (w *Writer) MarkBypassed() {}

// Response ends the capture and returns the handler's response, for Engine.Do. Call it once, after the handler has returned and
// before Finish. The body is left out, and Omitted set, if it is longer than the limit, shorter than its Content-Length, or if
// the client left during a stream.
func (w *Writer) Response() *core.Response {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.returned = true }()
	r := &w.response
	r.Sent = w.committed
	if r.Hijacked {
		return r
	}
	if r.Status == 0 {
		w.writeHeader(http.StatusOK)
	}
	r.Trailer = w.withoutEngineFields(append(fieldsOf(w.header, w.declaredTrailers), prefixedTrailers(w.header)...))
	if n, ok := w.declaredLength(); ok && w.size < n && hasBody(r.Status) {
		r.Omitted = true // net/http closes the connection of a response that is too short.
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

// close makes later writes fail.
func (w *Writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.returned = true
}
