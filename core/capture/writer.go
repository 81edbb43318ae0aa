package capture

import (
	"bufio"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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
	over         bool // the handler has returned
	refused      bool // the handler wrote more than it has declared

	frozen
}

// frozen is what the status fixes of an answer, besides the lines of its response.
type frozen struct {
	deleted  []string     // those of response.Removed that the handler's header has no name of
	early    []core.Field // lines behind the body that were there already, under the names of http.TrailerPrefix
	declared []string     // names of lines behind the body
	typed    bool         // there is a Content-Type, be it none at all
	encoded  bool         // net/http does not look for one in the body
	sniffed  string       // what it finds there
}

var errOver = errors.New("idem: the handler has returned")

// NewWriter returns a writer on top of outer for a run under ctx, within the limits of keep. An exchange has one.
func (x *Exchange) NewWriter(ctx context.Context, outer http.ResponseWriter, keep core.KeepConfig) *Writer {
	w := &x.running().writer
	w.outer, w.ctx, w.limit, w.marker, w.size = outer, ctx, keep.MaxBody, keep.Marker, -1
	w.header = outer.Header()
	if w.sharedHeader = len(w.header) == 0; !w.sharedHeader {
		w.header = w.header.Clone()
	}
	return w
}

// giveBack leaves outer's header as it was before the handler, which has header from now on.
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
	case w.over || w.response.Hijacked || w.response.Status != 0:
		return
	case status < 100 || status > 999:
		panic("idem: invalid WriteHeader code " + strconv.Itoa(status))
	case status < 200 && status != http.StatusSwitchingProtocols:
		w.sendInformational(status)
		return
	}
	w.response.Status, w.size = status, 0
	w.response.Header, w.response.Removed = changes(w.before(), w.header)
	w.freeze()
}

// freeze notes what the header says now besides its lines.
func (w *Writer) freeze() {
	for _, name := range w.response.Removed {
		if _, isThere := w.header[name]; !isThere {
			w.deleted = append(w.deleted, name)
		}
	}
	_, w.typed = w.header["Content-Type"]
	w.encoded = w.header.Get("Content-Encoding") != "" || w.header.Get("Transfer-Encoding") != ""
	w.declared, w.early = trailerNames(w.header), prefixed(w.header)
}

// before is outer's header as it was before the handler.
func (w *Writer) before() http.Header {
	if w.sharedHeader {
		return nil
	}
	return w.outer.Header()
}

// sendInformational sends a 1xx answer with the header as it stands, and leaves the outer header as it was.
func (w *Writer) sendInformational(status int) {
	outer := w.outer.Header()
	before := maps.Clone(outer)
	if !w.sharedHeader {
		clear(outer)
		maps.Copy(outer, w.header)
	}
	w.outer.WriteHeader(status)
	clear(outer)
	maps.Copy(outer, before)
}

// Write appends p to the answer.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.prepare(len(p)); err != nil {
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

// prepare makes the answer ready for n more bytes: with a status, and passed through when they are too many.
func (w *Writer) prepare(n int) error {
	switch {
	case w.response.Hijacked:
		return http.ErrHijacked
	case w.over:
		return errOver
	case w.response.Status == 0:
		w.writeHeader(http.StatusOK)
	}
	if s := w.response.Status; n > 0 && (s < 200 || s == http.StatusNoContent || s == http.StatusNotModified) {
		return http.ErrBodyNotAllowed
	}
	if declared, ok := w.length(); ok && (w.refused || w.size+n > declared) {
		w.refused = true
		return http.ErrContentLength
	}
	return nil
}

// length returns the length that the handler has promised.
func (w *Writer) length() (int, bool) {
	length := first(w.response.Header, "Content-Length")
	if length == "" {
		return 0, false
	}
	n, err := strconv.Atoi(length)
	return n, err == nil && n >= 0
}

// first returns the value of the first line named name; "" when there is none.
func first(lines []core.Field, name string) string {
	for _, f := range lines {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// dropBody gives the body up: what is kept of it would not be the whole.
func (w *Writer) dropBody() { w.response.Omitted, w.response.Body = true, nil }

// commit sends what was held back, once.
func (w *Writer) commit() {
	w.committed = true
	w.restoreHeader(maps.Clone(w.header))
	if strings.HasPrefix(strings.ToLower(first(w.response.Header, "Content-Type")), "text/event-stream") {
		core.CancelOnDisconnect(w.ctx) // nobody else may cut an operation short and have its 200 replayed
	}
	w.response.Header = slices.DeleteFunc(w.response.Header, func(f core.Field) bool { return strings.EqualFold(f.Name, w.marker) })
	if run, _ := core.FromContext(w.ctx); run.Unprotected {
		w.response.Header = append(w.response.Header, core.Field{Name: "Idempotent-Unprotected", Value: "true"})
	}
	w.response.Unfinished = w.send(w.outer) != nil
}

// send writes the answer as far as there is one, as the handler has written it: a Content-Type that it has left to net/http to
// find, net/http will find.
func (w *Writer) send(outer http.ResponseWriter) error {
	header, r := outer.Header(), &w.response
	for _, name := range r.Removed {
		header[name] = nil
	}
	for _, name := range w.deleted {
		delete(header, name)
	}
	replaceLines(header, r.Header)
	if w.sniffed != "" {
		delete(header, "Content-Type")
	}
	addLines(header, r.Added)
	addLines(header, w.early)
	outer.WriteHeader(r.Status)
	if puts, ok := outer.(interface{ WriteHeaderNow() }); ok { // as Gin's, which puts the status off
		puts.WriteHeaderNow()
	}
	if len(r.Body) == 0 {
		return nil
	}
	_, err := outer.Write(r.Body)
	return err
}

// trail leaves in header the lines that come behind the body.
func (w *Writer) trail(header http.Header) {
	for _, f := range w.early {
		delete(header, f.Name)
	}
	for _, name := range w.declared {
		delete(header, name)
	}
	replaceLines(header, w.response.Trailer)
}

// Flush is FlushError without the error.
func (w *Writer) Flush() { _ = w.FlushError() }

// FlushError passes the answer through and flushes it.
func (w *Writer) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.prepare(0); err != nil {
		return err
	}
	if !w.committed {
		w.sniff(nil)
		w.commit()
	}
	return http.NewResponseController(w.outer).Flush()
}

// Hijack hands the connection over. There is no answer to keep then.
func (w *Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return nil, nil, errOver
	}
	if w.response.Status != 0 && !w.committed {
		w.sniff(nil)
		w.commit()
	}
	conn, rw, err := http.NewResponseController(w.outer).Hijack()
	if err == nil {
		w.committed, w.response.Hijacked, w.size = true, true, max(w.size, 0)
		core.CancelOnDisconnect(w.ctx)
	}
	return conn, rw, err
}

// SetReadDeadline is for http.ResponseController.
func (w *Writer) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(w.outer).SetReadDeadline(t)
}

// SetWriteDeadline is for http.ResponseController.
func (w *Writer) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(w.outer).SetWriteDeadline(t)
}

// EnableFullDuplex is for http.ResponseController.
func (w *Writer) EnableFullDuplex() error {
	return http.NewResponseController(w.outer).EnableFullDuplex()
}

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
	r.Trailer = append(lines(w.header, w.declared), prefixed(w.header)...)
	if n, ok := w.length(); ok && w.size < n && r.Status >= 200 && r.Status != http.StatusNoContent && r.Status != http.StatusNotModified {
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
	w.trail(w.outer.Header())
	return r
}

// close is when the handler has returned, however it did.
func (w *Writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.restoreHeader(nil)
}

// sniff says which Content-Type net/http will find for an answer without one, now that next comes behind what is held back, so
// that replays through other frameworks carry it too; or that it will find none.
func (w *Writer) sniff(next []byte) {
	if s := w.response.Status; s < 200 || s == http.StatusNoContent || s == http.StatusNotModified || w.typed {
		return
	}
	const enough = 512 // that is all it looks at
	opening := w.response.Body
	if len(opening) < enough && len(next) > 0 {
		opening = slices.Concat(opening, next[:min(len(next), enough)])
	}
	if w.encoded || len(opening) == 0 {
		if w.deleted = append(w.deleted, "Content-Type"); !slices.Contains(w.response.Removed, "Content-Type") {
			w.response.Removed = append(w.response.Removed, "Content-Type")
		}
		return
	}
	w.sniffed = http.DetectContentType(opening)
	w.response.Header = append(w.response.Header, core.Field{Name: "Content-Type", Value: w.sniffed})
}

// changes returns the lines of header that differ from outer, sorted by name, and the names that header has no lines for.
func changes(outer, header http.Header) (lines []core.Field, removed []string) {
	lines = make([]core.Field, 0, len(header))
	for name, values := range header {
		before, was := outer[name]
		if len(values) == 0 && (!was || len(before) > 0) {
			removed = append(removed, name)
		}
		alike := was && slices.Equal(values, before) && name != "Cache-Control" // OmitNoStore looks at that, whoever set it
		if alike || strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		for _, v := range values {
			lines = append(lines, core.Field{Name: name, Value: v})
		}
	}
	for name := range outer {
		if _, still := header[name]; !still {
			removed = append(removed, name)
		}
	}
	slices.SortStableFunc(lines, func(a, b core.Field) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(removed)
	return lines, removed
}

// trailerNames are the names of lines that the handler has declared to come behind the body.
func trailerNames(header http.Header) (names []string) {
	for _, declared := range header["Trailer"] {
		for name := range strings.SplitSeq(declared, ",") {
			names = append(names, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return names
}

// lines are those of names.
func lines(header http.Header, names []string) (lines []core.Field) {
	for _, name := range names {
		for _, v := range header[name] {
			lines = append(lines, core.Field{Name: name, Value: v})
		}
	}
	return lines
}

// prefixed are the lines that come behind the body without having been declared.
func prefixed(header http.Header) (lines []core.Field) {
	for name, values := range header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			for _, v := range values {
				lines = append(lines, core.Field{Name: name, Value: v})
			}
		}
	}
	return lines
}
