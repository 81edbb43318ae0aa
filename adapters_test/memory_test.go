package adapters_test

import (
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemfiber "github.com/go-idem/idem/adapters/fiber"
	"github.com/go-idem/idem/internal/adaptertest"
)

// Fiber reads a body before any handler runs, unless it is told to stream.
func TestManyConnectionsToFiberThatDeclareABodyAndSendNoneCostLittleWhereItStreams(t *testing.T) {
	const connections = 200
	app := fiber.New(fiber.Config{DisableStartupMessage: true, StreamRequestBody: true})
	app.Use(idemfiber.Fiber(adaptertest.NewEngine(t)))
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
