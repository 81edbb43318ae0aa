package adapters_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemecho "github.com/go-idem/idem/adapters/echo"
	idemfiber "github.com/go-idem/idem/adapters/fiber"
	idemgin "github.com/go-idem/idem/adapters/gin"
	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// routed is a service with the routes POST /shop/orders/:id, which responds 201, and GET /shop/orders/:id, behind the middleware. The
// middleware guards the whole service, or the group /shop.
type routed struct {
	name    string
	service func(e *core.Engine) (send func(*http.Request) *http.Response)
	run     string // the route of a first request
	replay  string // that of a replay, for which no handler runs
	unknown string // that of a request to a path without a route
}

// routeds has each way of each framework to put the middleware before routes.
var routeds = []routed{
	{"net/http, around the mux", func(e *core.Engine) func(*http.Request) *http.Response {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /shop/orders/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
		return recorded(idemhttp.HTTP(e)(mux))
	}, "/shop/orders/{id}", "", ""},
	{"net/http, inside the mux", func(e *core.Engine) func(*http.Request) *http.Response {
		mux := http.NewServeMux()
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
		mux.Handle("POST /shop/orders/{id}", idemhttp.HTTP(e)(handler))
		mux.Handle("POST /shop/", idemhttp.HTTP(e)(http.NotFoundHandler()))
		return recorded(mux)
	}, "/shop/orders/{id}", "/shop/orders/{id}", "/shop/"},
	{"net/http, a mux in a mux", func(e *core.Engine) func(*http.Request) *http.Response {
		inner, outer := http.NewServeMux(), http.NewServeMux()
		inner.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
		outer.Handle("/shop/", idemhttp.HTTP(e)(http.StripPrefix("/shop", inner)))
		return recorded(outer)
	}, "/shop/", "/shop/", "/shop/"}, // http.StripPrefix hides the inner pattern
	{"gin, the whole router", func(e *core.Engine) func(*http.Request) *http.Response {
		r := gin.New()
		r.Use(idemgin.Gin(e))
		r.Group("/shop").POST("/orders/:id", func(c *gin.Context) { c.Status(201) })
		return recorded(r)
	}, "/shop/orders/:id", "/shop/orders/:id", ""},
	{"gin, a group", func(e *core.Engine) func(*http.Request) *http.Response {
		r := gin.New()
		r.Group("/shop", idemgin.Gin(e)).POST("/orders/:id", func(c *gin.Context) { c.Status(201) })
		r.NoRoute(idemgin.Gin(e))
		return recorded(r)
	}, "/shop/orders/:id", "/shop/orders/:id", ""},
	{"echo, the whole router", func(e *core.Engine) func(*http.Request) *http.Response {
		r := echo.New()
		r.Use(idemecho.Echo(e))
		r.Group("/shop").POST("/orders/:id", func(c echo.Context) error { return c.NoContent(201) })
		return recorded(r)
	}, "/shop/orders/:id", "/shop/orders/:id", ""},
	{"echo, a group", func(e *core.Engine) func(*http.Request) *http.Response {
		r := echo.New()
		r.Group("/shop", idemecho.Echo(e)).POST("/orders/:id", func(c echo.Context) error { return c.NoContent(201) })
		return recorded(r)
	}, "/shop/orders/:id", "/shop/orders/:id", "/shop/*"},
	{"fiber, the whole app", func(e *core.Engine) func(*http.Request) *http.Response {
		app := fiber.New()
		app.Use(idemfiber.Fiber(e))
		app.Group("/shop").Post("/orders/:id", func(c *fiber.Ctx) error { return c.SendStatus(201) })
		return tested(app)
	}, "/shop/orders/:id", "", ""},
	{"fiber, a mounted app", func(e *core.Engine) func(*http.Request) *http.Response {
		app, shop := fiber.New(), fiber.New()
		shop.Post("/orders/:id", func(c *fiber.Ctx) error { return c.SendStatus(201) })
		app.Use(idemfiber.Fiber(e))
		app.Mount("/shop", shop)
		return tested(app)
	}, "/shop/orders/:id", "", ""},
}

// recorded serves requests by a handler.
func recorded(h http.Handler) func(*http.Request) *http.Response {
	return func(r *http.Request) *http.Response {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
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

// TEL-01: every request that reaches the middleware is done once, with the route that its router knows.
func TestEveryRequestIsDoneOnceWithItsRoute(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for _, framework := range routeds {
		t.Run(framework.name, func(t *testing.T) {
			var mu sync.Mutex
			var done []core.Event
			engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant, Hooks: core.Hooks{
				Done: func(_ context.Context, e core.Event) {
					mu.Lock()
					defer mu.Unlock()
					done = append(done, e)
				},
			}})
			require.NoError(t, err)
			send := framework.service(engine)
			for i, test := range []struct{ path, key, result, route string }{
				{"/shop/orders/1?a=b", "K", "run", framework.run},
				{"/shop/orders/1?a=b", "K", "replay", framework.replay},
				{"/shop/orders/2", "K", "mismatch", framework.replay},
				{"/shop/nothing", "L", "run", framework.unknown},
			} {
				r := httptest.NewRequest(http.MethodPost, test.path, strings.NewReader("{}"))
				r.Header.Set("Idempotency-Key", test.key)
				response := send(r)
				_, _ = io.Copy(io.Discard, response.Body)
				require.Len(t, done, i+1, "one event a request")
				assert.Equal(t, test.result, done[i].Result, test.path)
				assert.Equal(t, test.route, done[i].Route, "%s %s", test.result, test.path)
			}
		})
	}
}
