package adaptertest

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/suite"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

// Behaviours is what a client sees: each test quotes the checks it shows. It runs on every framework and every store, and
// with the race detector (FRM-04).
type Behaviours struct {
	suite.Suite
	framework Framework
	store     driver.Store // shared by the frameworks: services have scopes of their own
	only      []string     // the tests to run; nil for all
}

// serve starts a service with the default configuration, but for change and for a longer limit on calls of the store.
func (s *Behaviours) serve(h Handler, change func(*core.Config)) *Service {
	return Start(s.T(), s.framework, s.store, h, Setup{}, func(c *core.Config) {
		if change != nil {
			change(c)
		}
		if c.Lease.Duration == 0 && c.Limits.StoreTimeout == 0 {
			c.Limits.StoreTimeout = 10 * time.Second // on a machine with other work the default of one second is too short
		}
	})
}

// SetupTest skips a test that cannot apply to the framework, or that is left out.
func (s *Behaviours) SetupTest() {
	_, name, _ := strings.Cut(s.T().Name(), "/Test")
	s.skip("Test" + name)
	if s.only != nil && !slices.Contains(s.only, "Test"+name) {
		s.T().Skip("left out of the sample")
	}
}

// Run runs a part of a test, unless it cannot apply to the framework.
func (s *Behaviours) Run(name string, part func()) bool {
	return s.Suite.Run(name, func() {
		s.skip(name)
		part()
	})
}

func (s *Behaviours) isFiber() bool { return s.framework.Fasthttp }

// skip skips a test, or a part of one, that cannot apply to the framework.
func (s *Behaviours) skip(name string) {
	for beginning, reason := range s.framework.Skipped {
		if strings.HasPrefix(name, beginning) {
			s.T().Skip(reason)
		}
	}
}

// Required changes a config so that a request without a key is refused. Without it, such a request runs each time.
func Required(c *core.Config) { c.Key.Required = true }

// problem checks a refusal: PRB-01.
func (s *Behaviours) problem(r Reply, status int, code string) {
	s.T().Helper()
	s.Equal(status, r.Status, r.Body)
	s.Equal("application/problem+json", r.Header.Get("Content-Type"))
	s.Contains(r.Body, fmt.Sprintf(`"status":%d`, status))
	s.Contains(r.Body, fmt.Sprintf(`"code":%q`, code))
	s.Regexp(`"type":"https://[^"]+#`+code+`"`, r.Body)
	s.False(r.Replayed(), "a refusal is no replay")
	s.EqualValues(len(r.Body), r.Length)
}

// replay checks that second repeats first.
func (s *Behaviours) replay(first, second Reply) {
	s.T().Helper()
	s.Equal("true", second.Header.Get(Marker), "%d %s", second.Status, second.Body)
	s.False(first.Replayed(), "a first execution carries no marker")
	s.Equal(first.Status, second.Status)
	s.Equal(first.Body, second.Body)
	for _, name := range []string{"Content-Type", "Location", "Etag", "Vary", "Cache-Control", "X-Kept"} {
		s.Equal(first.Header.Values(name), second.Header.Values(name), name)
	}
}

func (s *Behaviours) ran(service *Service, n int) {
	s.T().Helper()
	s.EqualValues(n, service.Runs.Load(), "handler runs")
}

// KEY-01 to KEY-04 and MTH-05: a request without a key is refused where one is required. Elsewhere it runs each time, and must
// not even cost a call of the store. A preflight passes, since browsers cannot give it a key.
func (s *Behaviours) TestKeyPresence() {
	s.Run("KEY-01 KEY-03 a required key that is missing is refused", func() {
		svc := s.serve(OK(), Required)
		s.problem(svc.Send("POST", "/orders", "B"), 400, "key-missing")
		s.ran(svc, 0)
	})
	s.Run("KEY-02 without a key each request runs and the store is not asked", func() {
		svc := s.serve(OK(), nil)
		for range 2 {
			s.False(svc.Send("POST", "/orders", "B").Replayed())
		}
		s.ran(svc, 2)
		s.Zero(svc.store.Calls("begin"))
	})
	s.Run("KEY-04 the header's name has no case", func() {
		svc := s.serve(OK(), nil)
		first := svc.Send("POST", "/orders", "B", "idempotency-key", "K")
		s.replay(first, svc.Send("POST", "/orders", "B", "IDEMPOTENCY-KEY", "K"))
	})
	s.Run("MTH-05 a preflight is not asked for a key", func() {
		svc := s.serve(OK(), Required)
		s.Equal(201, svc.Send("OPTIONS", "/orders", "").Status)
	})
}

// KEY-05, KEY-06 and KEY-08 to KEY-17: spellings of one key are replayed for each other, and what is no key is refused before the
// store is called. Requests that no proper client sends go out as raw bytes.
func (s *Behaviours) TestKeySyntax() {
	s.keysThatAreEqual()
	s.keysThatAreRefused()
}

// keysThatAreEqual plays which spellings name one key, and which do not.
func (s *Behaviours) keysThatAreEqual() {
	for _, c := range []struct{ name, first, second string }{
		{"KEY-05 a quoted key", `"K"`, `"K"`},
		{"KEY-06 quotes are not part of the key", `"K"`, `K`},
		{"KEY-08 escapes are decoded", `"a\"b\\c"`, `"a\"b\\c"`},
		{"KEY-10 parameters are ignored", `"K"`, `"K";v=2;w="x";z`},
		{"KEY-16 white space around it is not part of the key", "K", " \tK \t"},
		{"KEY-13 255 characters", strings.Repeat("k", 255), strings.Repeat("k", 255)},
	} {
		s.Run(c.name, func() {
			svc := s.serve(OK(), nil)
			first := svc.Post(c.first, "B")
			s.Equal(201, first.Status)
			s.replay(first, svc.Post(c.second, "B"))
			s.ran(svc, 1)
		})
	}
	s.Run("KEY-17 keys differ by case", func() {
		svc := s.serve(OK(), nil)
		svc.Post("abc", "B")
		s.False(svc.Post("ABC", "B").Replayed())
		s.ran(svc, 2)
	})
}

// keysThatAreRefused plays keys that are malformed, too short or repeated.
func (s *Behaviours) keysThatAreRefused() {
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
			svc := s.serve(OK(), nil)
			s.problem(svc.Post(c.key, "B"), 400, c.code)
			s.ran(svc, 0)
			s.Zero(svc.store.Calls("begin"))
		})
	}
	s.Run("KEY-14 a key under the minimum is refused", func() {
		svc := s.serve(OK(), func(c *core.Config) { c.Key.MinLength = 20 })
		s.problem(svc.Post(strings.Repeat("k", 19), "B"), 400, "key-too-short")
		s.Equal(201, svc.Post(strings.Repeat("k", 20), "B").Status)
	})
	for _, lines := range []string{"Idempotency-Key: K1\r\nIdempotency-Key: K2\r\n", "Idempotency-Key: K\r\nidempotency-key: K\r\n"} {
		s.Run("KEY-11 two lines are refused", func() {
			svc := s.serve(OK(), nil)
			s.problem(svc.Raw(RawPost(lines)), 400, "key-repeated")
			s.ran(svc, 0)
		})
	}
	for _, b := range []byte{0x00, 0x01, 0x08, 0x0B, 0x0C, 0x1F, 0x7F, 0x80, 0xFF} {
		s.Run(fmt.Sprintf("KEY-15 the byte %#x in a key is refused", b), func() {
			svc := s.serve(OK(), nil)
			s.Equal(400, svc.Raw(RawPost("Idempotency-Key: a"+string([]byte{b})+"b\r\n")).Status)
			s.ran(svc, 0)
		})
	}
}

// KEY-22: the client declares 100 MB and sends them only after 100 Continue. An adapter that reads the body before it looks at
// the key, or at the length, asks for them, and that would be the first answer on the connection.
func (s *Behaviours) TestABadKeyIsRefusedBeforeTheBodyIsSent() {
	if s.isFiber() {
		s.T().Log("KEY-22 does not hold on Fiber: fasthttp asks for the body before any handler runs")
		return
	}
	for key, status := range map[string]int{"": 400, "Idempotency-Key: \"open\r\n": 400, "Idempotency-Key: K\r\n": 413} {
		s.Run("KEY-22 "+key, func() {
			svc := s.serve(OK(), Required)
			r := svc.Raw("POST /orders HTTP/1.1\r\nHost: x\r\n" + key + "Content-Length: 100000000\r\nExpect: 100-continue\r\n\r\n")
			s.Equal(status, r.Status, "the first answer must be final, not 100 Continue")
			s.ran(svc, 0)
		})
	}
}

// MTH-01 to MTH-04 and MTH-07: a key has no effect with a method that is not guarded, and the store is not called. What was said
// on a hijacked connection cannot be replayed, so nothing is stored and the key is free for another request.
func (s *Behaviours) TestMethods() {
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE", "DELETE", "PUT"} {
		s.Run("MTH-01 MTH-03 "+method+" runs each time", func() {
			svc := s.serve(OK(), Required)
			for range 2 {
				r := svc.Send(method, "/orders", "", "Idempotency-Key", "K")
				s.Equal(201, r.Status)
				s.False(r.Replayed())
			}
			s.ran(svc, 2)
			s.Zero(svc.store.Calls("begin"))
		})
	}
	s.Run("MTH-02 PATCH is replayed", func() {
		svc := s.serve(OK(), nil)
		first := svc.Send("PATCH", "/orders", "B", "Idempotency-Key", "K")
		s.replay(first, svc.Send("PATCH", "/orders", "B", "Idempotency-Key", "K"))
	})
	s.Run("MTH-04 PUT and DELETE are replayed when they are guarded", func() {
		svc := s.serve(script(Response{Status: 204}, Response{Status: 404}), func(c *core.Config) { c.Key.Methods = []string{"PUT", "DELETE"} })
		first := svc.Send("DELETE", "/orders/1", "", "Idempotency-Key", "K")
		s.Equal(204, first.Status)
		s.replay(first, svc.Send("DELETE", "/orders/1", "", "Idempotency-Key", "K"))
	})
	s.Run("MTH-07 a hijacked connection works, is not kept, and frees its key", func() {
		svc := s.serve(script(Response{Hijack: true}, Response{Status: 201, Body: "second"}), nil)
		s.Equal("raw", svc.Post("K", "B").Body)
		s.Eventually(func() bool { return svc.store.Calls("fail") == 1 }, 5*time.Second, time.Millisecond)
		s.Equal("second", svc.Post("K", "B'").Body)
	})
}

// RPL-01: for each kind of response, status, header, body and declared length are those of the same service without the engine,
// but for the date. Middleware outside sets a header field, which the engine must neither lose nor double.
func (s *Behaviours) TestFirstExecutionEqualsAServerWithoutTheEngine() {
	for name, a := range map[string]Response{
		"JSON":            {Status: 201, Header: http.Header{"Content-Type": {"application/json"}, "Location": {"/orders/1"}}, Body: `{"id":1}`},
		"no type":         {Status: 200, Body: "<html><body>sniffed</body></html>"},
		"many lines":      {Status: 200, Header: http.Header{"X-Kept": {"a", "b"}, "Set-Cookie": {"a=1", "b=2"}}, Body: "x"},
		"no content":      {Status: 204},
		"reset content":   {Status: 205},
		"see other":       {Status: 303, Header: http.Header{"Location": {"/orders/1"}}},
		"nothing at all":  {},
		"large":           {Status: 200, Header: http.Header{"Content-Type": {"text/plain"}}, Body: strings.Repeat("large ", 20_000)},
		"kept error":      {Status: 422, Body: "no"},
		"released error":  {Status: 429, Header: http.Header{"Retry-After": {"7"}}, Body: "later"},
		"retryable error": {Status: 503, Body: "down"},
	} {
		s.Run("RPL-01 "+name, func() {
			h := func(Request) Response { return a }
			outer := map[string]string{"X-Outer": "outer"}
			bare := Start(s.T(), s.framework, s.store, h, Setup{Bare: true, Outer: outer}, nil)
			guarded := Start(s.T(), s.framework, s.store, h, Setup{Outer: outer}, nil)
			want, got := bare.Post("K", "B"), guarded.Post("K", "B")
			want.Header.Del("Date")
			got.Header.Del("Date")
			s.Equal(want, got)
		})
	}
}

// RPL-02 to RPL-28, but for RPL-10, RPL-26 and RPL-27: a replay repeats the status, the body and what describes the resource. It
// leaves out what belongs to one exchange; a cookie that is replayed would let one client into the session of another.
func (s *Behaviours) TestReplay() {
	s.replayBodies()
	s.replayFields()
	s.replaySnapshots()
}

// replayBodies plays the status and the body of replays, also where there is none.
func (s *Behaviours) replayBodies() {
	s.Run("RPL-02 RPL-03 RPL-04 RPL-13 a hundred retries get the first answer", func() {
		svc := s.serve(OK(), nil)
		first := svc.Post("K", "B")
		s.Equal("/orders/1", first.Header.Get("Location"))
		for range 99 {
			second := svc.Post("K", "B")
			s.replay(first, second)
			s.EqualValues(len(second.Body), second.Length)
		}
		s.ran(svc, 1)
	})
	for _, status := range []int{204, 205} {
		s.Run(fmt.Sprintf("RPL-06 %d has no content", status), func() {
			svc := s.serve(script(Response{Status: status}), nil)
			first, second := svc.Post("K", "B"), svc.Post("K", "B")
			s.replay(first, second)
			s.Empty(second.Body)
			if status == 204 {
				s.Empty(second.Header.Values("Content-Length"))
			}
		})
	}
	s.Run("RPL-07 an answer of nothing is an empty 200", func() {
		svc := s.serve(script(Response{}), nil)
		first := svc.Post("K", "B")
		s.Equal(200, first.Status)
		s.replay(first, svc.Post("K", "B"))
	})
}

// replayFields plays which header fields a replay has from the first response, and which are its own.
func (s *Behaviours) replayFields() {
	s.Run("RPL-11 the date is the replay's own", func() {
		svc := s.serve(script(Response{Status: 200, Header: http.Header{"Date": {"Mon, 02 Jan 2006 15:04:05 GMT"}}, Body: "x"}), nil)
		svc.Post("K", "B")
		second := svc.Post("K", "B")
		sent, err := http.ParseTime(second.Header.Get("Date"))
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
		a := Response{Status: 201, Header: dropped.Clone(), Body: "x"}
		a.Header["Connection"] = []string{"X-Hop"}
		svc := s.serve(script(a), nil)
		first, second := svc.Post("K", "B"), svc.Post("K", "B")
		s.replay(first, second)
		s.Equal("session=1", first.Header.Get("Set-Cookie"))
		for name := range dropped {
			s.Empty(second.Header.Values(name), name)
		}
	})
	s.Run("RPL-21 RPL-23 what describes the resource is kept", func() {
		kept := http.Header{
			"Etag": {`"v1"`}, "Last-Modified": {"Mon, 02 Jan 2006 15:04:05 GMT"}, "Location": {"/orders/1"}, "Content-Location": {"/orders/1"},
			"Vary": {"Accept"}, "Cache-Control": {"no-store"}, "Content-Type": {"text/csv"}, "X-Kept": {"a", "b"},
		}
		svc := s.serve(script(Response{Status: 303, Header: kept, Body: "a,b"}), nil)
		first, second := svc.Post("K", "B"), svc.Post("K", "B")
		s.replay(first, second)
		for name, values := range kept {
			s.Equal(values, second.Header.Values(name), name)
		}
	})
	s.Run("RPL-16 lines of the current exchange stand", func() {
		var id string
		key := rand.Text() // of many runs of this test on one store
		h := func(Request) Response { return Response{Status: 200, Body: "x"} }
		for _, id = range []string{"first", "second"} {
			outer := map[string]string{"X-Request-Id": id, "Access-Control-Allow-Origin": id}
			svc := Start(s.T(), s.framework, s.store, h, Setup{Outer: outer}, func(c *core.Config) { c.Scope = core.SingleTenant })
			r := svc.Post(key, "B")
			s.Equal([]string{id}, r.Header.Values("X-Request-Id"), "neither stored nor doubled")
			s.Equal([]string{id}, r.Header.Values("Access-Control-Allow-Origin"))
			s.Equal(id == "second", r.Replayed())
		}
	})
}

// replaySnapshots plays that a replay is what was stored, and that only the engine marks it.
func (s *Behaviours) replaySnapshots() {
	s.Run("RPL-24 a replay is a snapshot", func() {
		state := "as created"
		svc := s.serve(func(Request) Response { return Response{Status: 200, Body: state} }, nil)
		svc.Post("K", "B")
		state = "edited"
		s.Equal("as created", svc.Post("K", "B").Body)
	})
	s.Run("RPL-25 nobody else can send the marker", func() {
		svc := s.serve(script(Response{Status: 200, Header: http.Header{Marker: {"true"}}, Body: "x"}), nil)
		first := svc.Send("POST", "/orders", "B", "Idempotency-Key", "K", Marker, "true")
		s.replay(first, svc.Post("K", "B"))
		second := svc.Post("K", "B")
		s.Equal([]string{"true"}, second.Header.Values(Marker))
	})
	s.Run("RPL-28 an answer that may not be stored by caches is replayed", func() {
		svc := s.serve(script(Response{Status: 200, Header: http.Header{"Cache-Control": {"no-store"}}, Body: "secret"}), nil)
		s.replay(svc.Post("K", "B"), svc.Post("K", "B"))
	})
}

// RPL-10, RPL-27, CON-09 and CON-12: the handler flushes each part only when the client has the one before, so a response that is
// held back would end only by a timeout. A retry gets nothing of it before its end. Beyond Keep.MaxBody, only the body is lost.
func (s *Behaviours) TestAnswersThatAreNotHeldBack() {
	s.Run("RPL-10 chunks reach the first client as they are flushed", func() {
		chunks := strings.Split("0123456789", "")
		next := make(chan struct{})
		svc := s.serve(script(Response{Status: 201, Header: http.Header{"Content-Type": {"text/plain"}, Marker: {"x"}}, Chunks: chunks, Before: func() { <-next }}), nil)
		req, err := http.NewRequest("POST", svc.URL+"/orders", strings.NewReader("B"))
		s.Require().NoError(err)
		req.Header.Set("Idempotency-Key", "K")
		res, err := svc.Client.Do(req)
		s.Require().NoError(err)
		defer res.Body.Close()
		s.Empty(res.Header.Values(Marker))
		for i, chunk := range chunks {
			got := make([]byte, 1)
			_, err := io.ReadFull(res.Body, got)
			s.Require().NoError(err)
			s.Equal(chunk, string(got))
			if i == 4 {
				s.problem(svc.Post("K", "B"), 409, "in-progress") // CON-09 CON-12
			}
			if i < len(chunks)-1 {
				next <- struct{}{}
			}
		}
		_, err = io.ReadAll(res.Body)
		s.NoError(err)
		s.Eventually(func() bool { return svc.store.Calls("complete") == 1 }, 5*time.Second, time.Millisecond)
		second := svc.Post("K", "B")
		s.Equal(201, second.Status)
		s.True(second.Replayed())
		s.Equal("0123456789", second.Body)
		s.ran(svc, 1)
	})
	s.Run("RPL-27 an answer over the limit is replayed without its body", func() {
		body := strings.Repeat("x", 1001)
		svc := s.serve(script(Response{Status: 201, Header: http.Header{"X-Kept": {"kept"}}, Body: body}), func(c *core.Config) { c.Keep.MaxBody = 1000 })
		first := svc.Post("K", "B")
		s.Equal(body, first.Body)
		s.Equal(201, first.Status)
		second := svc.Post("K", "B")
		s.Equal(201, second.Status)
		s.Equal("kept", second.Header.Get("X-Kept"))
		s.Equal("true", second.Header.Get(Marker))
		s.Equal("omitted", second.Header.Get("Idempotent-Body"))
		s.Empty(second.Body)
		s.Zero(second.Length)
		s.ran(svc, 1)
	})
	s.Run("RPL-27 an answer of exactly the limit is replayed whole", func() {
		svc := s.serve(script(Response{Status: 201, Body: strings.Repeat("x", 1000)}), func(c *core.Config) { c.Keep.MaxBody = 1000 })
		s.replay(svc.Post("K", "B"), svc.Post("K", "B"))
	})
}

// CON-01 to CON-03, CON-06 and CON-07: while a gate holds the first run, the same request is refused as in progress and another
// one as a mismatch, and neither disturbs it. Another key does not wait. A hundred requests at once run the handler once.
func (s *Behaviours) TestConcurrency() {
	s.Run("CON-01 CON-02 a duplicate is refused while the first runs", func() {
		g := NewGate()
		svc := s.serve(g.handler(OK()), nil)
		first := g.Admit(s.T(), func() Reply { return svc.Post("K", "B") })
		second := svc.Post("K", "B")
		s.problem(second, 409, "in-progress")
		s.Regexp(`^[1-9][0-9]*$`, second.Header.Get("Retry-After"))
		seconds, err := strconv.Atoi(second.Header.Get("Retry-After"))
		s.NoError(err)
		s.LessOrEqual(seconds, 30)
		g.Open()
		r := <-first
		s.Equal(201, r.Status)
		s.ran(svc, 1)
		s.replay(r, svc.Post("K", "B"))
	})
	s.Run("CON-06 a different request is a mismatch, not a conflict, while the first runs", func() {
		g := NewGate()
		svc := s.serve(g.handler(OK()), nil)
		first := g.Admit(s.T(), func() Reply { return svc.Post("K", "B") })
		s.problem(svc.Post("K", "B'"), 422, "fingerprint-mismatch")
		g.Open()
		s.Equal(201, (<-first).Status)
	})
	s.Run("CON-07 keys do not block each other", func() {
		g := NewGate()
		svc := s.serve(g.handler(OK()), nil)
		first := g.Admit(s.T(), func() Reply { return svc.Post("K1", "B") })
		second := g.Admit(s.T(), func() Reply { return svc.Post("K2", "B") })
		g.Open()
		s.Equal(201, (<-first).Status)
		s.Equal(201, (<-second).Status)
	})
	s.Run("CON-03 a hundred parallel requests run the handler once", func() {
		svc := s.serve(OK(), nil)
		replies := make(chan Reply, 100)
		for range 100 {
			go func() {
				r, err := svc.Try(svc.Client, "POST", "/orders", "B", "Idempotency-Key", "K")
				s.NoError(err)
				replies <- r
			}()
		}
		firsts := 0
		for range 100 {
			switch r := <-replies; {
			case r.Status == 201 && !r.Replayed():
				firsts++
			case r.Status == 201:
				s.Equal(`{"run":1}`, r.Body)
			default:
				s.problem(r, 409, "in-progress")
			}
		}
		s.Equal(1, firsts)
		s.ran(svc, 1)
	})
}

// FPR-01, FPR-03 to FPR-06 and FPR-13 to FPR-16: what makes a request another one with the default options. A mismatch leaves the
// outcome for the right request, and a body that is cut off or too long never reaches the store.
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
			svc := s.serve(OK(), nil)
			first := svc.Send("POST", "/orders?a=1&b=2", "B", "Idempotency-Key", "K")
			s.problem(svc.Send(second[0], second[1], second[2], "Idempotency-Key", "K"), 422, "fingerprint-mismatch")
			s.ran(svc, 1)
			s.replay(first, svc.Send("POST", "/orders?a=1&b=2", "B", "Idempotency-Key", "K"))
		})
	}
	s.Run("FPR-13 other headers make no other request", func() {
		svc := s.serve(OK(), nil)
		first := svc.Send("POST", "/orders", "B", "Idempotency-Key", "K", "User-Agent", "a", "Authorization", "old")
		s.replay(first, svc.Send("POST", "/orders", "B", "Idempotency-Key", "K", "User-Agent", "b", "Authorization", "fresh"))
	})
	s.Run("FPR-14 the handler reads every byte", func() {
		body := strings.Repeat("0123456789", 10_000)
		svc := s.serve(func(r Request) Response {
			s.EqualValues(len(body), r.Length)
			return Response{Status: 200, Body: r.Body}
		}, nil)
		s.Equal(body, svc.Post("K", body).Body)
	})
	s.Run("FPR-15 a body over the limit is refused before the store is asked", func() {
		svc := s.serve(OK(), func(c *core.Config) { c.Limits.RequestBody = 1000 })
		s.problem(svc.Post("K", strings.Repeat("x", 1001)), 413, "body-too-large")
		chunked := "POST /orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: K\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + strings.Repeat("x", 1001) + "\r\n0\r\n\r\n"
		s.problem(svc.Raw(chunked), 413, "body-too-large")
		s.Zero(svc.store.Calls("begin"))
		s.Equal(201, svc.Post("K", strings.Repeat("x", 1000)).Status)
		s.ran(svc, 1)
	})
	s.Run("FPR-16 a body that ends early runs nothing and leaves the key free", func() {
		svc := s.serve(OK(), nil)
		conn, err := net.Dial("tcp", svc.Addr)
		s.Require().NoError(err)
		_, err = io.WriteString(conn, "POST /orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: K\r\nContent-Length: 10\r\n\r\nhalf")
		s.Require().NoError(err)
		s.Require().NoError(conn.(*net.TCPConn).CloseWrite())
		_, _ = bufio.NewReader(conn).ReadByte() // the server has given up when it answers or closes
		_ = conn.Close()
		s.Zero(svc.store.Calls("begin"))
		s.Equal(201, svc.Post("K", "another").Status)
		s.ran(svc, 1)
	})
}

// ERR-01 to ERR-04, ERR-06, ERR-07 and ERR-09 to ERR-11: the status of a response, or a policy, decides whether it is replayed,
// frees the key, or lets only the same request run again. A panic or an error of a handler is never stored as an empty 200.
func (s *Behaviours) TestOutcomes() {
	s.outcomesByStatus()
	s.outcomesOfErrors()
}

// outcomesByStatus plays what the default policy and others do with a status.
func (s *Behaviours) outcomesByStatus() {
	for _, status := range []int{400, 402, 404, 409, 410, 412, 422} {
		s.Run(fmt.Sprintf("ERR-01 %d is kept", status), func() {
			svc := s.serve(script(Response{Status: status, Body: "no"}, Response{Status: 200}), nil)
			s.replay(svc.Post("K", "B"), svc.Post("K", "B"))
			s.ran(svc, 1)
		})
	}
	for _, status := range []int{401, 403, 407, 408, 425, 429} {
		s.Run(fmt.Sprintf("ERR-02 %d frees the key", status), func() {
			svc := s.serve(script(Response{Status: status, Body: "no"}, Response{Status: 200, Body: "yes"}), nil)
			first := svc.Post("K", "B")
			s.Equal(status, first.Status)
			s.Equal("no", first.Body)
			second := svc.Post("K", "another body")
			s.Equal("yes", second.Body)
			s.False(second.Replayed())
			s.ran(svc, 2)
		})
	}
	for _, status := range []int{500, 502, 503, 504} {
		s.Run(fmt.Sprintf("ERR-03 after %d the same request runs again, and no other", status), func() {
			svc := s.serve(script(Response{Status: status, Body: "no"}, Response{Status: 200, Body: "yes"}), nil)
			s.Equal(status, svc.Post("K", "B").Status)
			s.problem(svc.Post("K", "another body"), 422, "fingerprint-mismatch")
			s.Equal("yes", svc.Post("K", "B").Body)
			s.ran(svc, 2)
		})
	}
	s.Run("ERR-04 KeepAll keeps a 500", func() {
		svc := s.serve(script(Response{Status: 500, Body: "no"}, Response{Status: 200}), func(c *core.Config) { c.Keep.Policy = core.KeepAll })
		s.replay(svc.Post("K", "B"), svc.Post("K", "B"))
	})
	s.Run("ERR-10 ReleaseOn lets a client mend its request", func() {
		svc := s.serve(script(Response{Status: 422, Body: "no"}, Response{Status: 200, Body: "yes"}), func(c *core.Config) { c.Keep.Policy = core.ReleaseOn(400, 422) })
		s.Equal(422, svc.Post("K", "bad").Status)
		s.Equal("yes", svc.Post("K", "mended").Body)
	})
	s.Run("ERR-11 KeepOnly2xx does not keep a 404", func() {
		svc := s.serve(script(Response{Status: 404, Body: "no"}, Response{Status: 200, Body: "yes"}), func(c *core.Config) { c.Keep.Policy = core.KeepOnly2xx })
		s.Equal(404, svc.Post("K", "B").Status)
		s.Equal("yes", svc.Post("K", "B").Body)
	})
}

// outcomesOfErrors plays handlers that panic or return an error, and requests that never reach the engine.
func (s *Behaviours) outcomesOfErrors() {
	s.Run("ERR-06 a panic reaches the recovery outside, and the key is free", func() {
		for _, outer := range []map[string]string{nil, {"X-Outer": "around"}} {
			boom := Response{Header: http.Header{"X-Own": {"of the run"}}, Panics: "boom"}
			svc := Start(s.T(), s.framework, s.store, script(boom, Response{Status: 200, Body: "yes"}), Setup{Outer: outer}, nil)
			first := svc.Post("K", "B")
			s.Equal(500, first.Status)
			s.Equal("recovered", strings.TrimSpace(first.Body))
			s.Empty(first.Header.Get("X-Own"), "it belongs to an answer that is not there")
			s.Equal(outer["X-Outer"], first.Header.Get("X-Outer"))
			s.Equal("yes", svc.Post("K", "B").Body)
			s.ran(svc, 2)
		}
	})
	s.Run("ERR-07 an error that the framework turns into an answer is kept as the client saw it, or not at all", func() {
		svc := s.serve(script(Response{Err: fmt.Errorf("teapot")}), nil)
		first, second := svc.Post("K", "B"), svc.Post("K", "B")
		s.Equal(http.StatusTeapot, first.Status)
		s.Equal("teapot", strings.TrimSpace(first.Body))
		s.Equal(http.StatusTeapot, second.Status)
		s.Equal(first.Body, second.Body)
		if s.framework.Name == "gin" { // its error middleware is outside: nothing is kept
			s.False(second.Replayed())
			s.ran(svc, 2)
			return
		}
		s.replay(first, second)
		s.ran(svc, 1)
	})
	s.Run("ERR-09 who is rejected before the engine has used no key", func() {
		svc := Start(s.T(), s.framework, s.store, OK(), Setup{Skip: "X-Skip"}, nil)
		skipped := svc.Send("POST", "/orders", "B", "Idempotency-Key", "K", "X-Skip", "1")
		s.Equal(201, skipped.Status)
		s.False(skipped.Replayed())
		s.Zero(svc.store.Calls("begin"))
		s.replay(svc.Post("K", "B"), svc.Post("K", "B"))
		s.ran(svc, 2)
	})
}

// PRB-03 to PRB-06: the application can choose what a refusal looks like. It never repeats a key or a body, and advises a new key
// only where nothing has run or will run under this one.
func (s *Behaviours) TestProblems() {
	s.Run("PRB-04 statuses can be chosen", func() {
		svc := s.serve(OK(), func(c *core.Config) {
			c.Key.Required = true
			c.Problems.Status = map[string]int{"fingerprint-mismatch": 409}
			c.Problems.BaseURL = "https://api.example.com/problems#"
		})
		svc.Post("K", "B")
		r := svc.Post("K", "B'")
		s.problem(r, 409, "fingerprint-mismatch")
		s.Contains(r.Body, `"type":"https://api.example.com/problems#fingerprint-mismatch"`)
	})
	s.Run("PRB-04 the whole answer can be chosen", func() {
		svc := s.serve(OK(), func(c *core.Config) {
			c.Key.Required = true
			c.Problems.Render = func(p core.Problem) *core.Response {
				return &core.Response{Status: p.Status, Header: []core.Field{{Name: "Link", Value: "<" + p.Type + `>; rel="describedby"`}}, Body: []byte(p.Code)}
			}
		})
		r := svc.Send("POST", "/orders", "B")
		s.Equal(400, r.Status)
		s.Equal("key-missing", r.Body)
		s.Contains(r.Header.Get("Link"), "key-missing")
	})
	s.Run("PRB-03 a problem tells nothing of the request or of others", func() {
		svc := s.serve(OK(), nil)
		svc.Post("secret-key", "secret-body")
		r := svc.Post("secret-key", "other-body")
		s.NotContains(r.Body, "secret")
		s.NotContains(r.Body, "other-body")
	})
	s.Run("PRB-05 PRB-06 a problem says whether a new key is safe, and names the record once the caller is known", func() {
		svc := s.serve(OK(), nil)
		bad := svc.Post("", "B")
		s.problem(bad, 400, "key-empty")
		s.Contains(bad.Body, `"safe_new_key":true`)
		s.NotContains(bad.Body, "instance")
		svc.Post("K", "B")
		other := svc.Post("K", "B'")
		s.problem(other, 422, "fingerprint-mismatch")
		s.NotContains(other.Body, "safe_new_key")
		s.Regexp(`"instance":"urn:idem:[A-Za-z0-9_-]{32}"`, other.Body)
	})
}

// SCP-01 and SCP-04: the scope comes by the option Scope of the adapter, from a header field. The key of one tenant opens nothing
// of another, and without a scope a request is refused, or all such callers would share their keys.
func (s *Behaviours) TestScopes() {
	byHeader := Setup{Scope: "X-Tenant"}
	s.Run("SCP-01 tenants do not meet", func() {
		svc := Start(s.T(), s.framework, s.store, OK(), byHeader, nil)
		key := rand.Text()
		tenant := func(name string) Reply {
			return svc.Send("POST", "/orders", "B", "Idempotency-Key", key, "X-Tenant", name)
		}
		first, second := tenant("a"), tenant("b")
		s.NotEqual(first.Body, second.Body)
		s.ran(svc, 2)
		s.replay(first, tenant("a"))
		s.replay(second, tenant("b"))
	})
	s.Run("SCP-04 a request without a scope is refused", func() {
		svc := Start(s.T(), s.framework, s.store, OK(), byHeader, func(c *core.Config) { c.Scope = core.ScopeByAdapter })
		s.problem(svc.Post("K", "B"), 401, "scope-missing")
		s.ran(svc, 0)
		s.Zero(svc.store.Calls("begin"))
	})
	s.Run("SCP-04 nor is one that came past the adapter's option", func() {
		svc := s.serve(OK(), func(c *core.Config) { c.Scope = core.ScopeByAdapter })
		s.problem(svc.Post("K", "B"), 401, "scope-missing")
	})
}
