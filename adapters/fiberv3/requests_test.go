package idem_test

import (
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	idem "github.com/go-idem/idem/adapters/fiberv3"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest/fasthttptest"
)

func TestRequests(t *testing.T) {
	fasthttptest.RunRequests(t, func(t *testing.T, e *core.Engine, h func(*fasthttp.RequestCtx), s fasthttptest.Settings) string {
		app := fiber.New(fiber.Config{
			DisableHeaderNormalizing: s.KeepsCase, StreamRequestBody: s.StreamsBodies,
			DisablePreParseMultipartForm: s.LeavesForms,
		})
		app.Use(func(c fiber.Ctx) error {
			err := c.Next()
			if s.After != nil {
				s.After(c.RequestCtx())
			}
			return err
		}, idem.Fiber(e))
		app.All("/*", func(c fiber.Ctx) error { h(c.RequestCtx()); return nil })
		return serveFiber(t, app)
	})
}
