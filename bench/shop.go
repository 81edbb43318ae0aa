package main

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	path      = "/payments"
	keyHeader = "Idempotency-Key"
	marker    = "Idempotent-Replayed"
	mediaType = "application/json"

	answerBytes = 512
	requestBody = `{"amount": 100, "currency": "EUR"}`
)

// shop makes payments: the handler that every subject guards. Its answers are JSON of 512 bytes, no two the same.
type shop struct {
	work time.Duration // of a payment
	runs atomic.Int64
}

var (
	answerHead = `{"id":"`
	answerTail = `","note":"` + strings.Repeat("x", answerBytes-len(answerHead)-16-len(`","note":""}`)) + `"}`
)

func (s *shop) pay() []byte {
	if s.work > 0 {
		time.Sleep(s.work)
	}
	b := append(make([]byte, 0, answerBytes), answerHead...)
	b = appendPadded(b, s.runs.Add(1), 16)
	return append(b, answerTail...)
}

// appendPadded appends n in so many digits.
func appendPadded(b []byte, n int64, digits int) []byte {
	var text [20]byte
	number := strconv.AppendInt(text[:0], n, 10)
	for range digits - len(number) {
		b = append(b, '0')
	}
	return append(b, number...)
}

// ServeHTTP is the handler of net/http.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	readBody(r)
	created(w, s.pay())
}

// readBody reads a request as every handler of payments does, under whichever middleware. An error means that the client has
// left.
func readBody(r *http.Request) []byte {
	body, _ := io.ReadAll(r.Body)
	return body
}

func created(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(body) // an error means that the client has left
}

// replayed sends a kept body again.
func replayed(w http.ResponseWriter, body []byte) {
	w.Header().Set(marker, "true")
	created(w, body)
}

func unavailable(w http.ResponseWriter, err error) {
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

func conflict(w http.ResponseWriter) { http.Error(w, "in progress", http.StatusConflict) }

// keys makes keys of the 36 characters of a UUID, which some subjects insist on. It is for one goroutine.
type keys struct {
	prefix string
	next   int64
	buf    []byte
}

// newKeys returns keys that begin with a name of at most 15 characters.
func newKeys(name string) *keys { return &keys{prefix: name + strings.Repeat("-", 15-len(name))} }

// key returns the next key; its memory is used again.
func (k *keys) key() []byte {
	k.next++
	return k.at(k.next)
}

// at returns one of the keys that key returned, or will.
func (k *keys) at(n int64) []byte {
	k.buf = appendPadded(append(k.buf[:0], k.prefix...), n, 21)
	return k.buf
}
