package adapters_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemfiber "github.com/go-idem/idem/adapters/fiber"
	"github.com/go-idem/idem/core"
)

// offered notes how much memory it is offered while nothing of it has come.
type offered struct {
	io.Reader
	first, most, reads int
}

func (o *offered) Read(p []byte) (int, error) {
	if o.reads++; o.reads == 1 {
		o.first = len(p)
	}
	o.most = max(o.most, len(p))
	return o.Reader.Read(p)
}

// Who declares a long body and sends none of it costs no memory for it.
func TestMemoryForABodyIsTakenAsItComes(t *testing.T) {
	eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
		for _, length := range []int{0, 1, 511, 4095, 4096, 4097, 100_000, 1 << 20} {
			body := &offered{Reader: strings.NewReader(strings.Repeat("x", length))}
			r := httptest.NewRequest("POST", "/", body)
			r.ContentLength = int64(length)
			r.Header.Set("Idempotency-Key", "K")
			w := httptest.NewRecorder()
			wrap(newEngine(t), func(w http.ResponseWriter, r *http.Request) {
				got, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				assert.Len(t, got, length)
			}).ServeHTTP(w, r)
			assert.Equal(t, 200, w.Code)
			assert.LessOrEqual(t, body.first, min(length, 4<<10)+1)
			assert.LessOrEqual(t, body.most, length+1)
		}
	})
}

// Fiber reads a body before any handler runs, unless it is told to stream.
func TestManyConnectionsToFiberThatDeclareABodyAndSendNoneCostLittleWhereItStreams(t *testing.T) {
	const connections = 200
	app := fiber.New(fiber.Config{DisableStartupMessage: true, StreamRequestBody: true})
	app.Use(idemfiber.Fiber(newEngine(t)))
	app.Post("/", func(c *fiber.Ctx) error { return nil })
	addr := strings.TrimPrefix(serveFiber(t, app), "http://")
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for range connections {
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: K\r\nContent-Length: 1048576\r\n\r\n"+strings.Repeat("x", 10_000))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return app.Server().GetOpenConnectionsCount() == connections }, 5*time.Second, time.Millisecond)
	assert.Less(t, heap()-before, int64(connections*(256<<10)))
}
