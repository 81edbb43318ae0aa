package adapters_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/compress"
	fibercors "github.com/gofiber/fiber/v2/middleware/cors"
	"github.com/gofiber/fiber/v2/middleware/etag"
	fiberid "github.com/gofiber/fiber/v2/middleware/requestid"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemecho "github.com/go-idem/idem/adapters/echo"
	idemfiber "github.com/go-idem/idem/adapters/fiber"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// The frameworks' own middleware, outside the engine and inside: no line may be doubled, and every body must be what its
// length and encoding say.

var text = strings.Repeat("compressible ", 500)

func newEngine(t *testing.T) *core.Engine {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	require.NoError(t, err)
	return engine
}

// RPL-29: scripts may read the marker beside what the frameworks' own CORS lets them read.
func TestCORSOutsideStandsBesideTheMarkerThatIsExposed(t *testing.T) {
	exposes := func(t *testing.T) *core.Engine {
		return newEngine(t).With(func(c *core.Config) { c.Keep.ExposeMarker = true })
	}
	for name, start := range map[string]func(*testing.T) string{
		"RPL-29 echo": func(t *testing.T) string {
			app := echo.New()
			app.Use(middleware.CORSWithConfig(middleware.CORSConfig{ExposeHeaders: []string{"X-Total"}}), idemecho.Echo(exposes(t)))
			app.POST("/", func(c echo.Context) error { return c.String(http.StatusCreated, text) })
			return serveTest(t, app)
		},
		"RPL-29 fiber": func(t *testing.T) string {
			app := fiber.New(fiber.Config{DisableStartupMessage: true})
			app.Use(fibercors.New(fibercors.Config{ExposeHeaders: "X-Total"}), idemfiber.Fiber(exposes(t)))
			app.Post("/", func(c *fiber.Ctx) error { return c.Status(http.StatusCreated).SendString(text) })
			return serveFiber(t, app)
		},
	} {
		t.Run(name, func(t *testing.T) {
			url := start(t)
			for _, replayed := range []bool{false, true} {
				r := submit(t, url+"/", "B", "Origin", "https://shop.example")
				assert.Equal(t, replayed, r.replayed())
				assert.Equal(t, []string{"X-Total", marker}, r.header.Values("Access-Control-Expose-Headers"))
				assert.Len(t, r.header.Values("Access-Control-Allow-Origin"), 1)
			}
		})
	}
}

func echoChain(t *testing.T, before, after []echo.MiddlewareFunc) string {
	app := echo.New()
	app.Use(before...)
	app.Use(idemecho.Echo(newEngine(t)))
	app.Use(after...)
	app.POST("/", func(c echo.Context) error { return c.String(http.StatusCreated, text) })
	server := httptest.NewServer(app)
	t.Cleanup(server.Close)
	return server.URL
}

func fiberChain(t *testing.T, before, after []fiber.Handler) string {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	for _, h := range before {
		app.Use(h)
	}
	app.Use(idemfiber.Fiber(newEngine(t)))
	for _, h := range after {
		app.Use(h)
	}
	app.Post("/", func(c *fiber.Ctx) error { return c.Status(http.StatusCreated).SendString(text) })
	l := listen(t)
	go func() { _ = app.Listener(l) }()
	t.Cleanup(func() { _ = app.ShutdownWithContext(context.Background()) })
	return "http://" + l.Addr().String()
}

func TestMiddlewareAroundAndInside(t *testing.T) {
	echoes := []echo.MiddlewareFunc{middleware.RequestID(), middleware.CORS(), middleware.Gzip()}
	fibers := []fiber.Handler{fiberid.New(), fibercors.New(), compress.New(), etag.New()}
	for name, start := range map[string]func(*testing.T) string{
		"echo, outside":  func(t *testing.T) string { return echoChain(t, echoes, nil) },
		"echo, inside":   func(t *testing.T) string { return echoChain(t, nil, echoes) },
		"fiber, outside": func(t *testing.T) string { return fiberChain(t, fibers, nil) },
		"fiber, inside":  func(t *testing.T) string { return fiberChain(t, nil, fibers) },
	} {
		t.Run(name, func(t *testing.T) {
			url := start(t)
			post := func() reply {
				req, err := http.NewRequest("POST", url, strings.NewReader("B"))
				require.NoError(t, err)
				req.Header.Set("Idempotency-Key", "K")
				req.Header.Set("Origin", "https://shop.example")
				res, err := http.DefaultClient.Do(req) // asks for gzip, and unpacks it
				require.NoError(t, err)
				require.True(t, res.Uncompressed, "nothing was compressed: nothing is tested")
				r, err := read(res)
				require.NoError(t, err)
				return r
			}
			first, second := post(), post()
			assert.False(t, first.replayed())
			assert.True(t, second.replayed())
			for _, r := range []reply{first, second} {
				assert.Equal(t, http.StatusCreated, r.status)
				assert.Equal(t, text, r.body)
				for _, line := range []string{"Content-Type", "Access-Control-Allow-Origin"} {
					assert.Len(t, r.header.Values(line), 1, line)
				}
				assert.LessOrEqual(t, len(r.header.Values("X-Request-Id")), 1)
			}
			if strings.HasSuffix(name, "outside") {
				assert.NotEqual(t, first.header.Get("X-Request-Id"), second.header.Get("X-Request-Id"), "each exchange has its own")
			}
		})
	}
}
