package adaptertest

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// Lease sets a lease, and a store timeout that fits it.
func Lease(d time.Duration) func(*core.Config) {
	return func(c *core.Config) { c.Lease.Duration, c.Limits.StoreTimeout = d, d/2 }
}

// TTL-01, TTL-02 and TTL-06: two services forget an outcome after a second. One takes the key for a new one, also for another
// request; the one with Keep.LateRetry still knows that it was used, and refuses with 410.
func (s *Behaviours) TestRetention() {
	s.Run("TTL-01 TTL-02 after the retention the key is new", func() {
		svc := s.serve(OK(), func(c *core.Config) {
			Lease(500 * time.Millisecond)(c)
			c.Keep.Retention = time.Second
		})
		remembers := s.serve(OK(), func(c *core.Config) {
			Lease(500 * time.Millisecond)(c)
			c.Keep.Retention, c.Keep.LateRetry = time.Second, time.Hour
		})
		s.replay(remembers.Post("K", "B"), remembers.Post("K", "B"))
		s.replay(svc.Post("K", "B"), svc.Post("K", "B"))
		time.Sleep(1050 * time.Millisecond)
		s.problem(remembers.Post("K", "B"), 410, "retention-over")
		s.ran(remembers, 1)
		r := svc.Post("K", "another body")
		s.Equal(201, r.Status)
		s.False(r.Replayed())
		s.ran(svc, 2)
	})
	s.Run("TTL-06 the retention is a day unless a route says otherwise", func() {
		svc := s.serve(OK(), nil)
		s.Equal(24*time.Hour, svc.engine.Config().Keep.Retention)
		month := svc.engine.With(func(c *core.Config) { c.Keep.Retention = 30 * 24 * time.Hour })
		s.Equal(30*24*time.Hour, month.Config().Keep.Retention)
		s.Equal(24*time.Hour, svc.engine.Config().Keep.Retention)
	})
}

// LSE-03 to LSE-06, LSE-14 and LSE-15: a run keeps its key while its lease is renewed, although its client has left or the server
// shuts down, and not when renewals are lost. The leases are short, so that several of them pass.
func (s *Behaviours) TestLeases() {
	s.leasesOfLongRuns()
	s.leasesAtTheEnd()
}

// leasesOfLongRuns plays runs that outlast their lease, their process's attention, or their client.
func (s *Behaviours) leasesOfLongRuns() {
	s.Run("LSE-03 a handler five times as long as its lease stays the only run", func() {
		s.True(s.outlives(time.Second), "it was taken over")
	})
	s.Run("LSE-04 LSE-05 an owner that was away too long can not touch its successor's record", func() {
		own := http.Header{"X-Own": {"of the run"}}
		for _, late := range []Response{{Status: 201, Header: own, Body: "late"}, {Status: 500, Header: own, Body: "late"}} {
			svc, g := s.takenOver(late)
			first := g.Admit(s.T(), func() Reply { return svc.Post("K", "B") }) // the first run; its extensions get lost, so its lease ends
			s.Require().Eventually(func() bool { return svc.Post("K", "B").Status == 201 }, 5*time.Second, 5*time.Millisecond)
			g.Open()
			refused := <-first
			s.problem(refused, 409, "claim-lost")
			s.Empty(refused.Header.Get("X-Own"))
			second := svc.Post("K", "B")
			s.Equal("successor", second.Body)
			s.True(second.Replayed())
			s.ran(svc, 2)
		}
	})
	s.Run("LSE-06 a client that leaves does not end the run", func() {
		g := NewGate()
		var cause error
		svc := s.serve(g.handler(func(r Request) Response {
			cause = r.Ctx.Err()
			return Response{Status: 201, Body: "done"}
		}), nil)
		ctx, leave := context.WithCancel(context.Background())
		gone := make(chan error, 1)
		go func() {
			_, err := svc.tryUntil(ctx, svc.Client, "POST", "/orders", "B", "Idempotency-Key", "K")
			gone <- err
		}()
		<-g.entered
		leave()
		s.Error(<-gone)
		g.Open()
		s.Eventually(func() bool { return svc.store.Calls("complete") == 1 }, 5*time.Second, time.Millisecond)
		s.NoError(cause, "the handler's context must outlive the client")
		r := svc.Post("K", "B")
		s.Equal("done", r.Body)
		s.True(r.Replayed())
		s.ran(svc, 1)
	})
}

// leasesAtTheEnd plays handlers and servers that end without leaving a claim behind.
func (s *Behaviours) leasesAtTheEnd() {
	s.Run("LSE-14 a handler that returns without an answer, copies, or panics leaves no claim behind", func() {
		for _, a := range []Response{{}, {Panics: "boom"}, {Panics: http.ErrAbortHandler}, {Status: 200, Body: "copied"}} {
			svc := s.serve(script(a, Response{Status: 200, Body: "second"}), nil)
			_, _ = svc.Try(svc.Client, "POST", "/orders", "B", "Idempotency-Key", "K")
			s.NotEqual(409, svc.Post("K", "B").Status)
		}
	})
	s.Run("LSE-15 a graceful shutdown lets the run in progress finish and keeps it", func() {
		g := NewGate()
		svc := s.serve(g.handler(OK()), nil)
		first := g.Admit(s.T(), func() Reply { return svc.Post("K", "B") })
		stopped := make(chan struct{})
		go func() {
			svc.stop()
			close(stopped)
		}()
		g.Open()
		s.Equal(201, (<-first).Status)
		<-stopped
		s.Equal(1, svc.store.Calls("complete"))
	})
}

// outlives tells whether a handler stays the only run for five times as long as its lease.
func (s *Behaviours) outlives(length time.Duration) bool {
	g, runs := NewGate(), atomic.Int64{}
	first := g.handler(OK())
	svc := s.serve(func(r Request) Response {
		if runs.Add(1) > 1 {
			return Response{Status: 200}
		}
		return first(r)
	}, Lease(length))
	held := g.Admit(s.T(), func() Reply { return svc.Post("K", "B") })
	for end := time.Now().Add(5 * length); time.Now().Before(end); time.Sleep(50 * time.Millisecond) { // other suites run beside this one
		r := svc.Post("K", "B")
		if r.Status == 200 {
			g.Open()
			<-held
			return false
		}
		s.problem(r, 409, "in-progress")
	}
	s.GreaterOrEqual(svc.store.Calls("extend"), 5)
	g.Open()
	s.replay(<-held, svc.Post("K", "B"))
	s.ran(svc, 1)
	return true
}

// takenOver returns a service whose first run loses its lease and waits in the gate, to answer late; the second
// answers "successor".
func (s *Behaviours) takenOver(late Response) (*Service, *gate) {
	g := NewGate()
	successor := script(late, Response{Status: 201, Body: "successor"})
	first := make(chan struct{}, 1)
	first <- struct{}{}
	svc := s.serve(func(r Request) Response {
		select {
		case <-first:
			a := successor(r)
			g.entered <- struct{}{}
			<-g.Leave
			<-r.Ctx.Done()
			s.ErrorIs(context.Cause(r.Ctx), core.ErrLost, "the handler must be told")
			return a
		default:
			return successor(r)
		}
	}, Lease(400*time.Millisecond)) // the shortest in which a busy machine still gets an answer from its store
	svc.store.Inject("extend", storetest.Before, 10)
	return svc, g
}

// LSE-07, LSE-09, LSE-10 and LSE-18: calls of the store fail, hang, or are executed late or without an answer. Before the handler
// that is a refusal, which runs nothing; after it, the client has its response and nothing runs again.
func (s *Behaviours) TestStoreFailures() {
	s.Run("LSE-07 a store that is down refuses the request", func() {
		svc := s.serve(OK(), nil)
		svc.store.Inject("begin", storetest.Before, 1)
		r := svc.Post("K", "B")
		s.problem(r, 503, "store-unavailable")
		s.NotEmpty(r.Header.Get("Retry-After"))
		s.ran(svc, 0)
		s.Equal(201, svc.Post("K", "B").Status)
	})
	s.Run("LSE-18 a begin that is executed after its own fail holds nothing", func() {
		for _, onUnknown := range []func(context.Context, *core.Request) (*core.Response, error){nil, core.RefuseUnknown} {
			svc := s.serve(OK(), func(c *core.Config) { c.Lease.OnUnknown = onUnknown })
			for range 3 {
				svc.store.Inject("begin", storetest.Late, 1)
				s.problem(svc.Post("K", "B"), 503, "store-unavailable")
				s.Require().NoError(svc.engine.Close(context.Background()), "waits for the fail")
			}
			s.Equal(201, svc.Post("K", "another body").Status)
			s.ran(svc, 1)
		}
	})
	s.Run("LSE-09 when the store dies after the handler, the client gets its answer and a retry does not run", func() {
		svc := s.serve(OK(), Lease(time.Second))
		svc.store.Inject("complete", storetest.Before, 15) // so for longer than a retry stands behind it
		first := svc.Post("K", "B")
		s.Equal(201, first.Status)
		s.problem(svc.Post("K", "B"), 409, "in-progress")
		s.Require().NoError(svc.engine.Close(context.Background()))
		again := svc.Post("K", "B")
		s.Equal(201, again.Status, "LSE-16: however many leases later")
		s.ran(svc, 1)
	})
	s.Run("LSE-09 when the store comes back within the lease, the answer is kept", func() {
		svc := s.serve(OK(), Lease(10*time.Second))
		svc.store.Inject("complete", storetest.After, 1)
		svc.store.Inject("complete", storetest.Before, 2)
		first := svc.Post("K", "B")
		s.Require().NoError(svc.engine.Close(context.Background()))
		s.replay(first, svc.Post("K", "B"))
		s.Equal(4, svc.store.Calls("complete"))
		s.ran(svc, 1)
	})
	s.Run("LSE-10 a store that hangs adds its timeout and no more", func() {
		svc := s.serve(OK(), func(c *core.Config) { c.Limits.StoreTimeout = 100 * time.Millisecond })
		svc.store.Inject("begin", storetest.Hang, 1)
		asked := time.Now()
		s.problem(svc.Post("K", "B"), 503, "store-unavailable")
		s.Less(time.Since(asked), 5*time.Second, "the default of the client library would be 20 s")
		s.ran(svc, 0)
	})
}

// RPL-26: a first request over HTTP/1.1 and its retry over HTTP/2 without TLS, and the other way round, on one port. A stored
// field that only one of the versions allows would break the replay.
func (s *Behaviours) TestProtocols() {
	s.Run("RPL-26 an answer is replayed over another HTTP version", func() {
		if s.isFiber() {
			s.T().Log("Fiber speaks HTTP/1.1 only")
			return
		}
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		h2 := &http.Client{Transport: &http.Transport{Protocols: protocols}}
		h1 := NewClient()
		for _, order := range [][2]*http.Client{{h1, h2}, {h2, h1}} {
			svc := s.serve(OK(), nil)
			first, err := svc.Try(order[0], "POST", "/orders", "B", "Idempotency-Key", "K")
			s.Require().NoError(err)
			second, err := svc.Try(order[1], "POST", "/orders", "B", "Idempotency-Key", "K")
			s.Require().NoError(err)
			s.replay(first, second)
			h1.CloseIdleConnections()
			h2.CloseIdleConnections()
		}
	})
}

func isReplayedElsewhere(t *testing.T, store driver.Store, all []Framework) {
	for _, a := range all {
		for _, b := range all {
			t.Run("FRM-01 a request to "+a.Name+" is replayed by "+b.Name, func(t *testing.T) {
				name := rand.Text()
				scope := func(c *core.Config) { c.Scope = func(context.Context, *core.Request) string { return name } }
				body := Response{Status: 200, Body: "<html>typed by nobody"}
				first := Start(t, a, store, script(body), Setup{}, scope).Post("K", "B")
				second := Start(t, b, store, script(body), Setup{}, scope).Post("K", "B")
				require.Equal(t, "true", second.Header.Get(Marker))
				require.Equal(t, first.Status, second.Status)
				require.Equal(t, first.Body, second.Body)
				require.Equal(t, first.Header.Get("Content-Type"), second.Header.Get("Content-Type"))
			})
		}
	}
}
