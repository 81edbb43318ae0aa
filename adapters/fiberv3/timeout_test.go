package idem_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/timeout"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/fiberv3"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest"
)

// ATT-01: a timeout outside responds in the memory of the handler's response. A 408 frees a key, but not the key of a handler
// that has worked.
func TestATimeoutOutsideLeavesTheOutcomeUnknown(t *testing.T) {
	var runs atomic.Int64
	responded, leave := make(chan struct{}), make(chan struct{})
	app := fiber.New()
	app.Use(timeout.New(func(c fiber.Ctx) error { return c.Next() }, timeout.Config{
		Timeout: 100 * time.Millisecond,
		OnTimeout: func(c fiber.Ctx) error {
			<-responded
			return c.Status(http.StatusRequestTimeout).SendString("late")
		},
	}))
	app.Use(idem.Fiber(withLease(t, 500*time.Millisecond)))
	app.Post("/", func(c fiber.Ctx) error {
		if runs.Add(1) > 1 {
			run, _ := core.FromContext(c.Context())
			return c.JSON(run.Takeover)
		}
		_ = c.Status(http.StatusCreated).SendString("paid")
		close(responded)
		<-c.Context().Done() // The deadline counts.
		<-leave
		return nil
	})
	url := serveFiber(t, app)
	first := adaptertest.Submit(t, url, "B")
	assert.Equal(t, http.StatusRequestTimeout, first.Status)
	assert.Equal(t, "late", first.Body)
	assert.Equal(t, http.StatusConflict, adaptertest.Submit(t, url, "B").Status)
	close(leave)
	var second adaptertest.Reply
	require.Eventually(t, func() bool {
		second = adaptertest.Submit(t, url, "B")
		return second.Status != http.StatusConflict
	}, 5*time.Second, 10*time.Millisecond)
	assert.Equal(t, "true", second.Body, "a takeover")
	assert.False(t, second.Replayed())
}

// timedOut is an app under a timeout outside, which waits for ready and responds in the memory of the handler's response. Then it
// closes responded.
func timedOut(e *core.Engine, ready, responded chan struct{}, h fiber.Handler) *fiber.App {
	app := fiber.New()
	var once sync.Once
	app.Use(func(c fiber.Ctx) error {
		defer once.Do(func() { close(responded) })
		return c.Next()
	})
	app.Use(timeout.New(func(c fiber.Ctx) error { return c.Next() }, timeout.Config{
		Timeout: 100 * time.Millisecond,
		OnTimeout: func(c fiber.Ctx) error {
			<-ready
			return c.Status(http.StatusRequestTimeout).SendString("late")
		},
	}))
	app.Use(idem.Fiber(e))
	app.Post("/", h)
	return app
}

// late is the source of a stream that is read while a timeout outside responds.
type late struct{ ready, responded chan struct{} }

// Read implements io.Reader.
func (l late) Read(p []byte) (int, error) {
	close(l.ready)
	<-l.responded
	return copy(p, "paid"), io.EOF
}

// ATT-01: the timeout may also be over while the engine reads the stream of the handler.
func TestATimeoutOutsideLeavesTheOutcomeOfAStreamUnknown(t *testing.T) {
	ready, responded := make(chan struct{}), make(chan struct{})
	unknown := make(chan struct{})
	engine := adaptertest.NewEngine(t).With(func(c *core.Config) {
		c.Hooks.Unknown = func(context.Context, core.Event) { close(unknown) }
		c.Hooks.Kept = func(context.Context, core.Event) { assert.Fail(t, "kept") }
	})
	url := serveFiber(t, timedOut(engine, ready, responded, func(c fiber.Ctx) error { return c.SendStream(late{ready, responded}, 4) }))
	assert.Equal(t, "late", adaptertest.Submit(t, url, "B").Body)
	select {
	case <-unknown:
	case <-time.After(5 * time.Second):
		assert.Fail(t, "the outcome is not unknown")
	}
}

// ATT-01: the timeout may also be over when the engine has the response. What is stored is the handler's, and not what the
// timeout has written into its memory.
func TestATimeoutOutsideDoesNotChangeAResponseThatTheEngineHas(t *testing.T) {
	ready, responded := make(chan struct{}), make(chan struct{})
	kept := make(chan struct{})
	engine := adaptertest.NewEngine(t).With(func(c *core.Config) {
		c.Keep.Policy = func(*core.Response) core.Disposition {
			close(ready)
			<-responded
			return core.Keep
		}
		c.Hooks.Kept = func(context.Context, core.Event) { close(kept) }
	})
	url := serveFiber(t, timedOut(engine, ready, responded, func(c fiber.Ctx) error {
		return c.Status(http.StatusCreated).SendString("paid")
	}))
	assert.Equal(t, "late", adaptertest.Submit(t, url, "B").Body)
	select {
	case <-kept:
	case <-time.After(5 * time.Second):
		require.Fail(t, "the response is not kept")
	}
	second := adaptertest.Submit(t, url, "B")
	assert.True(t, second.Replayed())
	assert.Equal(t, http.StatusCreated, second.Status)
	assert.Equal(t, "paid", second.Body)
}
