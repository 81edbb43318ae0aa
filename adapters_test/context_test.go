package adapters_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/valyala/fasthttp"

	idemfiber "github.com/go-idem/idem/adapters/fiber"
	idemgin "github.com/go-idem/idem/adapters/gin"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

// FRM-05: what a handler asks of its run it may ask with the framework's own context.
func (s *Behaviours) TestTheFrameworksOwnContextKnowsTheRun() {
	steps := 0
	var children []string
	svc := s.serve(func(r request) answer {
		run, ok := core.FromContext(r.own)
		s.True(ok)
		same, _ := core.FromContext(r.ctx)
		s.Equal(same, run)
		s.Equal(core.ChildKey(r.ctx, "charge"), core.ChildKey(r.own, "charge"))
		children = append(children, core.ChildKey(r.own, "charge"))
		type traced struct{}
		derived := context.WithValue(r.own, traced{}, true) // without an end of its own, which is a race in fasthttp's Shutdown
		charged, err := core.Step(derived, "charge", func(context.Context) (int, error) { steps++; return steps, nil })
		s.NoError(err)
		s.Equal(1, charged, "the step is kept")
		if run.Attempt == 2 {
			core.Decide(r.own, core.Keep)
		}
		return answer{status: http.StatusServiceUnavailable}
	}, nil)
	s.False(svc.post("K", "B").replayed())
	second := svc.post("K", "B")
	s.False(second.replayed())
	s.replay(second, svc.post("K", "B"))
	s.ran(svc, 2)
	s.Len(children, 2)
	s.Len(children[0], 64)
	s.Equal(children[0], children[1])
}

// FRM-05: a request without protection, and one after another's run, knows of none, although frameworks use their contexts again.
func (s *Behaviours) TestTheFrameworksOwnContextKnowsNoOtherRequestsRun() {
	inside := map[bool]int{}
	svc := s.serve(func(r request) answer {
		run, ok := core.FromContext(r.own)
		inside[ok]++
		s.Equal(ok, run.Fence != 0)
		s.Equal(r.header("Idempotency-Key") != "", ok)
		return answer{status: 201}
	}, nil)
	for range 10 {
		svc.post("", "B")
		s.Equal(201, svc.send("POST", "/orders", "B").status)
		svc.post(s.T().Name()+string(rune('a'+inside[true])), "B")
	}
	s.Equal(10, inside[true])
}

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
			router.Use(idemgin.Gin(newEngine(t)))
			router.POST("/", func(c *gin.Context) {
				inside = known(c)
				kept <- c.Copy()
				c.Status(201)
			})
			assert.Equal(t, 201, submit(t, serveTest(t, router), "B").status)
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
		app.Use(idemfiber.Fiber(newEngine(t)))
		app.Post("/", func(c *fiber.Ctx) error {
			inside = known(c.Context()) && known(c.UserContext())
			return c.SendStatus(201)
		})
		assert.Equal(t, 201, submit(t, serveFiber(t, app), "B").status)
		assert.Equal(t, []bool{false, true, false}, []bool{before, inside, after}, "before, inside, after")
	})
	t.Run("the same after a panic", func(t *testing.T) {
		router := gin.New()
		after := true
		router.Use(func(c *gin.Context) {
			defer func() { _ = recover(); after = known(c); c.Status(500) }()
			c.Next()
		})
		router.POST("/", idemgin.Gin(newEngine(t)), func(*gin.Context) { panic("test") })
		submit(t, serveTest(t, router), "B")
		assert.False(t, after)
	})
}

// FRM-05: Engine.HandleContext forgets what a context holds, not its request.
func TestGinKnowsTheRunInAContextThatIsHandledAgain(t *testing.T) {
	router := gin.New()
	var known atomic.Bool
	router.Use(idemgin.Gin(newEngine(t)))
	router.POST("/", func(c *gin.Context) {
		c.Request.URL.Path = "/again"
		router.HandleContext(c)
	})
	router.POST("/again", func(c *gin.Context) {
		_, ok := core.FromContext(c)
		known.Store(ok)
		c.Status(201)
	})
	submit(t, serveTest(t, router), "B")
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
