package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/adapters/proxy"
	"github.com/go-idem/idem/core"
)

// echo is a service that responds with the header of each request.
func echo(w http.ResponseWriter, r *http.Request) {
	r.Header.Set("Host", r.Host)
	_ = json.NewEncoder(w).Encode(r.Header)
}

// header returns the header that an echo has received.
func (r reply) received(t *testing.T) http.Header {
	t.Helper()
	var header http.Header
	require.NoError(t, json.Unmarshal([]byte(r.body), &header), r.body)
	return header
}

func TestTheUpstreamLearnsTheRun(t *testing.T) {
	at := serve(t, upstream(t, echo))
	header := post(t, at, "k").received(t)
	assert.Equal(t, "k", header.Get("Idempotency-Key"))
	assert.Equal(t, "1", header.Get(proxy.AttemptHeader))
	assert.Equal(t, "false", header.Get(proxy.TakeoverHeader))
	assert.NotEmpty(t, header.Get(proxy.FenceHeader))
	assert.Equal(t, header.Get(proxy.FenceHeader), header.Get(proxy.OperationHeader))
}

func TestAClientCannotSetTheFieldsOfTheRun(t *testing.T) {
	at := serve(t, upstream(t, echo))
	forged := []string{
		"Idempotency-Fence", "9", "Idempotency_Fence", "9", "Idempotency_takeover", "9", "Idempotency-Takeover", "9",
		"Idempotency-Attempt", "9", "Idempotency-Operation", "9", "X_forwarded_for", "9", "X-Forwarded-For", "9", "Forwarded", "for=9",
	}
	for _, r := range []reply{post(t, at, "k", forged...), send(t, at, http.MethodPost, "", forged...)} {
		for name, values := range r.received(t) {
			assert.NotContains(t, values, "9", name)
			assert.NotContains(t, name, "_")
		}
	}
	header := send(t, at, http.MethodPost, "", forged...).received(t)
	assert.NotContains(t, header, proxy.FenceHeader, "a request without a key is not in a run")
}

// A service behind CGI or its successors takes X_Account_Id for X-Account-Id.
func TestAClientCannotBeAnotherCallerForTheUpstream(t *testing.T) {
	forged := []string{
		"X_account_id", "bob", "Idempotency_key", "other", "X_key", "other", "Content_length", "3", "Transfer_encoding", "chunked", "Host_", "h",
	}
	known := []string{"X-Account-Id", "alice", "Idempotency-Key", "k"}
	at := serve(t, upstream(t, echo), func(c *proxy.Config, e *core.Config) {
		c.ScopeHeader, e.Key.Aliases = "X-Account-Id", []string{"X-Key"}
	})
	for _, fields := range [][]string{forged, append(known, forged...)} {
		header := send(t, at, http.MethodPost, "", fields...).received(t)
		assert.Equal(t, "h", header.Get("Host_"), "this is no name of Host")
		header.Del("Host_")
		for name := range header {
			assert.NotContains(t, name, "_")
		}
	}
	at = serve(t, upstream(t, echo), func(c *proxy.Config, _ *core.Config) { c.ScopeHeader = "X_Account_Id" })
	header := post(t, at, "k", "X_account_id", "alice", "X-Account-Id", "bob").received(t)
	assert.Equal(t, []string{"alice"}, header["X_account_id"], "the configured name stays")
	assert.Empty(t, header["X-Account-Id"])
}

func TestFieldsOfOneHopEndAtTheProxy(t *testing.T) {
	at := serve(t, upstream(t, echo), func(c *proxy.Config, _ *core.Config) { c.ScopeHeader = "X-Account-Id" })
	header := post(t, at, "k", "X-Account-Id", "alice", "X-Hop", "1", "Keep-Alive", "timeout=5", "Proxy-Authorization", "secret",
		"Connection", "X-Hop, Idempotency-Key, X-Account-Id, Idempotency-Fence").received(t)
	for _, name := range []string{"X-Hop", "Keep-Alive", "Proxy-Authorization", "Connection"} {
		assert.NotContains(t, header, name)
	}
	assert.Equal(t, "k", header.Get("Idempotency-Key"), "the upstream knows what the engine knows")
	assert.Equal(t, "alice", header.Get("X-Account-Id"))
	assert.NotEmpty(t, header.Get(proxy.FenceHeader))
}

func TestTheUpstreamLearnsTheClient(t *testing.T) {
	service := upstream(t, echo)
	at := serve(t, service)
	host := strings.TrimPrefix(at, "http://")
	inbound := []string{
		"X-Forwarded-For", "10.0.0.1", "X-Forwarded-Host", "shop", "X-Forwarded-Proto", "https", "Forwarded", "for=10.0.0.1",
	}
	header := post(t, at, "k", inbound...).received(t)
	assert.Equal(t, host, header.Get("Host"))
	assert.Equal(t, "127.0.0.1", header.Get("X-Forwarded-For"))
	assert.Equal(t, host, header.Get("X-Forwarded-Host"))
	assert.Equal(t, "http", header.Get("X-Forwarded-Proto"))
	assert.Equal(t, `for=127.0.0.1;host="`+host+`";proto=http`, header.Get("Forwarded"))

	at = serve(t, service, func(c *proxy.Config, _ *core.Config) { c.TrustForwarded = true })
	host = strings.TrimPrefix(at, "http://")
	header = post(t, at, "k", inbound...).received(t)
	assert.Equal(t, "10.0.0.1, 127.0.0.1", header.Get("X-Forwarded-For"))
	assert.Equal(t, "shop", header.Get("X-Forwarded-Host"))
	assert.Equal(t, "https", header.Get("X-Forwarded-Proto"))
	assert.Equal(t, `for=10.0.0.1, for=127.0.0.1;host="`+host+`";proto=http`, header.Get("Forwarded"))
}

func TestTheScopeIsAHeaderFieldThatIsThereOnce(t *testing.T) {
	var runs atomic.Int64
	at := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) { runs.Add(1) }),
		func(c *proxy.Config, _ *core.Config) { c.ScopeHeader = "X-Account-Id" })
	for _, fields := range [][]string{nil, {"X-Account-Id", ""}, {"X-Account-Id", "alice", "X-Account-Id", "bob"}} {
		r := post(t, at, "k", fields...)
		assert.Equal(t, http.StatusUnauthorized, r.status, "%q", fields)
		assert.Contains(t, r.body, "scope-missing")
	}
	for _, caller := range []string{"alice", "bob", "alice"} {
		assert.Equal(t, http.StatusOK, post(t, at, "k", "X-Account-Id", caller).status)
	}
	assert.EqualValues(t, 2, runs.Load(), "one key of two callers is two keys")
}

func TestRequestsThatAreSkippedReachTheUpstreamEachTime(t *testing.T) {
	var runs atomic.Int64
	at := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) { runs.Add(1) }),
		func(c *proxy.Config, _ *core.Config) { c.Skip = func(*http.Request) bool { return true } })
	post(t, at, "k")
	post(t, at, "k")
	assert.EqualValues(t, 2, runs.Load())
}

func TestAChunkedResponseIsHeldBackUntilItIsStored(t *testing.T) {
	at := serve(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		for range 3 {
			_, _ = io.WriteString(w, "chunk")
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set("X-Sum", "15")
	}), func(_ *proxy.Config, c *core.Config) { c.Keep.MarkAll = true })
	res, err := http.DefaultTransport.RoundTrip(func() *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, at+"/", strings.NewReader("payment"))
		r.RequestURI = ""
		r.Header.Set("Idempotency-Key", "k")
		return r
	}())
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	assert.Equal(t, "chunkchunkchunk", string(body))
	assert.Equal(t, "15", res.Trailer.Get("X-Sum"))
	assert.Equal(t, "false", res.Header.Get("Idempotent-Replayed"), "a stream would have no marker")
}

func TestAStreamIsSeenAsItComesAndIsReplayedWhole(t *testing.T) {
	for name, value := range map[string]string{"X-Accel-Buffering": "no", "Content-Type": "text/event-stream"} {
		next := make(chan struct{})
		at := serve(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(name, value)
			_, _ = io.WriteString(w, "one")
			_ = http.NewResponseController(w).Flush()
			<-next
			_, _ = io.WriteString(w, "two")
		}))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/payments?a=1;b", strings.NewReader("payment"))
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", "k")
		res, err := http.DefaultTransport.RoundTrip(r)
		require.NoError(t, err)
		opening := make([]byte, 3)
		_, err = io.ReadFull(res.Body, opening)
		require.NoError(t, err)
		close(next)
		rest, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		_ = res.Body.Close()
		assert.Equal(t, "onetwo", string(opening)+string(rest))
		assert.NotContains(t, res.Header, "X-Accel-Buffering")
		again := until(t, at, "k")
		assert.Equal(t, "onetwo", again.body)
		assert.True(t, again.isReplay())
	}
}

func TestAnEventStreamWhoseClientLeavesReleasesItsKey(t *testing.T) {
	left := make(chan struct{}, 2)
	at := serve(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "one")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		left <- struct{}{}
	}), func(_ *proxy.Config, c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown })
	for range 2 {
		ctx, hangUp := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/", strings.NewReader("payment"))
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", "k")
		require.Eventually(t, func() bool { // the run before may still be ending
			r.Body = io.NopCloser(strings.NewReader("payment"))
			res, err := http.DefaultTransport.RoundTrip(r)
			require.NoError(t, err)
			t.Cleanup(func() { _ = res.Body.Close() })
			return res.StatusCode == http.StatusOK
		}, 10*lease, lease/10)
		hangUp()
		<-left
	}
}

func TestEarlyHintsGoOnAtOnce(t *testing.T) {
	hinted := make(chan struct{})
	at := serve(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		<-hinted
		_, _ = io.WriteString(w, "paid")
	}))
	conn, err := net.Dial("tcp", strings.TrimPrefix(at, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n")
	require.NoError(t, err)
	reader := bufio.NewReader(conn)
	hint, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	_ = hint.Body.Close()
	assert.Equal(t, http.StatusEarlyHints, hint.StatusCode)
	assert.Equal(t, "</style.css>", hint.Header.Get("Link"))
	close(hinted)
	final, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	defer final.Body.Close()
	body, err := io.ReadAll(final.Body)
	require.NoError(t, err)
	assert.Equal(t, "paid", string(body))
}

func TestAWebSocketPassesBy(t *testing.T) {
	service := raw(t, func(conn net.Conn, r *http.Request) bool {
		if r.Header.Get("Upgrade") != "websocket" {
			return false
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, conn)
		return false
	})
	at := serve(t, service, func(_ *proxy.Config, c *core.Config) {
		c.Lease.OnUnknown, c.Wait.Timeout = core.RefuseUnknown, 10*time.Second // The run ends after its connection.
	})
	keyed := "POST / HTTP/1.1\r\nIdempotency-Key: k\r\n"
	for _, start := range []string{"GET / HTTP/1.1\r\n", keyed, keyed} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(at, "http://"))
		require.NoError(t, err)
		_, err = io.WriteString(conn, start+"Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n")
		require.NoError(t, err)
		reader := bufio.NewReader(conn)
		res, err := http.ReadResponse(reader, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
		_, err = io.WriteString(conn, "ping")
		require.NoError(t, err)
		pong := make([]byte, 4)
		_, err = io.ReadFull(reader, pong)
		require.NoError(t, err)
		assert.Equal(t, "ping", string(pong))
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		_, _ = io.Copy(io.Discard, reader) // until the proxy has closed its end, too
		_ = conn.Close()
	}
}
