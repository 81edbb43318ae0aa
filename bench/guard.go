package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
)

// A guard by hand is plain code for what a middleware has to do around the two script calls: read and hash the request, give
// each call a deadline, hold the answer back, and keep its status, its header lines and its body. Nothing renews a lease, has
// limits or hooks, gives a key back, or notices a panic.

// held is an answer as it is kept.
type held struct {
	status int
	lines  []string // name, value, name, value
	body   []byte
}

// guardian is what a guard by hand asks: it knows answers, and keeps new ones. Of what begin returns one is nil: the answer,
// or, when the handler is to run, what keeps that one's answer and tells whether it may be sent.
type guardian interface {
	begin(ctx context.Context, key, method, path string, body []byte) (func(context.Context, *held) bool, *held)
}

// onServer is the guardian that keeps answers in Redis.
type onServer struct{ client redis.Scripter }

// callTimeout is how long a call may take, as the library's default is.
const callTimeout = time.Second

// claim is a request whose handler is to run.
type claim struct {
	wire   *wire
	fence  int64
	client redis.Scripter
}

func (g onServer) begin(ctx context.Context, key, method, path string, body []byte) (func(context.Context, *held) bool, *held) {
	name := sha256.Sum256([]byte(key))
	w := newWire("guard:{" + base64.RawURLEncoding.EncodeToString(name[:]) + "}")
	w.fingerprint = requestHash(method, path, body)
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	word, fence, record, err := answer(w.begin(bounded, g.client))
	switch {
	case err != nil:
		return nil, &held{status: http.StatusServiceUnavailable}
	case record != nil:
		kept := unpacked(record[headBytes:])
		kept.lines = append(kept.lines, marker, "true")
		return nil, kept
	case word == "mismatch":
		return nil, &held{status: http.StatusUnprocessableEntity}
	case word != "claimed":
		return nil, &held{status: http.StatusConflict}
	}
	return (&claim{w, fence, g.client}).keep, nil
}

func requestHash(method, path string, body []byte) (sum [32]byte) {
	h := sha256.New()
	for _, part := range []string{method, path} {
		_, _ = io.WriteString(h, part+"\n") // a hash takes everything
	}
	_, _ = h.Write(body)
	h.Sum(sum[:0])
	return sum
}

// keep keeps an answer, and tells whether it may be sent.
func (c *claim) keep(ctx context.Context, h *held) bool {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	word, err := c.wire.complete(bounded, c.client, c.fence, h.packed()).Text()
	return err == nil && word == "ok"
}

func (h *held) packed() []byte {
	size := 3 * binary.MaxVarintLen64
	for _, text := range h.lines {
		size += binary.MaxVarintLen64 + len(text)
	}
	b := binary.AppendUvarint(make([]byte, 0, size+len(h.body)), uint64(h.status))
	b = binary.AppendUvarint(b, uint64(len(h.lines)))
	for _, text := range h.lines {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return append(b, h.body...)
}

func unpacked(b []byte) *held {
	number := func() int {
		n, length := binary.Uvarint(b)
		b = b[length:]
		return int(n)
	}
	h := &held{status: number()}
	for range number() {
		n := number()
		h.lines, b = append(h.lines, string(b[:n])), b[n:]
	}
	h.body = b
	return h
}

// recorder holds the answer of a net/http handler back.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

// held is what was recorded.
func (r *recorder) held() *held {
	h := &held{status: r.status, lines: make([]string, 0, 2*len(r.header)), body: r.body.Bytes()}
	for name, values := range r.header {
		for _, v := range values {
			h.lines = append(h.lines, name, v)
		}
	}
	return h
}

func (h *held) send(w http.ResponseWriter) {
	for i := 0; i < len(h.lines); i += 2 {
		w.Header().Add(h.lines[i], h.lines[i+1])
	}
	w.WriteHeader(h.status)
	_, _ = w.Write(h.body) // an error means that the client has left
}

// guard answers a request of net/http. run runs the handler; it is not called for a request that has its answer.
func guard(g guardian, w http.ResponseWriter, r *http.Request, run func(*recorder)) {
	body := readBody(r)
	r.Body = io.NopCloser(bytes.NewReader(body))
	keep, answer := g.begin(r.Context(), r.Header.Get(keyHeader), r.Method, r.URL.Path, body)
	if keep != nil {
		recorded := &recorder{header: http.Header{}, status: http.StatusOK}
		run(recorded)
		answer = recorded.held()
		if !keep(r.Context(), answer) {
			answer = &held{status: http.StatusServiceUnavailable}
		}
	}
	answer.send(w)
}

func guardHTTP(g guardian, s *shop) mounted {
	mux := http.NewServeMux()
	mux.Handle("POST "+path, s)
	return mounted{std: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guard(g, w, r, func(recorded *recorder) { mux.ServeHTTP(recorded, r) })
	})}
}

// ginRecorder is a recorder for Gin.
type ginRecorder struct {
	gin.ResponseWriter
	held *recorder
}

func (r *ginRecorder) Header() http.Header         { return r.held.Header() }
func (r *ginRecorder) WriteHeader(status int)      { r.held.WriteHeader(status) }
func (r *ginRecorder) Write(p []byte) (int, error) { return r.held.Write(p) }

func guardGin(g guardian, s *shop) mounted {
	return ginApp(s, func(c *gin.Context) {
		outer := c.Writer
		guard(g, outer, c.Request, func(recorded *recorder) {
			c.Writer = &ginRecorder{outer, recorded}
			c.Next()
			c.Writer = outer
		})
		c.Abort()
	})
}

func guardEcho(g guardian, s *shop) mounted {
	return echoApp(s, func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			response := c.Response()
			outer := response.Writer
			guard(g, outer, c.Request(), func(recorded *recorder) {
				response.Writer = recorded
				err = next(c)
				response.Writer = outer
			})
			return err
		}
	})
}

func guardFiber(g guardian, s *shop) mounted { return fiberApp(s, guardedFiber(g)) }

// guardedFiber is a guard by hand as a middleware of Fiber.
func guardedFiber(g guardian) fiber.Handler {
	return func(c *fiber.Ctx) error {
		keep, answer := g.begin(c.UserContext(), c.Get(keyHeader), c.Method(), c.Path(), c.Body())
		if keep == nil {
			for i := 0; i < len(answer.lines); i += 2 {
				c.Set(answer.lines[i], answer.lines[i+1])
			}
			return c.Status(answer.status).Send(answer.body)
		}
		if err := c.Next(); err != nil {
			return err
		}
		response := c.Response()
		h := &held{status: response.StatusCode(), body: response.Body()}
		response.Header.VisitAll(func(name, value []byte) { h.lines = append(h.lines, string(name), string(value)) })
		if !keep(c.UserContext(), h) {
			response.Reset()
			return c.SendStatus(fiber.StatusServiceUnavailable)
		}
		return nil
	}
}
