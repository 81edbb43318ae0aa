package adapters_test

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/suite"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

// Behaviours is what a client sees: each test quotes the checks it shows. It runs on every framework and every store, and
// with the race detector (FRM-04).
type Behaviours struct {
	suite.Suite
	framework framework
	store     driver.Store // shared by the frameworks: services have scopes of their own
}

func TestAdapters(t *testing.T) {
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			store := s.new(t)
			for _, f := range frameworks {
				t.Run(f.name, func(t *testing.T) {
					t.Parallel()
					suite.Run(t, &Behaviours{framework: f, store: store})
				})
			}
			t.Run("FRM-01 from one framework to another", func(t *testing.T) {
				t.Parallel()
				isReplayedElsewhere(t, store)
				waitsForARunElsewhere(t, store)
			})
		})
	}
}

// serve starts a service with the default configuration, but for change.
func (s *Behaviours) serve(h handler, change func(*core.Config)) *service {
	return start(s.T(), s.framework, s.store, h, setup{}, change)
}

// SetupTest skips a test that cannot apply to the framework.
func (s *Behaviours) SetupTest() {
	_, name, _ := strings.Cut(s.T().Name(), "/Test")
	s.skipNotForProxy("Test" + name)
}

// Run runs a part of a test, unless it cannot apply to the framework.
func (s *Behaviours) Run(name string, part func()) bool {
	return s.Suite.Run(name, func() {
		s.skipNotForProxy(name)
		part()
	})
}

func (s *Behaviours) isFiber() bool { return s.framework.name == "fiber" }

func required(c *core.Config) { c.Key.Required = true }

// problem checks a refusal: PRB-01.
func (s *Behaviours) problem(r reply, status int, code string) {
	s.T().Helper()
	s.Equal(status, r.status, r.body)
	s.Equal("application/problem+json", r.header.Get("Content-Type"))
	s.Contains(r.body, fmt.Sprintf(`"status":%d`, status))
	s.Contains(r.body, fmt.Sprintf(`"code":%q`, code))
	s.Regexp(`"type":"https://[^"]+#`+code+`"`, r.body)
	s.False(r.replayed(), "a refusal is no replay")
	s.EqualValues(len(r.body), r.length)
}

// replay checks that second repeats first.
func (s *Behaviours) replay(first, second reply) {
	s.T().Helper()
	s.Equal("true", second.header.Get(marker), "%d %s", second.status, second.body)
	s.False(first.replayed(), "a first execution carries no marker")
	s.Equal(first.status, second.status)
	s.Equal(first.body, second.body)
	for _, name := range []string{"Content-Type", "Location", "Etag", "Vary", "Cache-Control", "X-Kept"} {
		s.Equal(first.header.Values(name), second.header.Values(name), name)
	}
}

func (s *Behaviours) ran(service *service, n int) {
	s.T().Helper()
	s.EqualValues(n, service.runs.Load(), "handler runs")
}

func (s *Behaviours) TestKeyPresence() {
	s.Run("KEY-01 KEY-03 a required key that is missing is refused", func() {
		svc := s.serve(ok(), required)
		s.problem(svc.send("POST", "/orders", "B"), 400, "key-missing")
		s.ran(svc, 0)
	})
	s.Run("KEY-02 without a key each request runs and the store is not asked", func() {
		svc := s.serve(ok(), nil)
		for range 2 {
			s.False(svc.send("POST", "/orders", "B").replayed())
		}
		s.ran(svc, 2)
		s.Zero(svc.store.Calls("begin"))
	})
	s.Run("KEY-04 the header's name has no case", func() {
		svc := s.serve(ok(), nil)
		first := svc.send("POST", "/orders", "B", "idempotency-key", "K")
		s.replay(first, svc.send("POST", "/orders", "B", "IDEMPOTENCY-KEY", "K"))
	})
	s.Run("MTH-05 a preflight is not asked for a key", func() {
		svc := s.serve(ok(), required)
		s.Equal(201, svc.send("OPTIONS", "/orders", "").status)
	})
}

func (s *Behaviours) TestKeySyntax() {
	for _, c := range []struct{ name, first, second string }{
		{"KEY-05 a quoted key", `"K"`, `"K"`},
		{"KEY-06 quotes are not part of the key", `"K"`, `K`},
		{"KEY-08 escapes are decoded", `"a\"b\\c"`, `"a\"b\\c"`},
		{"KEY-10 parameters are ignored", `"K"`, `"K";v=2;w="x";z`},
		{"KEY-16 white space around it is not part of the key", "K", " \tK \t"},
		{"KEY-13 255 characters", strings.Repeat("k", 255), strings.Repeat("k", 255)},
	} {
		s.Run(c.name, func() {
			svc := s.serve(ok(), nil)
			first := svc.post(c.first, "B")
			s.Equal(201, first.status)
			s.replay(first, svc.post(c.second, "B"))
			s.ran(svc, 1)
		})
	}
	s.Run("KEY-17 keys differ by case", func() {
		svc := s.serve(ok(), nil)
		svc.post("abc", "B")
		s.False(svc.post("ABC", "B").replayed())
		s.ran(svc, 2)
	})
	for _, c := range []struct{ name, key, code string }{
		{"KEY-08 an unknown escape", `"a\xb"`, "key-malformed"},
		{"KEY-09 an open quote", `"abc`, "key-malformed"},
		{"KEY-09 text behind the quote", `"abc"x`, "key-malformed"},
		{"KEY-09 a list", `"a", "b"`, "key-malformed"},
		{"KEY-11 bare keys that a proxy combined", `a, b`, "key-malformed"},
		{"KEY-12 nothing", ``, "key-empty"},
		{"KEY-12 empty quotes", `""`, "key-empty"},
		{"KEY-12 spaces", `   `, "key-empty"},
		{"KEY-13 256 characters", strings.Repeat("k", 256), "key-too-long"},
		{"KEY-15 bytes above ASCII", "caf\xc3\xa9", "key-malformed"},
	} {
		s.Run(c.name+" is refused before the store is asked", func() {
			svc := s.serve(ok(), nil)
			s.problem(svc.post(c.key, "B"), 400, c.code)
			s.ran(svc, 0)
			s.Zero(svc.store.Calls("begin"))
		})
	}
	s.Run("KEY-14 a key under the minimum is refused", func() {
		svc := s.serve(ok(), func(c *core.Config) { c.Key.MinLength = 20 })
		s.problem(svc.post(strings.Repeat("k", 19), "B"), 400, "key-too-short")
		s.Equal(201, svc.post(strings.Repeat("k", 20), "B").status)
	})
	for _, lines := range []string{"Idempotency-Key: K1\r\nIdempotency-Key: K2\r\n", "Idempotency-Key: K\r\nidempotency-key: K\r\n"} {
		s.Run("KEY-11 two lines are refused", func() {
			svc := s.serve(ok(), nil)
			s.problem(svc.raw(rawPost(lines)), 400, "key-repeated")
			s.ran(svc, 0)
		})
	}
	for _, b := range []byte{0x00, 0x01, 0x08, 0x0B, 0x0C, 0x1F, 0x7F, 0x80, 0xFF} {
		s.Run(fmt.Sprintf("KEY-15 the byte %#x in a key is refused", b), func() {
			svc := s.serve(ok(), nil)
			s.Equal(400, svc.raw(rawPost("Idempotency-Key: a"+string([]byte{b})+"b\r\n")).status)
			s.ran(svc, 0)
		})
	}
}

func (s *Behaviours) TestABadKeyIsRefusedBeforeTheBodyIsSent() {
	if s.isFiber() {
		s.T().Log("KEY-22 does not hold on Fiber: fasthttp asks for the body before any handler runs")
		return
	}
	for _, key := range []string{"", "Idempotency-Key: \"open\r\n"} {
		s.Run("KEY-22 "+key, func() {
			svc := s.serve(ok(), required)
			r := svc.raw("POST /orders HTTP/1.1\r\nHost: x\r\n" + key + "Content-Length: 100000000\r\nExpect: 100-continue\r\n\r\n")
			s.Equal(400, r.status, "the first answer must be final, not 100 Continue")
			s.ran(svc, 0)
		})
	}
}

func (s *Behaviours) TestMethods() {
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE", "DELETE", "PUT"} {
		s.Run("MTH-01 MTH-03 "+method+" runs each time", func() {
			svc := s.serve(ok(), required)
			for range 2 {
				r := svc.send(method, "/orders", "", "Idempotency-Key", "K")
				s.Equal(201, r.status)
				s.False(r.replayed())
			}
			s.ran(svc, 2)
			s.Zero(svc.store.Calls("begin"))
		})
	}
	s.Run("MTH-02 PATCH is replayed", func() {
		svc := s.serve(ok(), nil)
		first := svc.send("PATCH", "/orders", "B", "Idempotency-Key", "K")
		s.replay(first, svc.send("PATCH", "/orders", "B", "Idempotency-Key", "K"))
	})
	s.Run("MTH-04 PUT and DELETE are replayed when they are guarded", func() {
		svc := s.serve(script(answer{status: 204}, answer{status: 404}), func(c *core.Config) { c.Key.Methods = []string{"PUT", "DELETE"} })
		first := svc.send("DELETE", "/orders/1", "", "Idempotency-Key", "K")
		s.Equal(204, first.status)
		s.replay(first, svc.send("DELETE", "/orders/1", "", "Idempotency-Key", "K"))
	})
	s.Run("MTH-07 a hijacked connection works, is not kept, and frees its key", func() {
		svc := s.serve(script(answer{hijack: true}, answer{status: 201, body: "second"}), nil)
		s.Equal("raw", svc.post("K", "B").body)
		s.Eventually(func() bool { return svc.store.Calls("fail") == 1 }, 5*time.Second, time.Millisecond)
		s.Equal("second", svc.post("K", "B'").body)
	})
}

func (s *Behaviours) TestFirstExecutionEqualsAServerWithoutTheEngine() {
	for name, a := range map[string]answer{
		"JSON":            {status: 201, header: http.Header{"Content-Type": {"application/json"}, "Location": {"/orders/1"}}, body: `{"id":1}`},
		"no type":         {status: 200, body: "<html><body>sniffed</body></html>"},
		"many lines":      {status: 200, header: http.Header{"X-Kept": {"a", "b"}, "Set-Cookie": {"a=1", "b=2"}}, body: "x"},
		"no content":      {status: 204},
		"reset content":   {status: 205},
		"see other":       {status: 303, header: http.Header{"Location": {"/orders/1"}}},
		"nothing at all":  {},
		"large":           {status: 200, header: http.Header{"Content-Type": {"text/plain"}}, body: strings.Repeat("large ", 20_000)},
		"kept error":      {status: 422, body: "no"},
		"released error":  {status: 429, header: http.Header{"Retry-After": {"7"}}, body: "later"},
		"retryable error": {status: 503, body: "down"},
	} {
		s.Run("RPL-01 "+name, func() {
			h := func(request) answer { return a }
			outer := map[string]string{"X-Outer": "outer"}
			bare := start(s.T(), s.framework, s.store, h, setup{bare: true, outer: outer}, nil)
			guarded := start(s.T(), s.framework, s.store, h, setup{outer: outer}, nil)
			want, got := bare.post("K", "B"), guarded.post("K", "B")
			want.header.Del("Date")
			got.header.Del("Date")
			s.Equal(want, got)
		})
	}
}

func (s *Behaviours) TestReplay() {
	s.Run("RPL-02 RPL-03 RPL-04 RPL-13 a hundred retries get the first answer", func() {
		svc := s.serve(ok(), nil)
		first := svc.post("K", "B")
		s.Equal("/orders/1", first.header.Get("Location"))
		for range 99 {
			second := svc.post("K", "B")
			s.replay(first, second)
			s.EqualValues(len(second.body), second.length)
		}
		s.ran(svc, 1)
	})
	for _, status := range []int{204, 205} {
		s.Run(fmt.Sprintf("RPL-06 %d has no content", status), func() {
			svc := s.serve(script(answer{status: status}), nil)
			first, second := svc.post("K", "B"), svc.post("K", "B")
			s.replay(first, second)
			s.Empty(second.body)
			if status == 204 {
				s.Empty(second.header.Values("Content-Length"))
			}
		})
	}
	s.Run("RPL-07 an answer of nothing is an empty 200", func() {
		svc := s.serve(script(answer{}), nil)
		first := svc.post("K", "B")
		s.Equal(200, first.status)
		s.replay(first, svc.post("K", "B"))
	})
	s.Run("RPL-11 the date is the replay's own", func() {
		svc := s.serve(script(answer{status: 200, header: http.Header{"Date": {"Mon, 02 Jan 2006 15:04:05 GMT"}}, body: "x"}), nil)
		svc.post("K", "B")
		second := svc.post("K", "B")
		sent, err := http.ParseTime(second.header.Get("Date"))
		s.NoError(err)
		s.WithinDuration(time.Now(), sent, time.Minute)
	})
	s.Run("RPL-12 RPL-14 RPL-15 RPL-16 lines of one exchange are not replayed", func() {
		dropped := http.Header{
			"X-Hop": {"h"}, "Keep-Alive": {"timeout=1"}, "Te": {"trailers"}, "Upgrade": {"h2c"},
			"Proxy-Connection": {"close"}, "Proxy-Authenticate": {"Basic"}, "Proxy-Authentication-Info": {"x"},
			"Set-Cookie": {"session=1"}, "Www-Authenticate": {"Basic"}, "Authentication-Info": {"x"}, "X-Request-Id": {"first"},
			"Traceparent": {"00-1"}, "Server-Timing": {"db;dur=1"}, "Ratelimit-Limit": {"10"}, "Age": {"3"}, "Alt-Svc": {"h3"},
		}
		a := answer{status: 201, header: dropped.Clone(), body: "x"}
		a.header["Connection"] = []string{"X-Hop"}
		svc := s.serve(script(a), nil)
		first, second := svc.post("K", "B"), svc.post("K", "B")
		s.replay(first, second)
		s.Equal("session=1", first.header.Get("Set-Cookie"))
		for name := range dropped {
			s.Empty(second.header.Values(name), name)
		}
	})
	s.Run("RPL-21 RPL-23 what describes the resource is kept", func() {
		kept := http.Header{
			"Etag": {`"v1"`}, "Last-Modified": {"Mon, 02 Jan 2006 15:04:05 GMT"}, "Location": {"/orders/1"}, "Content-Location": {"/orders/1"},
			"Vary": {"Accept"}, "Cache-Control": {"no-store"}, "Content-Type": {"text/csv"}, "X-Kept": {"a", "b"},
		}
		svc := s.serve(script(answer{status: 303, header: kept, body: "a,b"}), nil)
		first, second := svc.post("K", "B"), svc.post("K", "B")
		s.replay(first, second)
		for name, values := range kept {
			s.Equal(values, second.header.Values(name), name)
		}
	})
	s.Run("RPL-16 lines of the current exchange stand", func() {
		var id string
		key := rand.Text() // of many runs of this test on one store
		h := func(request) answer { return answer{status: 200, body: "x"} }
		for _, id = range []string{"first", "second"} {
			outer := map[string]string{"X-Request-Id": id, "Access-Control-Allow-Origin": id}
			svc := start(s.T(), s.framework, s.store, h, setup{outer: outer}, func(c *core.Config) { c.Scope = core.SingleTenant })
			r := svc.post(key, "B")
			s.Equal([]string{id}, r.header.Values("X-Request-Id"), "neither stored nor doubled")
			s.Equal([]string{id}, r.header.Values("Access-Control-Allow-Origin"))
			s.Equal(id == "second", r.replayed())
		}
	})
	s.Run("RPL-24 a replay is a snapshot", func() {
		state := "as created"
		svc := s.serve(func(request) answer { return answer{status: 200, body: state} }, nil)
		svc.post("K", "B")
		state = "edited"
		s.Equal("as created", svc.post("K", "B").body)
	})
	s.Run("RPL-25 nobody else can send the marker", func() {
		svc := s.serve(script(answer{status: 200, header: http.Header{marker: {"true"}}, body: "x"}), nil)
		first := svc.send("POST", "/orders", "B", "Idempotency-Key", "K", marker, "true")
		s.replay(first, svc.post("K", "B"))
		second := svc.post("K", "B")
		s.Equal([]string{"true"}, second.header.Values(marker))
	})
	s.Run("RPL-28 an answer that may not be stored by caches is replayed", func() {
		svc := s.serve(script(answer{status: 200, header: http.Header{"Cache-Control": {"no-store"}}, body: "secret"}), nil)
		s.replay(svc.post("K", "B"), svc.post("K", "B"))
	})
}

func (s *Behaviours) TestAnswersThatAreNotHeldBack() {
	s.Run("RPL-10 chunks reach the first client as they are flushed", func() {
		chunks := strings.Split("0123456789", "")
		next := make(chan struct{})
		svc := s.serve(script(answer{status: 201, header: http.Header{"Content-Type": {"text/plain"}, marker: {"x"}}, chunks: chunks, before: func() { <-next }}), nil)
		req, err := http.NewRequest("POST", svc.url+"/orders", strings.NewReader("B"))
		s.Require().NoError(err)
		req.Header.Set("Idempotency-Key", "K")
		res, err := svc.client.Do(req)
		s.Require().NoError(err)
		defer res.Body.Close()
		s.Empty(res.Header.Values(marker))
		for i, chunk := range chunks {
			got := make([]byte, 1)
			_, err := io.ReadFull(res.Body, got)
			s.Require().NoError(err)
			s.Equal(chunk, string(got))
			if i == 4 {
				s.problem(svc.post("K", "B"), 409, "in-progress") // CON-09 CON-12
			}
			if i < len(chunks)-1 {
				next <- struct{}{}
			}
		}
		_, err = io.ReadAll(res.Body)
		s.NoError(err)
		s.Eventually(func() bool { return svc.store.Calls("complete") == 1 }, 5*time.Second, time.Millisecond)
		second := svc.post("K", "B")
		s.Equal(201, second.status)
		s.True(second.replayed())
		s.Equal("0123456789", second.body)
		s.ran(svc, 1)
	})
	s.Run("RPL-27 an answer over the limit is replayed without its body", func() {
		body := strings.Repeat("x", 1001)
		svc := s.serve(script(answer{status: 201, header: http.Header{"X-Kept": {"kept"}}, body: body}), func(c *core.Config) { c.Keep.MaxBody = 1000 })
		first := svc.post("K", "B")
		s.Equal(body, first.body)
		s.Equal(201, first.status)
		second := svc.post("K", "B")
		s.Equal(201, second.status)
		s.Equal("kept", second.header.Get("X-Kept"))
		s.Equal("true", second.header.Get(marker))
		s.Equal("omitted", second.header.Get("Idempotent-Body"))
		s.Empty(second.body)
		s.Zero(second.length)
		s.ran(svc, 1)
	})
	s.Run("RPL-27 an answer of exactly the limit is replayed whole", func() {
		svc := s.serve(script(answer{status: 201, body: strings.Repeat("x", 1000)}), func(c *core.Config) { c.Keep.MaxBody = 1000 })
		s.replay(svc.post("K", "B"), svc.post("K", "B"))
	})
}

func (s *Behaviours) TestConcurrency() {
	s.Run("CON-01 CON-02 a duplicate is refused while the first runs", func() {
		g := newGate()
		svc := s.serve(g.handler(ok()), nil)
		first := async(func() reply { return svc.post("K", "B") })
		<-g.entered
		second := svc.post("K", "B")
		s.problem(second, 409, "in-progress")
		s.Regexp(`^[1-9][0-9]*$`, second.header.Get("Retry-After"))
		s.LessOrEqual(second.header.Get("Retry-After"), "30")
		g.open()
		r := <-first
		s.Equal(201, r.status)
		s.ran(svc, 1)
		s.replay(r, svc.post("K", "B"))
	})
	s.Run("CON-06 a different request is a mismatch, not a conflict, while the first runs", func() {
		g := newGate()
		svc := s.serve(g.handler(ok()), nil)
		first := async(func() reply { return svc.post("K", "B") })
		<-g.entered
		s.problem(svc.post("K", "B'"), 422, "fingerprint-mismatch")
		g.open()
		s.Equal(201, (<-first).status)
	})
	s.Run("CON-07 keys do not block each other", func() {
		g := newGate()
		svc := s.serve(g.handler(ok()), nil)
		first := async(func() reply { return svc.post("K1", "B") })
		second := async(func() reply { return svc.post("K2", "B") })
		<-g.entered
		<-g.entered
		g.open()
		s.Equal(201, (<-first).status)
		s.Equal(201, (<-second).status)
	})
	s.Run("CON-03 a hundred parallel requests run the handler once", func() {
		svc := s.serve(ok(), nil)
		replies := make(chan reply, 100)
		for range 100 {
			go func() {
				r, err := svc.try(svc.client, "POST", "/orders", "B", "Idempotency-Key", "K")
				s.NoError(err)
				replies <- r
			}()
		}
		firsts := 0
		for range 100 {
			switch r := <-replies; {
			case r.status == 201 && !r.replayed():
				firsts++
			case r.status == 201:
				s.Equal(`{"run":1}`, r.body)
			default:
				s.problem(r, 409, "in-progress")
			}
		}
		s.Equal(1, firsts)
		s.ran(svc, 1)
	})
}

func (s *Behaviours) TestFingerprints() {
	for name, second := range map[string][3]string{
		"FPR-01 another body":           {"POST", "/orders?a=1&b=2", "B'"},
		"FPR-03 another path":           {"POST", "/orders/2?a=1&b=2", "B"},
		"FPR-04 another method":         {"PATCH", "/orders?a=1&b=2", "B"},
		"FPR-05 another query":          {"POST", "/orders?a=2&b=2", "B"},
		"FPR-05 a query in other order": {"POST", "/orders?b=2&a=1", "B"},
		"FPR-05 an escaped path":        {"POST", "/%6Frders?a=1&b=2", "B"},
		"FPR-06 other white space":      {"POST", "/orders?a=1&b=2", "B "},
	} {
		s.Run(name+" is a mismatch and leaves the outcome", func() {
			svc := s.serve(ok(), nil)
			first := svc.send("POST", "/orders?a=1&b=2", "B", "Idempotency-Key", "K")
			s.problem(svc.send(second[0], second[1], second[2], "Idempotency-Key", "K"), 422, "fingerprint-mismatch")
			s.ran(svc, 1)
			s.replay(first, svc.send("POST", "/orders?a=1&b=2", "B", "Idempotency-Key", "K"))
		})
	}
	s.Run("FPR-13 other headers make no other request", func() {
		svc := s.serve(ok(), nil)
		first := svc.send("POST", "/orders", "B", "Idempotency-Key", "K", "User-Agent", "a", "Authorization", "old")
		s.replay(first, svc.send("POST", "/orders", "B", "Idempotency-Key", "K", "User-Agent", "b", "Authorization", "fresh"))
	})
	s.Run("FPR-14 the handler reads every byte", func() {
		body := strings.Repeat("0123456789", 10_000)
		svc := s.serve(func(r request) answer {
			s.EqualValues(len(body), r.length)
			return answer{status: 200, body: r.body}
		}, nil)
		s.Equal(body, svc.post("K", body).body)
	})
	s.Run("FPR-15 a body over the limit is refused before the store is asked", func() {
		svc := s.serve(ok(), func(c *core.Config) { c.Limits.RequestBody = 1000 })
		s.problem(svc.post("K", strings.Repeat("x", 1001)), 413, "body-too-large")
		chunked := "POST /orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: K\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + strings.Repeat("x", 1001) + "\r\n0\r\n\r\n"
		s.problem(svc.raw(chunked), 413, "body-too-large")
		s.Zero(svc.store.Calls("begin"))
		s.Equal(201, svc.post("K", strings.Repeat("x", 1000)).status)
		s.ran(svc, 1)
	})
	s.Run("FPR-16 a body that ends early runs nothing and leaves the key free", func() {
		svc := s.serve(ok(), nil)
		conn, err := net.Dial("tcp", svc.addr)
		s.Require().NoError(err)
		_, err = io.WriteString(conn, "POST /orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: K\r\nContent-Length: 10\r\n\r\nhalf")
		s.Require().NoError(err)
		s.Require().NoError(conn.(*net.TCPConn).CloseWrite())
		_, _ = bufio.NewReader(conn).ReadByte() // the server has given up when it answers or closes
		_ = conn.Close()
		s.Zero(svc.store.Calls("begin"))
		s.Equal(201, svc.post("K", "another").status)
		s.ran(svc, 1)
	})
}

func (s *Behaviours) TestOutcomes() {
	for _, status := range []int{400, 402, 404, 409, 410, 412, 422} {
		s.Run(fmt.Sprintf("ERR-01 %d is kept", status), func() {
			svc := s.serve(script(answer{status: status, body: "no"}, answer{status: 200}), nil)
			s.replay(svc.post("K", "B"), svc.post("K", "B"))
			s.ran(svc, 1)
		})
	}
	for _, status := range []int{401, 403, 407, 408, 425, 429} {
		s.Run(fmt.Sprintf("ERR-02 %d frees the key", status), func() {
			svc := s.serve(script(answer{status: status, body: "no"}, answer{status: 200, body: "yes"}), nil)
			first := svc.post("K", "B")
			s.Equal(status, first.status)
			s.Equal("no", first.body)
			second := svc.post("K", "another body")
			s.Equal("yes", second.body)
			s.False(second.replayed())
			s.ran(svc, 2)
		})
	}
	for _, status := range []int{500, 502, 503, 504} {
		s.Run(fmt.Sprintf("ERR-03 after %d the same request runs again, and no other", status), func() {
			svc := s.serve(script(answer{status: status, body: "no"}, answer{status: 200, body: "yes"}), nil)
			s.Equal(status, svc.post("K", "B").status)
			s.problem(svc.post("K", "another body"), 422, "fingerprint-mismatch")
			s.Equal("yes", svc.post("K", "B").body)
			s.ran(svc, 2)
		})
	}
	s.Run("ERR-04 KeepAll keeps a 500", func() {
		svc := s.serve(script(answer{status: 500, body: "no"}, answer{status: 200}), func(c *core.Config) { c.Keep.Policy = core.KeepAll })
		s.replay(svc.post("K", "B"), svc.post("K", "B"))
	})
	s.Run("ERR-10 ReleaseOn lets a client mend its request", func() {
		svc := s.serve(script(answer{status: 422, body: "no"}, answer{status: 200, body: "yes"}), func(c *core.Config) { c.Keep.Policy = core.ReleaseOn(400, 422) })
		s.Equal(422, svc.post("K", "bad").status)
		s.Equal("yes", svc.post("K", "mended").body)
	})
	s.Run("ERR-11 KeepOnly2xx does not keep a 404", func() {
		svc := s.serve(script(answer{status: 404, body: "no"}, answer{status: 200, body: "yes"}), func(c *core.Config) { c.Keep.Policy = core.KeepOnly2xx })
		s.Equal(404, svc.post("K", "B").status)
		s.Equal("yes", svc.post("K", "B").body)
	})
	s.Run("ERR-06 a panic reaches the recovery outside, and the key is free", func() {
		for _, outer := range []map[string]string{nil, {"X-Outer": "around"}} {
			boom := answer{header: http.Header{"X-Own": {"of the run"}}, panics: "boom"}
			svc := start(s.T(), s.framework, s.store, script(boom, answer{status: 200, body: "yes"}), setup{outer: outer}, nil)
			first := svc.post("K", "B")
			s.Equal(500, first.status)
			s.Equal("recovered", strings.TrimSpace(first.body))
			s.Empty(first.header.Get("X-Own"), "it belongs to an answer that is not there")
			s.Equal(outer["X-Outer"], first.header.Get("X-Outer"))
			s.Equal("yes", svc.post("K", "B").body)
			s.ran(svc, 2)
		}
	})
	s.Run("ERR-07 an error that the framework turns into an answer is kept as the client saw it, or not at all", func() {
		svc := s.serve(script(answer{err: fmt.Errorf("teapot")}), nil)
		first, second := svc.post("K", "B"), svc.post("K", "B")
		s.Equal(http.StatusTeapot, first.status)
		s.Equal("teapot", strings.TrimSpace(first.body))
		s.Equal(http.StatusTeapot, second.status)
		s.Equal(first.body, second.body)
		if s.framework.name == "gin" { // its error middleware is outside: nothing is kept
			s.False(second.replayed())
			s.ran(svc, 2)
			return
		}
		s.replay(first, second)
		s.ran(svc, 1)
	})
	s.Run("ERR-09 who is rejected before the engine has used no key", func() {
		svc := start(s.T(), s.framework, s.store, ok(), setup{skip: "X-Skip"}, nil)
		s.False(svc.send("POST", "/orders", "B", "Idempotency-Key", "K", "X-Skip", "1").replayed())
		s.Zero(svc.store.Calls("begin"))
		s.False(svc.post("K", "B").replayed())
	})
}

func (s *Behaviours) TestProblems() {
	s.Run("PRB-04 statuses can be chosen", func() {
		svc := s.serve(ok(), func(c *core.Config) {
			c.Key.Required = true
			c.Problems.Status = map[string]int{"fingerprint-mismatch": 409}
			c.Problems.BaseURL = "https://api.example.com/problems#"
		})
		svc.post("K", "B")
		r := svc.post("K", "B'")
		s.problem(r, 409, "fingerprint-mismatch")
		s.Contains(r.body, `"type":"https://api.example.com/problems#fingerprint-mismatch"`)
	})
	s.Run("PRB-04 the whole answer can be chosen", func() {
		svc := s.serve(ok(), func(c *core.Config) {
			c.Key.Required = true
			c.Problems.Render = func(p core.Problem) *core.Response {
				return &core.Response{Status: p.Status, Header: []core.Field{{Name: "Link", Value: "<" + p.Type + `>; rel="describedby"`}}, Body: []byte(p.Code)}
			}
		})
		r := svc.send("POST", "/orders", "B")
		s.Equal(400, r.status)
		s.Equal("key-missing", r.body)
		s.Contains(r.header.Get("Link"), "key-missing")
	})
	s.Run("PRB-03 a problem tells nothing of the request or of others", func() {
		svc := s.serve(ok(), nil)
		svc.post("secret-key", "secret-body")
		r := svc.post("secret-key", "other-body")
		s.NotContains(r.body, "secret")
		s.NotContains(r.body, "other-body")
	})
	s.Run("PRB-05 PRB-06 a problem says whether a new key is safe, and names the record once the caller is known", func() {
		svc := s.serve(ok(), nil)
		bad := svc.post("", "B")
		s.problem(bad, 400, "key-empty")
		s.Contains(bad.body, `"safe_new_key":true`)
		s.NotContains(bad.body, "instance")
		svc.post("K", "B")
		other := svc.post("K", "B'")
		s.problem(other, 422, "fingerprint-mismatch")
		s.NotContains(other.body, "safe_new_key")
		s.Regexp(`"instance":"urn:idem:[A-Za-z0-9_-]{32}"`, other.body)
	})
}

func (s *Behaviours) TestScopes() {
	byHeader := setup{scope: "X-Tenant"}
	s.Run("SCP-01 tenants do not meet", func() {
		svc := start(s.T(), s.framework, s.store, ok(), byHeader, nil)
		key := rand.Text()
		tenant := func(name string) reply {
			return svc.send("POST", "/orders", "B", "Idempotency-Key", key, "X-Tenant", name)
		}
		first, second := tenant("a"), tenant("b")
		s.NotEqual(first.body, second.body)
		s.ran(svc, 2)
		s.replay(first, tenant("a"))
		s.replay(second, tenant("b"))
	})
	s.Run("SCP-04 a request without a scope is refused", func() {
		svc := start(s.T(), s.framework, s.store, ok(), byHeader, func(c *core.Config) { c.Scope = core.ScopeByAdapter })
		s.problem(svc.post("K", "B"), 401, "scope-missing")
		s.ran(svc, 0)
		s.Zero(svc.store.Calls("begin"))
	})
	s.Run("SCP-04 nor is one that came past the adapter's option", func() {
		svc := s.serve(ok(), func(c *core.Config) { c.Scope = core.ScopeByAdapter })
		s.problem(svc.post("K", "B"), 401, "scope-missing")
	})
}
