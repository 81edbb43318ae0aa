package idem_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/gofiber/fiber/v3/middleware/compress"
	fibercors "github.com/gofiber/fiber/v3/middleware/cors"
	"github.com/gofiber/fiber/v3/middleware/etag"
	fiberid "github.com/gofiber/fiber/v3/middleware/requestid"

	idem "github.com/go-idem/idem/adapters/fiberv3"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest"
)

// framework is the adapter.
var framework = adaptertest.Framework{
	Name: "fiber v3", Start: startFiber, Fasthttp: true, Nest: nestFiber, CORS: corsFiber, Chain: chainFiber, Bridge: bridgeFiber,
	Routers: fiberRouters, Routed: fiberRouted,
}

// quiet is the configuration of all listeners.
var quiet = fiber.ListenConfig{DisableStartupMessage: true}

func startFiber(e *core.Engine, h adaptertest.Handler, o adaptertest.Setup) func(context.Context) error {
	app := fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
		if recovered := (*adaptertest.Recovered)(nil); errors.As(err, &recovered) {
			return c.Status(http.StatusInternalServerError).SendString(err.Error())
		}
		if refused := (*fiber.Error)(nil); errors.As(err, &refused) { // by fasthttp, as a byte that no field may have
			return c.SendStatus(refused.Code)
		}
		return c.Status(http.StatusTeapot).SendString(err.Error())
	}})
	app.Use(func(c fiber.Ctx) (err error) {
		defer func() {
			if recover() != nil {
				err = &adaptertest.Recovered{}
			}
		}()
		for name, value := range o.Outer {
			c.Set(name, value)
		}
		return c.Next()
	})
	if !o.Bare {
		var opts []idem.Option
		if o.Scope != "" {
			opts = append(opts, idem.Scope(func(c fiber.Ctx) string { return c.Get(o.Scope) }))
		}
		if o.Skip != "" {
			opts = append(opts, idem.Skip(func(c fiber.Ctx) bool { return c.Get(o.Skip) != "" }))
		}
		app.Get("/status", idem.Status(e, opts...))
		app.Use("/*", idem.Fiber(e, opts...))
	}
	app.All("/*", func(c fiber.Ctx) error {
		length := int64(c.Request().Header.ContentLength())
		a := h(adaptertest.Request{
			Ctx: c.Context(), Method: c.Method(), Path: c.Path(), Body: string(c.Body()),
			Length: length, Header: func(name string) string { return c.Get(name) }, Own: c,
		})
		return writeFiber(c, a)
	})
	go func() { _ = app.Listener(o.Listen, quiet) }()
	return app.ShutdownWithContext
}

// writeFiber does what an answer says on a Fiber context.
func writeFiber(c fiber.Ctx, a adaptertest.Response) error {
	for name, values := range a.Header {
		for _, v := range values {
			c.Response().Header.Add(name, v)
		}
	}
	switch {
	case a.Panics != nil:
		panic(a.Panics)
	case a.Hijack:
		c.RequestCtx().HijackSetNoResponse(true)
		c.RequestCtx().Hijack(func(conn net.Conn) { adaptertest.AnswerRaw(conn, bufio.NewWriter(conn)) })
	case a.Err != nil:
		return a.Err
	case a.Chunks != nil:
		c.Status(a.Status).RequestCtx().SetBodyStreamWriter(func(w *bufio.Writer) {
			for i, chunk := range a.Chunks {
				if i > 0 && a.Before != nil {
					a.Before()
				}
				_, _ = w.WriteString(chunk)
				_ = w.Flush()
			}
		})
	case a.Status != 0:
		c.Status(a.Status)
		if a.Body != "" {
			return c.SendString(a.Body)
		}
	}
	return nil
}

func nestFiber(t *testing.T, outer, inner *core.Engine, run func(io.Reader)) string {
	app := fiber.New(fiber.Config{})
	app.Use(idem.Fiber(outer))
	app.Post("/", idem.Fiber(inner), func(c fiber.Ctx) error { run(bytes.NewReader(c.Body())); return c.Status(201).SendString("made") })
	return serveFiber(t, app)
}

func corsFiber(t *testing.T, e *core.Engine, exposed string) string {
	app := fiber.New(fiber.Config{})
	app.Use(fibercors.New(fibercors.Config{ExposeHeaders: []string{exposed}}), idem.Fiber(e))
	app.Post("/", func(c fiber.Ctx) error { return c.Status(http.StatusCreated).SendString(adaptertest.Text) })
	return serveFiber(t, app)
}

func chainFiber(t *testing.T, e *core.Engine, outside bool) string {
	app := fiber.New(fiber.Config{})
	if !outside {
		app.Use(idem.Fiber(e))
	}
	app.Use(fiberid.New(), fibercors.New(), compress.New(), etag.New())
	if outside {
		app.Use(idem.Fiber(e))
	}
	app.Post("/", func(c fiber.Ctx) error { return c.Status(http.StatusCreated).SendString(adaptertest.Text) })
	return serveFiber(t, app)
}

func bridgeFiber(t *testing.T, middleware func(http.Handler) http.Handler, run func()) string {
	app := fiber.New()
	app.Use(adaptor.HTTPMiddleware(middleware))
	app.Post("/", func(fiber.Ctx) error { run(); return errors.New("declined") })
	return serveFiber(t, app)
}

var fiberRouters = map[string]func(*testing.T, *core.Engine) (url string){
	"fiber": func(t *testing.T, e *core.Engine) string {
		app := fiber.New(fiber.Config{})
		if e != nil {
			app.Use(idem.Fiber(e))
		}
		app.Post("/orders", func(c fiber.Ctx) error { return c.SendStatus(201) })
		app.Post("/missing", func(fiber.Ctx) error { return fiber.ErrNotFound })
		app.Post("/forbidden", func(fiber.Ctx) error { return fiber.ErrMethodNotAllowed })
		app.Get("/read-only", func(fiber.Ctx) error { return nil })
		return serveFiber(t, app)
	},
}

var fiberRouted = []adaptertest.Routed{
	{Name: "fiber, the whole app", Service: func(e *core.Engine) func(*http.Request) *http.Response {
		app := fiber.New()
		app.Use(idem.Fiber(e))
		app.Group("/shop").Post("/orders/:id", func(c fiber.Ctx) error { return c.SendStatus(201) })
		return tested(app)
	}, Run: "/shop/orders/:id", Replay: "", Unknown: ""},
	{Name: "fiber, a mounted app", Service: func(e *core.Engine) func(*http.Request) *http.Response {
		app, shop := fiber.New(), fiber.New()
		shop.Post("/orders/:id", func(c fiber.Ctx) error { return c.SendStatus(201) })
		app.Use(idem.Fiber(e))
		app.Use("/shop", shop)
		return tested(app)
	}, Run: "/shop/orders/:id", Replay: "", Unknown: ""},
}

// tested serves requests by a Fiber app.
func tested(app *fiber.App) func(*http.Request) *http.Response {
	return func(r *http.Request) *http.Response {
		response, err := app.Test(r)
		if err != nil {
			panic(err)
		}
		return response
	}
}

func serveFiber(t *testing.T, app *fiber.App) string {
	l := adaptertest.Listen(t)
	go func() { _ = app.Listener(l, quiet) }()
	t.Cleanup(func() { _ = app.ShutdownWithTimeout(5 * time.Second) })
	return "http://" + l.Addr().String()
}

func newFiber(t *testing.T, cfg fiber.Config, before ...fiber.Handler) *fiber.App {
	app := fiber.New(cfg)
	for _, m := range before {
		app.Use(m)
	}
	app.Use(idem.Fiber(adaptertest.NewEngine(t)))
	return app
}
