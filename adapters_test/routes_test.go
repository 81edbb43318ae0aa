package adapters_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"

	idemecho "github.com/go-idem/idem/adapters/echo"
	idemfiber "github.com/go-idem/idem/adapters/fiber"
	idemgin "github.com/go-idem/idem/adapters/gin"
	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
)

// routers are a service with POST /orders, which answers 201, POST /missing and POST /forbidden, whose handlers say 404 and 405, and
// GET /read-only; with an engine on all, or bare.
var routers = map[string]func(*testing.T, *core.Engine) (url string){
	"http": func(t *testing.T, e *core.Engine) string {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /orders", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
		mux.HandleFunc("POST /missing", http.NotFound)
		mux.HandleFunc("POST /forbidden", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(405) })
		mux.HandleFunc("GET /read-only", func(http.ResponseWriter, *http.Request) {})
		if e == nil {
			return serveTest(t, mux)
		}
		return serveTest(t, idemhttp.HTTP(e)(mux))
	},
	"gin": func(t *testing.T, e *core.Engine) string { return serveTest(t, ginRoutes(e)) },
	"gin with a page of its own": func(t *testing.T, e *core.Engine) string {
		r := ginRoutes(e)
		r.NoRoute(func(c *gin.Context) { c.JSON(404, gin.H{"error": "no such page"}) })
		r.NoMethod(func(c *gin.Context) { c.JSON(405, gin.H{"error": "no such method"}) })
		return serveTest(t, r)
	},
	"echo": func(t *testing.T, e *core.Engine) string {
		app := echo.New()
		if e != nil {
			app.Use(idemecho.Echo(e))
		}
		echoRoutes(app.POST, app.GET)
		return serveTest(t, app)
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
		return serveTest(t, app)
	},
	"fiber": func(t *testing.T, e *core.Engine) string {
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		if e != nil {
			app.Use(idemfiber.Fiber(e))
		}
		app.Post("/orders", func(c *fiber.Ctx) error { return c.SendStatus(201) })
		app.Post("/missing", func(*fiber.Ctx) error { return fiber.ErrNotFound })
		app.Post("/forbidden", func(*fiber.Ctx) error { return fiber.ErrMethodNotAllowed })
		app.Get("/read-only", func(*fiber.Ctx) error { return nil })
		return serveFiber(t, app)
	},
}

func ginRoutes(e *core.Engine) *gin.Engine {
	r := gin.New()
	r.HandleMethodNotAllowed = true
	if e != nil {
		r.Use(idemgin.Gin(e))
	}
	r.POST("/orders", func(c *gin.Context) { c.Status(201) })
	r.POST("/missing", func(c *gin.Context) { c.Status(404) })
	r.POST("/forbidden", func(c *gin.Context) { c.Status(405) })
	r.GET("/read-only", func(*gin.Context) {})
	return r
}

type echoMethod = func(string, echo.HandlerFunc, ...echo.MiddlewareFunc) *echo.Route

func echoRoutes(post, get echoMethod) {
	post("/orders", func(c echo.Context) error { return c.NoContent(201) })
	post("/missing", func(echo.Context) error { return echo.ErrNotFound })
	post("/forbidden", func(echo.Context) error { return echo.ErrMethodNotAllowed })
	get("/read-only", func(echo.Context) error { return nil })
}

// A route that there is none of is as if the key had not been used; what a handler says is its answer (ERR-01).
func TestAMistypedRouteDoesNotUseItsKey(t *testing.T) {
	for name, start := range routers {
		for mistyped, status := range map[string]int{"/oders": 404, "/read-only": 405} {
			t.Run(name+" "+mistyped, func(t *testing.T) {
				bare, url := start(t, nil), start(t, newEngine(t))
				want := submit(t, bare+mistyped, "B")
				if name != "echo, a group" {
					assert.Equal(t, status, want.status)
				}
				for range 2 {
					assert.Equal(t, want, submit(t, url+mistyped, "B"))
				}
				first, second := submit(t, url+"/orders", "B"), submit(t, url+"/orders", "B")
				assert.Equal(t, 201, first.status, first.body)
				assert.False(t, first.replayed())
				assert.True(t, second.replayed())
				assert.Equal(t, 422, submit(t, url+mistyped, "B").status, "nor does it open one that was")
			})
		}
		for i, missing := range []string{"/missing", "/forbidden"} {
			t.Run(fmt.Sprint(name, " ", missing), func(t *testing.T) {
				url := start(t, newEngine(t))
				for n := range 2 {
					r := submit(t, url+missing, "B")
					assert.Equal(t, 404+i, r.status)
					assert.Equal(t, n == 1, r.replayed())
				}
			})
		}
	}
}

// A handler for unknown routes may be one that has effects, as a proxy's: its own decision counts.
func TestAHandlerOfUnknownRoutesMayKeepItsAnswer(t *testing.T) {
	router := ginRoutes(newEngine(t))
	router.NoRoute(func(c *gin.Context) {
		core.Decide(c, core.Keep)
		c.String(404, "from behind")
	})
	url := serveTest(t, router)
	for n := range 2 {
		r := submit(t, url+"/elsewhere", "B")
		assert.Equal(t, "from behind", r.body)
		assert.Equal(t, n == 1, r.replayed())
	}
}
