package adapters_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	idemecho "github.com/go-idem/idem/adapters/echo"
	idemfiber "github.com/go-idem/idem/adapters/fiber"
	idemgin "github.com/go-idem/idem/adapters/gin"
	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
)

// request is what a handler under test sees, whatever the framework.
type request struct {
	ctx    context.Context
	method string
	path   string
	body   string
	length int64
	header func(string) string
	own    context.Context // the framework's, where its context is one
}

// answer is what a handler under test does. Each framework does it in its own way.
type answer struct {
	status int // 0: nothing is written at all
	header http.Header
	body   string
	chunks []string // written one by one, flushed after each
	err    error    // returned to the framework, which turns it into the answer
	panics any
	hijack bool   // answers on the raw connection
	before func() // called between the chunks
}

type handler func(request) answer

// setup is what surrounds the handler.
type setup struct {
	bare   bool              // without the engine
	outer  map[string]string // header lines set by a middleware outside
	scope  string            // name of the header that the adapter's Scope option reads
	skip   string            // name of the header that the adapter's Skip option looks for
	listen net.Listener
}

// framework starts a server in which every route leads to the handler, and returns what shuts it down gracefully.
type framework struct {
	name  string
	start func(engine *core.Engine, h handler, o setup) (shutdown func(context.Context) error)
}

// frameworks is all that a new adapter adds a line to.
var frameworks = []framework{
	{"http", startHTTP},
	{"gin", startGin},
	{"echo", startEcho},
	{"fiber", startFiber},
	{"proxy", startProxy},
}

func listen(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	return l
}

// serve runs a net/http server as every real one should be run: with its panics recovered outside the engine.
func serve(l net.Listener, h http.Handler) func(context.Context) error {
	server := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(l) }()
	return server.Shutdown
}

func startHTTP(e *core.Engine, h handler, o setup) func(context.Context) error {
	var next http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		a := h(request{r.Context(), r.Method, r.URL.Path, string(body), r.ContentLength, r.Header.Get, r.Context()})
		writeHTTP(w, a)
	})
	if !o.bare {
		var opts []idemhttp.Option
		if o.scope != "" {
			opts = append(opts, idemhttp.Scope(func(r *http.Request) string { return r.Header.Get(o.scope) }))
		}
		if o.skip != "" {
			opts = append(opts, idemhttp.Skip(func(r *http.Request) bool { return r.Header.Get(o.skip) != "" }))
		}
		next = besideStatus(idemhttp.HTTP(e, opts...)(next), idemhttp.Status(e, opts...))
	}
	return serveAround(next, o)
}

// besideStatus is a handler with the status of keys at GET /status.
func besideStatus(guarded, status http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/status" {
			status.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// serveAround serves next behind the middleware of a setup and one that recovers panics.
func serveAround(next http.Handler, o setup) func(context.Context) error {
	return serve(o.listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range o.outer {
			w.Header().Set(name, value)
		}
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				http.Error(w, "recovered", http.StatusInternalServerError)
			} else if p != nil {
				panic(p)
			}
		}()
		next.ServeHTTP(w, r)
	}))
}

// writeHTTP does what an answer says on a plain writer.
func writeHTTP(w http.ResponseWriter, a answer) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	switch {
	case a.panics != nil:
		panic(a.panics)
	case a.hijack:
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		answerRaw(conn, rw.Writer)
	case a.err != nil:
		http.Error(w, a.err.Error(), http.StatusTeapot)
	case a.status != 0:
		w.WriteHeader(a.status)
		if a.body != "" {
			_, _ = io.WriteString(w, a.body)
		}
		for i, chunk := range a.chunks {
			if i > 0 && a.before != nil {
				a.before()
			}
			_, _ = io.WriteString(w, chunk)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// answerRaw speaks on a connection that was taken over.
func answerRaw(conn net.Conn, w *bufio.Writer) {
	_, _ = w.WriteString("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nraw")
	_ = w.Flush()
	_ = conn.Close()
}

func startGin(e *core.Engine, h handler, o setup) func(context.Context) error {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.String(500, "recovered") }))
	router.Use(func(c *gin.Context) {
		for name, value := range o.outer {
			c.Header(name, value)
		}
		c.Next()
		if len(c.Errors) > 0 && !c.Writer.Written() { // as error middleware does
			c.String(http.StatusTeapot, c.Errors.Last().Error())
		}
	})
	if !o.bare {
		var opts []idemgin.Option
		if o.scope != "" {
			opts = append(opts, idemgin.Scope(func(c *gin.Context) string { return c.GetHeader(o.scope) }))
		}
		if o.skip != "" {
			opts = append(opts, idemgin.Skip(func(c *gin.Context) bool { return c.GetHeader(o.skip) != "" }))
		}
		status := idemgin.Status(e, opts...)
		router.Use(func(c *gin.Context) {
			if c.Request.Method == http.MethodGet && c.Request.URL.Path == "/status" {
				status(c)
				c.Abort()
			}
		}, idemgin.Gin(e, opts...))
	}
	router.Any("/*path", func(c *gin.Context) {
		body, _ := c.GetRawData()
		r := c.Request
		a := h(request{r.Context(), r.Method, r.URL.Path, string(body), r.ContentLength, c.GetHeader, c})
		switch {
		case a.err != nil:
			_ = c.Error(a.err)
		case a.status != 0 && a.chunks == nil && a.panics == nil && !a.hijack:
			for name, values := range a.header {
				c.Writer.Header()[name] = values
			}
			c.Status(a.status)
			if a.body != "" {
				_, _ = c.Writer.WriteString(a.body)
			}
		default:
			writeHTTP(c.Writer, a)
		}
	})
	return serve(o.listen, router)
}

func startEcho(e *core.Engine, h handler, o setup) func(context.Context) error {
	app := echo.New()
	app.HideBanner, app.HidePort = true, true
	app.HTTPErrorHandler = func(err error, c echo.Context) {
		if c.Response().Committed {
			return
		}
		status := http.StatusTeapot
		if recovered := (*recovered)(nil); errors.As(err, &recovered) {
			status = http.StatusInternalServerError
		}
		_ = c.String(status, err.Error())
	}
	app.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{
		DisablePrintStack: true,
		LogErrorFunc:      func(echo.Context, error, []byte) error { return &recovered{} },
	}))
	app.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			for name, value := range o.outer {
				c.Response().Header().Set(name, value)
			}
			return next(c)
		}
	})
	if !o.bare {
		var opts []idemecho.Option
		if o.scope != "" {
			opts = append(opts, idemecho.Scope(func(c echo.Context) string { return c.Request().Header.Get(o.scope) }))
		}
		if o.skip != "" {
			opts = append(opts, idemecho.Skip(func(c echo.Context) bool { return c.Request().Header.Get(o.skip) != "" }))
		}
		app.GET("/status", idemecho.Status(e, opts...))
		app.Use(idemecho.Echo(e, opts...))
	}
	app.Any("/*", func(c echo.Context) error {
		r := c.Request()
		body, _ := io.ReadAll(r.Body)
		a := h(request{r.Context(), r.Method, r.URL.Path, string(body), r.ContentLength, r.Header.Get, r.Context()})
		if a.err != nil {
			return a.err
		}
		if a.status != 0 && a.body == "" && a.chunks == nil && a.panics == nil && !a.hijack && a.header == nil {
			return c.NoContent(a.status)
		}
		writeHTTP(c.Response(), a)
		return nil
	})
	return serve(o.listen, app)
}

type recovered struct{}

func (*recovered) Error() string { return "recovered" }

func startFiber(e *core.Engine, h handler, o setup) func(context.Context) error {
	app := fiber.New(fiber.Config{DisableStartupMessage: true, ErrorHandler: func(c *fiber.Ctx, err error) error {
		if recovered := (*recovered)(nil); errors.As(err, &recovered) {
			return c.Status(http.StatusInternalServerError).SendString(err.Error())
		}
		return c.Status(http.StatusTeapot).SendString(err.Error())
	}})
	app.Use(func(c *fiber.Ctx) (err error) {
		defer func() {
			if recover() != nil {
				err = &recovered{}
			}
		}()
		for name, value := range o.outer {
			c.Set(name, value)
		}
		return c.Next()
	})
	if !o.bare {
		var opts []idemfiber.Option
		if o.scope != "" {
			opts = append(opts, idemfiber.Scope(func(c *fiber.Ctx) string { return c.Get(o.scope) }))
		}
		if o.skip != "" {
			opts = append(opts, idemfiber.Skip(func(c *fiber.Ctx) bool { return c.Get(o.skip) != "" }))
		}
		app.Get("/status", idemfiber.Status(e, opts...))
		app.Use(idemfiber.Fiber(e, opts...))
	}
	app.All("/*", func(c *fiber.Ctx) error {
		length := int64(c.Request().Header.ContentLength())
		a := h(request{c.UserContext(), c.Method(), c.Path(), string(c.Body()), length, func(name string) string { return c.Get(name) }, c.Context()})
		return writeFiber(c, a)
	})
	go func() { _ = app.Listener(o.listen) }()
	return app.ShutdownWithContext
}

// writeFiber does what an answer says on a Fiber context.
func writeFiber(c *fiber.Ctx, a answer) error {
	for name, values := range a.header {
		for _, v := range values {
			c.Response().Header.Add(name, v)
		}
	}
	switch {
	case a.panics != nil:
		panic(a.panics)
	case a.hijack:
		c.Context().HijackSetNoResponse(true)
		c.Context().Hijack(func(conn net.Conn) { answerRaw(conn, bufio.NewWriter(conn)) })
	case a.err != nil:
		return a.err
	case a.chunks != nil:
		c.Status(a.status).Context().SetBodyStreamWriter(func(w *bufio.Writer) {
			for i, chunk := range a.chunks {
				if i > 0 && a.before != nil {
					a.before()
				}
				_, _ = w.WriteString(chunk)
				_ = w.Flush()
			}
		})
	case a.status != 0:
		c.Status(a.status)
		if a.body != "" {
			return c.SendString(a.body)
		}
	}
	return nil
}
