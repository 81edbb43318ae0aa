package idem

import (
	"context"
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
	"github.com/go-idem/idem/core/driver"
)

// errNoResponse is the error of a run whose handlers only collected errors. It makes the engine fail the claim.
var errNoResponse = errors.New("idem: the handlers left the response to Gin")

// run runs the handlers after the middleware under ctx, and returns their response for the engine. During the run c has a writer
// that holds the response back, and a request with ctx. If the handlers wrote nothing themselves, there is nothing to store:
//   - After gin.Engine.HandleContext the response has gone to the outer writer.
//   - Handlers that only collected errors leave the response to middleware outside.
//   - For an unknown route, Gin writes the response when all middleware has returned.
func run(ctx context.Context, c *gin.Context, x *capture.Exchange, keep core.KeepConfig) (*core.Response, error) {
	outer, request, r, errs := c.Writer, c.Request, x.RequestWithContext(ctx), len(c.Errors)
	w := &writer{Writer: x.NewWriter(ctx, outer, keep), outer: outer, status: outer.Status()}
	c.Writer, c.Request = w, r
	setRunContext(c)
	defer func() {
		c.Writer, c.Request = outer, request
		setRunContext(c)
		x.Finish(r)
	}()
	c.Next()
	if !w.Written() && outer.Written() { // HandleContext has put the router's own writer in place of w.
		return &core.Response{Status: outer.Status(), Sent: true, Omitted: true}, nil
	}
	isUnrouted := c.FullPath() == "" && (w.status == http.StatusNotFound || w.status == http.StatusMethodNotAllowed)
	if !w.Written() && (len(c.Errors) > errs || isUnrouted) {
		w.ForwardHeader()
		outer.WriteHeader(w.status)
		if isUnrouted {
			return &core.Response{Status: w.status, Sent: true, Omitted: true, Unrouted: true}, nil
		}
		return nil, errNoResponse
	}
	w.WriteHeaderNow()
	response := w.Response()
	response.Unrouted = isUnrouted
	return response, nil
}

// setRunContext stores the run of c's request in c, or nothing if the request is in no run, so that core.FromContext(c) works.
// Gin itself looks values up in the request's context only if the router has ContextWithFallback.
func setRunContext(c *gin.Context) {
	c.Set(driver.ContextKey, c.Request.Context().Value(driver.ContextKey))
}

// writer is a gin.ResponseWriter that holds the response back. Like Gin's own writer, it only remembers the status until the
// first write, so that a handler can still change it.
type writer struct {
	*capture.Writer
	outer   gin.ResponseWriter
	status  int
	sent1xx bool // WriteHeaderNow has sent an informational response
}

// Status implements gin.ResponseWriter.
func (w *writer) Status() int { return w.status }

// Written implements gin.ResponseWriter: it reports whether the status is fixed. As in Gin, an informational response fixes it:
// the final status is 200 then.
func (w *writer) Written() bool { return w.sent1xx || w.Writer.Size() >= 0 }

// Size implements gin.ResponseWriter: it returns how many bytes of body the handler has written, or -1 before Written.
func (w *writer) Size() int {
	if w.sent1xx {
		return max(0, w.Writer.Size())
	}
	return w.Writer.Size()
}

// WriteHeader remembers the status.
func (w *writer) WriteHeader(status int) {
	if status > 0 && !w.Written() {
		w.status = status
	}
}

// WriteHeaderNow fixes the status and the header, or sends an informational response.
func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.Writer.WriteHeader(w.status)
		w.sent1xx = w.Writer.Size() < 0
	}
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeaderNow()
	return w.Writer.Write(p)
}

func (w *writer) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *writer) FlushError() error {
	w.WriteHeaderNow()
	return w.Writer.FlushError()
}

func (w *writer) Flush()                   { _ = w.FlushError() }
func (w *writer) CloseNotify() <-chan bool { return w.outer.CloseNotify() }
func (w *writer) Pusher() http.Pusher      { return w.outer.Pusher() }
