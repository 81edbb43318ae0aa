package adapters_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemfiber "github.com/go-idem/idem/adapters/fiber"
	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/internal/adaptertest"
)

// closing is a listener that reports the end of its first connection.
type closing struct {
	net.Listener
	closed chan struct{}
	once   sync.Once
}

func (l *closing) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &closingConn{conn, l}, err
}

type closingConn struct {
	net.Conn
	l *closing
}

func (c *closingConn) Close() error {
	c.l.once.Do(func() { close(c.l.closed) })
	return c.Conn.Close()
}

// A client that does not read its response holds a connection until the server's WriteTimeout, and its claim no longer: a retry
// then gets the outcome. The body is longer than Keep.MaxBody, so net/http sends it while the handler still runs.
func TestAClientThatDoesNotReadHoldsNoClaim(t *testing.T) {
	const writeTimeout = 500 * time.Millisecond
	long := strings.Repeat("x", 32<<20) // more than the buffers of a connection
	for name, start := range map[string]func(*core.Engine, net.Listener, *atomic.Int64){
		"http": func(e *core.Engine, l net.Listener, runs *atomic.Int64) {
			h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				runs.Add(1)
				_, _ = io.WriteString(w, long)
			})
			server := &http.Server{Handler: idemhttp.HTTP(e)(h), WriteTimeout: writeTimeout}
			t.Cleanup(func() { _ = server.Close() })
			go func() { _ = server.Serve(l) }()
		},
		"fiber": func(e *core.Engine, l net.Listener, runs *atomic.Int64) {
			app := fiber.New(fiber.Config{DisableStartupMessage: true, WriteTimeout: writeTimeout})
			app.Use(idemfiber.Fiber(e))
			app.Post("/", func(c *fiber.Ctx) error {
				runs.Add(1)
				return c.SendString(long)
			})
			t.Cleanup(func() { _ = app.Shutdown() })
			go func() { _ = app.Listener(l) }()
		},
	} {
		t.Run(name, func(t *testing.T) {
			engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
			require.NoError(t, err)
			var runs atomic.Int64
			l := &closing{Listener: adaptertest.Listen(t), closed: make(chan struct{})}
			start(engine, l, &runs)
			conn, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: shop\r\nIdempotency-Key: \"K\"\r\nContent-Length: 0\r\n\r\n")
			require.NoError(t, err)
			select {
			case <-l.closed:
			case <-time.After(writeTimeout + 5*time.Second):
				require.Fail(t, "the client that does not read still has its connection")
			}
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			assert.Eventually(t, func() bool {
				req, err := http.NewRequest(http.MethodPost, "http://"+l.Addr().String(), nil)
				require.NoError(t, err)
				req.Header.Set("Idempotency-Key", `"K"`)
				res, err := client.Do(req)
				require.NoError(t, err)
				defer res.Body.Close()
				return res.StatusCode == http.StatusOK && res.Header.Get("Idempotent-Replayed") != ""
			}, 5*time.Second, 10*time.Millisecond, "the claim is not settled")
			assert.EqualValues(t, 1, runs.Load(), "runs")
			assert.NoError(t, engine.Close(t.Context()), "nothing of the engine is left")
		})
	}
}
