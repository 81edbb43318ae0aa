package idem_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/echov5"
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
	app := echo.New()
	app.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			ctx, done := withDone(c.Request().Context())
			c.SetRequest(c.Request().WithContext(ctx))
			err := next(c)
			lines.Reset()
			logDone(done)
			logged <- lines.String()
			return err
		}
	}, idem.Echo(engine))
	app.POST("/", func(c *echo.Context) error { return c.NoContent(201) })
	url := adaptertest.NewServer(t, app)
	for _, want := range []string{"attempt=1 result=run", "attempt=0 result=replay"} {
		adaptertest.Submit(t, url, "B")
		assert.Contains(t, <-logged, want)
	}
}
