package idem

import (
	"context"
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
)

var errNoResponse = errors.New("idem: the handlers left the answer to gin")

// run runs the handlers behind the middleware with r, holding their answer back. Handlers that only collect errors leave
// the answer to a middleware outside, so there is nothing to keep.
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
	if !w.Written() && outer.Written() { // past w, by Engine.HandleContext, which puts the router's own writer back
		w.MarkBypassed()
		return &core.Response{Status: outer.Status(), Sent: true, Omitted: true}, nil
	}
	isUnrouted := c.FullPath() == "" && (w.status == http.StatusNotFound || w.status == http.StatusMethodNotAllowed)
	if !w.Written() && (len(c.Errors) > errs || isUnrouted) {
		w.ForwardHeader()
		outer.WriteHeader(w.status)
		if isUnrouted { // gin answers when all middleware has returned
			return &core.Response{Status: w.status, Sent: true, Omitted: true, Unrouted: true}, nil
		}
		return nil, errNoResponse
	}
	w.WriteHeaderNow()
	response := w.Response()
	response.Unrouted = isUnrouted
	return response, nil
}

// setRunContext lets c tell the run that its request is in, none if that is so. By itself it asks the request for values only where the
// engine of the router has ContextWithFallback.
func setRunContext(c *gin.Context) {
	c.Set(core.ContextKey, c.Request.Context().Value(core.ContextKey))
}

// writer is a gin.ResponseWriter whose answer is held back. As Gin's own, it puts the status off until something is
// written.
type writer struct {
	*capture.Writer
	outer  gin.ResponseWriter
	status int
}

func (w *writer) Status() int   { return w.status }
func (w *writer) Written() bool { return w.Size() >= 0 }

func (w *writer) WriteHeader(status int) {
	if status > 0 && !w.Written() {
		w.status = status
	}
}

func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.Writer.WriteHeader(w.status)
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
