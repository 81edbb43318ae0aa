package adaptertest

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
func (s *Behaviours) waits(svc *Service) <-chan Reply {
	s.T().Helper()
	before := svc.store.Calls("watch")
	retry := Async(func() Reply { return svc.Post("K", "B") })
	s.Require().Eventually(func() bool { return svc.store.Calls("watch") > before }, 10*time.Second, time.Millisecond)
	return retry
}

// CON-04 to CON-06, CON-09 and CON-10: a gate holds the first run while retries wait for it. Only the same request waits, and no
// longer than Wait.Timeout; who waits gets a whole outcome, or runs when there is none.
func (s *Behaviours) TestWaiting() {
	s.Run("CON-04 CON-09 a retry that waits gets the outcome", func() {
		g := NewGate()
		svc := s.serve(g.handler(OK()), waiting(time.Minute))
		first := g.Admit(s.T(), func() Reply { return svc.Post("K", "B") })
		second, third := s.waits(svc), s.waits(svc)
		g.Open()
		r := <-first
		s.Equal(201, r.Status)
		s.replay(r, <-second)
		s.replay(r, <-third)
		s.ran(svc, 1)
	})
	s.Run("CON-04 a retry that waits takes over a run that failed", func() {
		g := NewGate()
		svc := s.serve(g.handler(script(Response{Status: 503, Body: "down"}, Response{Status: 201, Body: "up"})), waiting(time.Minute))
		first := g.Admit(s.T(), func() Reply { return svc.Post("K", "B") })
		second, third := s.waits(svc), s.waits(svc)
		g.Open()
		s.Equal("down", (<-first).Body)
		a, b := <-second, <-third
		s.Equal("up", a.Body)
		s.Equal("up", b.Body)
		s.NotEqual(a.Replayed(), b.Replayed(), "one of them has run")
		s.ran(svc, 2)
	})
	s.Run("CON-05 a retry that has waited long enough is refused", func() {
		g := NewGate()
		svc := s.serve(g.handler(OK()), waiting(100*time.Millisecond))
		first := g.Admit(s.T(), func() Reply { return svc.Post("K", "B") })
		asked := time.Now()
		r := svc.Post("K", "B")
		s.GreaterOrEqual(time.Since(asked), 100*time.Millisecond)
		s.problem(r, 409, "in-progress")
		s.Regexp(`^[1-9][0-9]*$`, r.Header.Get("Retry-After"))
		g.Open()
		s.Equal(201, (<-first).Status)
		s.ran(svc, 1)
	})
	s.Run("CON-06 another request does not wait", func() {
		g := NewGate()
		svc := s.serve(g.handler(OK()), waiting(time.Minute))
		first := g.Admit(s.T(), func() Reply { return svc.Post("K", "B") })
		s.problem(svc.Post("K", "B'"), 422, "fingerprint-mismatch")
		s.Zero(svc.store.Calls("watch"))
		g.Open()
		s.Equal(201, (<-first).Status)
	})
	s.Run("CON-10 a waiter whose client hangs up is freed, and the run is unaffected", s.hangsUp)
}

func (s *Behaviours) hangsUp() {
	if s.isFiber() {
		s.T().Log("CON-10 does not hold on Fiber: fasthttp does not tell that a client has left; Wait.Timeout ends the wait")
		return
	}
	g, freed := NewGate(), make(chan struct{}, 1)
	svc := s.serve(g.handler(OK()), func(c *core.Config) {
		waiting(time.Minute)(c)
		c.Wait.MaxPerKey = 1
		c.Hooks.Conflict = func(context.Context, core.Event) { freed <- struct{}{} }
	})
	first := g.Admit(s.T(), func() Reply { return svc.Post("K", "B") })

	client, leave := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(client, "POST", svc.URL+"/orders", strings.NewReader("B"))
	s.Require().NoError(err)
	req.Header.Set("Idempotency-Key", "K")
	gone := make(chan error, 1)
	go func() {
		_, err := svc.Client.Do(req)
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
	g.Open()
	r := <-first
	s.Equal(201, r.Status)
	s.replay(r, <-next)
	s.ran(svc, 1)
}

func waitsForARunElsewhere(t *testing.T, store driver.Store, a, b Framework) {
	t.Run("FRM-01 CON-04 who waits in one framework is woken by a run in another", func(t *testing.T) {
		name := rand.Text()
		scope := func(c *core.Config) {
			c.Scope = func(context.Context, *core.Request) string { return name }
			waiting(time.Minute)(c)
		}
		g := NewGate()
		run := Start(t, a, store, g.handler(OK()), Setup{}, scope)
		retry := Start(t, b, store, OK(), Setup{}, scope)
		first := g.Admit(t, func() Reply { return run.Post("K", "B") })
		second := Async(func() Reply { return retry.Post("K", "B") })
		require.Eventually(t, func() bool { return retry.store.Calls("watch") == 1 }, 10*time.Second, time.Millisecond)
		g.Open()
		r := <-second
		assert.True(t, r.Replayed())
		assert.Equal(t, (<-first).Body, r.Body)
		assert.Zero(t, retry.Runs.Load())
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
		svc := s.serve(script(Response{Status: 201, Chunks: []string{"half", "whole"}, Before: func() { <-next }}), waiting(time.Minute))
		res, err := svc.Client.Do(s.request(svc))
		s.Require().NoError(err)
		defer res.Body.Close()
		half := make([]byte, 4)
		_, err = io.ReadFull(res.Body, half)
		s.Require().NoError(err)
		second := s.waits(svc)
		close(next)
		r, err := Read(res)
		s.NoError(err)
		s.Equal("whole", r.Body)
		s.Equal("halfwhole", (<-second).Body)
		s.ran(svc, 1)
	})
}

// request is the usual keyed request.
func (s *Behaviours) request(svc *Service) *http.Request {
	req, err := http.NewRequest("POST", svc.URL+"/orders", strings.NewReader("B"))
	s.Require().NoError(err)
	req.Header.Set("Idempotency-Key", "K")
	return req
}
