package adapters_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/valyala/fasthttp"

	idemecho "github.com/go-idem/idem/adapters/echo"
	idemfiber "github.com/go-idem/idem/adapters/fiber"
	idemgin "github.com/go-idem/idem/adapters/gin"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/internal/adaptertest"
)

// FRM-05: middleware outside knows of no run when the handlers have returned.
func TestTheOwnContextOfTheFrameworkForgetsTheRun(t *testing.T) {
	known := func(ctx context.Context) bool { _, ok := core.FromContext(ctx); return ok }
	for name, fallback := range map[string]bool{"gin": false, "gin with fallback": true} {
		t.Run(name, func(t *testing.T) {
			router := gin.New()
			router.ContextWithFallback = fallback
			var before, after, inside, copied bool
			kept := make(chan *gin.Context, 1)
			router.Use(func(c *gin.Context) { before = known(c); c.Next(); after = known(c) })
			router.Use(idemgin.Gin(adaptertest.NewEngine(t)))
			router.POST("/", func(c *gin.Context) {
				inside = known(c)
				kept <- c.Copy()
				c.Status(201)
			})
			assert.Equal(t, 201, adaptertest.Submit(t, adaptertest.NewServer(t, router), "B").Status)
			copied = known(<-kept)
			assert.Equal(t, []bool{false, true, false, true}, []bool{before, inside, after, copied}, "before, inside, after, in a copy")
		})
	}
	t.Run("fiber, its user context that of fasthttp", func(t *testing.T) {
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		var before, after, inside bool
		app.Use(func(c *fiber.Ctx) error {
			c.SetUserContext(c.Context())
			before = known(c.Context())
			err := c.Next()
			after = known(c.Context()) || known(c.UserContext())
			return err
		})
		app.Use(idemfiber.Fiber(adaptertest.NewEngine(t)))
		app.Post("/", func(c *fiber.Ctx) error {
			inside = known(c.Context()) && known(c.UserContext())
			return c.SendStatus(201)
		})
		assert.Equal(t, 201, adaptertest.Submit(t, serveFiber(t, app), "B").Status)
		assert.Equal(t, []bool{false, true, false}, []bool{before, inside, after}, "before, inside, after")
	})
	t.Run("echo, the context of its request", func(t *testing.T) {
		app := echo.New()
		var before, after, inside bool
		app.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				before = known(c.Request().Context())
				err := next(c)
				after = known(c.Request().Context())
				return err
			}
		}, idemecho.Echo(adaptertest.NewEngine(t)))
		app.POST("/", func(c echo.Context) error { inside = known(c.Request().Context()); return c.NoContent(201) })
		assert.Equal(t, 201, adaptertest.Submit(t, adaptertest.NewServer(t, app), "B").Status)
		assert.Equal(t, []bool{false, true, false}, []bool{before, inside, after}, "before, inside, after")
	})
	t.Run("the same after a panic", func(t *testing.T) {
		router := gin.New()
		after := true
		router.Use(func(c *gin.Context) {
			defer func() { _ = recover(); after = known(c); c.Status(500) }()
			c.Next()
		})
		router.POST("/", idemgin.Gin(adaptertest.NewEngine(t)), func(*gin.Context) { panic("test") })
		adaptertest.Submit(t, adaptertest.NewServer(t, router), "B")
		assert.False(t, after)
	})
}

// FRM-05: Engine.HandleContext forgets what a context holds, not its request.
func TestGinKnowsTheRunInAContextThatIsHandledAgain(t *testing.T) {
	router := gin.New()
	var known atomic.Bool
	router.Use(idemgin.Gin(adaptertest.NewEngine(t)))
	router.POST("/", func(c *gin.Context) {
		c.Request.URL.Path = "/again"
		router.HandleContext(c)
	})
	router.POST("/again", func(c *gin.Context) {
		_, ok := core.FromContext(c)
		known.Store(ok)
		c.Status(201)
	})
	adaptertest.Submit(t, adaptertest.NewServer(t, router), "B")
	assert.True(t, known.Load())
}

// FRM-05: values of other names are none of ours.
func TestTheKeyOfTheRunIsAnAdaptersToSet(t *testing.T) {
	ctx := &fasthttp.RequestCtx{}
	_, ok := core.FromContext(ctx)
	assert.False(t, ok)
	ctx.SetUserValue(driver.ContextKey, "something else")
	_, ok = core.FromContext(ctx)
	assert.False(t, ok)
	assert.Empty(t, core.ChildKey(ctx, "charge"))
}
