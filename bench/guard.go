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

	"github.com/gofiber/fiber/v2"
	"github.com/redis/go-redis/v9"
)

// A guard by hand is the least that any middleware has to do around the two script calls: read and hash the request, give each
// call a deadline, hold the answer back, and keep its status, its header lines and its body. Nothing renews a lease, limits or
// checks anything, hears of anything, gives a key back, or notices a panic.

// held is an answer as it is kept.
type held struct {
	status int
	lines  []string // name, value, name, value
	body   []byte
}

// callTimeout is how long a call may take, as the library's default is.
const callTimeout = time.Second

// claim is a request whose handler is to run.
type claim struct {
	wire   *wire
	fence  int64
	client redis.Scripter
}

// begin claims a request, or returns the answer for it.
func begin(ctx context.Context, client redis.Scripter, key, method, path string, body []byte) (*claim, *held) {
	name := sha256.Sum256([]byte(key))
	w := newWire("guard:{" + base64.RawURLEncoding.EncodeToString(name[:]) + "}")
	w.fingerprint = requestHash(method, path, body)
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	word, fence, record, err := answer(w.begin(bounded, client))
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
	return &claim{w, fence, client}, nil
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
	return c.wire.complete(bounded, c.client, c.fence, h.packed()).Err() == nil
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

// guarded is a guard by hand around a router of net/http.
func guarded(client redis.Scripter, router http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := readBody(r)()
		r.Body = io.NopCloser(bytes.NewReader(body))
		claim, answer := begin(r.Context(), client, r.Header.Get(keyHeader), r.Method, r.URL.Path, body)
		if claim != nil {
			recorded := &recorder{header: http.Header{}, status: http.StatusOK}
			router.ServeHTTP(recorded, r)
			answer = recorded.held()
			if !claim.keep(r.Context(), answer) {
				answer = &held{status: http.StatusServiceUnavailable}
			}
		}
		answer.send(w)
	})
}

// guardedFiber is a guard by hand as a middleware of Fiber.
func guardedFiber(client redis.Scripter) fiber.Handler {
	return func(c *fiber.Ctx) error {
		claim, answer := begin(c.UserContext(), client, c.Get(keyHeader), c.Method(), c.Path(), c.Body())
		if claim == nil {
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
		if !claim.keep(c.UserContext(), h) {
			return c.SendStatus(fiber.StatusServiceUnavailable)
		}
		return nil
	}
}

// mountGuard puts a shop behind a guard by hand.
func mountGuard(client redis.Scripter, f framework, s *shop) mounted {
	bare := f.mount(s, nil)
	if bare.std == nil {
		return fiberApp(s, guardedFiber(client))
	}
	return mounted{std: guarded(client, bare.std)}
}
