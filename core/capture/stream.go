package capture

import (
	"bufio"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-idem/idem/core"
)

// commit sends what was held back, once.
func (w *Writer) commit() {
	w.committed = true
	w.restoreHeader(maps.Clone(w.header))
	if strings.HasPrefix(strings.ToLower(firstValue(w.response.Header, "Content-Type")), "text/event-stream") {
		core.CancelOnDisconnect(w.ctx) // nobody else may cut an operation short and have its 200 replayed
	}
	w.response.Header = slices.DeleteFunc(w.response.Header, func(f core.Field) bool { return strings.EqualFold(f.Name, w.marker) })
	if run, _ := core.FromContext(w.ctx); run.Unprotected {
		w.response.Header = append(w.response.Header, core.Field{Name: "Idempotent-Unprotected", Value: "true"})
	}
	w.response.Unfinished = w.send(w.outer) != nil
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

// Flush is FlushError without the error.
func (w *Writer) Flush() { _ = w.FlushError() }

// FlushError passes the answer through and flushes it.
func (w *Writer) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.prepareWrite(0); err != nil {
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
	if w.returned {
		return nil, nil, errHandlerReturned
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
