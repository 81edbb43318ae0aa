package bare

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	idem "github.com/go-idem/idem/adapters/echo"
	"github.com/go-idem/idem/core"
)

// echoHandler is a handler of Echo under test.
type echoHandler struct {
	name string
	run  echo.HandlerFunc
}

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
	"timeout":         {middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: patience})},
	"context timeout": {middleware.ContextTimeout(patience)},
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
	var all []echoHandler
	for _, h := range handlers() {
		all = append(all, echoHandler{h.name, func(c echo.Context) error { h.run(c.Response(), c.Request()); return nil }})
	}
	all = append(all, echoHandlers()...)
	f := framework{name: "echo", chains: sortedKeys(echoChains)}
	for _, h := range all {
		f.handlers = append(f.handlers, h.name)
	}
	f.start = func(t *testing.T, chain string, where place, e *core.Engine, l net.Listener) {
		app := echo.New()
		app.Logger.SetOutput(io.Discard)
		if where == outside {
			app.Use(idem.Echo(e))
		}
		app.Use(echoChains[chain]...)
		if where == inside {
			app.Use(idem.Echo(e))
		}
		for i, h := range all {
			for _, method := range []string{http.MethodPost, http.MethodHead, http.MethodOptions} {
				app.Add(method, "/"+strconv.Itoa(i), h.run)
			}
		}
		serve(t, l, app)
	}
	f.compare(t)
}

// echoHandlers use the methods of echo.Context.
func echoHandlers() []echoHandler {
	value := map[string]any{"id": 1, "text": "<b>"}
	return []echoHandler{
		{"c.JSON", func(c echo.Context) error { return c.JSON(201, value) }},
		{"c.JSON twice", func(c echo.Context) error { _ = c.JSON(201, value); return c.JSON(400, value) }},
		{"c.JSON of 204", func(c echo.Context) error { return c.JSON(204, value) }},
		{"c.JSON fails", func(c echo.Context) error { return c.JSON(200, func() {}) }},
		{"c.JSON long", func(c echo.Context) error { return c.JSON(200, letters(9000)) }},
		{"c.JSONPretty", func(c echo.Context) error { return c.JSONPretty(200, value, " ") }},
		{"c.JSONP", func(c echo.Context) error { return c.JSONP(200, "f", value) }},
		{"c.JSONBlob", func(c echo.Context) error { return c.JSONBlob(200, []byte("{}")) }},
		{"c.XML", func(c echo.Context) error { return c.XML(200, xmlValue{1}) }},
		{"c.String", func(c echo.Context) error { return c.String(200, "x") }},
		{"c.HTML", func(c echo.Context) error { return c.HTML(200, html) }},
		{"c.Blob", func(c echo.Context) error { return c.Blob(200, "image/png", []byte("\x89PNG")) }},
		{"c.Stream", func(c echo.Context) error { return c.Stream(200, "text/x", strings.NewReader(letters(3000))) }},
		{"c.Stream fails", func(c echo.Context) error {
			return c.Stream(200, "text/x", io.MultiReader(strings.NewReader("abc"), failingReader{}))
		}},
		{"c.NoContent", func(c echo.Context) error { return c.NoContent(204) }},
		{"c.NoContent 200", func(c echo.Context) error { return c.NoContent(200) }},
		{"c.NoContent 103", func(c echo.Context) error { return c.NoContent(103) }},
		{"c.NoContent 103, then c.JSON", func(c echo.Context) error {
			c.Response().Header().Set("Link", "</a.css>; rel=preload")
			_ = c.NoContent(103)
			c.Response().Header().Set("X-Late", "1")
			return c.JSON(201, value)
		}},
		{"error after 103", func(c echo.Context) error { _ = c.NoContent(103); return echo.ErrConflict }},
		{"c.Redirect", func(c echo.Context) error { return c.Redirect(303, "/new") }},
		{"c.Redirect invalid", func(c echo.Context) error { return c.Redirect(200, "/new") }},
		{"c.File", func(c echo.Context) error { return c.File("testdata/file.txt") }},
		{"c.File missing", func(c echo.Context) error { return c.File("testdata/missing") }},
		{"c.Attachment", func(c echo.Context) error { return c.Attachment("testdata/file.txt", "a b.txt") }},
		{"c.Inline", func(c echo.Context) error { return c.Inline("testdata/file.txt", "a.txt") }},
		{"c.SetCookie", func(c echo.Context) error {
			c.SetCookie(&http.Cookie{Name: "a", Value: "b"})
			return c.String(200, "x")
		}},
		{"c.Error", func(c echo.Context) error { c.Error(errors.New("x")); return nil }},
		{"c.Error and return", func(c echo.Context) error { c.Error(echo.ErrConflict); return echo.ErrBadRequest }},
		{"error", func(echo.Context) error { return errors.New("x") }},
		{"error after fields", func(c echo.Context) error { c.Response().Header().Set("X-A", "1"); return errors.New("x") }},
		{"error after a response", func(c echo.Context) error { _ = c.String(201, "x"); return errors.New("x") }},
		{"HTTPError", func(echo.Context) error { return echo.NewHTTPError(409, "taken") }},
		{"HTTPError with value", func(echo.Context) error { return echo.NewHTTPError(422, value) }},
		{"ErrNotFound", func(echo.Context) error { return echo.ErrNotFound }},
		{"c.Bind fails", func(c echo.Context) error {
			c.Request().Header.Set("Content-Type", "application/json")
			return c.Bind(&struct{ A int }{})
		}},
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
		{"c.Response.Flush", func(c echo.Context) error {
			_, _ = c.Response().Write([]byte("a"))
			c.Response().Flush()
			text(c.Response(), "b")
			return nil
		}},
		{"c.Response.Status only", func(c echo.Context) error { c.Response().Status = 202; return nil }},
		{"c.Response.Writer", func(c echo.Context) error {
			c.Response().Writer.WriteHeader(202)
			text(c.Response().Writer, "x")
			return nil
		}},
	}
}

// xmlValue is a value that has a name in XML.
type xmlValue struct{ A int }

// failingReader fails at the first Read.
type failingReader struct{}

// Read implements io.Reader.
func (failingReader) Read([]byte) (int, error) { return 0, errors.New("source failed") }
