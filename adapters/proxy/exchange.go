package proxy

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-idem/idem/core"
)

// exchange is one request and its response.
type exchange struct {
	run           core.Run
	isRun         bool // the engine captures the response
	hasConnection atomic.Bool
	cancel        context.CancelCauseFunc
	before        http.Header // of the response, before the upstream's
	streams       bool        // the client sees the response as it comes
	readErr       error       // of the upstream's body
	isCut         bool        // the client has a part of a response that has no end
}

// exchangeKey is the key of the exchange in the context of its request.
type exchangeKey struct{}

// exchangeOf returns the exchange of a context of a request.
func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// errBodyTimeout is the cause of a context that ends because the upstream did not end a response that is held back.
var errBodyTimeout = errors.New("the upstream did not end its response in time")

// errStatus says that the upstream sent a status that no server can send.
var errStatus = errors.New("the status of the response is less than 100")

// receive implements ReverseProxy.ModifyResponse. It reads a response that is held back before the writer gets anything of it, so
// that a response that breaks off is not sent in part.
func (p *Proxy) receive(res *http.Response) error {
	x := exchangeOf(res.Request.Context())
	isUnbuffered := strings.EqualFold(strings.TrimSpace(res.Header.Get("X-Accel-Buffering")), "no")
	res.Header.Del("X-Accel-Buffering")
	if res.StatusCode < 100 { // http.ResponseWriter would panic, and the run would count as failed and not as unknown
		return errStatus
	}
	if !x.isRun || res.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	body := io.Reader(&watchedReader{res.Body, x})
	if x.streams = isUnbuffered || isEventStream(res); x.streams {
		res.ContentLength = -1 // makes ReverseProxy flush
	} else {
		timer := time.AfterFunc(p.cfg.Timeout, func() { x.cancel(errBodyTimeout) })
		defer timer.Stop()
		opening, err := io.ReadAll(io.LimitReader(res.Body, int64(min(p.engine.Keep.MaxBody, math.MaxInt-1))+1))
		if err != nil {
			return err
		}
		body = io.MultiReader(strings.NewReader(string(opening)), body)
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{body, res.Body}
	return nil
}

// isEventStream reports whether res is a stream of server-sent events.
func isEventStream(res *http.Response) bool {
	return strings.HasPrefix(strings.ToLower(res.Header.Get("Content-Type")), "text/event-stream")
}

// watchedReader notes the error of a body of the upstream.
type watchedReader struct {
	io.Reader
	exchange *exchange
}

// Read implements io.Reader.
func (r *watchedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.exchange.readErr = err
	}
	return n, err
}

// end is deferred around ReverseProxy, which panics if a response breaks off that was sent in part. ctx is the run's context. If
// it has ended, the client of an event stream has left, or the claim is lost, and the engine knows what to do.
func (x *exchange) end(ctx context.Context) {
	recovered := recover()
	if recovered != nil && recovered != http.ErrAbortHandler {
		panic(recovered)
	}
	if x.readErr == nil && recovered == nil {
		return
	}
	x.isCut = true
	if ctx.Err() == nil {
		core.Decide(ctx, core.LeaveUnknown)
	}
}

// writer is what ReverseProxy writes to in a run.
type writer struct {
	http.ResponseWriter
	exchange *exchange
}

// Unwrap is called by http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter. After an informational response ReverseProxy deletes all header fields, also those
// of middleware outside, so WriteHeader restores these. It also prevents the detection of a Content-Type that the upstream has
// not sent.
func (w *writer) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		header := w.Header()
		for name, values := range w.exchange.before {
			if _, isThere := header[name]; !isThere {
				header[name] = values
			}
		}
		if _, isThere := header["Content-Type"]; !isThere {
			header["Content-Type"] = nil
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. It returns no error, so that the upstream's response is read to its end, and its outcome
// stored, also if the client has left.
func (w *writer) Write(p []byte) (int, error) {
	_, _ = w.ResponseWriter.Write(p)
	return len(p), nil
}

// FlushError is called by http.ResponseController. ReverseProxy flushes each response without a Content-Length and each one with
// trailers, but only a stream may leave before it is stored.
func (w *writer) FlushError() error {
	if !w.exchange.streams {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}
