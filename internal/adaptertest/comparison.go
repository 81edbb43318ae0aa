package adaptertest

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/go-idem/idem/core"
)

func comparing(p core.FingerprintConfig) func(*core.Config) {
	return func(c *core.Config) { c.Fingerprint = p }
}

// sent is one request: where it goes, its body, and its header lines besides the key.
type sent struct {
	path, body string
	lines      []string
}

func (s *Behaviours) sends(svc *Service, r sent) Reply {
	s.T().Helper()
	return svc.Send("POST", r.path, r.body, append([]string{"Idempotency-Key", "K"}, r.lines...)...)
}

func typed(contentType, body string) sent {
	return sent{"/orders", body, []string{"Content-Type", contentType}}
}

func multipartForm(boundary, value string) sent {
	return typed("multipart/form-data; boundary="+boundary, strings.ReplaceAll(
		"--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n"+value+"\r\n"+
			"--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f.txt\"\r\nContent-Type: text/plain\r\n\r\n"+value+"\r\n--B--\r\n", "--B", "--"+boundary))
}

// FPR-05 to FPR-07, FPR-09, FPR-12, FPR-13, FPR-17 and FPR-18: each row is two requests under one key and options of the
// fingerprint. The first one is sent twice, so that a comparison that finds nothing equal fails as well.
func (s *Behaviours) TestComparisons() {
	json := func(body string) sent { return typed("application/json; charset=utf-8", body) }
	query := func(q string) sent { return sent{"/orders?" + q, "B", nil} }
	header := func(lines ...string) sent { return sent{"/orders", "B", lines} }
	canonical, parts, sorted := core.FingerprintConfig{JSON: true}, core.FingerprintConfig{Multipart: true}, core.FingerprintConfig{SortQuery: true}
	tenant := core.FingerprintConfig{Headers: []string{"Accept", "X-Tenant"}}
	for _, c := range []struct {
		name          string
		config        core.FingerprintConfig
		first, second sent
		same          bool
	}{
		{"FPR-05 parameters in another order, sorted", sorted, query("a=1&b=2"), query("b=2&a=%31"), true},
		{"FPR-05 another query, sorted", sorted, query("a=1"), query("a=2"), false},
		{"FPR-06 other white space and order, canonical", canonical, json(`{"a":1,"b":2}`), json(`{ "b": 2, "a": 1 }`), true},
		{"FPR-06 other white space, raw", core.FingerprintConfig{}, json(`{"a":1}`), json(`{"a": 1}`), false},
		{"FPR-07 1.0 and 1", canonical, json(`[1.0]`), json(`[1]`), true},
		{"FPR-07 another order of an array", canonical, json(`[1,2]`), json(`[2,1]`), false},
		{"FPR-09 a member twice", canonical, json(`{"a":1,"a":2}`), json(`{"a":2}`), false},
		{"FPR-09 too deep", canonical, json(strings.Repeat("[", 100_000)), json(strings.Repeat("[", 100_000) + " "), false},
		{"FPR-12 another boundary, by parts", parts, multipartForm("one", "x"), multipartForm("two", "x"), true},
		{"FPR-12 another part, by parts", parts, multipartForm("one", "x"), multipartForm("one", "y"), false},
		{"FPR-12 another boundary, raw", core.FingerprintConfig{}, multipartForm("one", "x"), multipartForm("two", "x"), s.isFiber()}, // which has parsed it
		{"FPR-13 a header that counts", tenant, header("X-Tenant", "a"), header("X-Tenant", "b"), false},
		{"FPR-13 headers that do not count", tenant, header("Accept", "text/csv", "User-Agent", "a"), header("Accept", "text/csv", "User-Agent", "b"), true},
		{"FPR-17 all are the same", core.FingerprintConfig{Off: true}, sent{"/orders?a=1", "B", nil}, sent{"/orders?a=2", "B'", nil}, true},
		{"FPR-18 all are the same, on another route", core.FingerprintConfig{Off: true}, sent{"/orders", "B", nil}, sent{"/refunds", "B", nil}, false},
	} {
		s.Run(c.name, func() {
			svc := s.serve(OK(), comparing(c.config))
			first := s.sends(svc, c.first)
			s.Equal(201, first.Status)
			s.replay(first, s.sends(svc, c.first))
			if second := s.sends(svc, c.second); c.same {
				s.replay(first, second)
			} else {
				s.problem(second, 422, "fingerprint-mismatch")
			}
			s.ran(svc, 1)
		})
	}
}

// FPR-18: a key that was used on a route that compares nothing opens no other route.
func (s *Behaviours) TestAStrictRouteNeverReplaysAnotherRoutesAnswer() {
	own := func(*core.Request, []byte) []byte { return nil }
	for name, config := range map[string]core.FingerprintConfig{
		"off": {Off: true}, "own": {Func: own}, "headers": {Headers: []string{"Accept"}}, "JSON": {JSON: true, SortQuery: true},
	} {
		s.Run(name, func() {
			scope := rand.Text()
			shared := func(c *core.Config) { c.Scope = func(context.Context, *core.Request) string { return scope } }
			ping := s.serve(OK(), func(c *core.Config) { shared(c); comparing(config)(c) })
			payments := s.serve(OK(), shared)
			s.Equal(201, s.sends(ping, sent{"/ping", "B", nil}).Status)
			s.problem(s.sends(payments, sent{"/payments", "B", nil}), 422, "fingerprint-mismatch")
			s.ran(ping, 1)
			s.ran(payments, 0)
		})
	}
}

// Two versions of a service share a store while one replaces the other.
func (s *Behaviours) TestARollOutOfAnotherComparison() {
	scope := rand.Text()
	shared := func(c *core.Config) { c.Scope = func(context.Context, *core.Request) string { return scope } }
	for from, before := range map[string]core.FingerprintConfig{"raw": {}, "JSON": {JSON: true}} {
		s.Run("FPR-06 from "+from, func() {
			after := core.FingerprintConfig{JSON: !before.JSON, SortQuery: true, Previous: &before}
			old := s.serve(OK(), func(c *core.Config) { shared(c); comparing(before)(c) })
			next := s.serve(OK(), func(c *core.Config) { shared(c); comparing(after)(c) })
			post := func(svc *Service, body string) Reply {
				return svc.Send("POST", "/orders?b=1&a=2", body, "Idempotency-Key", from, "Content-Type", "application/json")
			}
			first := post(old, `{"a": 1}`)
			s.replay(first, post(next, `{"a": 1}`))
			s.problem(post(next, `{"a": 2}`), 422, "fingerprint-mismatch")
			s.replay(first, post(old, `{"a": 1}`))
			s.ran(old, 1)
			s.ran(next, 0)
		})
	}
}
