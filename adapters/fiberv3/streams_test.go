package idem_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/gofiber/fiber/v3/middleware/compress"
	"github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	idem "github.com/go-idem/idem/adapters/fiberv3"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest"
	"github.com/go-idem/idem/internal/adaptertest/fasthttptest"
)

func TestStreams(t *testing.T) {
	fasthttptest.RunStreams(t, func(t *testing.T, e *core.Engine, h fasthttptest.Handler, o fasthttptest.Outside) string {
		app := fiber.New()
		app.Use(recover.New())
		if o.Compress {
			app.Use(compress.New())
		}
		app.Use(func(c fiber.Ctx) error {
			if o.Tenants {
				tenant := strings.Clone(c.Get("X-Tenant"))
				c.Locals(fasthttptest.Tenant, tenant)
				c.SetContext(context.WithValue(c, fasthttptest.TenantKey{}, tenant))
			}
			err := c.Next()
			if o.TimesOut != nil && o.TimesOut() {
				c.RequestCtx().TimeoutErrorWithCode("slow", http.StatusServiceUnavailable)
			}
			return err
		}, idem.Fiber(e))
		if o.Inner != nil {
			app.Use(idem.Fiber(o.Inner))
		}
		app.Post("/*", func(c fiber.Ctx) error { return h(c.Context(), c.RequestCtx()) })
		return serveFiber(t, app)
	})
}

// CON-12: net/http serves the app, and what converts its responses reads a stream to its end and does not close it.
func TestAStreamThatIsReadAndNotClosedEndsItsRun(t *testing.T) {
	for name, test := range map[string]struct {
		source io.Reader
		isKept bool
	}{
		"a whole one":     {strings.NewReader("paid"), true},
		"one that breaks": {io.MultiReader(strings.NewReader("paid"), iotest.ErrReader(errors.New("no database"))), false},
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			ended := make(chan struct{}, 2)
			app := fiber.New()
			app.Use(idem.Fiber(adaptertest.NewEngine(t).With(func(c *core.Config) {
				c.Hooks.Done = func(context.Context, core.Event) { ended <- struct{}{} }
			})))
			app.Post("/", func(c fiber.Ctx) error {
				runs.Add(1)
				return c.SendStream(test.source)
			})
			url := adaptertest.NewServer(t, adaptor.FiberApp(app))
			assert.Equal(t, "paid", adaptertest.Submit(t, url, "B").Body)
			select {
			case <-ended:
			case <-time.After(5 * time.Second):
				require.Fail(t, "the run has not ended")
			}
			second := adaptertest.Submit(t, url, "B")
			assert.Equal(t, http.StatusOK, second.Status, second.Body)
			assert.Equal(t, test.isKept, second.Replayed())
			assert.EqualValues(t, map[bool]int{true: 1, false: 2}[test.isKept], runs.Load())
		})
	}
}

// CON-12: net/http serves the app, and copies a stream that is too long to be stored, and does not close it.
func TestALongStreamThatIsCopiedAndNotClosedEndsItsRun(t *testing.T) {
	ended := make(chan struct{}, 1)
	app := fiber.New()
	app.Use(idem.Fiber(adaptertest.NewEngine(t).With(func(c *core.Config) {
		c.Keep.MaxBody = 2
		c.Hooks.Done = func(context.Context, core.Event) { ended <- struct{}{} }
	})))
	app.Post("/", func(c fiber.Ctx) error { return c.SendStream(strings.NewReader("paid"), 4) })
	url := adaptertest.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c fasthttp.RequestCtx
		c.Request.Header.SetMethod(r.Method)
		c.Request.Header.Set("Idempotency-Key", r.Header.Get("Idempotency-Key"))
		app.Handler()(&c)
		_, _ = io.Copy(w, c.Response.BodyStream())
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			assert.Fail(t, "the run has not ended")
		}
	}))
	assert.Equal(t, "paid", adaptertest.Submit(t, url, "B").Body)
}

// CON-12: c.End sends a stream past the engine, which never sees its bytes.
func TestAStreamThatEndSendsIsReplayedWithoutItsBody(t *testing.T) {
	for name, size := range map[string][]int{"of a known length": {4}, "of an unknown length": nil} {
		t.Run(name, func(t *testing.T) {
			app := newFiber(t, fiber.Config{})
			app.Post("/", func(c fiber.Ctx) error {
				if err := c.Status(http.StatusCreated).SendStream(strings.NewReader("paid"), size...); err != nil {
					return err
				}
				return c.End()
			})
			url := serveFiber(t, app)
			assert.Equal(t, "paid", adaptertest.Submit(t, url, "B").Body)
			var replay adaptertest.Reply
			require.Eventually(t, func() bool {
				replay = adaptertest.Submit(t, url, "B")
				return replay.Replayed() // c.End has sent the response before the outcome was stored.
			}, 5*time.Second, 10*time.Millisecond)
			assert.Equal(t, http.StatusCreated, replay.Status)
			assert.Equal(t, "omitted", replay.Header.Get("Idempotent-Body"))
		})
	}
}
