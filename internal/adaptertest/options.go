package adaptertest

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

// KEY-07, KEY-17, KEY-18, KEY-20 and FPR-03: each option of Config.Key changes which requests have one key. A value that the
// option refuses runs nothing, and one that it takes for the same is replayed.
func (s *Behaviours) TestKeyOptions() {
	const uuid = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	s.Run("KEY-07 strict mode takes quoted keys only", func() {
		svc := s.serve(OK(), func(c *core.Config) { c.Key.Strict = true })
		for _, bare := range []string{uuid, ":YWJj:", "?1", "42"} {
			s.problem(svc.Post(bare, "B"), 400, "key-malformed")
		}
		s.ran(svc, 0)
		s.replay(svc.Post(`"`+uuid+`"`, "B"), svc.Post(`"`+uuid+`"`, "B"))
	})
	s.Run("KEY-17 KEY-18 a UUID has no case, and what is none is refused before the store is asked", func() {
		svc := s.serve(OK(), func(c *core.Config) { c.Key.Accept = core.UUIDKey })
		s.problem(svc.Post("not-a-uuid", "B"), 400, "key-refused")
		s.Zero(svc.store.Calls("begin"))
		s.replay(svc.Post(uuid, "B"), svc.Post(strings.ToUpper(uuid), "B"))
	})
	s.Run("KEY-20 an alias with another value is refused", func() {
		svc := s.serve(OK(), func(c *core.Config) { c.Key.Aliases = []string{"X-Idempotency-Key"} })
		first := svc.Send("POST", "/orders", "B", "X-Idempotency-Key", "K")
		s.replay(first, svc.Send("POST", "/orders", "B", "X-Idempotency-Key", "K", "Idempotency-Key", "K"))
		s.problem(svc.Send("POST", "/orders", "B", "X-Idempotency-Key", "K", "Idempotency-Key", "L"), 400, "key-repeated")
		s.ran(svc, 1)
	})
	s.Run("FPR-03 with PerRoute a key on another route is another key", func() {
		svc := s.serve(OK(), func(c *core.Config) { c.Key.PerRoute = true })
		first := svc.Post("K", "B")
		s.False(svc.Send("POST", "/refunds", "B", "Idempotency-Key", "K").Replayed())
		s.replay(first, svc.Post("K", "B"))
		s.ran(svc, 2)
	})
}

// RPL-28, RPL-30, RPL-33 and ERR-05: a replay may lack its body, since the route or a no-store from anywhere asks for that. It
// says so, and the handler does not run again. What a handler has decided counts more than its status.
func (s *Behaviours) TestKeepOptions() {
	s.omittedBodies()
	s.keptByDecision()
}

// omittedBodies plays replays without the body.
func (s *Behaviours) omittedBodies() {
	secret := Response{Status: 201, Header: http.Header{"Cache-Control": {"no-store"}, "X-Kept": {"kept"}}, Body: "secret"}
	for name, omit := range map[string]func(*core.Response) bool{
		"RPL-28 an answer with no-store": core.OmitNoStore,
		"RPL-30 an answer of this route": func(*core.Response) bool { return true },
	} {
		s.Run(name+" can be kept without its body", func() {
			svc := s.serve(script(secret), func(c *core.Config) { c.Keep.OmitBody = omit })
			s.Equal("secret", svc.Post("K", "B").Body)
			second := svc.Post("K", "B")
			s.Equal(201, second.Status)
			s.True(second.Replayed())
			s.Equal("kept", second.Header.Get("X-Kept"))
			s.Equal("omitted", second.Header.Get("Idempotent-Body"))
			s.Empty(second.Body)
			s.ran(svc, 1)
		})
	}
	s.Run("RPL-33 a replay without its body has the status for that", func() {
		svc := s.serve(script(secret), func(c *core.Config) { c.Keep.OmitBody, c.Keep.OmittedStatus = core.OmitNoStore, 413 })
		s.Equal(201, svc.Post("K", "B").Status)
		second := svc.Post("K", "B")
		s.Equal(413, second.Status)
		s.True(second.Replayed())
		s.Equal("omitted", second.Header.Get("Idempotent-Body"))
		s.Empty(second.Body)
		s.ran(svc, 1)
	})
}

// keptByDecision plays what no-store and the handler's decision do to what is kept.
func (s *Behaviours) keptByDecision() {
	s.Run("RPL-28 an answer with no-store is one, whoever says so", func() {
		outer := map[string]string{"Cache-Control": "no-store"}
		for name, header := range map[string]http.Header{
			"also the handler": {"Cache-Control": {"no-store"}, "X-Kept": {"kept"}},
			"not the handler":  {"X-Kept": {"kept"}},
		} {
			h := script(Response{Status: 201, Header: header, Body: "secret"})
			svc := Start(s.T(), s.framework, s.store, h, Setup{Outer: outer}, func(c *core.Config) { c.Keep.OmitBody = core.OmitNoStore })
			first := svc.Post("K", "B")
			s.Equal("secret", first.Body, name)
			second := svc.Post("K", "B")
			s.True(second.Replayed(), name)
			s.Empty(second.Body, name)
			s.Equal("omitted", second.Header.Get("Idempotent-Body"), name)
			s.Equal(first.Header.Values("Cache-Control"), second.Header.Values("Cache-Control"), name)
			s.Equal("kept", second.Header.Get("X-Kept"))
			s.ran(svc, 1)
		}
	})
	s.Run("ERR-05 the handler's decision wins over the status", func() {
		svc := s.serve(func(r Request) Response {
			core.Decide(r.Ctx, core.Keep)
			return Response{Status: 500, Body: "final"}
		}, nil)
		s.replay(svc.Post("K", "B"), svc.Post("K", "B"))
		svc = s.serve(func(r Request) Response {
			core.Decide(r.Ctx, core.Retry)
			return Response{Status: 200, Body: "not yet"}
		}, nil)
		s.Equal("not yet", svc.Post("K", "B").Body)
		s.False(svc.Post("K", "B").Replayed())
		s.ran(svc, 2)
	})
}

// RPL-15, RPL-25, RPL-29 and PRB-04: options decide which header fields a replay repeats, who sees the marker, and whether a
// refusal has a link. Fields of the same name that middleware outside has set must stay beside them.
func (s *Behaviours) TestLinesOfReplays() {
	session := Response{Status: 201, Header: http.Header{"Set-Cookie": {"a=1; Path=/", "b=2"}, "X-Kept": {"kept"}, "X-Denied": {"d"}, "X-Request-Id": {"1"}}, Body: "x"}
	s.Run("RPL-15 cookies are replayed for who allows it, and other lines are not for who denies it", func() {
		svc := s.serve(script(session), func(c *core.Config) {
			c.Keep.AllowHeaders, c.Keep.DenyHeaders = []string{"Set-Cookie"}, []string{"x-denied"}
		})
		first, second := svc.Post("K", "B"), svc.Post("K", "B")
		s.replay(first, second)
		s.Equal(first.Header.Values("Set-Cookie"), second.Header.Values("Set-Cookie"))
		s.Len(second.Header.Values("Set-Cookie"), 2)
		s.Equal("d", first.Header.Get("X-Denied"))
		s.Empty(second.Header.Values("X-Denied"))
		s.Empty(second.Header.Values("X-Request-Id"), "RPL-16")
	})
	s.Run("RPL-29 scripts may read the marker, and what CORS outside lets them read", func() {
		for _, outer := range []map[string]string{nil, {"Access-Control-Expose-Headers": "X-Total, ETag"}} {
			svc := Start(s.T(), s.framework, s.store, script(session), Setup{Outer: outer}, func(c *core.Config) { c.Keep.ExposeMarker = true })
			first, second := svc.Post("K", "B"), svc.Post("K", "B")
			s.replay(first, second)
			want := []string{Marker}
			if outer != nil {
				want = []string{"X-Total, ETag", Marker}
			}
			s.Equal(want, first.Header.Values("Access-Control-Expose-Headers"))
			s.Equal(want, second.Header.Values("Access-Control-Expose-Headers"))
		}
	})
	s.Run("RPL-25 the marker is on all answers, or on none", func() {
		svc := s.serve(script(session), func(c *core.Config) { c.Keep.MarkAll = true })
		s.Equal([]string{"false"}, svc.Post("K", "B").Header.Values(Marker))
		s.Equal([]string{"true"}, svc.Post("K", "B").Header.Values(Marker))
		svc = s.serve(script(session), func(c *core.Config) { c.Keep.NoMarker = true })
		for range 2 {
			r := svc.Post("K", "B")
			s.Equal(201, r.Status)
			s.Empty(r.Header.Values(Marker))
		}
		s.ran(svc, 1)
	})
	s.Run("PRB-04 KEY-03 refusals carry a link to their type beside the links of others", func() {
		outer := map[string]string{"Link": "</style.css>; rel=preload"}
		svc := Start(s.T(), s.framework, s.store, OK(), Setup{Outer: outer}, func(c *core.Config) {
			Required(c)
			c.Problems.Link, c.Problems.BaseURL = true, "https://api.example.com/problems#"
		})
		refused := svc.Send("POST", "/orders", "B")
		s.problem(refused, 400, "key-missing")
		s.Equal([]string{"</style.css>; rel=preload", `<https://api.example.com/problems#key-missing>; rel="describedby"`}, refused.Header.Values("Link"))
		for range 2 {
			s.Equal([]string{"</style.css>; rel=preload"}, svc.Post("K", "B").Header.Values("Link"))
		}
	})
}

// KEY-21: first responses, replays and refusals carry the key once, in the form that Key.Accept gives it, although the handler
// and middleware outside set the same field. A value that Key.Accept rejects is no key, and does not come back.
func (s *Behaviours) TestEchoKey() {
	own := http.Header{"Content-Type": {"text/plain"}, "Idempotency-Key": {"of the handler"}}
	for name, first := range map[string]Response{
		"held back": {Status: 201, Header: own, Body: "made"},
		"streamed":  {Status: 201, Header: own, Chunks: []string{"ma", "de"}},
	} {
		s.Run("KEY-21 responses that are "+name+" carry the key in its canonical form", func() {
			around := Setup{Outer: map[string]string{"Idempotency-Key": "of outer middleware"}}
			svc := Start(s.T(), s.framework, s.store, script(first), around, func(c *core.Config) {
				c.Keep.EchoKey, c.Key.Accept = true, core.UUIDKey
			})
			const key = "8E03978E-40D5-43E8-BC93-6894A57F9324"
			want := []string{strconv.Quote(strings.ToLower(key))}
			s.Equal(want, svc.Post(key, "B").Header.Values("Idempotency-Key"))
			s.Eventually(func() bool { return svc.Post(key, "B").Replayed() }, 5*time.Second, time.Millisecond)
			s.Equal(want, svc.Post(key, "B").Header.Values("Idempotency-Key"))
			other := svc.Post(key, "B'")
			s.problem(other, 422, "fingerprint-mismatch")
			s.Equal(want, other.Header.Values("Idempotency-Key"))
			s.Equal([]string{"of outer middleware"}, svc.Post("no UUID", "B").Header.Values("Idempotency-Key"), "it is no key")
			s.ran(svc, 1)
		})
	}
}

// OPR-07: tenant a asks before, during and after its run. Tenant b, with the same key, must never learn that there is one, and no
// cache may store a state, since the next one may differ.
func (s *Behaviours) TestStatus() {
	s.Run("OPR-07 a caller learns what became of a key of its own, and of nobody else's", func() {
		g := NewGate()
		around := Setup{Scope: "X-Tenant", Outer: map[string]string{"X-Outer": "outer"}}
		svc := Start(s.T(), s.framework, s.store, g.handler(OK()), around, nil)
		key := rand.Text()
		lines := func(tenant string) []string { return []string{"Idempotency-Key", key, "X-Tenant", tenant} }
		says := func(tenant string, status int, state string) {
			s.T().Helper()
			r := svc.Send("GET", "/status", "", lines(tenant)...)
			s.Equal(status, r.Status, r.Body)
			stored := map[string]string{"completed": `,"status":201`}[state]
			s.Regexp(`^\{"state":"`+state+`","instance":"urn:idem:[A-Za-z0-9_-]{32}"`+stored+`\}$`, r.Body)
			s.EqualValues(len(r.Body), r.Length)
			s.Equal("no-store", r.Header.Get("Cache-Control"))
			s.Equal("application/json", r.Header.Get("Content-Type"))
			s.Equal("outer", r.Header.Get("X-Outer"))
			s.Equal(state == "running", r.Header.Get("Retry-After") != "")
			s.False(r.Replayed())
		}
		says("a", 404, "absent")
		first := g.Admit(s.T(), func() Reply { return svc.Send("POST", "/orders", "B", lines("a")...) })
		says("a", 200, "running")
		says("b", 404, "absent")
		g.Open()
		s.Equal(201, (<-first).Status)
		says("a", 200, "completed")
		says("b", 404, "absent")
		s.ran(svc, 1)
		s.problem(svc.Send("GET", "/status", "", "X-Tenant", "a"), 400, "key-missing")
		s.problem(svc.Send("GET", "/status", "", "Idempotency-Key", key), 401, "scope-missing")
		s.Equal("no-store", svc.Send("GET", "/status", "").Header.Get("Cache-Control"))
	})
	s.Run("OPR-07 without the option Scope the scope is the engine's", func() {
		svc := s.serve(OK(), nil)
		s.Equal(201, svc.Post("K", "B").Status)
		s.Contains(svc.Send("GET", "/status", "", "Idempotency-Key", "K").Body, `"state":"completed"`)
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
			svc := s.serve(OK(), func(c *core.Config) {
				change(c, func() {
					if panics.Load() {
						panic("test")
					}
				})
			})
			key := rand.Text()
			first := svc.Post(key, "B")
			panics.Store(true)
			again := svc.Post(key, "B")
			if name == "Hooks.Begin" {
				again = svc.Post(rand.Text(), "B")
			}
			s.Equal(500, again.Status)
			panics.Store(false)
			s.replay(first, svc.Post(key, "B"))
			s.ran(svc, 1)
		})
	}
}

// RPL-34: each replay is replaced, also one from the memory of Keep.LocalReplays, and then refused. The record stays as it is:
// after a panic of the function, the next replay has the stored response.
func (s *Behaviours) TestOnReplay() {
	for name, first := range map[string]Response{
		"held back": {Status: 201, Header: http.Header{"Content-Type": {"text/plain"}, "X-Kept": {"kept"}}, Body: "made"},
		"streamed":  {Status: 201, Header: http.Header{"Content-Type": {"text/plain"}, "X-Kept": {"kept"}}, Chunks: []string{"ma", "de"}},
	} {
		s.Run("RPL-34 a replay of a response that was "+name+" can be replaced and refused", func() {
			var now atomic.Pointer[core.Response]
			now.Store(&core.Response{Status: 201, Body: []byte("current"), Header: []core.Field{{Name: "content-type", Value: "text/csv"}, {Name: "Set-Cookie", Value: "a=b"}}})
			svc := s.serve(script(first), func(c *core.Config) {
				c.Keep.LocalReplays = 1 << 20
				c.Keep.OnReplay = func(context.Context, *core.Request, *core.Response) (*core.Response, error) { return now.Load(), nil }
			})
			s.Equal("made", svc.Post("K", "B").Body)
			for range 2 {
				var replay Reply
				s.Eventually(func() bool { // the stream of Fiber is stored when its client has it
					replay = svc.Post("K", "B")
					return replay.Status == 201
				}, 5*time.Second, time.Millisecond)
				s.True(replay.Replayed())
				s.Equal("current", replay.Body)
				s.EqualValues(7, replay.Length)
				s.Equal([]string{"text/csv"}, replay.Header.Values("Content-Type"))
				s.Equal("a=b", replay.Header.Get("Set-Cookie"))
				s.Empty(replay.Header.Get("X-Kept"))
			}
			now.Store(nil)
			s.problem(svc.Post("K", "B"), 403, "replay-refused")
			s.ran(svc, 1)
		})
	}
	s.Run("RPL-34 a panic reaches the middleware outside, and the next replay is as usual", func() {
		var panics atomic.Bool
		panics.Store(true)
		svc := s.serve(OK(), func(c *core.Config) {
			c.Keep.OnReplay = func(_ context.Context, _ *core.Request, stored *core.Response) (*core.Response, error) {
				if panics.Load() {
					panic("test")
				}
				return stored, nil
			}
		})
		first := svc.Post("K", "B")
		s.Equal(500, svc.Post("K", "B").Status)
		panics.Store(false)
		s.replay(first, svc.Post("K", "B"))
		s.ran(svc, 1)
	})
}

// shelf is blobs in memory.
type shelf struct{ sync.Map }

// Put implements driver.Blobs. Nothing expires: a test deletes the blob that is to be lost.
func (s *shelf) Put(_ context.Context, id string, data []byte, _ time.Duration) error {
	s.Store(id, data)
	return nil
}

// Get implements driver.Blobs. Its error is a plain one, since a request is replayed without its body whatever the error is.
func (s *shelf) Get(_ context.Context, id string) ([]byte, error) {
	data, ok := s.Load(id)
	if !ok {
		return nil, errors.New("no such blob")
	}
	return data.([]byte), nil
}

// Delete implements driver.Blobs. A blob that is not there is no error, as the interface demands.
func (s *shelf) Delete(_ context.Context, id string) error {
	s.Map.Delete(id)
	return nil
}

// RPL-27: a body of 100 000 bytes goes into a blob, and a replay takes it from there. A blob that is lost costs the replay its
// body, but neither its status nor its header, and lets nothing run again.
func (s *Behaviours) TestBlobs() {
	body := strings.Repeat("0123456789", 10_000)
	long := Response{Status: 201, Header: http.Header{"X-Kept": {"kept"}, "Content-Type": {"text/plain"}}, Body: body}
	s.Run("RPL-27 a long answer is replayed whole from its blob, and without its body when that is lost", func() {
		blobs := &shelf{}
		svc := s.serve(script(long), func(c *core.Config) { c.Keep.Blobs = blobs })
		first := svc.Post("K", "B")
		s.Equal(body, first.Body)
		second := svc.Post("K", "B")
		s.replay(first, second)
		s.EqualValues(len(body), second.Length)
		s.Empty(second.Header.Get("Idempotent-Body"))
		kept := 0
		blobs.Range(func(id, _ any) bool { kept++; blobs.Map.Delete(id); return true })
		s.Equal(1, kept, "the store was to be spared it")
		third := svc.Post("K", "B")
		s.Equal(201, third.Status)
		s.Equal("kept", third.Header.Get("X-Kept"))
		s.Equal("omitted", third.Header.Get("Idempotent-Body"))
		s.Empty(third.Body)
		s.ran(svc, 1)
	})
}

// TTL-07: a time that is too old, missing, unreadable or there twice is refused before the store is called. Otherwise a retry
// that comes after the retention would run anew.
func (s *Behaviours) TestAge() {
	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(http.TimeFormat) }
	s.Run("TTL-07 a request that was first sent long ago is refused", func() {
		svc := s.serve(OK(), func(c *core.Config) { c.Key.MaxAge = time.Hour })
		post := func(lines ...string) Reply {
			return svc.Send("POST", "/orders", "B", append([]string{"Idempotency-Key", "K"}, lines...)...)
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
			svc := s.serve(func(r Request) Response {
				run, _ := core.FromContext(r.Ctx)
				if run.Takeover {
					return Response{Status: 201, Body: "looked it up"}
				}
				core.Decide(r.Ctx, core.LeaveUnknown)
				return Response{Status: 504}
			}, func(c *core.Config) {
				Lease(500 * time.Millisecond)(c)
				c.Lease.OnUnknown = core.RefuseUnknown
				c.Scope = func(context.Context, *core.Request) string { return scope }
			})
			s.Equal(504, svc.Post("K", "B").Status)
			operation := core.Task{Scope: scope, Key: "K"}
			s.ErrorIs(svc.engine.Resolve(context.Background(), operation, outcome), core.ErrNotUnknown, "its lease runs")
			s.Require().Eventually(func() bool {
				return strings.Contains(svc.Post("K", "B").Body, "outcome-unknown")
			}, 10*time.Second, 20*time.Millisecond)
			s.Require().NoError(svc.engine.Resolve(context.Background(), operation, outcome))
			s.ErrorIs(svc.engine.Resolve(context.Background(), operation, outcome), core.ErrNotUnknown)
			r := svc.Post("K", "B")
			s.Equal(201, r.Status)
			s.Equal(outcome != nil, r.Replayed())
			if outcome != nil {
				s.Equal("found", r.Body)
				s.Equal("kept", r.Header.Get("X-Kept"))
				s.ran(svc, 1)
			} else {
				s.Equal("looked it up", r.Body)
				s.ran(svc, 2)
			}
		})
	}
	s.Run("LSE-02 of what is not unknown an operator changes nothing", func() {
		scope := rand.Text()
		svc := s.serve(OK(), func(c *core.Config) { c.Scope = func(context.Context, *core.Request) string { return scope } })
		operation := core.Task{Scope: scope, Key: "K"}
		resolve := func() error { return svc.engine.Resolve(context.Background(), operation, &core.Response{Status: 200}) }
		s.ErrorIs(resolve(), core.ErrNotUnknown)
		first := svc.Post("K", "any request")
		s.Equal(201, first.Status)
		s.ErrorIs(resolve(), core.ErrNotUnknown)
		s.replay(first, svc.Post("K", "any request"))
	})
}

// LSE-08: the store fails in Begin alone. The response says once that it is unprotected, whether it is held back, streamed or too
// long for that, and whatever the handler and middleware outside set in the same field. The next response does not say it.
func (s *Behaviours) TestFailOpen() {
	s.Run("LSE-08 the answer says so, held back or streamed, whatever else it says", func() {
		for _, a := range []Response{
			{Status: 201, Header: http.Header{"Content-Type": {"text/plain"}}, Body: "whole"},
			{Status: 201, Header: http.Header{"Content-Type": {"text/plain"}, Marker: {"true"}}, Chunks: []string{"in ", "parts"}},
			{Status: 201, Body: strings.Repeat("x", 2000)}, // too long to be held back
		} {
			around := Setup{Outer: map[string]string{"Idempotent-Unprotected": "false"}}
			svc := Start(s.T(), s.framework, s.store, script(a), around, func(c *core.Config) { c.DangerouslyFailOpen, c.Keep.MaxBody = true, 1000 })
			svc.store.Inject("begin", storetest.Before, 1)
			r := svc.Post("K", "B")
			s.Equal(201, r.Status)
			s.Equal(a.Body+strings.Join(a.Chunks, ""), r.Body)
			s.Equal([]string{"true"}, r.Header.Values("Idempotent-Unprotected"))
			s.Empty(r.Header.Values(Marker))
			s.Equal("false", svc.Post("K", "B").Header.Get("Idempotent-Unprotected"), "the store is back")
		}
	})
	s.Run("LSE-08 a handler that sets the field itself does not change what the answer says", func() {
		own := http.Header{"Content-Type": {"text/plain"}, "Idempotent-Unprotected": {"x"}}
		for _, a := range []Response{{Status: 201, Header: own, Body: "whole"}, {Status: 201, Header: own, Chunks: []string{"in ", "parts"}}} {
			svc := s.serve(script(a), func(c *core.Config) { c.DangerouslyFailOpen = true })
			svc.store.Inject("begin", storetest.Before, 1)
			s.Equal([]string{"true"}, svc.Post("K", "B").Header.Values("Idempotent-Unprotected"))
		}
	})
	s.Run("LSE-08 a store that is down lets the request run unprotected, and the answer says so", func() {
		svc := s.serve(OK(), func(c *core.Config) { c.DangerouslyFailOpen = true })
		svc.store.Inject("begin", storetest.Before, 2)
		for range 2 {
			r := svc.Post("K", "B")
			s.Equal(201, r.Status)
			s.False(r.Replayed())
			s.Equal("true", r.Header.Get("Idempotent-Unprotected"))
		}
		s.ran(svc, 2)
		s.Empty(svc.Post("K", "B").Header.Get("Idempotent-Unprotected"))
	})
}

// RPL-32: a redirect that keeps the method keeps the key, and the client takes it to the other place.
func (s *Behaviours) TestAClientFollowsARedirectWithItsKey() {
	for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		s.Run(strconv.Itoa(status), func() {
			svc := s.serve(func(r Request) Response {
				if r.Path == "/orders" {
					return Response{Status: status, Header: http.Header{"Location": {"/orders/"}}}
				}
				return Response{Status: 201, Body: "made"}
			}, nil)
			client := NewClient()
			defer client.CloseIdleConnections()
			client.CheckRedirect = nil
			post := func() Reply {
				r, err := svc.Try(client, "POST", "/orders", "B", "Idempotency-Key", strconv.Itoa(status))
				s.Require().NoError(err)
				return r
			}
			first := post()
			s.Equal(201, first.Status, first.Body)
			s.False(first.Replayed())
			moved := svc.Send("POST", "/orders/", "B", "Idempotency-Key", strconv.Itoa(status))
			s.replay(first, moved)
			s.ran(svc, 2)
		})
	}
}

// FPR-19: the host counts on every framework, in whichever form it comes.
func (s *Behaviours) TestTheHostCountsWhereItIsAskedFor() {
	post := func(svc *Service, target, host string) Reply {
		return svc.Raw("POST " + target + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\nIdempotency-Key: K\r\nContent-Length: 1\r\n\r\nB")
	}
	svc := s.serve(OK(), comparing(core.FingerprintConfig{Headers: []string{"Host"}}))
	first := post(svc, "/orders", "one.example")
	s.Equal(201, first.Status)
	s.problem(post(svc, "/orders", "two.example"), 422, "fingerprint-mismatch")
	s.replay(first, post(svc, "/orders", "ONE.example"))
	s.replay(first, post(svc, "http://one.example/orders", "one.example"))
	s.problem(post(svc, "http://two.example/orders", "two.example"), 422, "fingerprint-mismatch")
	s.ran(svc, 1)

	svc = s.serve(OK(), nil)
	first = post(svc, "/orders", "one.example")
	s.replay(first, post(svc, "/orders", "two.example"))
}
