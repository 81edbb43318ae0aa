package adapters_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/storetest"
)

func (s *Behaviours) TestKeyOptions() {
	const uuid = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	s.Run("KEY-07 strict mode takes quoted keys only", func() {
		svc := s.serve(ok(), func(c *core.Config) { c.Key.Strict = true })
		for _, bare := range []string{uuid, ":YWJj:", "?1", "42"} {
			s.problem(svc.post(bare, "B"), 400, "key-malformed")
		}
		s.ran(svc, 0)
		s.replay(svc.post(`"`+uuid+`"`, "B"), svc.post(`"`+uuid+`"`, "B"))
	})
	s.Run("KEY-17 KEY-18 a UUID has no case, and what is none is refused before the store is asked", func() {
		svc := s.serve(ok(), func(c *core.Config) { c.Key.Accept = core.UUIDKey })
		s.problem(svc.post("not-a-uuid", "B"), 400, "key-refused")
		s.Zero(svc.store.Calls("begin"))
		s.replay(svc.post(uuid, "B"), svc.post(strings.ToUpper(uuid), "B"))
	})
	s.Run("KEY-20 an alias with another value is refused", func() {
		svc := s.serve(ok(), func(c *core.Config) { c.Key.Aliases = []string{"X-Idempotency-Key"} })
		first := svc.send("POST", "/orders", "B", "X-Idempotency-Key", "K")
		s.replay(first, svc.send("POST", "/orders", "B", "X-Idempotency-Key", "K", "Idempotency-Key", "K"))
		s.problem(svc.send("POST", "/orders", "B", "X-Idempotency-Key", "K", "Idempotency-Key", "L"), 400, "key-repeated")
		s.ran(svc, 1)
	})
	s.Run("FPR-03 with PerRoute a key on another route is another key", func() {
		svc := s.serve(ok(), func(c *core.Config) { c.Key.PerRoute = true })
		first := svc.post("K", "B")
		s.False(svc.send("POST", "/refunds", "B", "Idempotency-Key", "K").replayed())
		s.replay(first, svc.post("K", "B"))
		s.ran(svc, 2)
	})
}

func (s *Behaviours) TestKeepOptions() {
	secret := answer{status: 201, header: http.Header{"Cache-Control": {"no-store"}, "X-Kept": {"kept"}}, body: "secret"}
	for name, omit := range map[string]func(*core.Response) bool{
		"RPL-28 an answer with no-store": core.OmitNoStore,
		"RPL-30 an answer of this route": func(*core.Response) bool { return true },
	} {
		s.Run(name+" can be kept without its body", func() {
			svc := s.serve(script(secret), func(c *core.Config) { c.Keep.OmitBody = omit })
			s.Equal("secret", svc.post("K", "B").body)
			second := svc.post("K", "B")
			s.Equal(201, second.status)
			s.True(second.replayed())
			s.Equal("kept", second.header.Get("X-Kept"))
			s.Equal("omitted", second.header.Get("Idempotent-Body"))
			s.Empty(second.body)
			s.ran(svc, 1)
		})
	}
	s.Run("RPL-33 a replay without its body has the status for that", func() {
		svc := s.serve(script(secret), func(c *core.Config) { c.Keep.OmitBody, c.Keep.OmittedStatus = core.OmitNoStore, 413 })
		s.Equal(201, svc.post("K", "B").status)
		second := svc.post("K", "B")
		s.Equal(413, second.status)
		s.True(second.replayed())
		s.Equal("omitted", second.header.Get("Idempotent-Body"))
		s.Empty(second.body)
		s.ran(svc, 1)
	})
	s.Run("RPL-28 an answer with no-store is one, whoever says so", func() {
		outer := map[string]string{"Cache-Control": "no-store"}
		for name, header := range map[string]http.Header{
			"also the handler": {"Cache-Control": {"no-store"}, "X-Kept": {"kept"}},
			"not the handler":  {"X-Kept": {"kept"}},
		} {
			h := script(answer{status: 201, header: header, body: "secret"})
			svc := start(s.T(), s.framework, s.store, h, setup{outer: outer}, func(c *core.Config) { c.Keep.OmitBody = core.OmitNoStore })
			first := svc.post("K", "B")
			s.Equal("secret", first.body, name)
			second := svc.post("K", "B")
			s.True(second.replayed(), name)
			s.Empty(second.body, name)
			s.Equal("omitted", second.header.Get("Idempotent-Body"), name)
			s.Equal(first.header.Values("Cache-Control"), second.header.Values("Cache-Control"), name)
			s.Equal("kept", second.header.Get("X-Kept"))
			s.ran(svc, 1)
		}
	})
	s.Run("ERR-05 the handler's decision wins over the status", func() {
		svc := s.serve(func(r request) answer {
			core.Decide(r.ctx, core.Keep)
			return answer{status: 500, body: "final"}
		}, nil)
		s.replay(svc.post("K", "B"), svc.post("K", "B"))
		svc = s.serve(func(r request) answer {
			core.Decide(r.ctx, core.Retry)
			return answer{status: 200, body: "not yet"}
		}, nil)
		s.Equal("not yet", svc.post("K", "B").body)
		s.False(svc.post("K", "B").replayed())
		s.ran(svc, 2)
	})
}

func (s *Behaviours) TestLinesOfReplays() {
	session := answer{status: 201, header: http.Header{"Set-Cookie": {"a=1; Path=/", "b=2"}, "X-Kept": {"kept"}, "X-Denied": {"d"}, "X-Request-Id": {"1"}}, body: "x"}
	s.Run("RPL-15 cookies are replayed for who allows it, and other lines are not for who denies it", func() {
		svc := s.serve(script(session), func(c *core.Config) {
			c.Keep.AllowHeaders, c.Keep.DenyHeaders = []string{"Set-Cookie"}, []string{"x-denied"}
		})
		first, second := svc.post("K", "B"), svc.post("K", "B")
		s.replay(first, second)
		s.Equal(first.header.Values("Set-Cookie"), second.header.Values("Set-Cookie"))
		s.Len(second.header.Values("Set-Cookie"), 2)
		s.Equal("d", first.header.Get("X-Denied"))
		s.Empty(second.header.Values("X-Denied"))
		s.Empty(second.header.Values("X-Request-Id"), "RPL-16")
	})
	s.Run("RPL-29 scripts may read the marker, and what CORS outside lets them read", func() {
		for _, outer := range []map[string]string{nil, {"Access-Control-Expose-Headers": "X-Total, ETag"}} {
			svc := start(s.T(), s.framework, s.store, script(session), setup{outer: outer}, func(c *core.Config) { c.Keep.ExposeMarker = true })
			first, second := svc.post("K", "B"), svc.post("K", "B")
			s.replay(first, second)
			want := []string{marker}
			if outer != nil {
				want = []string{"X-Total, ETag", marker}
			}
			s.Equal(want, first.header.Values("Access-Control-Expose-Headers"))
			s.Equal(want, second.header.Values("Access-Control-Expose-Headers"))
		}
	})
	s.Run("RPL-25 the marker is on all answers, or on none", func() {
		svc := s.serve(script(session), func(c *core.Config) { c.Keep.MarkAll = true })
		s.Equal([]string{"false"}, svc.post("K", "B").header.Values(marker))
		s.Equal([]string{"true"}, svc.post("K", "B").header.Values(marker))
		svc = s.serve(script(session), func(c *core.Config) { c.Keep.NoMarker = true })
		for range 2 {
			r := svc.post("K", "B")
			s.Equal(201, r.status)
			s.Empty(r.header.Values(marker))
		}
		s.ran(svc, 1)
	})
	s.Run("PRB-04 KEY-03 refusals carry a link to their type beside the links of others", func() {
		outer := map[string]string{"Link": "</style.css>; rel=preload"}
		svc := start(s.T(), s.framework, s.store, ok(), setup{outer: outer}, func(c *core.Config) {
			required(c)
			c.Problems.Link, c.Problems.BaseURL = true, "https://api.example.com/problems#"
		})
		refused := svc.send("POST", "/orders", "B")
		s.problem(refused, 400, "key-missing")
		s.Equal([]string{"</style.css>; rel=preload", `<https://api.example.com/problems#key-missing>; rel="describedby"`}, refused.header.Values("Link"))
		for range 2 {
			s.Equal([]string{"</style.css>; rel=preload"}, svc.post("K", "B").header.Values("Link"))
		}
	})
}

func (s *Behaviours) TestEchoKey() {
	own := http.Header{"Content-Type": {"text/plain"}, "Idempotency-Key": {"of the handler"}}
	for name, first := range map[string]answer{
		"held back": {status: 201, header: own, body: "made"},
		"streamed":  {status: 201, header: own, chunks: []string{"ma", "de"}},
	} {
		s.Run("KEY-21 responses that are "+name+" carry the key in its canonical form", func() {
			around := setup{outer: map[string]string{"Idempotency-Key": "of outer middleware"}}
			svc := start(s.T(), s.framework, s.store, script(first), around, func(c *core.Config) {
				c.Keep.EchoKey, c.Key.Accept = true, core.UUIDKey
			})
			const key = "8E03978E-40D5-43E8-BC93-6894A57F9324"
			want := []string{strconv.Quote(strings.ToLower(key))}
			s.Equal(want, svc.post(key, "B").header.Values("Idempotency-Key"))
			s.Eventually(func() bool { return svc.post(key, "B").replayed() }, 5*time.Second, time.Millisecond)
			s.Equal(want, svc.post(key, "B").header.Values("Idempotency-Key"))
			other := svc.post(key, "B'")
			s.problem(other, 422, "fingerprint-mismatch")
			s.Equal(want, other.header.Values("Idempotency-Key"))
			s.Equal([]string{"of outer middleware"}, svc.post("no UUID", "B").header.Values("Idempotency-Key"), "it is no key")
			s.ran(svc, 1)
		})
	}
}

func (s *Behaviours) TestStatus() {
	s.Run("OPR-07 a caller learns what became of a key of its own, and of nobody else's", func() {
		g := newGate()
		around := setup{scope: "X-Tenant", outer: map[string]string{"X-Outer": "outer"}}
		svc := start(s.T(), s.framework, s.store, g.handler(ok()), around, nil)
		key := rand.Text()
		lines := func(tenant string) []string { return []string{"Idempotency-Key", key, "X-Tenant", tenant} }
		says := func(tenant string, status int, state string) {
			s.T().Helper()
			r := svc.send("GET", "/status", "", lines(tenant)...)
			s.Equal(status, r.status, r.body)
			stored := map[string]string{"completed": `,"status":201`}[state]
			s.Regexp(`^\{"state":"`+state+`","instance":"urn:idem:[A-Za-z0-9_-]{32}"`+stored+`\}$`, r.body)
			s.EqualValues(len(r.body), r.length)
			s.Equal("no-store", r.header.Get("Cache-Control"))
			s.Equal("application/json", r.header.Get("Content-Type"))
			s.Equal("outer", r.header.Get("X-Outer"))
			s.Equal(state == "running", r.header.Get("Retry-After") != "")
			s.False(r.replayed())
		}
		says("a", 404, "absent")
		first := async(func() reply { return svc.send("POST", "/orders", "B", lines("a")...) })
		<-g.entered
		says("a", 200, "running")
		says("b", 404, "absent")
		g.open()
		s.Equal(201, (<-first).status)
		says("a", 200, "completed")
		says("b", 404, "absent")
		s.ran(svc, 1)
		s.problem(svc.send("GET", "/status", "", "X-Tenant", "a"), 400, "key-missing")
		s.problem(svc.send("GET", "/status", "", "Idempotency-Key", key), 401, "scope-missing")
		s.Equal("no-store", svc.send("GET", "/status", "").header.Get("Cache-Control"))
	})
}

// A function of the config that panics ends the request, also under a recovery middleware of Gin that does not abort.
func (s *Behaviours) TestAPanicOfTheConfigRunsNoHandler() {
	for name, change := range map[string]func(*core.Config, func()){
		"Scope": func(c *core.Config, f func()) {
			c.Scope = func(context.Context, *core.Request) string { f(); return "s" }
		},
		"Limits.Quota": func(c *core.Config, f func()) {
			c.Limits.Quota = func(context.Context, string, *core.Request) bool { f(); return true }
		},
		"Hooks.Begin":  func(c *core.Config, f func()) { c.Hooks.Begin = func(context.Context, core.Event) { f() } },
		"Hooks.Replay": func(c *core.Config, f func()) { c.Hooks.Replay = func(context.Context, core.Event) { f() } },
	} {
		s.Run(name, func() {
			var panics atomic.Bool
			svc := s.serve(ok(), func(c *core.Config) {
				change(c, func() {
					if panics.Load() {
						panic("test")
					}
				})
			})
			key := rand.Text()
			first := svc.post(key, "B")
			panics.Store(true)
			again := svc.post(key, "B")
			if name == "Hooks.Begin" {
				again = svc.post(rand.Text(), "B")
			}
			s.Equal(500, again.status)
			panics.Store(false)
			s.replay(first, svc.post(key, "B"))
			s.ran(svc, 1)
		})
	}
}

func (s *Behaviours) TestOnReplay() {
	for name, first := range map[string]answer{
		"held back": {status: 201, header: http.Header{"Content-Type": {"text/plain"}, "X-Kept": {"kept"}}, body: "made"},
		"streamed":  {status: 201, header: http.Header{"Content-Type": {"text/plain"}, "X-Kept": {"kept"}}, chunks: []string{"ma", "de"}},
	} {
		s.Run("RPL-34 a replay of a response that was "+name+" can be replaced and refused", func() {
			var now atomic.Pointer[core.Response]
			now.Store(&core.Response{Status: 201, Body: []byte("current"), Header: []core.Field{{Name: "Content-Type", Value: "text/csv"}, {Name: "Set-Cookie", Value: "a=b"}}})
			svc := s.serve(script(first), func(c *core.Config) {
				c.Keep.LocalReplays = 1 << 20
				c.Keep.OnReplay = func(context.Context, *core.Request, *core.Response) (*core.Response, error) { return now.Load(), nil }
			})
			s.Equal("made", svc.post("K", "B").body)
			for range 2 {
				var replay reply
				s.Eventually(func() bool { // the stream of Fiber is stored when its client has it
					replay = svc.post("K", "B")
					return replay.status == 201
				}, 5*time.Second, time.Millisecond)
				s.True(replay.replayed())
				s.Equal("current", replay.body)
				s.EqualValues(7, replay.length)
				s.Equal("text/csv", replay.header.Get("Content-Type"))
				s.Equal("a=b", replay.header.Get("Set-Cookie"))
				s.Empty(replay.header.Get("X-Kept"))
			}
			now.Store(nil)
			s.problem(svc.post("K", "B"), 403, "replay-refused")
			s.ran(svc, 1)
		})
	}
	s.Run("RPL-34 a panic reaches the middleware outside, and the next replay is as usual", func() {
		var panics atomic.Bool
		panics.Store(true)
		svc := s.serve(ok(), func(c *core.Config) {
			c.Keep.OnReplay = func(_ context.Context, _ *core.Request, stored *core.Response) (*core.Response, error) {
				if panics.Load() {
					panic("test")
				}
				return stored, nil
			}
		})
		first := svc.post("K", "B")
		s.Equal(500, svc.post("K", "B").status)
		panics.Store(false)
		s.replay(first, svc.post("K", "B"))
		s.ran(svc, 1)
	})
}

// shelf is blobs in memory.
type shelf struct{ sync.Map }

func (s *shelf) Put(_ context.Context, id string, data []byte, _ time.Duration) error {
	s.Store(id, data)
	return nil
}

func (s *shelf) Get(_ context.Context, id string) ([]byte, error) {
	data, ok := s.Load(id)
	if !ok {
		return nil, errors.New("no such blob")
	}
	return data.([]byte), nil
}

func (s *shelf) Delete(_ context.Context, id string) error {
	s.Map.Delete(id)
	return nil
}

func (s *Behaviours) TestBlobs() {
	body := strings.Repeat("0123456789", 10_000)
	long := answer{status: 201, header: http.Header{"X-Kept": {"kept"}, "Content-Type": {"text/plain"}}, body: body}
	s.Run("RPL-27 a long answer is replayed whole from its blob, and without its body when that is lost", func() {
		blobs := &shelf{}
		svc := s.serve(script(long), func(c *core.Config) { c.Keep.Blobs = blobs })
		first := svc.post("K", "B")
		s.Equal(body, first.body)
		second := svc.post("K", "B")
		s.replay(first, second)
		s.EqualValues(len(body), second.length)
		s.Empty(second.header.Get("Idempotent-Body"))
		kept := 0
		blobs.Range(func(id, _ any) bool { kept++; blobs.Map.Delete(id); return true })
		s.Equal(1, kept, "the store was to be spared it")
		third := svc.post("K", "B")
		s.Equal(201, third.status)
		s.Equal("kept", third.header.Get("X-Kept"))
		s.Equal("omitted", third.header.Get("Idempotent-Body"))
		s.Empty(third.body)
		s.ran(svc, 1)
	})
}

func (s *Behaviours) TestAge() {
	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(http.TimeFormat) }
	s.Run("TTL-07 a request that was first sent long ago is refused", func() {
		svc := s.serve(ok(), func(c *core.Config) { c.Key.MaxAge = time.Hour })
		post := func(lines ...string) reply {
			return svc.send("POST", "/orders", "B", append([]string{"Idempotency-Key", "K"}, lines...)...)
		}
		const name = "Repeatability-First-Sent"
		s.problem(post(name, ago(2*time.Hour)), 412, "request-too-old")
		s.problem(post(), 400, "first-sent-unknown")
		s.problem(post(name, "yesterday"), 400, "first-sent-unknown")
		s.problem(post(name, ago(0), name, ago(0)), 400, "first-sent-unknown")
		s.ran(svc, 0)
		s.Zero(svc.store.Calls("begin"))
		s.replay(post(name, ago(time.Minute)), post(name, ago(time.Minute)))
	})
}

// LSE-02: an operator knows what became of a run.
func (s *Behaviours) TestResolve() {
	for name, outcome := range map[string]*core.Response{
		"happened":       {Status: 201, Header: []core.Field{{Name: "X-Kept", Value: "kept"}}, Body: []byte("found")},
		"did not happen": nil,
	} {
		s.Run("LSE-02 an operator says that it "+name, func() {
			scope := rand.Text()
			svc := s.serve(func(r request) answer {
				run, _ := core.FromContext(r.ctx)
				if run.Takeover {
					return answer{status: 201, body: "looked it up"}
				}
				core.Decide(r.ctx, core.LeaveUnknown)
				return answer{status: 504}
			}, func(c *core.Config) {
				lease(500 * time.Millisecond)(c)
				c.Lease.OnUnknown = core.RefuseUnknown
				c.Scope = func(context.Context, *core.Request) string { return scope }
			})
			s.Equal(504, svc.post("K", "B").status)
			operation := core.Task{Scope: scope, Key: "K"}
			s.ErrorIs(svc.engine.Resolve(context.Background(), operation, outcome), core.ErrNotUnknown, "its lease runs")
			s.Require().Eventually(func() bool {
				return strings.Contains(svc.post("K", "B").body, "outcome-unknown")
			}, 10*time.Second, 20*time.Millisecond)
			s.Require().NoError(svc.engine.Resolve(context.Background(), operation, outcome))
			s.ErrorIs(svc.engine.Resolve(context.Background(), operation, outcome), core.ErrNotUnknown)
			r := svc.post("K", "B")
			s.Equal(201, r.status)
			s.Equal(outcome != nil, r.replayed())
			if outcome != nil {
				s.Equal("found", r.body)
				s.Equal("kept", r.header.Get("X-Kept"))
				s.ran(svc, 1)
			} else {
				s.Equal("looked it up", r.body)
				s.ran(svc, 2)
			}
		})
	}
	s.Run("LSE-02 of what is not unknown an operator changes nothing", func() {
		scope := rand.Text()
		svc := s.serve(ok(), func(c *core.Config) { c.Scope = func(context.Context, *core.Request) string { return scope } })
		operation := core.Task{Scope: scope, Key: "K"}
		resolve := func() error { return svc.engine.Resolve(context.Background(), operation, &core.Response{Status: 200}) }
		s.ErrorIs(resolve(), core.ErrNotUnknown)
		first := svc.post("K", "any request")
		s.Equal(201, first.status)
		s.ErrorIs(resolve(), core.ErrNotUnknown)
		s.replay(first, svc.post("K", "any request"))
	})
}

func (s *Behaviours) TestFailOpen() {
	s.Run("LSE-08 the answer says so, held back or streamed, whatever else it says", func() {
		for _, a := range []answer{
			{status: 201, header: http.Header{"Content-Type": {"text/plain"}}, body: "whole"},
			{status: 201, header: http.Header{"Content-Type": {"text/plain"}, marker: {"true"}}, chunks: []string{"in ", "parts"}},
			{status: 201, body: strings.Repeat("x", 2000)}, // too long to be held back
		} {
			around := setup{outer: map[string]string{"Idempotent-Unprotected": "false"}}
			svc := start(s.T(), s.framework, s.store, script(a), around, func(c *core.Config) { c.DangerouslyFailOpen, c.Keep.MaxBody = true, 1000 })
			svc.store.Inject("begin", storetest.Before, 1)
			r := svc.post("K", "B")
			s.Equal(201, r.status)
			s.Equal(a.body+strings.Join(a.chunks, ""), r.body)
			s.Equal([]string{"true"}, r.header.Values("Idempotent-Unprotected"))
			s.Empty(r.header.Values(marker))
			s.Equal("false", svc.post("K", "B").header.Get("Idempotent-Unprotected"), "the store is back")
		}
	})
	s.Run("LSE-08 a handler that sets the field itself does not change what the answer says", func() {
		own := http.Header{"Content-Type": {"text/plain"}, "Idempotent-Unprotected": {"x"}}
		for _, a := range []answer{{status: 201, header: own, body: "whole"}, {status: 201, header: own, chunks: []string{"in ", "parts"}}} {
			svc := s.serve(script(a), func(c *core.Config) { c.DangerouslyFailOpen = true })
			svc.store.Inject("begin", storetest.Before, 1)
			s.Equal([]string{"true"}, svc.post("K", "B").header.Values("Idempotent-Unprotected"))
		}
	})
	s.Run("LSE-08 a store that is down lets the request run unprotected, and the answer says so", func() {
		svc := s.serve(ok(), func(c *core.Config) { c.DangerouslyFailOpen = true })
		svc.store.Inject("begin", storetest.Before, 2)
		for range 2 {
			r := svc.post("K", "B")
			s.Equal(201, r.status)
			s.False(r.replayed())
			s.Equal("true", r.header.Get("Idempotent-Unprotected"))
		}
		s.ran(svc, 2)
		s.Empty(svc.post("K", "B").header.Get("Idempotent-Unprotected"))
	})
}

// RPL-32: a redirect that keeps the method keeps the key, and the client takes it to the other place.
func (s *Behaviours) TestAClientFollowsARedirectWithItsKey() {
	for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		s.Run(strconv.Itoa(status), func() {
			svc := s.serve(func(r request) answer {
				if r.path == "/orders" {
					return answer{status: status, header: http.Header{"Location": {"/orders/"}}}
				}
				return answer{status: 201, body: "made"}
			}, nil)
			client := newClient()
			defer client.CloseIdleConnections()
			client.CheckRedirect = nil
			post := func() reply {
				r, err := svc.try(client, "POST", "/orders", "B", "Idempotency-Key", strconv.Itoa(status))
				s.Require().NoError(err)
				return r
			}
			first := post()
			s.Equal(201, first.status, first.body)
			s.False(first.replayed())
			moved := svc.send("POST", "/orders/", "B", "Idempotency-Key", strconv.Itoa(status))
			s.replay(first, moved)
			s.ran(svc, 2)
		})
	}
}

// FPR-19: the host counts on every framework, in whichever form it comes.
func (s *Behaviours) TestTheHostCountsWhereItIsAskedFor() {
	post := func(svc *service, target, host string) reply {
		return svc.raw("POST " + target + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\nIdempotency-Key: K\r\nContent-Length: 1\r\n\r\nB")
	}
	svc := s.serve(ok(), comparing(core.FingerprintConfig{Headers: []string{"Host"}}))
	first := post(svc, "/orders", "one.example")
	s.Equal(201, first.status)
	s.problem(post(svc, "/orders", "two.example"), 422, "fingerprint-mismatch")
	s.replay(first, post(svc, "/orders", "ONE.example"))
	s.replay(first, post(svc, "http://one.example/orders", "one.example"))
	s.problem(post(svc, "http://two.example/orders", "two.example"), 422, "fingerprint-mismatch")
	s.ran(svc, 1)

	svc = s.serve(ok(), nil)
	first = post(svc, "/orders", "one.example")
	s.replay(first, post(svc, "/orders", "two.example"))
}
