// Package subject has what the benchmarks compare: one payment handler, unguarded, behind this library, and behind what people
// use or write instead, on four frameworks; and the ways to lay a record out in Redis.
package subject

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
)

// What every client sends and every handler answers.
const (
	Path        = "/payments"
	KeyHeader   = "Idempotency-Key"
	Marker      = "Idempotent-Replayed" // the response header field of a replay
	MediaType   = "application/json"
	RequestBody = `{"amount": 100, "currency": "EUR"}`
	// ResponseBytes is the length of every response body.
	ResponseBytes = 512
)

// Payments is the handler behind every subject. Its responses are JSON, no two the same. It is safe for concurrent use.
type Payments struct{ runs atomic.Int64 }

// Runs returns how often the handler ran.
func (p *Payments) Runs() int64 { return p.runs.Load() }

// The response body before and after the number of the payment.
var (
	bodyHead = `{"id":"`
	bodyTail = `","note":"` + strings.Repeat("x", ResponseBytes-len(bodyHead)-16-len(`","note":""}`)) + `"}`
)

// pay runs one payment and returns the response body.
func (p *Payments) pay() []byte {
	b := append(make([]byte, 0, ResponseBytes), bodyHead...)
	b = appendPadded(b, p.runs.Add(1), 16)
	return append(b, bodyTail...)
}

// handler answers a request with a key. It reads the body at most once, as handlers do under any middleware.
type handler func(ctx context.Context, key string, body func() []byte) reply

// reply is the response of a handler.
type reply struct {
	status   int
	body     []byte
	isReplay bool
}

// handle is the unguarded handler.
func (p *Payments) handle(_ context.Context, _ string, body func() []byte) reply {
	return p.run(body, func([]byte) error { return nil })
}

// run runs the handler, and keeps its response before it is sent.
func (p *Payments) run(body func() []byte, keep func(made []byte) error) reply {
	body()
	made := p.pay()
	if keep(made) != nil {
		return unavailable
	}
	return reply{status: http.StatusCreated, body: made}
}

// replayed is the response of a replay.
func replayed(body []byte) reply { return reply{http.StatusCreated, body, true} }

// Responses that refuse a request.
var (
	conflict    = reply{status: http.StatusConflict}
	unavailable = reply{status: http.StatusServiceUnavailable}
)

// readBody reads the body of a request. An error means that the client has left.
func readBody(r *http.Request) []byte {
	body, _ := io.ReadAll(r.Body)
	return body
}

// appendPadded appends n with leading zeros.
func appendPadded(b []byte, n int64, digits int) []byte {
	var text [20]byte
	number := strconv.AppendInt(text[:0], n, 10)
	for range digits - len(number) {
		b = append(b, '0')
	}
	return append(b, number...)
}

// Keys makes keys of 36 characters, the length of a UUID, which some subjects insist on. It is for one goroutine.
type Keys struct {
	prefix string
	buf    []byte
}

// NewKeys returns keys that begin with a name of at most 15 characters.
func NewKeys(name string) *Keys { return &Keys{prefix: name + strings.Repeat("-", 15-len(name))} }

// At returns key n. The slice is valid until the next call.
func (k *Keys) At(n int64) []byte {
	k.buf = appendPadded(append(k.buf[:0], k.prefix...), n, 21)
	return k.buf
}
