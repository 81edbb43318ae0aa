package idem_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/timeout"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/fiberv3"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/internal/adaptertest"
)

func TestTheSuiteOfAllAdapters(t *testing.T) { adaptertest.Run(t, framework) }

// FRM-05: handlers of Fiber v3 pass fiber.Ctx itself as a context. Middleware outside finds no run in it when they have returned.
func TestFibersContextKnowsTheRunWhileTheHandlersWork(t *testing.T) {
	known := func(ctx context.Context) bool { _, ok := core.FromContext(ctx); return ok }
	for name, set := range map[string]func(fiber.Ctx){
		"by itself":                            func(fiber.Ctx) {},
		"also as what the application has set": func(c fiber.Ctx) { c.SetContext(c) },
	} {
		t.Run(name, func(t *testing.T) {
			var before, inside, after bool
			app := newFiber(t, fiber.Config{}, func(c fiber.Ctx) error {
				set(c)
				before = known(c) || known(c.Context())
				err := c.Next()
				after = known(c) || known(c.Context())
				return err
			})
			app.Post("/", func(c fiber.Ctx) error {
				inside = known(c) && known(c.Context()) && known(c.RequestCtx())
				return c.SendStatus(http.StatusCreated)
			})
			assert.Equal(t, http.StatusCreated, adaptertest.Submit(t, serveFiber(t, app), "B").Status)
			assert.Equal(t, []bool{false, true, false}, []bool{before, inside, after}, "before, inside, after")
		})
	}
}

// withLease returns an engine whose leases are short.
func withLease(t *testing.T, d time.Duration) *core.Engine {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant, Lease: core.LeaseConfig{Duration: d}})
	require.NoError(t, err)
	return engine
}

// ATT-01: a timeout inside has responded, and the handler works on, with its context and its run.
func TestAHandlerThatIsTimedOutInsideHoldsTheKey(t *testing.T) {
	isKnown, leave := make(chan bool, 1), make(chan struct{})
	app := fiber.New()
	app.Use(idem.Fiber(withLease(t, 300*time.Millisecond)))
	app.Post("/", timeout.New(func(c fiber.Ctx) error {
		if run, _ := core.FromContext(c.Context()); run.Takeover {
			return c.SendString("takeover")
		}
		<-leave
		_, isOwn := core.FromContext(c)
		_, isContexts := core.FromContext(c.Context())
		isKnown <- isOwn && isContexts
		return nil
	}, timeout.Config{Timeout: 10 * time.Millisecond}))
	url := serveFiber(t, app)
	first := adaptertest.Submit(t, url, "B")
	assert.Equal(t, http.StatusRequestTimeout, first.Status)
	assert.Equal(t, "Request Timeout", first.Body)
	assert.Equal(t, http.StatusConflict, adaptertest.Submit(t, url, "B").Status)
	close(leave)
	assert.True(t, <-isKnown)
	isTakeover := func() bool { return adaptertest.Submit(t, url, "B").Body == "takeover" }
	require.Eventually(t, isTakeover, 5*time.Second, 10*time.Millisecond)
}

// A 404 of the router frees the key. A middleware of Use that returns the same error, and has effects, decides for itself.
func TestAMiddlewareThatFindsNothingDecidesForItself(t *testing.T) {
	for name, test := range map[string]struct {
		decide func(fiber.Ctx)
		isKept bool
	}{
		"it does not": {func(fiber.Ctx) {}, false},
		"it does":     {func(c fiber.Ctx) { core.Decide(c, core.Keep) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			app := newFiber(t, fiber.Config{})
			app.Use(func(c fiber.Ctx) error {
				runs.Add(1)
				test.decide(c)
				return fiber.ErrNotFound
			})
			url := serveFiber(t, app)
			for _, isSecond := range []bool{false, true} {
				r := adaptertest.Submit(t, url, "B")
				assert.Equal(t, http.StatusNotFound, r.Status)
				assert.Equal(t, isSecond && test.isKept, r.Replayed())
			}
			assert.EqualValues(t, map[bool]int{true: 1, false: 2}[test.isKept], runs.Load())
		})
	}
}

// The function of a stream finds its run, and the response is replayed.
func TestAStreamIsReplayed(t *testing.T) {
	var runs atomic.Int64
	app := newFiber(t, fiber.Config{})
	app.Post("/", func(c fiber.Ctx) error {
		ctx, n := c.Context(), runs.Add(1)
		return c.Status(http.StatusCreated).SendStreamWriter(func(w *bufio.Writer) {
			_, isKnown := core.FromContext(ctx)
			_, _ = fmt.Fprint(w, "run ", n, " ", isKnown, " ", context.Cause(ctx))
		})
	})
	url := serveFiber(t, app)
	for _, isSecond := range []bool{false, true} {
		r := adaptertest.Submit(t, url, "B")
		assert.Equal(t, http.StatusCreated, r.Status)
		assert.Equal(t, "run 1 true <nil>", r.Body)
		assert.Equal(t, isSecond, r.Replayed())
	}
}
