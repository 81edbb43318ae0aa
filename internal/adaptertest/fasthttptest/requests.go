package fasthttptest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest"
)

// Settings are those of an app.
type Settings struct {
	KeepsCase     bool                       // DisableHeaderNormalizing
	StreamsBodies bool                       // StreamRequestBody
	LeavesForms   bool                       // DisablePreParseMultipartForm
	After         func(*fasthttp.RequestCtx) // a middleware outside calls it after the handlers; nil for none
}

// Server starts a server in which all requests lead to h under an engine.
type Server func(t *testing.T, e *core.Engine, h func(*fasthttp.RequestCtx), s Settings) (url string)

// requests has the tests of requests.
var requests = []func(*testing.T, Server){
	TestFiberFindsTheKeyInAnyCaseWithoutNormalizing,
	TestFiberNeverTakesARefusedBodyForTheNextRequest,
	TestFiberReplaysAMultipartFormThatIsSentAgain,
	TestFiberParsesNoFormThatTheAppDoesNotParse,
	TestFiberTakesTheMarkerAwayInAnyCase,
}

// RunRequests runs all tests of requests.
func RunRequests(t *testing.T, serve Server) {
	for _, test := range requests {
		t.Run(adaptertest.NameOf(test), func(t *testing.T) { test(t, serve) })
	}
}

// FPR-01: fasthttp parses a form before the handlers and would write it in another order each time. Ten fields and ten requests
// find a fingerprint that depends on the order. A form that differs in any part of the same length must be another request.
func TestFiberReplaysAMultipartFormThatIsSentAgain(t *testing.T, serve Server) {
	for name, s := range map[string]Settings{"parsed before the handlers": {}, "read by the engine": {StreamsBodies: true}} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, adaptertest.NewEngine(t), func(c *fasthttp.RequestCtx) {
				c.SetStatusCode(http.StatusCreated)
				c.SetBody(c.FormValue("field3"))
			}, s)
			contentType, body := adaptertest.Form(t, "content")
			for i := range 10 {
				r := adaptertest.Submit(t, url, body, "Content-Type", contentType)
				require.Equal(t, 201, r.Status, r.Body)
				assert.Equal(t, "value3", r.Body)
				assert.Equal(t, i > 0, r.Replayed())
			}
			for _, part := range []string{"value3", "field3", "file.bin", "content\r"} {
				other := strings.Replace(body, part, strings.ToUpper(part), 1)
				require.NotEqual(t, body, other)
				assert.Equal(t, 422, adaptertest.Submit(t, url, other, "Content-Type", contentType).Status, part)
			}
		})
	}
}

// FPR-01: a body that is no form is refused where the form stands for it, and is a body like any other elsewhere.
func TestFiberParsesNoFormThatTheAppDoesNotParse(t *testing.T, serve Server) {
	for _, leaves := range []bool{false, true} {
		var runs atomic.Int64
		url := serve(t, adaptertest.NewEngine(t), func(c *fasthttp.RequestCtx) { runs.Add(1) }, Settings{StreamsBodies: true, LeavesForms: leaves})
		r := adaptertest.Submit(t, url, "no form", "Content-Type", "multipart/form-data; boundary=b")
		assert.Equal(t, leaves, r.Status == 200, r.Body)
		assert.Equal(t, leaves, runs.Load() == 1)
	}
}

// KEY-04: with DisableHeaderNormalizing, fasthttp finds a header field in one spelling only. A request with a key that the engine
// did not find would run without protection.
func TestFiberFindsTheKeyInAnyCaseWithoutNormalizing(t *testing.T, serve Server) {
	var runs atomic.Int64
	url := serve(t, adaptertest.NewEngine(t), func(c *fasthttp.RequestCtx) { runs.Add(1) }, Settings{KeepsCase: true})
	s := &adaptertest.Service{TB: t, Addr: strings.TrimPrefix(url, "http://")}
	for i, name := range []string{"idempotency-key", "Idempotency-Key", "IDEMPOTENCY-KEY"} {
		assert.Equal(t, i > 0, s.Raw(adaptertest.RawPost(name+": K\r\n")).Replayed(), name)
	}
	assert.EqualValues(t, 1, runs.Load())
}

// RPL-25.
func TestFiberTakesTheMarkerAwayInAnyCase(t *testing.T, serve Server) {
	for _, keepsCase := range []bool{false, true} {
		url := serve(t, adaptertest.NewEngine(t), func(c *fasthttp.RequestCtx) {
			c.Response.Header.SetCanonical([]byte("idempotent-replayed"), []byte("true"))
		}, Settings{KeepsCase: keepsCase, After: func(c *fasthttp.RequestCtx) {
			c.Response.Header.Set("x-outside", "B")
			assert.Equal(t, !keepsCase, string(c.Response.Header.Peek("X-Outside")) == "B")
		}})
		s := &adaptertest.Service{TB: t, Addr: strings.TrimPrefix(url, "http://")}
		for i := range 2 {
			assert.Equal(t, i > 0, s.Raw(adaptertest.RawPost("Idempotency-Key: K\r\n")).Replayed())
		}
	}
}

// With StreamRequestBody the engine refuses a request while its body is on the connection still. The body has requests of its own
// here. A server that went on to read would run them for whoever shares the connection.
func TestFiberNeverTakesARefusedBodyForTheNextRequest(t *testing.T, serve Server) {
	hidden := strings.Repeat("GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n", 2000)
	for name, head := range map[string]string{
		"bad key":             fmt.Sprintf("Idempotency-Key: \"K\r\nContent-Length: %d\r\n\r\n", len(hidden)),
		"too large":           fmt.Sprintf("Idempotency-Key: K\r\nContent-Length: %d\r\n\r\n", len(hidden)),
		"no chunks":           "Idempotency-Key: K\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"too large in chunks": fmt.Sprintf("Idempotency-Key: K\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", len(hidden)),
	} {
		t.Run(name, func(t *testing.T) {
			var reached atomic.Bool
			engine := adaptertest.NewEngine(t).With(func(c *core.Config) { c.Limits.RequestBody = 1000 })
			url := serve(t, engine, func(*fasthttp.RequestCtx) { reached.Store(true) }, Settings{StreamsBodies: true})
			conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			require.NoError(t, err)
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+head+hidden)
			}()
			statuses := 0
			for in := bufio.NewReader(conn); ; statuses++ {
				res, err := http.ReadResponse(in, nil)
				if err != nil {
					break
				}
				_, _ = adaptertest.Read(res)
			}
			<-sent
			assert.LessOrEqual(t, statuses, 1)
			assert.False(t, reached.Load())
		})
	}
}
