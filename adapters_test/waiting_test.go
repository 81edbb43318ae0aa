package adapters_test

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

// waiting lets requests wait.
func waiting(timeout time.Duration) func(*core.Config) {
	return func(c *core.Config) { c.Wait.Timeout = timeout }
}

// waits sends a retry and returns where its answer will be, once it waits.
func (s *Behaviours) waits(svc *service) <-chan reply {
	s.T().Helper()
	before := svc.store.Calls("watch")
	retry := async(func() reply { return svc.post("K", "B") })
	s.Require().Eventually(func() bool { return svc.store.Calls("watch") > before }, 10*time.Second, time.Millisecond)
	return retry
}

func (s *Behaviours) TestWaiting() {
	s.Run("CON-04 CON-09 a retry that waits gets the outcome", func() {
		g := newGate()
		svc := s.serve(g.handler(ok()), waiting(time.Minute))
		first := async(func() reply { return svc.post("K", "B") })
		<-g.entered
		second, third := s.waits(svc), s.waits(svc)
		g.open()
		r := <-first
		s.Equal(201, r.status)
		s.replay(r, <-second)
		s.replay(r, <-third)
		s.ran(svc, 1)
	})
	s.Run("CON-04 a retry that waits takes over a run that failed", func() {
		g := newGate()
		svc := s.serve(g.handler(script(answer{status: 503, body: "down"}, answer{status: 201, body: "up"})), waiting(time.Minute))
		first := async(func() reply { return svc.post("K", "B") })
		<-g.entered
		second, third := s.waits(svc), s.waits(svc)
		g.open()
		s.Equal("down", (<-first).body)
		a, b := <-second, <-third
		s.Equal("up", a.body)
		s.Equal("up", b.body)
		s.NotEqual(a.replayed(), b.replayed(), "one of them has run")
		s.ran(svc, 2)
	})
	s.Run("CON-05 a retry that has waited long enough is refused", func() {
		g := newGate()
		svc := s.serve(g.handler(ok()), waiting(100*time.Millisecond))
		first := async(func() reply { return svc.post("K", "B") })
		<-g.entered
		asked := time.Now()
		r := svc.post("K", "B")
		s.GreaterOrEqual(time.Since(asked), 100*time.Millisecond)
		s.problem(r, 409, "in-progress")
		s.Regexp(`^[1-9][0-9]*$`, r.header.Get("Retry-After"))
		g.open()
		s.Equal(201, (<-first).status)
		s.ran(svc, 1)
	})
	s.Run("CON-06 another request does not wait", func() {
		g := newGate()
		svc := s.serve(g.handler(ok()), waiting(time.Minute))
		first := async(func() reply { return svc.post("K", "B") })
		<-g.entered
		s.problem(svc.post("K", "B'"), 422, "fingerprint-mismatch")
		s.Zero(svc.store.Calls("watch"))
		g.open()
		s.Equal(201, (<-first).status)
	})
	s.Run("CON-10 a waiter whose client hangs up is freed, and the run is unaffected", s.hangsUp)
}

func (s *Behaviours) hangsUp() {
	if s.isFiber() {
		s.T().Log("CON-10 does not hold on Fiber: fasthttp does not tell that a client has left; Wait.Timeout ends the wait")
		return
	}
	g, freed := newGate(), make(chan struct{}, 1)
	svc := s.serve(g.handler(ok()), func(c *core.Config) {
		waiting(time.Minute)(c)
		c.Wait.MaxPerKey = 1
		c.Hooks.Conflict = func(context.Context, core.Event) { freed <- struct{}{} }
	})
	first := async(func() reply { return svc.post("K", "B") })
	<-g.entered

	client, leave := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(client, "POST", svc.url+"/orders", strings.NewReader("B"))
	s.Require().NoError(err)
	req.Header.Set("Idempotency-Key", "K")
	gone := make(chan error, 1)
	go func() {
		_, err := svc.client.Do(req)
		gone <- err
	}()
	asked := func() bool { return svc.store.Calls("begin") == 3 } // by the run, and before and after the waiter's watch
	s.Require().Eventually(asked, 10*time.Second, time.Millisecond)
	leave()
	s.ErrorIs(<-gone, context.Canceled)
	select {
	case <-freed:
	case <-time.After(15 * time.Second):
		s.Fail("it waits on")
	}
	next := s.waits(svc) // there is room for one again
	g.open()
	r := <-first
	s.Equal(201, r.status)
	s.replay(r, <-next)
	s.ran(svc, 1)
}

func waitsForARunElsewhere(t *testing.T, store driver.Store) {
	t.Run("FRM-01 CON-04 who waits in one framework is woken by a run in another", func(t *testing.T) {
		name := rand.Text()
		scope := func(c *core.Config) {
			c.Scope = func(context.Context, *core.Request) string { return name }
			waiting(time.Minute)(c)
		}
		g := newGate()
		run := start(t, frameworks[1], store, g.handler(ok()), setup{}, scope)
		retry := start(t, frameworks[3], store, ok(), setup{}, scope)
		first := async(func() reply { return run.post("K", "B") })
		<-g.entered
		second := async(func() reply { return retry.post("K", "B") })
		require.Eventually(t, func() bool { return retry.store.Calls("watch") == 1 }, 10*time.Second, time.Millisecond)
		g.open()
		r := <-second
		assert.True(t, r.replayed())
		assert.Equal(t, (<-first).body, r.body)
		assert.Zero(t, retry.runs.Load())
	})
}

// MTH-07, CON-09: a run that streams is waited for to its end.
func (s *Behaviours) TestAStreamIsWaitedForToItsEnd() {
	if s.isFiber() {
		s.T().Log("a Fiber stream is written when its handler has ended, so that nobody waits for it")
		return
	}
	s.Run("CON-09", func() {
		next := make(chan struct{})
		svc := s.serve(script(answer{status: 201, chunks: []string{"half", "whole"}, before: func() { <-next }}), waiting(time.Minute))
		res, err := svc.client.Do(s.request(svc))
		s.Require().NoError(err)
		defer res.Body.Close()
		half := make([]byte, 4)
		_, err = io.ReadFull(res.Body, half)
		s.Require().NoError(err)
		second := s.waits(svc)
		close(next)
		r, err := read(res)
		s.NoError(err)
		s.Equal("whole", r.body)
		s.Equal("halfwhole", (<-second).body)
		s.ran(svc, 1)
	})
}

// request is the usual keyed request.
func (s *Behaviours) request(svc *service) *http.Request {
	req, err := http.NewRequest("POST", svc.url+"/orders", strings.NewReader("B"))
	s.Require().NoError(err)
	req.Header.Set("Idempotency-Key", "K")
	return req
}
