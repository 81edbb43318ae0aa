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
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/compress"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemfiber "github.com/go-idem/idem/adapters/fiber"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/adaptertest"
)

// CON-12: an answer that is made while it is sent. On net/http, Gin and Echo it is made by the handler; on Fiber after it.

// brokenReader gives some bytes, and then does what end says.
type brokenReader struct {
	bytes  int
	end    func() error
	closed chan struct{}
}

func (r *brokenReader) Read(p []byte) (int, error) {
	if r.bytes == 0 {
		return 0, r.end()
	}
	n := min(len(p), r.bytes)
	r.bytes -= n
	copy(p, strings.Repeat("x", n))
	return n, nil
}

func (r *brokenReader) Close() error { close(r.closed); return nil }

func breaks(n int, end func() error) *brokenReader {
	return &brokenReader{n, end, make(chan struct{})}
}

func fails() error { return errors.New("the source is gone") }

func panics() error { panic("the source is gone") }

// firstRun is a Fiber handler whose first run sends one thing and whose others say how often it ran.
func firstRun(runs *atomic.Int64, send fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if n := runs.Add(1); n > 1 {
			return c.Status(201).SendString(fmt.Sprint("run ", n))
		}
		return send(c)
	}
}

func TestAStreamOfFiberThatBreaksIsNotKept(t *testing.T) {
	for name, send := range map[string]func(c *fiber.Ctx) error{
		"its source fails":            func(c *fiber.Ctx) error { return c.SendStream(breaks(10_000, fails)) },
		"its source panics":           func(c *fiber.Ctx) error { return c.SendStream(breaks(10_000, panics)) },
		"a short one fails":           func(c *fiber.Ctx) error { return c.SendStream(breaks(10, fails), 20) },
		"a short one panics":          func(c *fiber.Ctx) error { return c.SendStream(breaks(10, panics), 20) },
		"less than declared":          func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader("less"), 20) },
		"more than declared":          func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader("more"), 2) },
		"a long one fails":            func(c *fiber.Ctx) error { return c.SendStream(breaks(2<<20, fails), 3<<20) },
		"a long one panics":           func(c *fiber.Ctx) error { return c.SendStream(breaks(2<<20, panics), 3<<20) },
		"a long one ends too soon":    func(c *fiber.Ctx) error { return c.SendStream(breaks(2<<20, func() error { return io.EOF }), 3<<20) },
		"a limited one ends too soon": func(c *fiber.Ctx) error { return c.SendStream(&io.LimitedReader{R: strings.NewReader("less"), N: 20}) },
		"its handler says so": func(c *fiber.Ctx) error {
			ctx := c.UserContext()
			c.Context().SetBodyStreamWriter(func(w *bufio.Writer) { core.Decide(ctx, core.Retry) })
			return nil
		},
	} {
		for _, compressed := range []bool{false, true} {
			if compressed && strings.Contains(name, "panics") {
				continue // in a goroutine of fasthttp's compression, with or without the engine
			}
			t.Run(fmt.Sprint(name, ", compressed outside: ", compressed), func(t *testing.T) {
				var runs atomic.Int64
				before := []fiber.Handler{recover.New()}
				if compressed {
					before = append(before, compress.New())
				}
				app := newFiber(t, fiber.Config{}, before...)
				app.Post("/", firstRun(&runs, send))
				url := serveFiber(t, app)
				req, err := http.NewRequest("POST", url, strings.NewReader("B"))
				require.NoError(t, err)
				req.Header.Set("Idempotency-Key", "K")
				if res, err := http.DefaultClient.Do(req); err == nil {
					_, _ = adaptertest.Read(res)
				}
				var second adaptertest.Reply
				require.Eventually(t, func() bool {
					second = adaptertest.Submit(t, url, "B")
					return second.Status != http.StatusConflict
				}, 5*time.Second, time.Millisecond)
				assert.Equal(t, "run 2", second.Body)
				assert.False(t, second.Replayed())
			})
		}
	}
}

// leave sends a request, reads the beginning of its answer, and leaves.
func leave(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, err = io.WriteString(conn, "POST /orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: K\r\nContent-Length: 1\r\n\r\nB")
	require.NoError(t, err)
	_, err = io.ReadAtLeast(conn, make([]byte, 200), 100)
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).SetLinger(0))
	require.NoError(t, conn.Close())
}

func TestAStreamOfFiberWhoseClientLeavesIsNotKept(t *testing.T) {
	for name, decided := range map[string]core.Disposition{"runs again": core.Retry, "stays where its handler has decided": core.Keep} {
		t.Run(name, func(t *testing.T) {
			var runs, made atomic.Int64
			cause := make(chan error, 1)
			app := newFiber(t, fiber.Config{})
			app.Post("/orders", firstRun(&runs, func(c *fiber.Ctx) error {
				ctx := c.UserContext()
				if decided == core.Keep {
					core.Decide(ctx, core.Keep)
				}
				c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
					for {
						_, _ = w.WriteString(strings.Repeat("chunk ", 1000))
						if w.Flush() != nil {
							break
						}
						made.Add(1)
					}
					<-ctx.Done()
					cause <- ctx.Err()
				})
				return nil
			}))
			url := serveFiber(t, app)
			leave(t, strings.TrimPrefix(url, "http://"))
			select {
			case err := <-cause:
				require.Error(t, err)
			case <-time.After(10 * time.Second):
				t.Fatal("the run's context goes on")
			}
			var second adaptertest.Reply
			require.Eventually(t, func() bool {
				second = adaptertest.Submit(t, url+"/orders", "B")
				return second.Status != http.StatusConflict
			}, 5*time.Second, time.Millisecond)
			assert.Equal(t, decided == core.Keep, second.Replayed())
			assert.Equal(t, decided == core.Keep, second.Header.Get("Idempotent-Body") == "omitted")
		})
	}
}

func TestAnEventStreamOfFiberWhoseClientLeavesReleasesTheKey(t *testing.T) { // MTH-07

	var runs atomic.Int64
	app := newFiber(t, fiber.Config{})
	app.Post("/orders", firstRun(&runs, func(c *fiber.Ctx) error {
		c.Set("Content-Type", "text/event-stream")
		c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
			for w.Flush() == nil {
				_, _ = fmt.Fprintf(w, "data: %s\n\n", strings.Repeat("x", 5000))
			}
		})
		return nil
	}))
	url := serveFiber(t, app)
	leave(t, strings.TrimPrefix(url, "http://"))
	var second adaptertest.Reply
	require.Eventually(t, func() bool {
		second = adaptertest.Submit(t, url+"/orders", "another body")
		return second.Status != http.StatusConflict && second.Status != http.StatusUnprocessableEntity
	}, 5*time.Second, time.Millisecond)
	assert.Equal(t, "run 2", second.Body)
}

// Who times a request out around the engine forgets its answer, and with it the stream.
func TestAStreamOfFiberThatNobodyReadsEndsItsRun(t *testing.T) {
	var runs atomic.Int64
	source := breaks(1, fails)
	app := newFiber(t, fiber.Config{}, func(c *fiber.Ctx) error {
		err := c.Next()
		if runs.Load() == 1 {
			c.Context().TimeoutErrorWithCode("slow", 503)
		}
		return err
	})
	app.Post("/", firstRun(&runs, func(c *fiber.Ctx) error { return c.SendStream(source) }))
	url := serveFiber(t, app)
	assert.Equal(t, 503, adaptertest.Submit(t, url, "B").Status)
	require.Eventually(t, func() bool {
		runtime.GC()
		return adaptertest.Submit(t, url, "B").Body == "run 2"
	}, 5*time.Second, time.Millisecond)
	<-source.closed
}

// closePanics is a source whose Close panics.
type closePanics struct{ strings.Reader }

func (*closePanics) Close() error { panic("in close") }

func TestAStreamOfFiberThatNobodyReadsAndWhoseSourcePanicsEndsItsRunAndNotTheProcess(t *testing.T) {
	var runs atomic.Int64
	app := newFiber(t, fiber.Config{}, func(c *fiber.Ctx) error {
		err := c.Next()
		if runs.Load() == 1 {
			c.Context().TimeoutErrorWithCode("slow", 503)
		}
		return err
	})
	app.Post("/", firstRun(&runs, func(c *fiber.Ctx) error { return c.SendStream(&closePanics{}) }))
	url := serveFiber(t, app)
	assert.Equal(t, 503, adaptertest.Submit(t, url, "B").Status)
	require.Eventually(t, func() bool {
		runtime.GC()
		return adaptertest.Submit(t, url, "B").Body == "run 2"
	}, 5*time.Second, time.Millisecond)
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

func TestAStreamOfFiberIsSentWhenTheStoreIsAway(t *testing.T) {
	store := storetest.NewFaulty(memstore.New())
	store.Inject("begin", storetest.Before, 1)
	engine, err := core.New(core.Config{Store: store, Scope: core.SingleTenant, DangerouslyFailOpen: true})
	require.NoError(t, err)
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(idemfiber.Fiber(engine))
	app.Post("/", func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader("streamed")) })
	r := adaptertest.Submit(t, serveFiber(t, app), "B")
	assert.Equal(t, "streamed", r.Body)
	assert.Equal(t, "true", r.Header.Get("Idempotent-Unprotected"))
	require.NoError(t, engine.Close(context.Background()))
}

func TestAStreamOfFiberOutlastsItsLease(t *testing.T) {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant, Lease: core.LeaseConfig{Duration: 200 * time.Millisecond}})
	require.NoError(t, err)
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(idemfiber.Fiber(engine), idemfiber.Fiber(engine.With(adaptertest.Required))) // the inner one stands aside
	source, end := io.Pipe()
	app.Post("/", func(c *fiber.Ctx) error { return c.Status(201).SendStream(source) })
	url := serveFiber(t, app)
	first := adaptertest.Async(func() adaptertest.Reply { return adaptertest.Submit(t, url, "B") })
	_, err = io.WriteString(end, "streamed")
	require.NoError(t, err)
	for until := time.Now().Add(time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		require.Equal(t, http.StatusConflict, adaptertest.Submit(t, url, "B").Status)
	}
	require.NoError(t, end.Close())
	assert.Equal(t, "streamed", (<-first).Body)
	second := adaptertest.Submit(t, url, "B")
	assert.True(t, second.Replayed())
	assert.Equal(t, "streamed", second.Body)
}

// A process that is killed while it streams has kept nothing. So has one that a Fiber stream writer takes with it by a panic,
// which fasthttp does not recover.
func TestAProcessThatDiesWhileItStreamsIsTakenOver(t *testing.T) {
	forEachFramework(t, func(t *testing.T, c *cluster) {
		for _, refuse := range []bool{false, true} {
			c := newCluster(t, c.f)
			afterCrash := "again"
			if refuse {
				afterCrash = "refuse"
			}
			a, b := c.spawnWith("1s", afterCrash), c.spawnWith("1s", afterCrash)
			go func() { _, _ = a.Try(a.Client, "POST", "/stream", "B", "Idempotency-Key", "K") }()
			c.waitForRun(1)
			require.Equal(t, http.StatusConflict, b.Send("POST", "/stream", "B", "Idempotency-Key", "K").Status)
			if c.f.Name == "fiber" && !refuse {
				require.NoError(t, c.redis.Set(context.Background(), c.scope+":panic", 1, 0).Err())
				c.finish(1)
				_ = a.cmd.Wait()
				require.NoError(t, c.redis.Del(context.Background(), c.scope+":panic").Err())
			}
			a.signal(syscall.SIGKILL)
			c.finish(2)
			var r adaptertest.Reply
			require.Eventually(t, func() bool {
				r = b.Send("POST", "/stream", "B", "Idempotency-Key", "K")
				return r.Status == http.StatusCreated || strings.Contains(r.Body, "outcome-unknown")
			}, 10*time.Second, 10*time.Millisecond)
			require.Equal(t, refuse, r.Status == http.StatusConflict, r.Body)
			if !refuse {
				require.Equal(t, "begin run 2 takeover true", r.Body)
			}
		}
	})
}
