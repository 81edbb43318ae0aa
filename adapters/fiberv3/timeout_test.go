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
	"github.com/go-idem/idem/internal/adaptertest"
)

// ATT-01: a timeout outside responds, and the key is held while the handler works. Its response is stored.
func TestATimeoutOutsideLeavesTheKeyToTheHandler(t *testing.T) {
	var runs atomic.Int64
	g := adaptertest.NewGate()
	app := fiber.New()
	app.Use(timeout.New(func(c fiber.Ctx) error { return c.Next() }, timeout.Config{Timeout: 200 * time.Millisecond}))
	app.Use(idem.Fiber(adaptertest.NewEngine(t)))
	app.Post("/", func(c fiber.Ctx) error {
		runs.Add(1)
		<-c.Context().Done() // The deadline counts.
		<-g.Leave
		return c.Status(http.StatusCreated).SendString("done")
	})
	url := serveFiber(t, app)
	assert.Equal(t, http.StatusRequestTimeout, adaptertest.Submit(t, url, "B").Status)
	for range 3 {
		assert.Equal(t, http.StatusConflict, adaptertest.Submit(t, url, "B").Status)
	}
	g.Open()
	var r adaptertest.Reply
	require.Eventually(t, func() bool { r = adaptertest.Submit(t, url, "B"); return r.Replayed() }, 5*time.Second, time.Millisecond)
	assert.Equal(t, "done", r.Body)
	assert.EqualValues(t, 1, runs.Load())
}
