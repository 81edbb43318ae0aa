package idem_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/compress"
	"github.com/gofiber/fiber/v3/middleware/recover"

	idem "github.com/go-idem/idem/adapters/fiberv3"
	"github.com/go-idem/idem/core"
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
