package bare

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	idem "github.com/go-idem/idem/adapters/echov5"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest/baretest"
)

// echoV5Chains are the chains of Echo v5.
var echoV5Chains = map[string][]echo.MiddlewareFunc{
	"none":      nil,
	"gzip":      {middleware.Gzip()},
	"gzip long": {middleware.GzipWithConfig(middleware.GzipConfig{MinLength: 1000})},
	"cors": {middleware.CORSWithConfig(middleware.CORSConfig{
		AllowOrigins: []string{"*"}, ExposeHeaders: []string{"X-Total"},
	})},
	"csrf":            {middleware.CSRF()},
	"secure":          {middleware.Secure()},
	"requestid":       {middleware.RequestIDWithConfig(middleware.RequestIDConfig{Generator: func() string { return "fixed" }})},
	"body dump":       {middleware.BodyDump(func(*echo.Context, []byte, []byte, error) {})},
	"body limit":      {middleware.BodyLimit(1024)},
	"context timeout": {middleware.ContextTimeout(baretest.Patience)},
	"recover":         {middleware.Recover()},
	"request logger": {middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
		HandleError: true, LogStatus: true, LogResponseSize: true,
		LogValuesFunc: func(*echo.Context, middleware.RequestLoggerValues) error { return nil },
	})},
	"rate limiter":    {middleware.RateLimiter(middleware.NewRateLimiterMemoryStore(1e6))},
	"https redirect":  {middleware.HTTPSRedirect()},
	"static":          {middleware.Static("testdata")},
	"decompress":      {middleware.Decompress()},
	"method override": {middleware.MethodOverride()},
	"before and after": {func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			r, err := echo.UnwrapResponse(c.Response())
			if err != nil {
				return err
			}
			r.Before(func() { c.Response().Header().Set("X-Before", "1") })
			r.After(func() { c.Set("after", true) })
			return next(c)
		}
	}},
	"fields": {func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			for _, name := range []string{"X-A", "Content-Type", "Vary", "Cache-Control"} {
				c.Response().Header().Set(name, "text/outer")
			}
			return next(c)
		}
	}},
	"all": {
		middleware.RequestIDWithConfig(middleware.RequestIDConfig{Generator: func() string { return "fixed" }}),
		middleware.CORS("*"), middleware.Secure(), middleware.Gzip(),
		middleware.BodyDump(func(*echo.Context, []byte, []byte, error) {}),
	},
}

func TestEchoV5(t *testing.T) {
	all := append(echoHandlers((*echo.Context).Response), ownEchoV5Handlers()...)
	f := baretest.Framework{Name: "echov5", Handlers: echoNames(all), Chains: sortedKeys(echoV5Chains)}
	f.Start = func(t *testing.T, chain string, where baretest.Place, e *core.Engine, l net.Listener) {
		app := echo.New()
		app.Logger = slog.New(slog.DiscardHandler)
		if where == baretest.Outside {
			app.Use(idem.Echo(e))
		}
		app.Use(echoV5Chains[chain]...)
		if where == baretest.Inside {
			app.Use(idem.Echo(e))
		}
		for i, h := range all {
			for _, method := range []string{http.MethodPost, http.MethodHead, http.MethodOptions} {
				app.Add(method, "/"+strconv.Itoa(i), h.run)
			}
		}
		serve(t, l, app)
	}
	f.Compare(t)
}

// responseOf returns the echo.Response of c.
func responseOf(c *echo.Context) *echo.Response {
	r, err := echo.UnwrapResponse(c.Response())
	if err != nil {
		panic(err)
	}
	return r
}

// ownEchoV5Handlers use what only Echo v5 has.
func ownEchoV5Handlers() []echoHandler[*echo.Context] {
	handle := func(c *echo.Context, err error) { c.Echo().HTTPErrorHandler(c, err) }
	return []echoHandler[*echo.Context]{
		{"error after 103", func(c *echo.Context) error { _ = c.NoContent(103); return echo.ErrForbidden }},
		{"HTTPErrorHandler", func(c *echo.Context) error { handle(c, errors.New("x")); return nil }},
		{"HTTPErrorHandler and return", func(c *echo.Context) error { handle(c, echo.ErrForbidden); return echo.ErrBadRequest }},
		{"HTTPError", func(*echo.Context) error { return echo.NewHTTPError(409, "taken") }},
		{"HTTPError without message", func(*echo.Context) error { return echo.NewHTTPError(422, "") }},
		{"HTTPError with cause", func(*echo.Context) error { return echo.NewHTTPError(422, "taken").Wrap(io.ErrUnexpectedEOF) }},
		{"ErrNotFound", func(*echo.Context) error { return echo.ErrNotFound }},
		{"c.FileFS", func(c *echo.Context) error { return c.FileFS("page.html", files) }},
		{"UnwrapResponse state", func(c *echo.Context) error {
			r := responseOf(c)
			before := r.Committed
			r.WriteHeader(201)
			text(r, fmt.Sprint(before, r.Committed, r.Status, r.Size))
			return nil
		}},
		{"UnwrapResponse before", func(c *echo.Context) error {
			responseOf(c).Before(func() { c.Response().Header().Set("X-Mine", "1") })
			return c.String(200, "x")
		}},
		{"UnwrapResponse status only", func(c *echo.Context) error { responseOf(c).Status = 202; return nil }},
		{"UnwrapResponse inner writer", func(c *echo.Context) error {
			responseOf(c).ResponseWriter.WriteHeader(202)
			text(responseOf(c).ResponseWriter, "x")
			return nil
		}},
		{"ResolveResponseStatus", func(c *echo.Context) error {
			_ = c.String(201, "x")
			_, status := echo.ResolveResponseStatus(c.Response(), nil)
			return c.String(200, strconv.Itoa(status))
		}},
		{"SetResponse", func(c *echo.Context) error {
			outer := c.Response()
			c.SetResponse(echo.NewResponse(outer, c.Logger()))
			defer c.SetResponse(outer)
			return c.JSON(201, "x")
		}},
	}
}
