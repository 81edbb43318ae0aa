package idem

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
)

// run runs the handlers behind the middleware with r, holding their answer back.
func run(c *gin.Context, r *http.Request, cfg core.Config) (*core.Response, error) {
	outer, request, errs := c.Writer, c.Request, len(c.Errors)
	w := &writer{ResponseWriter: outer, held: capture.NewWriter(r.Context(), outer, cfg), status: http.StatusOK, size: -1}
	c.Writer, c.Request = w, r
	defer func() { c.Writer, c.Request = outer, request }()
	c.Next()
	if len(c.Errors) > errs && !w.Written() {
		return nil, w.leave(c.Errors.Last())
	}
	w.WriteHeaderNow()
	return w.held.Response(), nil
}

// writer is a gin.ResponseWriter whose answer is held back. As Gin's own, it puts the status off until something is
// written. Pusher and CloseNotify are outer's.
type writer struct {
	gin.ResponseWriter // outer
	held               *capture.Writer
	status             int
	size               int // of the body; -1 before the header is written
}

// leave hands an answer that was not written to outer: handlers that only collect errors have a middleware outside turn
// them into the answer, so there is nothing to keep here.
func (w *writer) leave(err error) error {
	header := w.ResponseWriter.Header()
	clear(header)
	for name, values := range w.held.Header() {
		header[name] = values
	}
	w.ResponseWriter.WriteHeader(w.status)
	return err
}

func (w *writer) Header() http.Header { return w.held.Header() }
func (w *writer) Status() int         { return w.status }
func (w *writer) Size() int           { return w.size }
func (w *writer) Written() bool       { return w.size >= 0 }

func (w *writer) WriteHeader(status int) {
	if status > 0 && !w.Written() {
		w.status = status
	}
}

func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.size = 0
		w.held.WriteHeader(w.status)
	}
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.held.Write(p)
	w.size += n
	return n, err
}

func (w *writer) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	n, err := io.WriteString(w.held, s)
	w.size += n
	return n, err
}

func (w *writer) Flush() {
	w.WriteHeaderNow()
	w.held.Flush()
}

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.held.Hijack()
	if err == nil {
		w.size = max(w.size, 0)
	}
	return conn, rw, err
}

// Unwrap leads http.ResponseController to the held answer, never past it.
func (w *writer) Unwrap() http.ResponseWriter { return w.held }
