package adapters_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/timeout"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemecho "github.com/go-idem/idem/adapters/echo"
	idemfiber "github.com/go-idem/idem/adapters/fiber"
	idemgin "github.com/go-idem/idem/adapters/gin"
	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

// What each framework does around a handler that is easily lost when the handler's answer is held back.

// exchange sends a POST with a key and returns its answer as far as it came, and what broke it off.
func exchange(t *testing.T, url string, body io.Reader, lines ...string) (*http.Response, reply, error) {
	t.Helper()
	req, err := http.NewRequest("POST", url, body)
	require.NoError(t, err)
	req.Close = true
	req.Header.Set("Idempotency-Key", "K")
	for i := 0; i < len(lines); i += 2 {
		req.Header.Set(lines[i], lines[i+1])
	}
	res, err := newClient().Do(req)
	require.NoError(t, err)
	r, err := read(res)
	r.header.Del("Date")
	return res, r, err
}

func submit(t *testing.T, url, body string, lines ...string) reply {
	t.Helper()
	_, r, err := exchange(t, url, strings.NewReader(body), lines...)
	require.NoError(t, err)
	return r
}

// serveTest and serveFiber return the URL of a server that ends with the test.
func serveTest(t *testing.T, h http.Handler) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

func serveFiber(t *testing.T, app *fiber.App) string {
	l := listen(t)
	go func() { _ = app.Listener(l) }()
	t.Cleanup(func() { _ = app.ShutdownWithTimeout(5 * time.Second) })
	return "http://" + l.Addr().String()
}

func newFiber(t *testing.T, cfg fiber.Config, before ...fiber.Handler) *fiber.App {
	cfg.DisableStartupMessage = true
	app := fiber.New(cfg)
	for _, m := range before {
		app.Use(m)
	}
	app.Use(idemfiber.Fiber(newEngine(t)))
	return app
}

// form is a multipart form with many fields and a file.
func form(t *testing.T, file string) (contentType, body string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := range 10 {
		require.NoError(t, w.WriteField(fmt.Sprint("field", i), fmt.Sprint("value", i)))
	}
	part, err := w.CreateFormFile("file", "file.bin")
	require.NoError(t, err)
	_, _ = io.WriteString(part, file)
	require.NoError(t, w.Close())
	return w.FormDataContentType(), b.String()
}

func TestGinAnswersUnknownRoutesItself(t *testing.T) {
	router := func(before ...gin.HandlerFunc) string {
		r := gin.New()
		r.HandleMethodNotAllowed = true
		r.Use(before...)
		r.GET("/read-only", func(*gin.Context) {})
		return serveTest(t, r)
	}
	for path, status := range map[string]int{"/nowhere": 404, "/read-only": 405} {
		store := storetest.NewFaulty(memstore.New())
		engine, err := core.New(core.Config{Store: store, Scope: core.SingleTenant})
		require.NoError(t, err)
		bare, guarded := router(), router(idemgin.Gin(engine))
		want := submit(t, bare+path, "B")
		assert.Equal(t, status, want.status)
		for range 2 {
			assert.Equal(t, want, submit(t, guarded+path, "B"), path)
		}
		assert.Equal(t, 2, store.Calls("begin"))
		assert.Zero(t, store.Calls("complete"), "nothing is kept")
	}
}

// A handler that only collects errors leaves the answer to a middleware outside, with the lines that it has set.
func TestGinLeavesHeaderLinesWithTheErrors(t *testing.T) {
	router := func(around string, before ...gin.HandlerFunc) string {
		r := gin.New()
		r.Use(func(c *gin.Context) {
			if around != "" {
				c.Header("X-Around", around)
			}
			c.Next()
			c.String(http.StatusTeapot, c.Errors.String())
		})
		r.Use(before...)
		r.POST("/", func(c *gin.Context) {
			c.Header("X-Own", "mine")
			_ = c.Error(errors.New("no"))
		})
		return serveTest(t, r)
	}
	for _, around := range []string{"", "a line"} {
		bare, guarded := router(around), router(around, idemgin.Gin(newEngine(t)))
		want := submit(t, bare, "B")
		assert.Equal(t, "mine", want.header.Get("X-Own"))
		assert.Equal(t, want, submit(t, guarded, "B"))
	}
}

func TestGinHandlesAContextAgainInsideAGuardedHandler(t *testing.T) {
	for _, global := range []bool{true, false} {
		t.Run(fmt.Sprint("global ", global), func(t *testing.T) {
			var runs atomic.Int64
			guard, r := idemgin.Gin(newEngine(t)), gin.New()
			var types []string // that a middleware outside sees
			r.Use(func(c *gin.Context) { c.Next(); types = append(types, c.Writer.Header().Get("Content-Type")) })
			moved := func(c *gin.Context) { c.Request.URL.Path = "/new"; r.HandleContext(c) }
			if global {
				r.Use(guard)
				r.POST("/old", moved)
			} else {
				r.POST("/old", guard, moved)
			}
			r.POST("/new", func(c *gin.Context) { runs.Add(1); c.String(201, "new") })
			url := serveTest(t, r) + "/old"
			first := submit(t, url, "B")
			assert.Equal(t, 201, first.status)
			assert.Equal(t, "new", first.body)
			assert.Equal(t, []string{"text/plain; charset=utf-8", "text/plain; charset=utf-8"}, types)
			second := submit(t, url, "B")
			assert.Equal(t, 201, second.status)
			assert.True(t, second.replayed())
			assert.EqualValues(t, 1, runs.Load())
		})
	}
}

// nested puts a handler behind an engine and one that comes from it, in each framework.
var nested = map[string]func(t *testing.T, outer, inner *core.Engine, run func()) (url string){
	"http": func(t *testing.T, outer, inner *core.Engine, run func()) string {
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			run()
			w.WriteHeader(201)
			_, _ = io.WriteString(w, "made")
		})
		return serveTest(t, idemhttp.HTTP(outer)(idemhttp.HTTP(inner)(h)))
	},
	"gin": func(t *testing.T, outer, inner *core.Engine, run func()) string {
		r := gin.New()
		r.Use(idemgin.Gin(outer))
		r.POST("/", idemgin.Gin(inner), func(c *gin.Context) { run(); c.String(201, "made") })
		return serveTest(t, r)
	},
	"echo": func(t *testing.T, outer, inner *core.Engine, run func()) string {
		app := echo.New()
		app.Use(idemecho.Echo(outer))
		app.POST("/", func(c echo.Context) error { run(); return c.String(201, "made") }, idemecho.Echo(inner))
		return serveTest(t, app)
	},
	"fiber": func(t *testing.T, outer, inner *core.Engine, run func()) string {
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		app.Use(idemfiber.Fiber(outer))
		app.Post("/", idemfiber.Fiber(inner), func(c *fiber.Ctx) error { run(); return c.Status(201).SendString("made") })
		return serveFiber(t, app)
	},
}

func TestAMiddlewareOnARouteDoesNotConflictWithOneOnAll(t *testing.T) {
	for name, start := range nested {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			outer := newEngine(t)
			url := start(t, outer, outer.With(required), func() { runs.Add(1) }) + "/"
			first, second := submit(t, url, "B"), submit(t, url, "B")
			assert.Equal(t, 201, first.status, first.body)
			assert.False(t, first.replayed())
			assert.Equal(t, 201, second.status)
			assert.Equal(t, "made", second.body)
			assert.True(t, second.replayed())
			assert.EqualValues(t, 1, runs.Load())
		})
	}
}

// FRM-06: alone it would refuse what the one around it runs again, so it says that it cannot.
func TestAStricterMiddlewareOnARouteIsRefusedLoudlyBehindOneOnAll(t *testing.T) {
	for name, start := range nested {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			outer := newEngine(t)
			strict := outer.With(func(c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown })
			url := start(t, outer, strict, func() { runs.Add(1) }) + "/"
			for range 2 {
				refused := submit(t, url, "B")
				assert.Equal(t, 500, refused.status)
				assert.Contains(t, refused.body, "nested-engine")
			}
			assert.Zero(t, runs.Load())
		})
	}
}

func TestEchoDoesNotKeepWhatASilentErrorHandlerLeaves(t *testing.T) {
	var runs atomic.Int64
	app := echo.New()
	app.HTTPErrorHandler = func(error, echo.Context) {}
	app.Use(idemecho.Echo(newEngine(t)))
	app.POST("/", func(echo.Context) error { runs.Add(1); return errors.New("database away") })
	url := serveTest(t, app)
	for range 2 {
		assert.False(t, submit(t, url, "B").replayed())
	}
	assert.EqualValues(t, 2, runs.Load())
}

func TestEchoBodyLimitOutsideSaysTooLarge(t *testing.T) {
	app := echo.New()
	app.Use(middleware.BodyLimit("1K"), idemecho.Echo(newEngine(t)))
	app.POST("/", func(c echo.Context) error { return c.NoContent(201) })
	chunked := io.MultiReader(strings.NewReader(strings.Repeat("x", 2000))) // a declared length never gets as far as the engine
	_, r, err := exchange(t, serveTest(t, app), chunked)
	require.NoError(t, err)
	assert.Equal(t, 413, r.status, r.body)
}

func TestFiberReplaysAMultipartFormThatIsSentAgain(t *testing.T) {
	app := newFiber(t, fiber.Config{})
	app.Post("/", func(c *fiber.Ctx) error { return c.Status(201).SendString(c.FormValue("field3")) })
	url := serveFiber(t, app)
	contentType, body := form(t, "content")
	for i := range 10 {
		r := submit(t, url, body, "Content-Type", contentType)
		require.Equal(t, 201, r.status, r.body)
		assert.Equal(t, "value3", r.body)
		assert.Equal(t, i > 0, r.replayed())
	}
	contentType, body = form(t, "CONTENT")
	assert.Equal(t, 422, submit(t, url, body, "Content-Type", contentType).status)
}

func TestFiberFindsTheKeyInAnyCaseWithoutNormalizing(t *testing.T) {
	var runs atomic.Int64
	app := newFiber(t, fiber.Config{DisableHeaderNormalizing: true})
	app.Post("/orders", func(c *fiber.Ctx) error { runs.Add(1); return c.SendStatus(201) })
	s := &service{tb: t, addr: strings.TrimPrefix(serveFiber(t, app), "http://")}
	for i, name := range []string{"idempotency-key", "Idempotency-Key", "IDEMPOTENCY-KEY"} {
		assert.Equal(t, i > 0, s.raw(rawPost(name+": K\r\n")).replayed(), name)
	}
	assert.EqualValues(t, 1, runs.Load())
}

func TestFiberTakesTheMarkerAwayInAnyCase(t *testing.T) { // RPL-25
	for _, normalizes := range []bool{true, false} {
		app := newFiber(t, fiber.Config{DisableHeaderNormalizing: !normalizes}, func(c *fiber.Ctx) error {
			err := c.Next()
			c.Set("x-outside", "B")
			assert.Equal(t, normalizes, c.GetRespHeader("X-Outside") == "B")
			return err
		})
		app.Post("/orders", func(c *fiber.Ctx) error {
			c.Response().Header.SetCanonical([]byte("idempotent-replayed"), []byte("true"))
			return c.SendStatus(201)
		})
		s := &service{tb: t, addr: strings.TrimPrefix(serveFiber(t, app), "http://")}
		for i := range 2 {
			assert.Equal(t, i > 0, s.raw(rawPost("Idempotency-Key: K\r\n")).replayed())
		}
	}
}

func TestFiberLeavesNothingOfAnAnswerWithoutAStatusInTheErrors(t *testing.T) {
	app := newFiber(t, fiber.Config{ErrorHandler: func(c *fiber.Ctx, err error) error {
		code := 500
		if e := (*fiber.Error)(nil); errors.As(err, &e) {
			code = e.Code
		}
		return c.SendStatus(code)
	}})
	app.Post("/", func(c *fiber.Ctx) error {
		c.Set("Location", "/orders/7")
		_ = c.SendString("paid")
		c.Response().SkipBody = true
		return fiber.NewError(1001, "a code of the application")
	})
	r := submit(t, serveFiber(t, app), "B")
	assert.Equal(t, 500, r.status)
	assert.Equal(t, "Internal Server Error", r.body)
	assert.Empty(t, r.header.Get("Location"))
}

func TestFiberStreamsOutliveTheirHandlersContext(t *testing.T) {
	returned := make(chan struct{})
	app := newFiber(t, fiber.Config{}, func(c *fiber.Ctx) error { defer close(returned); return c.Next() })
	app.Post("/", func(c *fiber.Ctx) error {
		ctx := c.UserContext()
		c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
			<-returned
			_, _ = fmt.Fprint(w, "cancelled: ", context.Cause(ctx))
		})
		return nil
	})
	assert.Equal(t, "cancelled: <nil>", submit(t, serveFiber(t, app), "B").body)
}

// ATT-01: a timeout inside has answered, and the handler works on.
func TestFiberHoldsTheKeyOfAHandlerThatWasTimedOut(t *testing.T) {
	var runs atomic.Int64
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant, Lease: core.LeaseConfig{Duration: 300 * time.Millisecond}})
	require.NoError(t, err)
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(idemfiber.Fiber(engine))
	app.Post("/", func(c *fiber.Ctx) error {
		if runs.Add(1) == 1 {
			c.Context().TimeoutErrorWithCode("slow", 503)
			return nil
		}
		run, _ := core.FromContext(c.UserContext())
		return c.SendString(fmt.Sprint("takeover ", run.Takeover))
	})
	url := serveFiber(t, app)
	first := submit(t, url, "B")
	assert.Equal(t, 503, first.status)
	assert.Equal(t, "slow", first.body)
	assert.Equal(t, 409, submit(t, url, "B").status)
	assert.EqualValues(t, 1, runs.Load())
	require.Eventually(t, func() bool { return submit(t, url, "B").body == "takeover true" }, 5*time.Second, 10*time.Millisecond)
}

// ATT-01: a timeout outside answers, and the key is held while the handler works on.
func TestATimeoutOutsideLeavesTheKeyToTheHandler(t *testing.T) {
	eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
		var runs atomic.Int64
		g := newGate()
		guarded := wrap(newEngine(t), func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			<-r.Context().Done() // the deadline counts
			<-g.leave
			w.WriteHeader(201)
			_, _ = io.WriteString(w, "done")
		})
		url := serveTest(t, http.TimeoutHandler(guarded, 500*time.Millisecond, "slow"))
		assert.Equal(t, 503, submit(t, url, "B").status)
		for range 3 {
			assert.Equal(t, 409, submit(t, url, "B").status)
		}
		g.open()
		var r reply
		require.Eventually(t, func() bool { r = submit(t, url, "B"); return r.replayed() }, 5*time.Second, time.Millisecond)
		assert.Equal(t, "done", r.body)
		assert.EqualValues(t, 1, runs.Load())
	})
}

// ATT-01: a deadline inside whose middleware waits for the handler.
func TestADeadlineInsideHoldsTheKeyUntilTheHandlerReturns(t *testing.T) {
	for name, serve := range map[string]func(*testing.T, func(context.Context) error) string{
		"echo": func(t *testing.T, h func(context.Context) error) string {
			app := echo.New()
			app.Use(idemecho.Echo(newEngine(t)), middleware.ContextTimeout(20*time.Millisecond))
			app.POST("/", func(c echo.Context) error { return h(c.Request().Context()) })
			return serveTest(t, app)
		},
		"fiber": func(t *testing.T, h func(context.Context) error) string {
			app := newFiber(t, fiber.Config{})
			app.Post("/", timeout.NewWithContext(func(c *fiber.Ctx) error { return h(c.UserContext()) }, 20*time.Millisecond))
			return serveFiber(t, app)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var working, runs atomic.Int64
			g := newGate()
			url := serve(t, func(ctx context.Context) error {
				runs.Add(1)
				assert.EqualValues(t, 1, working.Add(1))
				defer working.Add(-1)
				<-ctx.Done()
				<-g.leave
				return ctx.Err()
			})
			first := async(func() reply { return submit(t, url, "B") })
			require.Eventually(t, func() bool { return runs.Load() == 1 }, 5*time.Second, time.Millisecond)
			for range 3 {
				assert.Equal(t, 409, submit(t, url, "B").status)
			}
			g.open()
			assert.GreaterOrEqual(t, (<-first).status, 400)
			assert.False(t, submit(t, url, "B").replayed())
		})
	}
}

func TestFiberNeverTakesARefusedBodyForTheNextRequest(t *testing.T) {
	hidden := strings.Repeat("GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n", 2000)
	for name, head := range map[string]string{
		"bad key":             fmt.Sprintf("Idempotency-Key: \"K\r\nContent-Length: %d\r\n\r\n", len(hidden)),
		"too large":           fmt.Sprintf("Idempotency-Key: K\r\nContent-Length: %d\r\n\r\n", len(hidden)),
		"too large in chunks": fmt.Sprintf("Idempotency-Key: K\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", len(hidden)),
	} {
		t.Run(name, func(t *testing.T) {
			var reached atomic.Bool
			app := fiber.New(fiber.Config{DisableStartupMessage: true, StreamRequestBody: true})
			app.Use(idemfiber.Fiber(newEngine(t).With(func(c *core.Config) { c.Limits.RequestBody = 1000 })))
			app.Get("/hidden", func(c *fiber.Ctx) error { reached.Store(true); return nil })
			conn, err := net.Dial("tcp", strings.TrimPrefix(serveFiber(t, app), "http://"))
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
				_, _ = read(res)
			}
			<-sent
			assert.LessOrEqual(t, statuses, 1)
			assert.False(t, reached.Load())
		})
	}
}

func TestTheServerRemovesTheFilesOfAForm(t *testing.T) {
	eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		files := func() int { entries, _ := os.ReadDir(dir); return len(entries) }
		server := httptest.NewServer(wrap(newEngine(t), func(w http.ResponseWriter, r *http.Request) {
			assert.NoError(t, r.ParseMultipartForm(1))
			assert.Equal(t, 1, files())
			w.WriteHeader(201)
		}))
		contentType, body := form(t, strings.Repeat("x", 100_000))
		assert.Equal(t, 201, submit(t, server.URL, body, "Content-Type", contentType).status)
		server.Close()
		assert.Zero(t, files())
	})
}

func TestThePatternOfTheMuxIsSeenOutside(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.PathValue("id")) })
	guarded, pattern := idemhttp.HTTP(newEngine(t))(mux), make(chan string, 1)
	url := serveTest(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guarded.ServeHTTP(w, r)
		pattern <- r.Pattern
	}))
	assert.Equal(t, "7", submit(t, url+"/orders/7", "B").body)
	assert.Equal(t, "POST /orders/{id}", <-pattern)
}

func TestABodyIsAsLongAsDeclaredOrNotReplayed(t *testing.T) {
	for name, c := range map[string]struct {
		writes int
		broken error
		again  string
	}{"less": {5, io.ErrUnexpectedEOF, ""}, "more": {15, nil, "xxxxxxxxxx"}} {
		t.Run(name, func(t *testing.T) {
			eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
				m := mount(t, wrap, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Length", "10")
					w.WriteHeader(201)
					for i := range c.writes {
						_, err := io.WriteString(w, "x")
						assert.Equal(t, i >= 10, errors.Is(err, http.ErrContentLength))
					}
				})
				_, want, wantErr := exchange(t, m.bare, strings.NewReader("B"))
				_, first, firstErr := exchange(t, m.guarded, strings.NewReader("B"))
				assert.Equal(t, want, first)
				assert.Equal(t, wantErr, firstErr)
				assert.Equal(t, c.broken, firstErr)
				<-m.kept
				second := submit(t, m.guarded, "B")
				assert.Equal(t, 201, second.status)
				assert.True(t, second.replayed())
				assert.Equal(t, c.again, second.body)
				assert.Equal(t, c.broken != nil, second.header.Get("Idempotent-Body") == "omitted")
			})
		})
	}
}

func TestTrailersAreNotDoubled(t *testing.T) {
	outside := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Sum", "0")
			h.ServeHTTP(w, r)
		})
	}
	for name, flush := range map[string]bool{"held back": false, "streamed": true} {
		t.Run(name, func(t *testing.T) {
			h := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "X-Sum, X-Early")
				w.Header().Set("X-Early", "3") // before the body already
				w.Header().Set(http.TrailerPrefix+"X-More", "5")
				_, _ = io.WriteString(w, "body")
				if flush {
					_ = http.NewResponseController(w).Flush()
				}
				w.Header().Set("X-Sum", "4")
			}
			want, _, err := exchange(t, serveTest(t, outside(http.HandlerFunc(h))), strings.NewReader("B"))
			require.NoError(t, err)
			eachMount(t, func(t *testing.T, wrap func(*core.Engine, http.HandlerFunc) http.Handler) {
				got, r, err := exchange(t, serveTest(t, outside(wrap(newEngine(t), h))), strings.NewReader("B"))
				require.NoError(t, err)
				assert.Equal(t, "body", r.body)
				assert.Equal(t, want.Trailer, got.Trailer)
				assert.Equal(t, http.Header{"X-Sum": {"4"}, "X-Early": {"3"}, "X-More": {"5"}}, got.Trailer)
			})
		})
	}
}
