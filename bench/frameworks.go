package main

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

// framework puts a shop behind a router.
type framework struct {
	name   string
	budget float64 // allocations that a guarded request may add

	// mount returns the shop's handler, under e unless that is nil.
	mount func(s *shop, e *core.Engine) mounted
	raw   func(asker) mounted // the yardstick
	guard func(g guardian, s *shop) mounted
}

var frameworks = []framework{
	{"http", 12, mountHTTP, rawHTTP, guardHTTP},
	{"gin", 16, mountGin, rawGin, guardGin},
	{"echo", 14, mountEcho, rawEcho, guardEcho},
	{"fiber", 12, mountFiber, rawFiber, guardFiber},
}

// mounted is a handler that is ready to be served: by net/http, or by fasthttp.
type mounted struct {
	std  http.Handler
	fast *fasthttp.Server
}

func mountHTTP(s *shop, e *core.Engine) mounted {
	mux := http.NewServeMux()
	mux.Handle("POST "+path, s)
	if e == nil {
		return mounted{std: mux}
	}
	return mounted{std: idemhttp.HTTP(e)(mux)}
}

func mountGin(s *shop, e *core.Engine) mounted {
	var guard []gin.HandlerFunc
	if e != nil {
		guard = append(guard, idemgin.Gin(e))
	}
	return ginApp(s, guard...)
}

// ginApp is the shop on Gin behind other middleware.
func ginApp(s *shop, guard ...gin.HandlerFunc) mounted {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(guard...)
	router.POST(path, func(c *gin.Context) {
		readBody(c.Request)
		c.Data(http.StatusCreated, mediaType, s.pay())
	})
	return mounted{std: router}
}

func mountEcho(s *shop, e *core.Engine) mounted {
	var guard []echo.MiddlewareFunc
	if e != nil {
		guard = append(guard, idemecho.Echo(e))
	}
	return echoApp(s, guard...)
}

// echoApp is the shop on Echo behind other middleware.
func echoApp(s *shop, guard ...echo.MiddlewareFunc) mounted {
	router := echo.New()
	router.Use(guard...)
	router.POST(path, func(c echo.Context) error {
		readBody(c.Request())
		return c.Blob(http.StatusCreated, mediaType, s.pay())
	})
	return mounted{std: router}
}

func mountFiber(s *shop, e *core.Engine) mounted {
	var guard []fiber.Handler
	if e != nil {
		guard = append(guard, idemfiber.Fiber(e))
	}
	return fiberApp(s, guard...)
}

// fiberApp is the shop on Fiber behind other middleware.
func fiberApp(s *shop, guard ...fiber.Handler) mounted {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	for _, g := range guard {
		app.Use(g)
	}
	app.Post(path, func(c *fiber.Ctx) error {
		_ = c.Body()
		c.Set(fiber.HeaderContentType, mediaType)
		return c.Status(fiber.StatusCreated).Send(s.pay())
	})
	app.Handler() // builds the routes
	return mounted{fast: app.Server()}
}

// listen serves m on a free loopback port until stop is called.
func (m mounted) listen() (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	if m.fast != nil {
		go func() { _ = m.fast.Serve(l) }()
		return l.Addr().String(), func() { _ = m.fast.Shutdown() }, nil
	}
	server := &http.Server{Handler: m.std, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	return l.Addr().String(), func() { _ = server.Shutdown(context.Background()) }, nil
}
