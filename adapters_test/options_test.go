package adapters_test

import (
	"net/http"
	"strings"

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

func (s *Behaviours) TestFailOpen() {
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
