package adapters_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	idemecho "github.com/go-idem/idem/adapters/echo"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest"
)

// echoFramework is the adapter for Echo v4.
var echoFramework = adaptertest.Framework{
	Name: "echo", Start: startEcho, Mount: mountEcho, Nest: nestEcho, CORS: corsEcho, Chain: chainEcho, Deadline: deadlineEcho, Bridge: bridgeEcho,
	Routers: echoRouters, Routed: echoRouted,
}

func startEcho(e *core.Engine, h adaptertest.Handler, o adaptertest.Setup) func(context.Context) error {
	app := echo.New()
	app.HideBanner, app.HidePort = true, true
	app.HTTPErrorHandler = func(err error, c echo.Context) {
		if c.Response().Committed {
			return
		}
		status := http.StatusTeapot
		if recovered := (*adaptertest.Recovered)(nil); errors.As(err, &recovered) {
			status = http.StatusInternalServerError
		}
		_ = c.String(status, err.Error())
	}
	app.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{
		DisablePrintStack: true,
		LogErrorFunc:      func(echo.Context, error, []byte) error { return &adaptertest.Recovered{} },
	}))
	app.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			for name, value := range o.Outer {
				c.Response().Header().Set(name, value)
			}
			return next(c)
		}
	})
	if !o.Bare {
		var opts []idemecho.Option
		if o.Scope != "" {
			opts = append(opts, idemecho.Scope(func(c echo.Context) string { return c.Request().Header.Get(o.Scope) }))
		}
		if o.Skip != "" {
			opts = append(opts, idemecho.Skip(func(c echo.Context) bool { return c.Request().Header.Get(o.Skip) != "" }))
		}
		app.GET("/status", idemecho.Status(e, opts...))
		app.Use(idemecho.Echo(e, opts...))
	}
	app.Any("/*", func(c echo.Context) error {
		r := c.Request()
		body, _ := io.ReadAll(r.Body)
		a := h(adaptertest.Request{
			Ctx: r.Context(), Method: r.Method, Path: r.URL.Path, Body: string(body),
			Length: r.ContentLength, Header: r.Header.Get, Own: r.Context(),
		})
		if a.Err != nil {
			return a.Err
		}
		if a.Status != 0 && a.Body == "" && a.Chunks == nil && a.Panics == nil && !a.Hijack && a.Header == nil {
			return c.NoContent(a.Status)
		}
		adaptertest.WriteHTTP(c.Response(), a)
		return nil
	})
	return adaptertest.Serve(o.Listen, app)
}

func mountEcho(e *core.Engine, h http.HandlerFunc) http.Handler {
	app := echo.New()
	if e != nil {
		app.Use(idemecho.Echo(e))
	}
	app.Any("/*", func(c echo.Context) error { h(c.Response(), c.Request()); return nil })
	return app
}

func nestEcho(t *testing.T, outer, inner *core.Engine, run func(io.Reader)) string {
	app := echo.New()
	app.Use(idemecho.Echo(outer))
	app.POST("/", func(c echo.Context) error { run(c.Request().Body); return c.String(201, "made") }, idemecho.Echo(inner))
	return adaptertest.NewServer(t, app)
}

func corsEcho(t *testing.T, e *core.Engine, exposed string) string {
	app := echo.New()
	app.Use(middleware.CORSWithConfig(middleware.CORSConfig{ExposeHeaders: []string{exposed}}), idemecho.Echo(e))
	app.POST("/", func(c echo.Context) error { return c.String(http.StatusCreated, adaptertest.Text) })
	return adaptertest.NewServer(t, app)
}

func chainEcho(t *testing.T, e *core.Engine, outside bool) string {
	app := echo.New()
	chain := []echo.MiddlewareFunc{middleware.RequestID(), middleware.CORS(), middleware.Gzip()}
	if outside {
		app.Use(append(chain, idemecho.Echo(e))...)
	} else {
		app.Use(append([]echo.MiddlewareFunc{idemecho.Echo(e)}, chain...)...)
	}
	app.POST("/", func(c echo.Context) error { return c.String(http.StatusCreated, adaptertest.Text) })
	return adaptertest.NewServer(t, app)
}

func deadlineEcho(t *testing.T, e *core.Engine, h func(context.Context) error) string {
	app := echo.New()
	app.Use(idemecho.Echo(e), middleware.ContextTimeout(20*time.Millisecond))
	app.POST("/", func(c echo.Context) error { return h(c.Request().Context()) })
	return adaptertest.NewServer(t, app)
}

func bridgeEcho(t *testing.T, middleware func(http.Handler) http.Handler, run func()) string {
	app := echo.New()
	app.Use(echo.WrapMiddleware(middleware))
	app.POST("/", func(echo.Context) error { run(); return errors.New("declined") })
	return adaptertest.NewServer(t, app)
}

var echoRouters = map[string]func(*testing.T, *core.Engine) (url string){
	"echo": func(t *testing.T, e *core.Engine) string {
		app := echo.New()
		if e != nil {
			app.Use(idemecho.Echo(e))
		}
		echoRoutes(app.POST, app.GET)
		return adaptertest.NewServer(t, app)
	},
	"echo, a group": func(t *testing.T, e *core.Engine) string {
		app := echo.New()
		group := app.Group("")
		if e != nil {
			group.Use(idemecho.Echo(e))
		} else {
			group.Use(func(next echo.HandlerFunc) echo.HandlerFunc { return next }) // any makes a 404 of a 405
		}
		echoRoutes(group.POST, group.GET)
		return adaptertest.NewServer(t, app)
	},
}

type echoMethod = func(string, echo.HandlerFunc, ...echo.MiddlewareFunc) *echo.Route

func echoRoutes(post, get echoMethod) {
	post("/orders", func(c echo.Context) error { return c.NoContent(201) })
	post("/missing", func(echo.Context) error { return echo.ErrNotFound })
	post("/forbidden", func(echo.Context) error { return echo.ErrMethodNotAllowed })
	get("/read-only", func(echo.Context) error { return nil })
}

var echoRouted = []adaptertest.Routed{
	{Name: "echo, the whole router", Service: func(e *core.Engine) func(*http.Request) *http.Response {
		r := echo.New()
		r.Use(idemecho.Echo(e))
		r.Group("/shop").POST("/orders/:id", func(c echo.Context) error { return c.NoContent(201) })
		return adaptertest.Recorded(r)
	}, Run: "/shop/orders/:id", Replay: "/shop/orders/:id", Unknown: ""},
	{Name: "echo, a group", Service: func(e *core.Engine) func(*http.Request) *http.Response {
		r := echo.New()
		r.Group("/shop", idemecho.Echo(e)).POST("/orders/:id", func(c echo.Context) error { return c.NoContent(201) })
		return adaptertest.Recorded(r)
	}, Run: "/shop/orders/:id", Replay: "/shop/orders/:id", Unknown: "/shop/*"},
}
