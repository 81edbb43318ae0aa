package adapters_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	idemecho "github.com/go-idem/idem/adapters/echo"
	idemfiber "github.com/go-idem/idem/adapters/fiber"
	idemgin "github.com/go-idem/idem/adapters/gin"
	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/adaptertest"
)

// What each framework does around a handler that is easily lost when the handler's answer is held back.

func TestGinAnswersUnknownRoutesItself(t *testing.T) {
	router := func(before ...gin.HandlerFunc) string {
		r := gin.New()
		r.HandleMethodNotAllowed = true
		r.Use(before...)
		r.GET("/read-only", func(*gin.Context) {})
		return adaptertest.NewServer(t, r)
	}
	for path, status := range map[string]int{"/nowhere": 404, "/read-only": 405} {
		store := storetest.NewFaulty(memstore.New())
		engine, err := core.New(core.Config{Store: store, Scope: core.SingleTenant})
		require.NoError(t, err)
		bare, guarded := router(), router(idemgin.Gin(engine))
		want := adaptertest.Submit(t, bare+path, "B")
		assert.Equal(t, status, want.Status)
		for range 2 {
			assert.Equal(t, want, adaptertest.Submit(t, guarded+path, "B"), path)
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
				c.Header("X-Gone", around)
			}
			c.Next()
			c.String(http.StatusTeapot, c.Errors.String())
		})
		r.Use(before...)
		r.POST("/", func(c *gin.Context) {
			c.Header("X-Own", "mine")
			c.Writer.Header().Del("X-Gone")
			_ = c.Error(errors.New("no"))
		})
		return adaptertest.NewServer(t, r)
	}
	for _, around := range []string{"", "a line"} {
		bare, guarded := router(around), router(around, idemgin.Gin(adaptertest.NewEngine(t)))
		want := adaptertest.Submit(t, bare, "B")
		assert.Equal(t, "mine", want.Header.Get("X-Own"))
		assert.Empty(t, want.Header.Get("X-Gone"))
		assert.Equal(t, want, adaptertest.Submit(t, guarded, "B"))
	}
}

func TestGinHandlesAContextAgainInsideAGuardedHandler(t *testing.T) {
	for _, global := range []bool{true, false} {
		t.Run(fmt.Sprint("global ", global), func(t *testing.T) {
			var runs atomic.Int64
			guard, r := idemgin.Gin(adaptertest.NewEngine(t)), gin.New()
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
			url := adaptertest.NewServer(t, r) + "/old"
			first := adaptertest.Submit(t, url, "B")
			assert.Equal(t, 201, first.Status)
			assert.Equal(t, "new", first.Body)
			assert.Equal(t, []string{"text/plain; charset=utf-8", "text/plain; charset=utf-8"}, types)
			second := adaptertest.Submit(t, url, "B")
			assert.Equal(t, 201, second.Status)
			assert.True(t, second.Replayed())
			assert.EqualValues(t, 1, runs.Load())
		})
	}
}

func TestEchoDoesNotKeepWhatASilentErrorHandlerLeaves(t *testing.T) {
	var runs atomic.Int64
	app := echo.New()
	app.HTTPErrorHandler = func(error, echo.Context) {}
	app.Use(idemecho.Echo(adaptertest.NewEngine(t)))
	app.POST("/", func(echo.Context) error { runs.Add(1); return errors.New("database away") })
	url := adaptertest.NewServer(t, app)
	for range 2 {
		assert.False(t, adaptertest.Submit(t, url, "B").Replayed())
	}
	assert.EqualValues(t, 2, runs.Load())
}

func TestEchoBodyLimitOutsideSaysTooLarge(t *testing.T) {
	app := echo.New()
	app.Use(middleware.BodyLimit("1K"), idemecho.Echo(adaptertest.NewEngine(t)))
	app.POST("/", func(c echo.Context) error { return c.NoContent(201) })
	chunked := io.MultiReader(strings.NewReader(strings.Repeat("x", 2000))) // a declared length never gets as far as the engine
	_, r, err := adaptertest.Exchange(t, adaptertest.NewServer(t, app), chunked)
	require.NoError(t, err)
	assert.Equal(t, 413, r.Status, r.Body)
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
	r := adaptertest.Submit(t, serveFiber(t, app), "B")
	assert.Equal(t, 500, r.Status)
	assert.Equal(t, "Internal Server Error", r.Body)
	assert.Empty(t, r.Header.Get("Location"))
}

// What works on when the handlers have returned, and fasthttp has not used their context again, still reads its values.
func TestFiberStreamsAndHandlersThatWereTimedOutOutliveTheirContext(t *testing.T) {
	for name, respond := range map[string]func(c *fasthttp.RequestCtx, report func()){
		"a stream": func(c *fasthttp.RequestCtx, report func()) {
			c.SetBodyStreamWriter(func(*bufio.Writer) { report() })
		},
		"a handler": func(c *fasthttp.RequestCtx, report func()) {
			c.TimeoutErrorWithCode("slow", 503)
			go report()
		},
	} {
		t.Run(name, func(t *testing.T) {
			returned, reported := make(chan struct{}), make(chan string, 1)
			app := newFiber(t, fiber.Config{}, func(c *fiber.Ctx) error {
				defer close(returned)
				c.Locals("tenant", "first")
				c.SetUserContext(context.WithoutCancel(c.Context())) // fasthttp has a race between Done and Shutdown.
				return c.Next()
			})
			app.Post("/", func(c *fiber.Ctx) error {
				ctx := c.UserContext()
				respond(c.Context(), func() {
					<-returned
					reported <- fmt.Sprint("cancelled: ", context.Cause(ctx), ", tenant: ", ctx.Value("tenant"))
				})
				return nil
			})
			adaptertest.Submit(t, serveFiber(t, app), "B")
			assert.Equal(t, "cancelled: <nil>, tenant: first", <-reported)
		})
	}
}

func TestFiberRespondsWhenTheErrorHandlerFails(t *testing.T) {
	app := newFiber(t, fiber.Config{ErrorHandler: func(*fiber.Ctx, error) error { return errors.New("also this") }})
	app.Post("/", func(*fiber.Ctx) error { return errors.New("no") })
	r := adaptertest.Submit(t, serveFiber(t, app), "B")
	assert.Equal(t, 500, r.Status)
	assert.Equal(t, "Internal Server Error", r.Body)
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
	first := adaptertest.Submit(t, url, "B")
	assert.Equal(t, 503, first.Status)
	assert.Equal(t, "slow", first.Body)
	assert.Equal(t, 409, adaptertest.Submit(t, url, "B").Status)
	assert.EqualValues(t, 1, runs.Load())
	require.Eventually(t, func() bool { return adaptertest.Submit(t, url, "B").Body == "takeover true" }, 5*time.Second, 10*time.Millisecond)
}

// ATT-01: the handler works on, and writes to its response.
func TestFiberLeavesTheResponseOfAHandlerThatWasTimedOutAloneIfAHookPanics(t *testing.T) {
	engine := adaptertest.NewEngine(t).With(func(c *core.Config) {
		c.Hooks.Unknown = func(context.Context, core.Event) { panic("in a hook") }
	})
	left := make(chan string, 1)
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(func(c *fiber.Ctx) error {
		defer func() {
			_ = recover()
			left <- string(c.Response().Body())
		}()
		return c.Next()
	}, idemfiber.Fiber(engine))
	app.Post("/", func(c *fiber.Ctx) error {
		c.Context().TimeoutErrorWithCode("slow", 503)
		return c.SendString("working")
	})
	assert.Equal(t, "slow", adaptertest.Submit(t, serveFiber(t, app), "B").Body)
	assert.Equal(t, "working", <-left)
}

func TestThePatternOfTheMuxIsSeenOutside(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.PathValue("id")) })
	guarded, pattern := idemhttp.HTTP(adaptertest.NewEngine(t))(mux), make(chan string, 1)
	url := adaptertest.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guarded.ServeHTTP(w, r)
		pattern <- r.Pattern
	}))
	assert.Equal(t, "7", adaptertest.Submit(t, url+"/orders/7", "B").Body)
	assert.Equal(t, "POST /orders/{id}", <-pattern)
}

// FRM-09: what calls net/http middleware around handlers of Gin leaves them Gin's own writer. A response that was sent to it was sent
// past the engine, so a replay says that the body is missing. One that was sent by the writer of the middleware is replayed whole.
func TestAResponseThatIsSentPastTheMiddlewareIsNotReplayedAsAnEmptyOne(t *testing.T) {
	for name, test := range map[string]struct {
		before  func(*gin.Context) // the middleware, at the first request
		handler func(*gin.Context, http.ResponseWriter)
		status  int
		body    string // of the replay
		omitted string
		kept    string // a header field of the replay
	}{
		"past it": {
			handler: func(c *gin.Context, _ http.ResponseWriter) { c.String(http.StatusCreated, "made") },
			status:  http.StatusCreated, omitted: "omitted",
		},
		"a stream by its writer": {
			handler: func(_ *gin.Context, w http.ResponseWriter) {
				_, _ = io.WriteString(w, "made")
				w.(http.Flusher).Flush()
			},
			status: http.StatusOK, body: "made",
		},
		"a stream without a body": {
			handler: func(_ *gin.Context, w http.ResponseWriter) {
				w.Header().Set("X-Kept", "kept")
				w.WriteHeader(http.StatusCreated)
				w.(http.Flusher).Flush()
			},
			status: http.StatusCreated, kept: "kept",
		},
		"nothing": {handler: func(*gin.Context, http.ResponseWriter) {}, status: http.StatusOK},
		"nothing, after a response of middleware outside": {
			before:  func(c *gin.Context) { c.String(http.StatusCreated, "made outside") },
			handler: func(*gin.Context, http.ResponseWriter) {}, status: http.StatusOK,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var runs, requests atomic.Int64
			guard, router := idemhttp.HTTP(adaptertest.NewEngine(t)), gin.New()
			router.Use(func(c *gin.Context) {
				if requests.Add(1) == 1 && test.before != nil {
					test.before(c)
				}
				wasCalled := false
				guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					wasCalled, c.Request = true, r
					c.Set("writer", w)
					c.Next()
				})).ServeHTTP(c.Writer, c.Request)
				if !wasCalled {
					c.Abort()
				}
			})
			router.POST("/", func(c *gin.Context) { runs.Add(1); test.handler(c, c.MustGet("writer").(http.ResponseWriter)) })
			url := adaptertest.NewServer(t, router)
			adaptertest.Submit(t, url, "B")
			second := adaptertest.Submit(t, url, "B")
			assert.Equal(t, test.status, second.Status)
			assert.True(t, second.Replayed())
			assert.Equal(t, test.body, second.Body)
			assert.Equal(t, test.omitted, second.Header.Get("Idempotent-Body"))
			assert.Equal(t, test.kept, second.Header.Get("X-Kept"))
			assert.EqualValues(t, 1, runs.Load())
		})
	}
}

// Middleware outside, such as one for logs, reads the header of a response that was sent past the engine, too.
func TestTheHeaderOfAResponseThatIsSentPastTheMiddlewareIsSeenOutside(t *testing.T) {
	guard, router, types := idemhttp.HTTP(adaptertest.NewEngine(t)), gin.New(), make(chan string, 1)
	router.Use(func(c *gin.Context) {
		guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Next() })).ServeHTTP(c.Writer, c.Request)
		types <- c.Writer.Header().Get("Content-Type")
	})
	router.POST("/", func(c *gin.Context) { c.String(http.StatusCreated, "made") })
	assert.Equal(t, "made", adaptertest.Submit(t, adaptertest.NewServer(t, router), "B").Body)
	assert.Equal(t, "text/plain; charset=utf-8", <-types)
}

// WrapMiddleware has the name of Echo's bridge.
func WrapMiddleware(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { h(w, r) }
}

// FRM-09: what a framework makes of handlers of its own is no bridge, and neither is a function of the application that has the
// name of one.
func TestHandlersThatAreNotABridgeAreGuarded(t *testing.T) {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Post("/", func(c *fiber.Ctx) error { return c.SendStatus(201) })
	for name, h := range map[string]http.Handler{
		"an app of Fiber": adaptor.FiberApp(app), "the application's": WrapMiddleware(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) }),
	} {
		t.Run(name, func(t *testing.T) {
			url := adaptertest.NewServer(t, idemhttp.HTTP(adaptertest.NewEngine(t))(h))
			for _, replayed := range []bool{false, true} {
				r := adaptertest.Submit(t, url+"/", "B")
				assert.Equal(t, 201, r.Status)
				assert.Equal(t, replayed, r.Replayed())
			}
		})
	}
}

// A handler's own error is its response, whatever header fields it has set.
func TestFiberKeepsAnErrorWithTheHeaderOfTheRouters(t *testing.T) {
	app := newFiber(t, fiber.Config{})
	app.Post("/", func(c *fiber.Ctx) error {
		c.Set(fiber.HeaderAllow, "GET")
		return fiber.NewError(http.StatusConflict, "no")
	})
	url := serveFiber(t, app)
	for _, replayed := range []bool{false, true} {
		r := adaptertest.Submit(t, url, "B")
		assert.Equal(t, http.StatusConflict, r.Status)
		assert.Equal(t, replayed, r.Replayed())
	}
}

// A middleware outside of Gin's adapter sees whether the handlers were kept from running.
func TestGinIsAbortedOnlyIfNoHandlerHasRun(t *testing.T) {
	router, aborted := gin.New(), make(chan bool, 1)
	router.Use(func(c *gin.Context) { c.Next(); aborted <- c.IsAborted() }, idemgin.Gin(adaptertest.NewEngine(t)))
	router.POST("/", func(c *gin.Context) { c.Status(201) })
	url := adaptertest.NewServer(t, router)
	for _, replayed := range []bool{false, true} {
		assert.Equal(t, replayed, adaptertest.Submit(t, url, "B").Replayed())
		assert.Equal(t, replayed, <-aborted)
	}
}

// Gin ignores a status that is none, and one that comes too late.
func TestTheStatusOfGinsWriterIsThatOfTheResponse(t *testing.T) {
	for name, h := range map[string]gin.HandlerFunc{
		"none":     func(c *gin.Context) { c.Status(0) },
		"too late": func(c *gin.Context) { c.String(201, "made"); c.Writer.WriteHeader(404) },
	} {
		t.Run(name, func(t *testing.T) {
			statuses := make(chan int, 1)
			router := func(before ...gin.HandlerFunc) string {
				r := gin.New()
				r.Use(before...)
				r.POST("/", func(c *gin.Context) { h(c); statuses <- c.Writer.Status() })
				return adaptertest.NewServer(t, r)
			}
			want, wantStatus := adaptertest.Submit(t, router(), "B"), <-statuses
			assert.Equal(t, want, adaptertest.Submit(t, router(idemgin.Gin(adaptertest.NewEngine(t))), "B"))
			assert.Equal(t, wantStatus, <-statuses)
			assert.Equal(t, want.Status, wantStatus)
		})
	}
}

// Errors that a middleware outside of the engine turns into the response are a failure of the run: the key is free for the same
// request only. The response has the fields of the engine.
func TestGinFailsARunThatOnlyCollectsErrors(t *testing.T) {
	engine := adaptertest.NewEngine(t).With(func(c *core.Config) { c.Keep.EchoKey = true })
	r := gin.New()
	r.Use(func(c *gin.Context) {
		c.Next()
		if !c.Writer.Written() {
			c.String(http.StatusTeapot, c.Errors.String())
		}
	}, idemgin.Gin(engine))
	r.POST("/", func(c *gin.Context) { c.Header("Idempotency-Key", "mine"); _ = c.Error(errors.New("no")) })
	url := adaptertest.NewServer(t, r)
	for body, status := range map[string]int{"B": http.StatusTeapot, "another body": http.StatusUnprocessableEntity} {
		adaptertest.Submit(t, url, "B")
		reply := adaptertest.Submit(t, url, body)
		assert.Equal(t, status, reply.Status)
		assert.Equal(t, []string{`"K"`}, reply.Header.Values("Idempotency-Key"))
	}
}

// Functions that middleware outside has registered find its response in the context, also while a stream is sent.
func TestEchoShowsItsOuterResponseToWhatIsRegisteredOutside(t *testing.T) {
	for name, test := range map[string]struct {
		handler func(*echo.Response)
		status  int
		calls   int
	}{
		"a stream": {func(r *echo.Response) {
			_, _ = io.WriteString(r, "a")
			r.Flush()
			_, _ = io.WriteString(r, "b")
		}, 200, 3},
		"a switch of protocols": {func(r *echo.Response) {
			r.WriteHeader(http.StatusSwitchingProtocols)
			r.Flush()
		}, 101, 1},
	} {
		t.Run(name, func(t *testing.T) {
			app, calls := echo.New(), 0
			app.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					outer := c.Response()
					shows := func() { calls++; assert.Same(t, outer, c.Response()) }
					outer.Before(shows)
					outer.After(shows)
					return next(c)
				}
			}, idemecho.Echo(adaptertest.NewEngine(t)))
			app.POST("/", func(c echo.Context) error { test.handler(c.Response()); return nil })
			r := httptest.NewRequest("POST", "/", strings.NewReader("B"))
			r.Header.Set("Idempotency-Key", "K")
			w := httptest.NewRecorder()
			app.ServeHTTP(w, r)
			assert.Equal(t, test.status, w.Code)
			assert.Equal(t, test.calls, calls)
		})
	}
}
