package adapters_test

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
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
)

// lease sets a lease, and a store timeout that fits it.
func lease(d time.Duration) func(*core.Config) {
	return func(c *core.Config) { c.Lease.Duration, c.Limits.StoreTimeout = d, d/2 }
}

func (s *Behaviours) TestRetention() {
	s.Run("TTL-01 TTL-02 after the retention the key is new", func() {
		svc := s.serve(ok(), func(c *core.Config) {
			lease(500 * time.Millisecond)(c)
			c.Keep.Retention = time.Second
		})
		remembers := s.serve(ok(), func(c *core.Config) {
			lease(500 * time.Millisecond)(c)
			c.Keep.Retention, c.Keep.LateRetry = time.Second, time.Hour
		})
		s.replay(remembers.post("K", "B"), remembers.post("K", "B"))
		s.replay(svc.post("K", "B"), svc.post("K", "B"))
		time.Sleep(1050 * time.Millisecond)
		s.problem(remembers.post("K", "B"), 410, "retention-over")
		s.ran(remembers, 1)
		r := svc.post("K", "another body")
		s.Equal(201, r.status)
		s.False(r.replayed())
		s.ran(svc, 2)
	})
	s.Run("TTL-06 the retention is a day unless a route says otherwise", func() {
		svc := s.serve(ok(), nil)
		s.Equal(24*time.Hour, svc.engine.Config().Keep.Retention)
		month := svc.engine.With(func(c *core.Config) { c.Keep.Retention = 30 * 24 * time.Hour })
		s.Equal(30*24*time.Hour, month.Config().Keep.Retention)
		s.Equal(24*time.Hour, svc.engine.Config().Keep.Retention)
	})
}

func (s *Behaviours) TestLeases() {
	s.Run("LSE-03 a handler five times as long as its lease stays the only run", func() {
		s.True(s.outlives(time.Second), "it was taken over")
	})
	s.Run("LSE-04 LSE-05 an owner that was away too long can not touch its successor's record", func() {
		own := http.Header{"X-Own": {"of the run"}}
		for _, late := range []answer{{status: 201, header: own, body: "late"}, {status: 500, header: own, body: "late"}} {
			svc, g := s.takenOver(late)
			first := async(func() reply { return svc.post("K", "B") })
			<-g.entered // the first run; its extensions get lost, so its lease ends
			s.Require().Eventually(func() bool { return svc.post("K", "B").status == 201 }, 5*time.Second, 5*time.Millisecond)
			g.open()
			refused := <-first
			s.problem(refused, 409, "claim-lost")
			s.Empty(refused.header.Get("X-Own"))
			second := svc.post("K", "B")
			s.Equal("successor", second.body)
			s.True(second.replayed())
			s.ran(svc, 2)
		}
	})
	s.Run("LSE-06 a client that leaves does not end the run", func() {
		g := newGate()
		var cause error
		svc := s.serve(g.handler(func(r request) answer {
			cause = r.ctx.Err()
			return answer{status: 201, body: "done"}
		}), nil)
		ctx, leave := context.WithCancel(context.Background())
		gone := make(chan error, 1)
		go func() {
			_, err := svc.tryUntil(ctx, svc.client, "POST", "/orders", "B", "Idempotency-Key", "K")
			gone <- err
		}()
		<-g.entered
		leave()
		s.Error(<-gone)
		g.open()
		s.Eventually(func() bool { return svc.store.Calls("complete") == 1 }, 5*time.Second, time.Millisecond)
		s.NoError(cause, "the handler's context must outlive the client")
		r := svc.post("K", "B")
		s.Equal("done", r.body)
		s.True(r.replayed())
		s.ran(svc, 1)
	})
	s.Run("LSE-14 a handler that returns without an answer, copies, or panics leaves no claim behind", func() {
		for _, a := range []answer{{}, {panics: "boom"}, {panics: http.ErrAbortHandler}, {status: 200, body: "copied"}} {
			svc := s.serve(script(a, answer{status: 200, body: "second"}), nil)
			_, _ = svc.try(svc.client, "POST", "/orders", "B", "Idempotency-Key", "K")
			s.NotEqual(409, svc.post("K", "B").status)
		}
	})
	s.Run("LSE-15 a graceful shutdown lets the run in progress finish and keeps it", func() {
		g := newGate()
		svc := s.serve(g.handler(ok()), nil)
		first := async(func() reply { return svc.post("K", "B") })
		<-g.entered
		stopped := make(chan struct{})
		go func() {
			svc.stop()
			close(stopped)
		}()
		g.open()
		s.Equal(201, (<-first).status)
		<-stopped
		s.Equal(1, svc.store.Calls("complete"))
	})
}

// outlives tells whether a handler stays the only run for five times as long as its lease.
func (s *Behaviours) outlives(length time.Duration) bool {
	g, runs := newGate(), atomic.Int64{}
	first := g.handler(ok())
	svc := s.serve(func(r request) answer {
		if runs.Add(1) > 1 {
			return answer{status: 200}
		}
		return first(r)
	}, lease(length))
	held := async(func() reply { return svc.post("K", "B") })
	<-g.entered
	for end := time.Now().Add(5 * length); time.Now().Before(end); time.Sleep(50 * time.Millisecond) { // other suites run beside this one
		r := svc.post("K", "B")
		if r.status == 200 {
			g.open()
			<-held
			return false
		}
		s.problem(r, 409, "in-progress")
	}
	s.GreaterOrEqual(svc.store.Calls("extend"), 5)
	g.open()
	s.replay(<-held, svc.post("K", "B"))
	s.ran(svc, 1)
	return true
}

// takenOver returns a service whose first run loses its lease and waits in the gate, to answer late; the second
// answers "successor".
func (s *Behaviours) takenOver(late answer) (*service, *gate) {
	g := newGate()
	successor := script(late, answer{status: 201, body: "successor"})
	first := make(chan struct{}, 1)
	first <- struct{}{}
	svc := s.serve(func(r request) answer {
		select {
		case <-first:
			a := successor(r)
			g.entered <- struct{}{}
			<-g.leave
			<-r.ctx.Done()
			s.ErrorIs(context.Cause(r.ctx), core.ErrLost, "the handler must be told")
			return a
		default:
			return successor(r)
		}
	}, lease(400*time.Millisecond)) // the shortest in which a busy machine still gets an answer from its store
	svc.store.Inject("extend", storetest.Before, 10)
	return svc, g
}

func (s *Behaviours) TestStoreFailures() {
	s.Run("LSE-07 a store that is down refuses the request", func() {
		svc := s.serve(ok(), nil)
		svc.store.Inject("begin", storetest.Before, 1)
		r := svc.post("K", "B")
		s.problem(r, 503, "store-unavailable")
		s.NotEmpty(r.header.Get("Retry-After"))
		s.ran(svc, 0)
		s.Equal(201, svc.post("K", "B").status)
	})
	s.Run("LSE-18 a begin that is executed after its own fail holds nothing", func() {
		for _, onUnknown := range []func(context.Context, *core.Request) (*core.Response, error){nil, core.RefuseUnknown} {
			svc := s.serve(ok(), func(c *core.Config) { c.Lease.OnUnknown = onUnknown })
			for range 3 {
				svc.store.Inject("begin", storetest.Late, 1)
				s.problem(svc.post("K", "B"), 503, "store-unavailable")
				s.Require().NoError(svc.engine.Close(context.Background()), "waits for the fail")
			}
			s.Equal(201, svc.post("K", "another body").status)
			s.ran(svc, 1)
		}
	})
	s.Run("LSE-09 when the store dies after the handler, the client gets its answer and a retry does not run", func() {
		svc := s.serve(ok(), lease(time.Second))
		svc.store.Inject("complete", storetest.Before, 15) // so for longer than a retry stands behind it
		first := svc.post("K", "B")
		s.Equal(201, first.status)
		s.problem(svc.post("K", "B"), 409, "in-progress")
		s.Require().NoError(svc.engine.Close(context.Background()))
		again := svc.post("K", "B")
		s.Equal(201, again.status, "LSE-16: however many leases later")
		s.ran(svc, 1)
	})
	s.Run("LSE-09 when the store comes back within the lease, the answer is kept", func() {
		svc := s.serve(ok(), lease(10*time.Second))
		svc.store.Inject("complete", storetest.After, 1)
		svc.store.Inject("complete", storetest.Before, 2)
		first := svc.post("K", "B")
		s.Require().NoError(svc.engine.Close(context.Background()))
		s.replay(first, svc.post("K", "B"))
		s.Equal(4, svc.store.Calls("complete"))
		s.ran(svc, 1)
	})
	s.Run("LSE-10 a store that hangs adds its timeout and no more", func() {
		svc := s.serve(ok(), func(c *core.Config) { c.Limits.StoreTimeout = 100 * time.Millisecond })
		svc.store.Inject("begin", storetest.Hang, 1)
		asked := time.Now()
		s.problem(svc.post("K", "B"), 503, "store-unavailable")
		s.Less(time.Since(asked), 5*time.Second, "the default of the client library would be 20 s")
		s.ran(svc, 0)
	})
}

func (s *Behaviours) TestProtocols() {
	s.Run("RPL-26 an answer is replayed over another HTTP version", func() {
		if s.isFiber() {
			s.T().Log("Fiber speaks HTTP/1.1 only")
			return
		}
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		h2 := &http.Client{Transport: &http.Transport{Protocols: protocols}}
		h1 := newClient()
		for _, order := range [][2]*http.Client{{h1, h2}, {h2, h1}} {
			svc := s.serve(ok(), nil)
			first, err := svc.try(order[0], "POST", "/orders", "B", "Idempotency-Key", "K")
			s.Require().NoError(err)
			second, err := svc.try(order[1], "POST", "/orders", "B", "Idempotency-Key", "K")
			s.Require().NoError(err)
			s.replay(first, second)
			h1.CloseIdleConnections()
			h2.CloseIdleConnections()
		}
	})
}

func isReplayedElsewhere(t *testing.T, store driver.Store) {
	for _, a := range frameworks {
		for _, b := range frameworks {
			t.Run("FRM-01 a request to "+a.name+" is replayed by "+b.name, func(t *testing.T) {
				name := rand.Text()
				scope := func(c *core.Config) { c.Scope = func(context.Context, *core.Request) string { return name } }
				body := answer{status: 200, body: "<html>typed by nobody"}
				first := start(t, a, store, script(body), setup{}, scope).post("K", "B")
				second := start(t, b, store, script(body), setup{}, scope).post("K", "B")
				require.Equal(t, "true", second.header.Get(marker))
				require.Equal(t, first.status, second.status)
				require.Equal(t, first.body, second.body)
				require.Equal(t, first.header.Get("Content-Type"), second.header.Get("Content-Type"))
			})
		}
	}
}

// TestRedisRestartsAndForgetsItsScripts: LSE-07, LSE-10 and LSE-12 with a real server.
func TestRedisRestartsAndForgetsItsScripts(t *testing.T) {
	for _, f := range frameworks {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			client := server.Client(t)
			svc := start(t, f, redisstore.New(client), ok(), setup{}, nil)
			first := svc.post("K", "B")
			require.Equal(t, 201, first.status)

			require.NoError(t, client.ScriptFlush(context.Background()).Err())
			require.True(t, svc.post("K", "B").replayed())
			require.Equal(t, 201, svc.post("K2", "B").status)

			server.Pause()
			require.Equal(t, 503, svc.post("K3", "B").status, "a server that hangs")
			server.Resume()

			server.Kill()
			down := svc.post("K4", "B")
			require.Equal(t, 503, down.status, "a server that is gone")
			require.NotEmpty(t, down.header.Get("Retry-After"))
			require.EqualValues(t, 2, svc.runs.Load())

			server.Restart(t)
			second := svc.post("K", "B")
			require.True(t, second.replayed())
			require.Equal(t, first.body, second.body)
			require.Equal(t, 201, svc.post("K4", "B").status)
		})
	}
}

// TestNoKeyIsLeftWithoutTTL: TTL-05, after all of the above or any part of it.
func TestNoKeyIsLeftWithoutTTL(t *testing.T) {
	redis := redistest.Shared(t).Client(t)
	for iter := redis.Scan(context.Background(), 0, "idem:*", 1000).Iterator(); iter.Next(context.Background()); {
		ttl, err := redis.PTTL(context.Background(), iter.Val()).Result()
		require.NoError(t, err)
		require.NotEqual(t, time.Duration(-1), ttl, iter.Val())
	}
}
