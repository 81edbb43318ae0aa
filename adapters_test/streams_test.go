package adapters_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/compress"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemfiber "github.com/go-idem/idem/adapters/fiber"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest"
	"github.com/go-idem/idem/internal/adaptertest/fasthttptest"
)

// CON-12: an answer that is made while it is sent. On net/http, Gin and Echo it is made by the handler; on Fiber after it.

func TestStreamsOfFiber(t *testing.T) {
	fasthttptest.RunStreams(t, func(t *testing.T, e *core.Engine, h fasthttptest.Handler, o fasthttptest.Outside) string {
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		app.Use(recover.New())
		if o.Compress {
			app.Use(compress.New())
		}
		app.Use(func(c *fiber.Ctx) error {
			if o.Tenants {
				tenant := strings.Clone(c.Get("X-Tenant"))
				c.Locals(fasthttptest.Tenant, tenant)
				c.SetUserContext(context.WithValue(c.Context(), fasthttptest.TenantKey{}, tenant))
			}
			err := c.Next()
			if o.TimesOut != nil && o.TimesOut() {
				c.Context().TimeoutErrorWithCode("slow", http.StatusServiceUnavailable)
			}
			return err
		}, idemfiber.Fiber(e))
		if o.Inner != nil {
			app.Use(idemfiber.Fiber(o.Inner))
		}
		app.Post("/*", func(c *fiber.Ctx) error { return h(c.UserContext(), c.Context()) })
		return serveFiber(t, app)
	})
}

// fileOf writes a file of n bytes.
func fileOf(t *testing.T, n int) string {
	name := filepath.Join(t.TempDir(), "file.txt")
	require.NoError(t, os.WriteFile(name, bytes.Repeat([]byte("0123456789"), n/10), 0o600))
	return name
}

// sends is what a Fiber handler may send, and what of it is replayed.
type sends struct {
	name    string
	handler func(*testing.T) fiber.Handler
	lines   string // of the request
	omitted bool   // its body is too long to be kept
}

func fiberStreams() []sends {
	file := func(n int, compress ...bool) func(*testing.T) fiber.Handler {
		return func(t *testing.T) fiber.Handler {
			name := fileOf(t, n)
			return func(c *fiber.Ctx) error { return c.SendFile(name, compress...) }
		}
	}
	plain := func(h fiber.Handler) func(*testing.T) fiber.Handler {
		return func(*testing.T) fiber.Handler { return h }
	}
	text := strings.Repeat("0123456789", 300)
	return []sends{
		{"SendFile", file(3000), "", false},
		{"SendFile of a long file", file(2_000_000), "", true},
		{"SendFile of an empty file", file(0), "", false},
		{"SendFile, a range", file(3000), "Range: bytes=100-199\r\n", false},
		{"SendFile, a range of a long file", file(2_000_000), "Range: bytes=100-199\r\n", false},
		{"SendFile, a range that there is none of", file(3000), "Range: bytes=9000-9100\r\n", false},
		{"SendFile, compressed", file(3000, true), "Accept-Encoding: gzip\r\n", false},
		{"SendFile, another status", func(t *testing.T) fiber.Handler {
			name := fileOf(t, 3000)
			return func(c *fiber.Ctx) error { return c.Status(201).SendFile(name) }
		}, "", false},
		{"Download", func(t *testing.T) fiber.Handler {
			name := fileOf(t, 3000)
			return func(c *fiber.Ctx) error { return c.Download(name, "orders.txt") }
		}, "", false},
		{"SendStream of a known length", plain(func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader(text), len(text)) }), "", false},
		{"SendStream", plain(func(c *fiber.Ctx) error { return c.Status(201).SendStream(strings.NewReader(text)) }), "", false},
		{"SendStream of a limited reader", plain(func(c *fiber.Ctx) error {
			return c.SendStream(&io.LimitedReader{R: strings.NewReader(text), N: 100})
		}), "", false},
		{"SendStream of nothing", plain(func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader("")) }), "", false},
		{"SendStream of too much", plain(func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader(strings.Repeat(text, 400))) }), "", true},
		{"SendStream with a type, a cookie and trailers", plain(func(c *fiber.Ctx) error {
			c.Set("Content-Type", "text/csv")
			c.Cookie(&fiber.Cookie{Name: "session", Value: "1"})
			_ = c.Context().Response.Header.SetTrailer("X-Sum")
			c.Set("X-Sum", "4")
			return c.SendStream(strings.NewReader(text))
		}), "", false},
		{"SetBodyStreamWriter", plain(func(c *fiber.Ctx) error {
			c.Context().Response.ImmediateHeaderFlush = true
			c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
				for range 10 {
					_, _ = w.WriteString(text)
					_ = w.Flush()
				}
			})
			return nil
		}), "", false},
		{"a stream that may not be sent", plain(func(c *fiber.Ctx) error {
			return c.Status(204).SendStream(strings.NewReader(text))
		}), "", false},
		{"a stream that is not sent", plain(func(c *fiber.Ctx) error {
			c.Response().SkipBody = true
			return c.SendStream(strings.NewReader(text), len(text))
		}), "", true},
	}
}

// wire is an answer as it came, but for its date and the borders of its chunks.
func wire(t *testing.T, addr, request string) (raw string, r adaptertest.Reply) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(all)), nil)
	require.NoError(t, err)
	if r, err = adaptertest.Read(res); !errors.Is(err, io.ErrUnexpectedEOF) { // a body that a handler has skipped
		require.NoError(t, err)
	}
	head, _, _ := bytes.Cut(all, []byte("\r\n\r\n"))
	return adaptertest.DateLine.ReplaceAllString(string(head)+"\r\n", "") + r.Body + fmt.Sprint(res.Trailer), r
}

func TestStreamsOfFiberAreAsWithoutTheEngineAndAreReplayed(t *testing.T) {
	for _, s := range fiberStreams() {
		t.Run(s.name, func(t *testing.T) {
			h, runs := s.handler(t), atomic.Int64{}
			bare, guarded := fiber.New(fiber.Config{DisableStartupMessage: true}), newFiber(t, fiber.Config{})
			bare.Post("/", h)
			guarded.Post("/", func(c *fiber.Ctx) error { runs.Add(1); return h(c) })
			bareAddr, addr := strings.TrimPrefix(serveFiber(t, bare), "http://"), strings.TrimPrefix(serveFiber(t, guarded), "http://")
			post := "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: K\r\nContent-Length: 1\r\n" + s.lines + "\r\nB"
			want, _ := wire(t, bareAddr, post)
			raw, first := wire(t, addr, post)
			assert.Equal(t, want, raw)
			_, second := wire(t, addr, post)
			assert.True(t, second.Replayed())
			assert.Equal(t, first.Status, second.Status)
			assert.Equal(t, s.omitted, second.Header.Get("Idempotent-Body") == "omitted")
			if !s.omitted {
				assert.Equal(t, first.Body, second.Body)
				for _, line := range []string{"Content-Type", "Content-Range", "Content-Encoding", "Last-Modified", "Content-Disposition"} {
					assert.Equal(t, first.Header.Values(line), second.Header.Values(line), line)
				}
			}
			assert.EqualValues(t, 1, runs.Load())
		})
	}
}

// A stream is not guarded where the method is not.
func TestAStreamOfFiberThatIsNotGuardedIsAsWithoutTheEngine(t *testing.T) {
	name := fileOf(t, 3000)
	app := newFiber(t, fiber.Config{})
	app.Get("/", func(c *fiber.Ctx) error { return c.SendFile(name) })
	addr := strings.TrimPrefix(serveFiber(t, app), "http://")
	for method, length := range map[string]int{"GET": 3000, "HEAD": 0} {
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer conn.Close()
		_, err = fmt.Fprintf(conn, "%s / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: K\r\n\r\n", method)
		require.NoError(t, err)
		res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
		require.NoError(t, err)
		r, err := adaptertest.Read(res)
		require.NoError(t, err)
		assert.Len(t, r.Body, length)
		assert.EqualValues(t, 3000, r.Length)
		assert.False(t, r.Replayed())
	}
}
