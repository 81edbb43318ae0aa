package idem_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/fiberv3"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/internal/accesslog"
	"github.com/go-idem/idem/internal/adaptertest"
)

// The access log of docs/guide.md.
func TestAnAccessLogKnowsWhatTheEngineKnows(t *testing.T) {
	var lines bytes.Buffer
	cfg := core.Config{Store: memstore.New(), Scope: core.SingleTenant}
	withDone, logDone := accesslog.New(&cfg, slog.New(slog.NewTextHandler(&lines, nil)))
	engine, err := core.New(cfg)
	require.NoError(t, err)
	logged := make(chan string, 2)
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		ctx, done := withDone(c.Context())
		c.SetContext(ctx)
		err := c.Next()
		lines.Reset()
		logDone(done)
		logged <- lines.String()
		return err
	}, idem.Fiber(engine))
	app.Post("/", func(c fiber.Ctx) error { return c.SendStatus(201) })
	url := serveFiber(t, app)
	for _, want := range []string{"attempt=1 result=run", "attempt=0 result=replay"} {
		adaptertest.Submit(t, url, "B")
		assert.Contains(t, <-logged, want)
	}
}
