package simulation

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	idem "github.com/go-idem/idem/adapters/client"
)

// actHTTP is the life of a client that sends its request through the transport of package adapters/client. The transport retries.
func (h *history) actHTTP(number int, c *clientPlan) {
	w := &wire{h: h, number: number, client: c}
	pause := max(c.pause, 10*time.Millisecond)
	transport := &idem.Transport{Base: w, Attempts: 2 + len(c.attempts), Pause: func(int) time.Duration { return pause }}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://service/", strings.NewReader("body"))
	if err != nil {
		panic(err)
	}
	if res, err := (&http.Client{Transport: transport}).Do(req); err == nil {
		_ = res.Body.Close()
	}
}

// wire is the way of one client to the processes. It loses requests and responses, and a server on it redirects.
type wire struct {
	h      *history
	number int
	client *clientPlan

	mu   sync.Mutex
	sent int
	key  string // of the first request
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	n := w.note(req)
	name := fmt.Sprintf("client %d.%d", w.number+1, n)
	fate := w.h.random("wire", name) % 8
	switch fate {
	case 0: // the request is lost
		return nil, errBroken
	case 1:
		return response(req, http.StatusTemporaryRedirect, "Location", "/moved"), nil
	}
	res := w.serve(req, name, n)
	if fate == 2 { // the response is lost
		return nil, errBroken
	}
	return res, nil
}

// note counts the requests, and checks that all of them have the same key.
func (w *wire) note(req *http.Request) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := strings.Join(req.Header.Values("Idempotency-Key"), ", ")
	if w.sent++; w.sent == 1 {
		w.key = key
	}
	if key == "" || key != w.key {
		w.h.mu.Lock()
		defer w.h.mu.Unlock()
		w.h.broken("one logical request has one key", "request %d of client %d", w.sent, w.number+1)
	}
	return w.sent
}

// serve has a process handle a request. The key of the client stands for the key that the transport has made.
func (w *wire) serve(req *http.Request, name string, n int) *http.Response {
	h, c := w.h, w.client
	a := c.attempts[(n-1)%len(c.attempts)]
	h.mu.Lock()
	p := h.processes[a.slot]
	h.mu.Unlock()
	d := h.newDo(name, (10+w.number)*len(kinds), c.variant, a.script, p)
	if h.attempt(d, a.leaves) {
		return response(req, http.StatusCreated, "", "")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.counts["conflict"] > 0 {
		return response(req, http.StatusConflict, "Retry-After", "1")
	}
	return response(req, http.StatusServiceUnavailable, "", "")
}

// response returns a response without a body, with one header field.
func response(req *http.Request, status int, field, value string) *http.Response {
	header := http.Header{}
	if field != "" {
		header.Set(field, value)
	}
	return &http.Response{StatusCode: status, Header: header, Body: http.NoBody, Request: req}
}
