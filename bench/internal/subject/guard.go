package subject

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

// held is a response as it is kept: what a replay must send again.
type held struct {
	status int
	fields []string // header fields: name, value, name, value
	body   []byte
}

// guard is plain code for what a middleware must do around the two script calls: it reads and hashes the request, gives each
// call a deadline, holds the response back, and keeps status, header fields and body in Redis. It renews no lease, has no limits
// and no hooks, releases no key, and does not notice a panic.
type guard struct{ client redis.Scripter }

// callTimeout is how long a call may take. The library's default is the same.
const callTimeout = time.Second

// begin returns the claim and its fence, or the response if the handler must not run.
func (g *guard) begin(ctx context.Context, key, method, path string, body []byte) (c *Claim, fence int64, refused *held) {
	name := sha256.Sum256([]byte(key))
	c = NewClaim("guard:{" + base64.RawURLEncoding.EncodeToString(name[:]) + "}")
	c.fingerprint = sha256.Sum256(append([]byte(method+"\n"+path+"\n"), body...))
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	word, fence, record, err := ParseBegin(c.Begin(bounded, g.client))
	switch {
	case err != nil:
		return nil, 0, &held{status: http.StatusServiceUnavailable}
	case record != nil:
		kept := unpacked(record[HeadBytes:])
		kept.fields = append(kept.fields, Marker, "true")
		return nil, 0, kept
	case word == "mismatch":
		return nil, 0, &held{status: http.StatusUnprocessableEntity}
	case word != "claimed":
		return nil, 0, &held{status: http.StatusConflict}
	}
	return c, fence, nil
}

// keep stores a response and reports whether it may be sent.
func (g *guard) keep(ctx context.Context, c *Claim, fence int64, h *held) bool {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	word, err := c.Complete(bounded, g.client, fence, h.packed()).Text()
	return err == nil && word == "ok"
}

// packed encodes a response: status, number of fields, the fields with their lengths, and the body.
func (h *held) packed() []byte {
	b := binary.AppendUvarint(make([]byte, 0, 256+len(h.body)), uint64(h.status)) // 256: room for the usual fields
	b = binary.AppendUvarint(b, uint64(len(h.fields)))
	for _, text := range h.fields {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return append(b, h.body...)
}

// unpacked decodes what packed returned.
func unpacked(b []byte) *held {
	number := func() int {
		n, length := binary.Uvarint(b)
		b = b[length:]
		return int(n)
	}
	h := &held{status: number()}
	for range number() {
		n := number()
		h.fields, b = append(h.fields, string(b[:n])), b[n:]
	}
	h.body = b
	return h
}

// recorder holds back the response of a net/http handler.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// The methods of http.ResponseWriter.
func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

// held returns what was recorded.
func (r *recorder) held() *held {
	h := &held{status: r.status, fields: make([]string, 0, 2*len(r.header)), body: r.body.Bytes()}
	for name, values := range r.header {
		for _, v := range values {
			h.fields = append(h.fields, name, v)
		}
	}
	return h
}

// http is the guard as a middleware of net/http. The handler runs unless the request has its response.
func (g *guard) http(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := readBody(r)
		r.Body = io.NopCloser(bytes.NewReader(body))
		claim, fence, response := g.begin(r.Context(), r.Header.Get(KeyHeader), r.Method, r.URL.Path, body)
		if claim != nil {
			recorded := &recorder{header: http.Header{}, status: http.StatusOK}
			next.ServeHTTP(recorded, r)
			response = recorded.held()
			if !g.keep(r.Context(), claim, fence, response) {
				response = &held{status: http.StatusServiceUnavailable}
			}
		}
		for i := 0; i < len(response.fields); i += 2 {
			w.Header().Add(response.fields[i], response.fields[i+1])
		}
		w.WriteHeader(response.status)
		_, _ = w.Write(response.body) // an error means that the client has left
	})
}

// fiber is the guard as a middleware of Fiber, whose handlers write into the response that is sent.
func (g *guard) fiber(c *fiber.Ctx) error {
	claim, fence, kept := g.begin(c.UserContext(), c.Get(KeyHeader), c.Method(), c.Path(), c.Body())
	if claim == nil {
		for i := 0; i < len(kept.fields); i += 2 {
			c.Set(kept.fields[i], kept.fields[i+1])
		}
		return c.Status(kept.status).Send(kept.body)
	}
	if err := c.Next(); err != nil {
		return err
	}
	response := c.Response()
	h := &held{status: response.StatusCode(), body: response.Body()}
	response.Header.VisitAll(func(name, value []byte) { h.fields = append(h.fields, string(name), string(value)) })
	if !g.keep(c.UserContext(), claim, fence, h) {
		response.Reset()
		return c.SendStatus(fiber.StatusServiceUnavailable)
	}
	return nil
}
