package idem_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/client"
	"github.com/go-idem/idem/internal/badnet"
	"github.com/go-idem/idem/internal/hangtest"
)

// calls are all exported functions that take a context or a request, by their names. WithKey calls no server.
var calls = map[string]func(*idem.Transport, *http.Request) error{
	"Transport.RoundTrip": func(transport *idem.Transport, req *http.Request) error {
		res, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
		return err
	},
	"WithKey": nil,
}

func TestTheListOfCallsThatCanHangIsComplete(t *testing.T) { hangtest.RequireAll(t, ".", calls) }

// hang is a way in which a server hangs.
type hang struct {
	scheme string         // of the request; default http
	dial   bool           // no connection is made
	size   int            // of the request's body
	serve  func(net.Conn) // what the server does before it hangs
	isBase bool           // options end it: timeouts of Base, or the Transport's own; otherwise only the context does
}

// replies returns a server that reads a whole request, replies with this text, and then hangs.
func replies(text string) func(net.Conn) {
	return func(conn net.Conn) {
		if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.Copy(io.Discard, req.Body)
		}
		_, _ = io.WriteString(conn, text)
	}
}

var hangs = map[string]hang{
	"dial":                       {dial: true, isBase: true},
	"TLS handshake":              {scheme: "https", isBase: true},
	"request body":               {size: 16 << 20},
	"no header":                  {serve: replies(""), isBase: true},
	"half a status":              {serve: replies("HTTP/1.1 20"), isBase: true},
	"half a header":              {serve: replies("HTTP/1.1 201 Created\r\nContent-Le"), isBase: true},
	"informational responses":    {serve: replies("HTTP/1.1 103 Early Hints\r\n\r\n"), isBase: true},
	"half a response body":       {serve: replies("HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\nhalf")},
	"half a chunk":               {serve: replies("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nhalf")},
	"half a body that is no end": {serve: replies("HTTP/1.1 503 Busy\r\nContent-Length: 10\r\n\r\nhalf")},
}

// listen starts the server. It closes all connections when the test ends.
func (h hang) listen(t *testing.T) (addr string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			if h.serve != nil {
				go h.serve(conn)
			}
		}
	}()
	return listener.Addr().String()
}

// The bounds of Base and of the Transport in the tests.
const (
	attemptTimeout = 100 * time.Millisecond
	maxElapsed     = 300 * time.Millisecond
)

// transport returns a Transport on the network that sends to the hanging server.
func (h hang) transport(t *testing.T, network *badnet.Net, timeout time.Duration) *idem.Transport {
	base := &http.Transport{
		ResponseHeaderTimeout: timeout,
		TLSClientConfig:       &tls.Config{InsecureSkipVerify: true},
		TLSHandshakeTimeout:   cmp.Or(timeout, time.Second), // a handshake goes on when its request has ended
		DialContext: func(ctx context.Context, kind, addr string) (net.Conn, error) {
			if !h.dial {
				return network.Dial(ctx, kind, addr)
			}
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
	t.Cleanup(base.CloseIdleConnections)
	return &idem.Transport{Base: base, MaxElapsed: maxElapsed, Pause: quick}
}

// endInTime makes each call four times at once, by a Transport whose Base has this timeout for each attempt, or none. Each must
// end within bound, and none may leave a connection open.
func (h hang) endInTime(t *testing.T, timeout, bound time.Duration, withContext bool) {
	t.Parallel()
	network, addr := badnet.New(1), h.listen(t)
	transport := h.transport(t, network, timeout)
	for name, call := range calls {
		if call == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			hangtest.EndInTime(t, 4, bound, func(ctx context.Context) error {
				if !withContext {
					ctx = context.WithoutCancel(ctx)
				}
				body := bytes.NewReader(make([]byte, h.size))
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, cmp.Or(h.scheme, "http")+"://"+addr, body)
				assert.NoError(t, err)
				return call(transport, req)
			})
		})
	}
	assert.Eventually(t, func() bool { return network.Open() == 0 }, 10*time.Second, 10*time.Millisecond, "a connection is open")
}

// Whatever hangs, a call ends with its context. A call without a deadline ends with the timeouts of Base and MaxElapsed, except
// while a request is sent or the last response is read: http.Transport has no timeout for these. No goroutine and no connection
// is left, although the server still hangs.
func TestNoCallHangsLongerThanItsBounds(t *testing.T) {
	t.Run("hanging", func(t *testing.T) {
		for name, h := range hangs {
			t.Run(name+", bounded by the context", func(t *testing.T) { h.endInTime(t, 0, 300*time.Millisecond, true) })
			if h.isBase {
				t.Run(name+", bounded by options", func(t *testing.T) {
					h.endInTime(t, attemptTimeout, maxElapsed+attemptTimeout, false)
				})
			}
		}
	})
	hangtest.NoGoroutine(t, 10*time.Second, "github.com/go-idem/idem/adapters/client")
}
