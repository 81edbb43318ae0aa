package bare

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	idem "github.com/go-idem/idem/adapters/echo"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest/baretest"
)

// echoChains are the chains of Echo.
var echoChains = map[string][]echo.MiddlewareFunc{
	"none":       nil,
	"gzip":       {middleware.Gzip()},
	"gzip long":  {middleware.GzipWithConfig(middleware.GzipConfig{MinLength: 1000})},
	"cors":       {middleware.CORSWithConfig(middleware.CORSConfig{ExposeHeaders: []string{"X-Total"}})},
	"csrf":       {middleware.CSRF()},
	"secure":     {middleware.Secure()},
	"requestid":  {middleware.RequestIDWithConfig(middleware.RequestIDConfig{Generator: func() string { return "fixed" }})},
	"body dump":  {middleware.BodyDump(func(echo.Context, []byte, []byte) {})},
	"body limit": {middleware.BodyLimit("1K")},
	//lint:ignore SA1019 deprecated, and in use
	"timeout":         {middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: baretest.Patience})},
	"context timeout": {middleware.ContextTimeout(baretest.Patience)},
	"recover": {middleware.RecoverWithConfig(middleware.RecoverConfig{
		DisablePrintStack: true,
		LogErrorFunc:      func(_ echo.Context, err error, _ []byte) error { return err },
	})},
	//lint:ignore SA1019 deprecated, and in use
	"logger":         {middleware.LoggerWithConfig(middleware.LoggerConfig{Output: io.Discard})},
	"request logger": {middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{HandleError: true, LogStatus: true, LogValuesFunc: func(echo.Context, middleware.RequestLoggerValues) error { return nil }})},
	"rate limiter":   {middleware.RateLimiter(middleware.NewRateLimiterMemoryStore(1e6))},
	"https redirect": {middleware.HTTPSRedirect()},
	"static":         {middleware.Static("testdata")},
	"decompress":     {middleware.Decompress()},
	"before and after": {func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Response().Before(func() { c.Response().Header().Set("X-Before", "1") })
			c.Response().After(func() { c.Set("after", true) })
			return next(c)
		}
	}},
	"fields": {func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			for _, name := range []string{"X-A", "Content-Type", "Vary", "Cache-Control"} {
				c.Response().Header().Set(name, "text/outer")
			}
			return next(c)
		}
	}},
	"all": {
		middleware.RequestIDWithConfig(middleware.RequestIDConfig{Generator: func() string { return "fixed" }}),
		middleware.CORS(), middleware.Secure(), middleware.Gzip(), middleware.BodyDump(func(echo.Context, []byte, []byte) {}),
	},
}

func TestEcho(t *testing.T) {
	all := append(echoHandlers(func(c echo.Context) http.ResponseWriter { return c.Response() }), ownEchoHandlers()...)
	f := baretest.Framework{Name: "echo", Handlers: echoNames(all), Chains: sortedKeys(echoChains)}
	f.Start = func(t *testing.T, chain string, where baretest.Place, e *core.Engine, l net.Listener) {
		app := echo.New()
		app.Logger.SetOutput(io.Discard)
		if where == baretest.Outside {
			app.Use(idem.Echo(e))
		}
		app.Use(echoChains[chain]...)
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

// ownEchoHandlers use what only Echo v4 has.
func ownEchoHandlers() []echoHandler[echo.Context] {
	return []echoHandler[echo.Context]{
		{"error after 103", func(c echo.Context) error { _ = c.NoContent(103); return echo.ErrConflict }},
		{"c.Error", func(c echo.Context) error { c.Error(errors.New("x")); return nil }},
		{"c.Error and return", func(c echo.Context) error { c.Error(echo.ErrConflict); return echo.ErrBadRequest }},
		{"HTTPError", func(echo.Context) error { return echo.NewHTTPError(409, "taken") }},
		{"HTTPError with value", func(echo.Context) error { return echo.NewHTTPError(422, map[string]any{"id": 1, "text": "<b>"}) }},
		{"ErrNotFound", func(echo.Context) error { return echo.ErrNotFound }},
		{"c.Response state", func(c echo.Context) error {
			r := c.Response()
			before := r.Committed
			r.WriteHeader(201)
			_, _ = r.Write([]byte(strconv.FormatBool(before) + strconv.FormatBool(r.Committed) + strconv.Itoa(r.Status) + strconv.Itoa(int(r.Size))))
			return nil
		}},
		{"c.Response.Before", func(c echo.Context) error {
			c.Response().Before(func() { c.Response().Header().Set("X-Mine", "1") })
			return c.String(200, "x")
		}},
		{"c.Response.Status only", func(c echo.Context) error { c.Response().Status = 202; return nil }},
		{"c.Response.Writer", func(c echo.Context) error {
			c.Response().Writer.WriteHeader(202)
			text(c.Response().Writer, "x")
			return nil
		}},
	}
}
