package adapters_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
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
			}
			c.Next()
			c.String(http.StatusTeapot, c.Errors.String())
		})
		r.Use(before...)
		r.POST("/", func(c *gin.Context) {
			c.Header("X-Own", "mine")
			_ = c.Error(errors.New("no"))
		})
		return adaptertest.NewServer(t, r)
	}
	for _, around := range []string{"", "a line"} {
		bare, guarded := router(around), router(around, idemgin.Gin(adaptertest.NewEngine(t)))
		want := adaptertest.Submit(t, bare, "B")
		assert.Equal(t, "mine", want.Header.Get("X-Own"))
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
	assert.Equal(t, "cancelled: <nil>", adaptertest.Submit(t, serveFiber(t, app), "B").Body)
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

// FRM-09: what calls net/http middleware around handlers of Gin leaves them Gin's own writer. Such a response was sent past the
// engine, so a replay says that the body is missing.
func TestAResponseThatIsSentPastTheMiddlewareIsNotReplayedAsAnEmptyOne(t *testing.T) {
	var runs atomic.Int64
	guard := idemhttp.HTTP(adaptertest.NewEngine(t))
	router := gin.New()
	router.Use(func(c *gin.Context) {
		wasCalled := false
		guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			wasCalled, c.Request = true, r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !wasCalled {
			c.Abort()
		}
	})
	router.POST("/", func(c *gin.Context) { runs.Add(1); c.String(http.StatusCreated, "made") })
	url := adaptertest.NewServer(t, router)
	first, second := adaptertest.Submit(t, url, "B"), adaptertest.Submit(t, url, "B")
	assert.Equal(t, "made", first.Body)
	assert.Equal(t, []int{http.StatusCreated, http.StatusCreated}, []int{first.Status, second.Status})
	assert.True(t, second.Replayed())
	assert.Equal(t, "omitted", second.Header.Get("Idempotent-Body"))
	assert.EqualValues(t, 1, runs.Load())
}
