package subject

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/valyala/fasthttp"

	idemecho "github.com/go-idem/idem/adapters/echo"
	idemfiber "github.com/go-idem/idem/adapters/fiber"
	idemgin "github.com/go-idem/idem/adapters/gin"
	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
)

// Framework serves a handler with its router, behind this library's adapter for it if there is an engine, or behind a guard by
// hand. The bare handler has neither. Gin and Echo have no guard by hand.
type Framework struct {
	Name  string
	mount func(h handler, e *core.Engine, g *guard) App
}

// Frameworks are all that are measured, in the order of the report.
var Frameworks = []Framework{{"http", mountHTTP}, {"gin", mountGin}, {"echo", mountEcho}, {"fiber", mountFiber}}

// Mount returns the payment handler behind an engine; without one if e is nil.
func (f Framework) Mount(p *Payments, e *core.Engine) App {
	return f.mount(p.handle, e, nil)
}

// App is a handler that is ready to be served. One of the fields is set.
type App struct {
	Std  http.Handler
	Fast *fasthttp.Server
}

// mountHTTP serves a handler on net/http.
func mountHTTP(h handler, e *core.Engine, g *guard) App {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, func(w http.ResponseWriter, r *http.Request) {
		reply := h(r.Context(), r.Header.Get(KeyHeader), func() []byte { return readBody(r) })
		if reply.isReplay {
			w.Header().Set(Marker, "true")
		}
		w.Header().Set("Content-Type", MediaType)
		w.WriteHeader(reply.status)
		_, _ = w.Write(reply.body) // an error means that the client has left
	})
	switch {
	case e != nil:
		return App{Std: idemhttp.HTTP(e)(mux)}
	case g != nil:
		return App{Std: g.http(mux)}
	}
	return App{Std: mux}
}

// mountGin serves a handler on Gin.
func mountGin(h handler, e *core.Engine, _ *guard) App {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	if e != nil {
		router.Use(idemgin.Gin(e))
	}
	router.POST(Path, func(c *gin.Context) {
		reply := h(c.Request.Context(), c.GetHeader(KeyHeader), func() []byte { return readBody(c.Request) })
		if reply.isReplay {
			c.Header(Marker, "true")
		}
		c.Data(reply.status, MediaType, reply.body)
	})
	return App{Std: router}
}

// mountEcho serves a handler on Echo.
func mountEcho(h handler, e *core.Engine, _ *guard) App {
	router := echo.New()
	if e != nil {
		router.Use(idemecho.Echo(e))
	}
	router.POST(Path, func(c echo.Context) error {
		reply := h(c.Request().Context(), c.Request().Header.Get(KeyHeader), func() []byte { return readBody(c.Request()) })
		if reply.isReplay {
			c.Response().Header().Set(Marker, "true")
		}
		return c.Blob(reply.status, MediaType, reply.body)
	})
	return App{Std: router}
}

// mountFiber serves a handler on Fiber, which is built on fasthttp.
func mountFiber(h handler, e *core.Engine, g *guard) App {
	switch {
	case e != nil:
		return fiberApp(h, idemfiber.Fiber(e))
	case g != nil:
		return fiberApp(h, g.fiber)
	}
	return fiberApp(h)
}

// fiberApp serves a handler on Fiber behind any middleware.
func fiberApp(h handler, middleware ...fiber.Handler) App {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Post(Path, append(middleware, func(c *fiber.Ctx) error {
		reply := h(c.UserContext(), c.Get(KeyHeader), c.Body)
		if reply.isReplay {
			c.Set(Marker, "true")
		}
		c.Set(fiber.HeaderContentType, MediaType)
		return c.Status(reply.status).Send(reply.body)
	})...)
	app.Handler() // builds the routes
	return App{Fast: app.Server()}
}

// Listen serves the app on a free loopback port until stop is called.
func (a App) Listen() (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	if a.Fast != nil {
		go func() { _ = a.Fast.Serve(l) }()
		return l.Addr().String(), func() { _ = a.Fast.Shutdown() }, nil
	}
	server := &http.Server{Handler: a.Std, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	return l.Addr().String(), func() { _ = server.Shutdown(context.Background()) }, nil
}
