package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/adapters/proxy"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// lease is that of the engines of the tests.
const lease = 300 * time.Millisecond

// serve starts a proxy in front of a URL, and returns the URL of the proxy.
func serve(t *testing.T, upstream string, changes ...func(*proxy.Config, *core.Config)) string {
	t.Helper()
	at, err := url.Parse(upstream)
	require.NoError(t, err)
	cfg := proxy.Config{Upstream: at, ErrorLog: log.New(io.Discard, "", 0)}
	engineConfig := core.Config{Store: memstore.New(), Scope: core.SingleTenant}
	engineConfig.Lease.Duration = lease
	for _, change := range changes {
		change(&cfg, &engineConfig)
	}
	engine, err := core.New(engineConfig)
	require.NoError(t, err)
	p, err := proxy.New(engine, cfg)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(p)
	server.Config.ErrorLog = cfg.ErrorLog
	server.Start()
	t.Cleanup(func() {
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		assert.NoError(t, engine.Close(ctx))
	})
	return server.URL
}

// upstream starts a service of net/http, and returns its URL.
func upstream(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// raw starts a service that does with each request on a connection what serve says, and returns its URL. The connection is closed
// when serve returns false.
func raw(t *testing.T, serve func(net.Conn, *http.Request) bool) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				reader := bufio.NewReader(conn)
				for {
					r, err := http.ReadRequest(reader)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					if !serve(conn, r) {
						return
					}
				}
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// reply is a response as a client sees it.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // of the body
}

// post sends a POST with a key and more header fields, as name and value.
func post(t *testing.T, url, key string, fields ...string) reply {
	t.Helper()
	return send(t, url, http.MethodPost, "payment", append([]string{"Idempotency-Key", key}, fields...)...)
}

// send sends a request.
func send(t *testing.T, url, method, body string, fields ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url+"/payments?a=1;b", strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(fields); i += 2 {
		r.Header[fields[i]] = append(r.Header[fields[i]], fields[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(text), err}
}

// isReplay reports whether the response is a stored one.
func (r reply) isReplay() bool { return r.header.Get("Idempotent-Replayed") == "true" }

// until sends a request with a key until the response is not 409.
func until(t *testing.T, url, key string) (r reply) {
	t.Helper()
	require.Eventually(t, func() bool {
		r = post(t, url, key)
		return r.status != http.StatusConflict
	}, 10*time.Second, 20*time.Millisecond)
	return r
}

func TestAnUpstreamIsRunOnceAndReplayed(t *testing.T) {
	var runs atomic.Int64
	at := serve(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "upstream")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.WriteHeader(http.StatusCreated)
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %s %s", runs.Add(1), r.RequestURI, body)
	}))
	for i := range 2 {
		r := post(t, at, "k")
		assert.Equal(t, http.StatusCreated, r.status)
		assert.Equal(t, "1 /payments?a=1;b payment", r.body)
		assert.Equal(t, i == 1, r.isReplay())
		assert.NotContains(t, r.header, "X-Hop")
		assert.NotContains(t, r.header, "Keep-Alive")
	}
	assert.Equal(t, http.StatusUnprocessableEntity, send(t, at, "POST", "another", "Idempotency-Key", "k").status)
	assert.EqualValues(t, 1, runs.Load())
}

func TestA5xxOfTheUpstreamFollowsThePolicy(t *testing.T) {
	var runs atomic.Int64
	down := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		http.Error(w, r.Header.Get(proxy.AttemptHeader)+r.Header.Get(proxy.TakeoverHeader), http.StatusBadGateway)
	})
	at := serve(t, down)
	assert.Equal(t, "1false\n", post(t, at, "k").body)
	assert.Equal(t, "2false\n", post(t, at, "k").body)
	keeping := serve(t, down, func(_ *proxy.Config, c *core.Config) { c.Keep.Policy = core.KeepAll })
	first := post(t, keeping, "k")
	second := post(t, keeping, "k")
	assert.Equal(t, http.StatusBadGateway, second.status)
	assert.Equal(t, first.body, second.body)
	assert.True(t, second.isReplay())
	assert.EqualValues(t, 3, runs.Load())
}

// cuts are the ways in which a connection to an upstream can break after the request was sent.
var cuts = map[string]string{
	"before the response":               "",
	"in the header":                     "HTTP/1.1 201 Created\r\nContent-Le",
	"in a body with a length":           "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\npaid",
	"in a chunked body":                 chunkedOf("Via: 1.1 upstream"),
	"in a stream":                       chunkedOf("X-Accel-Buffering: no"),
	"in an event stream":                chunkedOf("Content-Type: text/event-stream"),
	"in a body that is too long":        "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n" + strings.Repeat("x", 20),
	"after early hints":                 "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
	"with what is not HTTP":             "paid",
	"with a status that is none":        "HTTP/1.1 099 Paid\r\nContent-Length: 0\r\n\r\n",
	"before a length that is too short": "HTTP/1.1 201 Created\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
}

// chunkedOf returns the beginning of a chunked response with this header field.
func chunkedOf(field string) string {
	return "HTTP/1.1 201 Created\r\n" + field + "\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npaid\r\n"
}

// A cut upstream may have paid: no response may say that it has not, and the next run must know.
func TestACutUpstreamIsAnUnknownOutcome(t *testing.T) {
	for name, text := range cuts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			var last atomic.Pointer[http.Request]
			upstream := raw(t, func(conn net.Conn, r *http.Request) bool {
				last.Store(r)
				if runs.Add(1) == 1 {
					_, _ = io.WriteString(conn, text)
					return false
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfound")
				return true
			})
			at := serve(t, upstream, func(_ *proxy.Config, c *core.Config) { c.Keep.MaxBody = 10 })
			first := post(t, at, "k")
			isCut := first.err != nil || first.status == http.StatusBadGateway && strings.Contains(first.body, "upstream-cut")
			assert.True(t, isCut, "%+v", first)
			assert.Equal(t, http.StatusConflict, post(t, at, "k").status, "the outcome is not known")
			assert.Equal(t, "found", until(t, at, "k").body)
			assert.Equal(t, "true", last.Load().Header.Get(proxy.TakeoverHeader))
			assert.True(t, post(t, at, "k").isReplay())
			assert.EqualValues(t, 2, runs.Load())
		})
	}
}

func TestTheLongestMaxBodyHoldsAResponseBack(t *testing.T) {
	t.Parallel()
	upstream := raw(t, func(conn net.Conn, _ *http.Request) bool {
		_, _ = io.WriteString(conn, "HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\nhalf")
		return false
	})
	at := serve(t, upstream, func(_ *proxy.Config, c *core.Config) { c.Keep.MaxBody = math.MaxInt })
	assert.Contains(t, post(t, at, "k").body, "upstream-cut")
}

func TestACutUpstreamIsNotRunAgainIfUnknownOutcomesAreRefused(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	upstream := raw(t, func(net.Conn, *http.Request) bool { runs.Add(1); return false })
	at := serve(t, upstream, func(_ *proxy.Config, c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown })
	assert.Equal(t, http.StatusBadGateway, post(t, at, "k").status)
	isUnknown := func() bool { return strings.Contains(post(t, at, "k").body, "outcome-unknown") }
	require.Eventually(t, isUnknown, 10*time.Second, lease/10)
	assert.EqualValues(t, 1, runs.Load())
}

// http.Transport sends requests with a key, and without a body, a second time if a connection that was used before breaks.
func TestARequestIsNotSentTwiceWhenAConnectionBreaks(t *testing.T) {
	for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		for _, method := range []string{http.MethodPost, http.MethodPut} { // PUT is not guarded here
			var runs atomic.Int64
			upstream := raw(t, func(conn net.Conn, r *http.Request) bool {
				if r.Header.Get(header) == "warm" {
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
					return true
				}
				runs.Add(1)
				return false
			})
			at := serve(t, upstream, func(_ *proxy.Config, c *core.Config) {
				c.Key.Header, c.Key.Methods = header, []string{http.MethodPost}
			})
			require.Equal(t, http.StatusOK, send(t, at, method, "", header, "warm").status)
			assert.Equal(t, http.StatusBadGateway, send(t, at, method, "", header, "k").status)
			assert.EqualValues(t, 1, runs.Load(), "%s with %s", method, header)
		}
	}
}

func TestAnUpstreamThatWasNotReachedHasNotRun(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := listener.Addr().String()
	require.NoError(t, listener.Close())
	for _, at := range []string{"http://" + addr, "http://idem.invalid", "https://" + addr} {
		url := serve(t, at)
		for range 2 {
			r := post(t, url, "k")
			assert.Equal(t, http.StatusBadGateway, r.status)
			assert.Contains(t, r.body, "upstream-unreachable")
			assert.False(t, r.isReplay())
		}
	}
	at := serve(t, "http://"+addr)
	require.Equal(t, http.StatusBadGateway, post(t, at, "k").status)
	listener, err = net.Listen("tcp", addr)
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get(proxy.AttemptHeader)+" "+r.Header.Get(proxy.TakeoverHeader))
	})}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	assert.Equal(t, "2 false", post(t, at, "k").body, "it runs at once, and not as a takeover")
}

// An earlier run may have had effects; that the upstream is not reached now changes nothing about that.
func TestAnUpstreamThatWasNotReachedInARetryForgetsNoEarlierRun(t *testing.T) {
	var dials, runs atomic.Int64
	var takeover atomic.Value
	service := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		takeover.Store(r.Header.Get(proxy.TakeoverHeader))
		if runs.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
	})
	at := serve(t, service, func(c *proxy.Config, _ *core.Config) {
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials.Add(1) == 2 {
				return nil, errors.New("no route")
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
		c.Transport = &http.Transport{DisableKeepAlives: true, DialContext: dial}
	})
	require.Equal(t, http.StatusBadGateway, post(t, at, "k").status)
	require.Contains(t, until(t, at, "k").body, "upstream-unreachable")
	assert.Equal(t, http.StatusUnprocessableEntity, send(t, at, "POST", "another", "Idempotency-Key", "k").status)
	require.Equal(t, http.StatusOK, post(t, at, "k").status)
	assert.Equal(t, "true", takeover.Load())
	assert.EqualValues(t, 2, runs.Load())
}

func TestAnUpstreamThatDoesNotRespondInTimeIsAnUnknownOutcome(t *testing.T) {
	for name, text := range map[string]string{"no header": "", "no end": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npaid"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			upstream := raw(t, func(conn net.Conn, _ *http.Request) bool {
				runs.Add(1)
				_, _ = io.WriteString(conn, text)
				_, _ = conn.Read(make([]byte, 1)) // until the proxy gives up
				return false
			})
			at := serve(t, upstream, func(c *proxy.Config, e *core.Config) {
				c.Timeout, e.Lease.Duration = 50*time.Millisecond, time.Minute
			})
			r := post(t, at, "k")
			assert.Equal(t, http.StatusGatewayTimeout, r.status)
			assert.Contains(t, r.body, "upstream-timeout")
			assert.Equal(t, http.StatusConflict, post(t, at, "k").status)
			assert.EqualValues(t, 1, runs.Load())
		})
	}
}

func TestAClientThatLeavesDoesNotStopTheUpstream(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	at := serve(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		select {
		case <-leave:
			_, _ = io.WriteString(w, "paid")
		case <-r.Context().Done():
			t.Error("the upstream was stopped")
		}
	}), func(_ *proxy.Config, c *core.Config) { c.Wait.Timeout = 10 * time.Second })
	ctx, hangUp := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/payments?a=1;b", strings.NewReader("payment"))
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", "k")
	done := make(chan error)
	go func() {
		res, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			_ = res.Body.Close()
		}
		done <- err
	}()
	<-entered
	hangUp()
	require.ErrorIs(t, <-done, context.Canceled)
	close(leave)
	second := post(t, at, "k")
	assert.Equal(t, "paid", second.body)
	assert.True(t, second.isReplay())
}

func TestABodyOverTheLimitIsRefused(t *testing.T) {
	var runs atomic.Int64
	at := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) { runs.Add(1) }),
		func(_ *proxy.Config, c *core.Config) { c.Limits.RequestBody = 3 })
	assert.Equal(t, http.StatusRequestEntityTooLarge, post(t, at, "k").status)
	assert.Zero(t, runs.Load())
	assert.Equal(t, http.StatusOK, send(t, at, http.MethodPost, "payment").status, "without a key nothing is compared")
}

func TestABadConfigIsRefused(t *testing.T) {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	require.NoError(t, err)
	t.Cleanup(func() { _ = engine.Close(context.Background()) })
	at := func(text string) *url.URL {
		u, err := url.Parse(text)
		require.NoError(t, err)
		return u
	}
	for field, cfgs := range map[string][]proxy.Config{
		"Upstream": {
			{}, {Upstream: at("127.0.0.1")}, {Upstream: at("ftp://a")}, {Upstream: at("http://a?b")}, {Upstream: at("http://u:p@a")},
		},
		"Timeout":     {{Upstream: at("http://a"), Timeout: -1}},
		"ScopeHeader": {{Upstream: at("http://a"), ScopeHeader: "idempotency_fence"}},
	} {
		for _, cfg := range cfgs {
			_, err := proxy.New(engine, cfg)
			assert.ErrorContains(t, err, field)
		}
	}
}

func TestHealth(t *testing.T) {
	var err error
	server := httptest.NewServer(proxy.Health(func(context.Context) error { return err }))
	t.Cleanup(server.Close)
	status := func(path string) int {
		res, err := http.Get(server.URL + path)
		require.NoError(t, err)
		_ = res.Body.Close()
		return res.StatusCode
	}
	assert.Equal(t, 200, status("/ready"))
	err = errors.New("down")
	assert.Equal(t, 503, status("/ready"))
	assert.Equal(t, 200, status("/live"))
}
