package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// held has the locks of a process by their keys.
type held = sync.Map

// run is what a handler learns of its run.
type run struct{ isTold bool } // whether it knows that an earlier run had begun

// answer is what a handler responds.
type answer struct {
	status   int
	body     []byte
	err      error
	isStream bool
}

// writeStream writes the body in two parts.
func (a answer) writeStream(w *bufio.Writer) {
	half := len(a.body) / 2
	for _, part := range [][]byte{a.body[:half], a.body[half:]} {
		_, _ = w.Write(part)
		_ = w.Flush()
	}
}

// handler is the handler of the service.
type handler func(path, tenant string, r run) answer

// trial is one way with one subject: a service whose handler counts its runs.
type trial struct {
	subject subject
	addr    string
	key     string
	runs    atomic.Int64
	told    atomic.Int64 // runs that knew of an earlier one
	handle  handler      // what it does after it was counted; nil responds with 201
}

func newTrial(s subject, addr string) *trial {
	return &trial{subject: s, addr: addr, key: uuid.NewString()}
}

// start starts a process of the service.
func (t *trial) start() process {
	return t.subject.start(t.addr, func(path, tenant string, r run) answer {
		n := t.runs.Add(1)
		if r.isTold {
			t.told.Add(1)
		}
		if t.handle != nil {
			return t.handle(path, tenant, r)
		}
		return paid(n, path, tenant)
	})
}

// paid is the response to a payment.
func paid(n int64, path, tenant string) answer {
	return answer{status: http.StatusCreated, body: fmt.Appendf(nil, "payment %d of %s at %s", n, tenant, path)}
}

// response is what a client gets.
type response struct {
	status int
	body   string
}

// send sends a payment of alice.
func (t *trial) send(p process) response { return t.sendAs(p, "/payments", "alice") }

// sendAs sends a request of a tenant with the key of the trial. An error of the connection has the status 0.
func (t *trial) sendAs(p process, path, tenant string) response {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
	r.Header.Set("X-Idempotency-Key", t.key)
	r.Header.Set("Authorization", tenant)
	got, err := p.send(r)
	if err != nil {
		return response{}
	}
	defer func() { _ = got.Body.Close() }()
	body, _ := io.ReadAll(got.Body)
	return response{got.StatusCode, string(body)}
}

// outcome says how often the handler has run, whether the later runs knew of the earlier ones, and what the client got second.
func (t *trial) outcome(second, first response) string {
	switch n := t.runs.Load(); {
	case n == 1 && second == first:
		return "one run, replayed"
	case n == 1 && second.body == "" && first.body != "":
		return fmt.Sprintf("one run, then %d without the body", second.status)
	case n == 1:
		return fmt.Sprintf("one run, then %d", second.status)
	case t.told.Load() == n-1:
		return fmt.Sprintf("%d runs, and the handler knows", n)
	default:
		return fmt.Sprintf("**%d runs**", n)
	}
}

// way is a row of the table.
type way struct {
	name string
	run  func(t *trial) string
}

// ways are the rows of the table.
var ways = []way{
	{"the response is lost, the client sends the request again", func(t *trial) string {
		p := t.start()
		first := t.send(p) // which the client does not get
		return t.outcome(t.send(p), first)
	}},
	{"the client leaves while the handler runs, and comes again", func(t *trial) string {
		p := t.start()
		return t.together(p, p, 0, lease/4)
	}},
	{"the process dies after the effect, the client comes to another one later", died},
	{"a process that was paused stores its response after another one has run", zombie},
	{"two processes get the same request at the same time", func(t *trial) string {
		return t.together(t.start(), t.start(), 0, lease/4)
	}},
	{"the handler takes longer than the lease or the lock", func(t *trial) string {
		return t.together(t.start(), t.start(), 2*lease, lease/2)
	}},
	{"another customer sends the same key", func(t *trial) string {
		p := t.start()
		t.sendAs(p, "/payments", "alice")
		if got := t.sendAs(p, "/payments", "bob"); strings.Contains(got.body, "alice") {
			return "**the other customer's response**"
		}
		return "two customers, two payments"
	}},
	{"the same key comes on another route", func(t *trial) string {
		p := t.start()
		t.send(p)
		if got := t.sendAs(p, "/refunds", "alice"); got.status != http.StatusUnprocessableEntity {
			return fmt.Sprintf("**%d: the response of the first route**", got.status)
		}
		return "refused with 422"
	}},
	{"the response has 2 MiB", func(t *trial) string {
		t.handle = func(string, string, run) answer { return answer{status: 201, body: bytes.Repeat([]byte("x"), 2<<20)} }
		p := t.start()
		first := t.send(p)
		return t.outcome(t.send(p), first)
	}},
	{"the response is a stream", func(t *trial) string {
		t.handle = func(string, string, run) answer { return answer{body: []byte("one two"), isStream: true} }
		p := t.start()
		first := t.send(p)
		if first.body != "one two" {
			return fmt.Sprintf("**the first client gets %q**", first.body)
		}
		return t.outcome(t.send(p), first)
	}},
	{"the handler returns an error after its effect", func(t *trial) string {
		t.handle = func(string, string, run) answer { return answer{err: errors.New("mail is down")} }
		p := t.start()
		return t.outcome(t.send(p), t.send(p))
	}},
	{"the handler responds with 500", func(t *trial) string {
		t.handle = func(string, string, run) answer { return answer{status: 500, body: []byte("failed")} }
		p := t.start()
		return t.outcome(t.send(p), t.send(p))
	}},
}

// together sends a request to a, after a time the same request to b, and lets the handler end after more. Then b gets it once more.
func (t *trial) together(a, b process, after, more time.Duration) string {
	gate := make(chan struct{})
	t.handle = func(path, tenant string, _ run) answer { <-gate; return paid(1, path, tenant) }
	first := t.later(a)
	t.until(first)
	time.Sleep(after)
	again := t.later(b)
	time.Sleep(more)
	close(gate)
	second, got := <-again, <-first
	if second != got && t.runs.Load() == 1 {
		return meanwhile(second, t.send(b), got)
	}
	return t.outcome(second, got)
}

// meanwhile says what a client got while the first request ran, and afterwards.
func meanwhile(second, third, first response) string {
	if third != first {
		return fmt.Sprintf("one run: %d meanwhile, then %d", second.status, third.status)
	}
	return fmt.Sprintf("one run: %d meanwhile, then replayed", second.status)
}

// later sends a payment in a goroutine of its own.
func (t *trial) later(p process) <-chan response {
	got := make(chan response, 1)
	go func() { got <- t.send(p) }()
	return got
}

// until waits until the handler has begun a run.
func (t *trial) until(begun <-chan response) {
	for t.runs.Load() < 1 {
		select {
		case got := <-begun:
			panic(fmt.Sprintf("%s: the first request did not run: %d %s", t.subject.name, got.status, got.body))
		case <-time.After(time.Millisecond):
		}
	}
}

// died kills a process in its handler, after the effect, and sends the request to another one.
func died(t *trial) string {
	a, b := t.start(), t.start()
	dead := make(chan struct{})
	t.handle = func(path, tenant string, _ run) answer {
		if t.runs.Load() == 1 {
			<-dead
		}
		return paid(t.runs.Load(), path, tenant)
	}
	t.until(t.later(a))
	a.kill()
	time.Sleep(3 * lease)
	got := t.send(b)
	defer close(dead)
	if t.runs.Load() == 1 {
		return fmt.Sprintf("one run, then %d", got.status)
	}
	return t.outcome(got, response{})
}

// zombie pauses a process for longer than its claim or lock lasts, lets another one run, and goes on. The response that the second
// client got must stay.
func zombie(t *trial) string {
	a, b := t.start(), t.start()
	paused := make(chan struct{})
	t.handle = func(path, tenant string, _ run) answer {
		n := t.runs.Load()
		if n == 1 {
			<-paused
		}
		return paid(n, path, tenant)
	}
	first := t.later(a)
	t.until(first)
	goOn := a.stop()
	time.Sleep(3 * lease)
	second := t.send(b)
	goOn()
	close(paused)
	got := <-first
	third := t.send(b)
	switch {
	case t.runs.Load() == 1:
		return meanwhile(second, third, got)
	case third != second:
		return "**the second response is replaced by the first**"
	}
	return "the second response stays"
}
