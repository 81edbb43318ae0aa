package idem_test

import (
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
