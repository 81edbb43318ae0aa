package adapters_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	idemgin "github.com/go-idem/idem/adapters/gin"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest"
)

// ginFramework is the adapter for Gin.
var ginFramework = adaptertest.Framework{
	Name: "gin", Start: startGin, Mount: mountGin, Nest: nestGin, Routers: ginRouters, Routed: ginRouted,
}

func init() { gin.SetMode(gin.ReleaseMode) }

func startGin(e *core.Engine, h adaptertest.Handler, o adaptertest.Setup) func(context.Context) error {
	router := gin.New()
	router.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.String(500, "recovered") }))
	router.Use(func(c *gin.Context) {
		for name, value := range o.Outer {
			c.Header(name, value)
		}
		c.Next()
		if len(c.Errors) > 0 && !c.Writer.Written() { // as error middleware does
			c.String(http.StatusTeapot, c.Errors.Last().Error())
		}
	})
	if !o.Bare {
		var opts []idemgin.Option
		if o.Scope != "" {
			opts = append(opts, idemgin.Scope(func(c *gin.Context) string { return c.GetHeader(o.Scope) }))
		}
		if o.Skip != "" {
			opts = append(opts, idemgin.Skip(func(c *gin.Context) bool { return c.GetHeader(o.Skip) != "" }))
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
		a := h(adaptertest.Request{
			Ctx: r.Context(), Method: r.Method, Path: r.URL.Path, Body: string(body),
			Length: r.ContentLength, Header: c.GetHeader, Own: c,
		})
		switch {
		case a.Err != nil:
			_ = c.Error(a.Err)
		case a.Status != 0 && a.Chunks == nil && a.Panics == nil && !a.Hijack:
			for name, values := range a.Header {
				c.Writer.Header()[name] = values
			}
			c.Status(a.Status)
			if a.Body != "" {
				_, _ = c.Writer.WriteString(a.Body)
			}
		default:
			adaptertest.WriteHTTP(c.Writer, a)
		}
	})
	return adaptertest.Serve(o.Listen, router)
}

func mountGin(e *core.Engine, h http.HandlerFunc) http.Handler {
	router := gin.New()
	if e != nil {
		router.Use(idemgin.Gin(e))
	}
	router.Any("/*path", func(c *gin.Context) { h(c.Writer, c.Request) })
	return router
}

func nestGin(t *testing.T, outer, inner *core.Engine, run func(io.Reader)) string {
	r := gin.New()
	r.Use(idemgin.Gin(outer))
	r.POST("/", idemgin.Gin(inner), func(c *gin.Context) { run(c.Request.Body); c.String(201, "made") })
	return adaptertest.NewServer(t, r)
}

var ginRouters = map[string]func(*testing.T, *core.Engine) (url string){
	"gin": func(t *testing.T, e *core.Engine) string { return adaptertest.NewServer(t, ginRoutes(e)) },
	"gin with a page of its own": func(t *testing.T, e *core.Engine) string {
		r := ginRoutes(e)
		r.NoRoute(func(c *gin.Context) { c.JSON(404, gin.H{"error": "no such page"}) })
		r.NoMethod(func(c *gin.Context) { c.JSON(405, gin.H{"error": "no such method"}) })
		return adaptertest.NewServer(t, r)
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

var ginRouted = []adaptertest.Routed{
	{Name: "gin, the whole router", Service: func(e *core.Engine) func(*http.Request) *http.Response {
		r := gin.New()
		r.Use(idemgin.Gin(e))
		r.Group("/shop").POST("/orders/:id", func(c *gin.Context) { c.Status(201) })
		return adaptertest.Recorded(r)
	}, Run: "/shop/orders/:id", Replay: "/shop/orders/:id", Unknown: ""},
	{Name: "gin, a group", Service: func(e *core.Engine) func(*http.Request) *http.Response {
		r := gin.New()
		r.Group("/shop", idemgin.Gin(e)).POST("/orders/:id", func(c *gin.Context) { c.Status(201) })
		r.NoRoute(idemgin.Gin(e))
		return adaptertest.Recorded(r)
	}, Run: "/shop/orders/:id", Replay: "/shop/orders/:id", Unknown: ""},
}
