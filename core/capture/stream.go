package capture

import (
	"bufio"
	"maps"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-idem/idem/core"
)

// commit sends the response that was held back, and lets everything after it through. It is called once, with mu held. The
// engine does not see this response before the client does, so commit sets the header fields that only the engine sets. bodyFollows
// says that the caller writes to outer next.
func (w *Writer) commit(bodyFollows bool) {
	w.committed = true
	if strings.HasPrefix(strings.ToLower(firstValue(w.response.Header, "Content-Type")), "text/event-stream") {
		// An event stream ends when its client leaves. Other handlers go on, so that no client can cut an operation short.
		core.CancelOnDisconnect(w.ctx)
	}
	w.setEngineFields()
	w.response.Unfinished = w.send(w.outer, bodyFollows) != nil
}

// sendInformational sends a 1xx response at once, with the handler's header as it is now, and restores the outer header. If
// middleware hides the writer that sends it, the response is dropped.
func (w *Writer) sendInformational(status int) {
	to := immediateWriter(w.outer)
	if to == nil {
		return
	}
	outer := to.Header()
	before := maps.Clone(outer)
	clear(outer)
	maps.Copy(outer, w.header)
	w.removeEngineFields(outer)
	to.WriteHeader(status)
	clear(outer)
	maps.Copy(outer, before)
}

// immediateWriter returns the writer in w that sends a status at once. Gin's writers only remember a status until WriteHeaderNow,
// and would take a 1xx for the final one. It returns nil if such a writer does not unwrap.
func immediateWriter(w http.ResponseWriter) http.ResponseWriter {
	for {
		if _, isDeferring := w.(interface{ WriteHeaderNow() }); !isDeferring {
			return w
		}
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = outer.Unwrap()
	}
}

// Flush implements http.Flusher. It is FlushError without the error.
func (w *Writer) Flush() { _ = w.FlushError() }

// FlushError sends the response as far as it is written. From then on the response is a stream: the client sees each write
// before the engine stores the outcome.
func (w *Writer) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !canFlush(w.outer) { // before the status is fixed: the handler may set another one
		return http.ErrNotSupported
	}
	if err := w.prepareWrite(0); err != nil {
		return err
	}
	if !w.committed {
		w.sniff(nil)
		w.commit(false)
	}
	return http.NewResponseController(w.outer).Flush()
}

// canFlush reports whether http.ResponseController can flush w. It cannot flush the writer of http.TimeoutHandler, for example:
// the response is then held back, as if the handler had not flushed.
func canFlush(w http.ResponseWriter) bool {
	for {
		switch outer := w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = outer.Unwrap()
		default:
			return false
		}
	}
}

// Hijack implements http.Hijacker. It hands the connection to the handler, so there is no response to store, and the run's
// context is cancelled when the client leaves.
func (w *Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.returned {
		return nil, nil, errHandlerReturned
	}
	if w.response.Status != 0 && !w.committed {
		if !canHijack(w.outer) {
			return nil, nil, http.ErrNotSupported
		}
		w.sniff(nil)
		w.commit(false)
	}
	conn, rw, err := http.NewResponseController(w.outer).Hijack()
	if err == nil {
		w.committed, w.response.Hijacked, w.size = true, true, max(w.size, 0)
		core.CancelOnDisconnect(w.ctx)
	}
	return conn, rw, err
}

// canHijack reports whether the connection of w can be taken over. One of HTTP/2 cannot, for example: the response is then held
// back, as if the handler had not tried. canHijack asks the innermost writer, because those of Gin and Echo have a Hijack that
// fails or panics if the innermost writer has none.
func canHijack(w http.ResponseWriter) bool {
	for {
		outer, wraps := w.(interface{ Unwrap() http.ResponseWriter })
		if !wraps {
			_, ok := w.(http.Hijacker)
			return ok
		}
		w = outer.Unwrap()
	}
}

// SetReadDeadline is called by http.ResponseController and sets the deadline of the outer writer.
func (w *Writer) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(w.outer).SetReadDeadline(t)
}

// SetWriteDeadline is called by http.ResponseController and sets the deadline of the outer writer.
func (w *Writer) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(w.outer).SetWriteDeadline(t)
}

// EnableFullDuplex is called by http.ResponseController and is passed to the outer writer.
func (w *Writer) EnableFullDuplex() error {
	return http.NewResponseController(w.outer).EnableFullDuplex()
}
