package bare

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/gofiber/fiber/v2/middleware/cache"
	"github.com/gofiber/fiber/v2/middleware/compress"
	"github.com/gofiber/fiber/v2/middleware/cors"
	"github.com/gofiber/fiber/v2/middleware/csrf"
	"github.com/gofiber/fiber/v2/middleware/earlydata"
	"github.com/gofiber/fiber/v2/middleware/encryptcookie"
	"github.com/gofiber/fiber/v2/middleware/etag"
	"github.com/gofiber/fiber/v2/middleware/favicon"
	"github.com/gofiber/fiber/v2/middleware/filesystem"
	"github.com/gofiber/fiber/v2/middleware/healthcheck"
	"github.com/gofiber/fiber/v2/middleware/helmet"
	"github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/gofiber/fiber/v2/middleware/logger"
	recovermw "github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/gofiber/fiber/v2/middleware/requestid"
	"github.com/gofiber/fiber/v2/middleware/session"

	idem "github.com/go-idem/idem/adapters/fiber"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest/baretest"
	"github.com/go-idem/idem/internal/adaptertest/fasthttptest"
)

// fiberHandler is a handler of Fiber under test.
type fiberHandler struct {
	name string
	run  fiber.Handler
}

// fiberChains make the chains of Fiber. Middleware of Fiber may have state, so that each app needs its own.
var fiberChains = map[string]func() []fiber.Handler{
	"none":      func() []fiber.Handler { return nil },
	"cache":     func() []fiber.Handler { return []fiber.Handler{cache.New()} },
	"compress":  func() []fiber.Handler { return []fiber.Handler{compress.New()} },
	"cors":      func() []fiber.Handler { return []fiber.Handler{cors.New(cors.Config{ExposeHeaders: "X-Total"})} },
	"csrf":      func() []fiber.Handler { return []fiber.Handler{csrf.New()} },
	"earlydata": func() []fiber.Handler { return []fiber.Handler{earlydata.New()} },
	"encryptcookie": func() []fiber.Handler {
		return []fiber.Handler{encryptcookie.New(encryptcookie.Config{Key: encryptcookie.GenerateKey()})}
	},
	"etag":    func() []fiber.Handler { return []fiber.Handler{etag.New()} },
	"favicon": func() []fiber.Handler { return []fiber.Handler{favicon.New()} },
	"filesystem": func() []fiber.Handler {
		return []fiber.Handler{filesystem.New(filesystem.Config{Root: http.FS(files)})}
	},
	"healthcheck": func() []fiber.Handler { return []fiber.Handler{healthcheck.New()} },
	"helmet":      func() []fiber.Handler { return []fiber.Handler{helmet.New()} },
	"limiter":     func() []fiber.Handler { return []fiber.Handler{limiter.New(limiter.Config{Max: 1e6})} },
	"logger":      func() []fiber.Handler { return []fiber.Handler{logger.New(logger.Config{Output: io.Discard})} },
	"recover":     func() []fiber.Handler { return []fiber.Handler{recovermw.New()} },
	"requestid": func() []fiber.Handler {
		return []fiber.Handler{requestid.New(requestid.Config{Generator: func() string { return "fixed" }})}
	},
	"session": func() []fiber.Handler {
		store := session.New(session.Config{KeyGenerator: func() string { return "fixed" }})
		return []fiber.Handler{func(c *fiber.Ctx) error {
			s, err := store.Get(c)
			if err != nil {
				return err
			}
			s.Set("a", "b")
			if err := s.Save(); err != nil {
				return err
			}
			return c.Next()
		}}
	},
	"adaptor": func() []fiber.Handler {
		return []fiber.Handler{adaptor.HTTPMiddleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Outer", "1")
				next.ServeHTTP(w, r)
			})
		})}
	},
	"fields": func() []fiber.Handler {
		return []fiber.Handler{func(c *fiber.Ctx) error {
			for _, name := range []string{"X-A", "Content-Type", "Vary", "Cache-Control"} {
				c.Set(name, "text/outer")
			}
			return c.Next()
		}}
	},
	"all": func() []fiber.Handler {
		return []fiber.Handler{
			recovermw.New(), requestid.New(requestid.Config{Generator: func() string { return "fixed" }}),
			cors.New(), helmet.New(), compress.New(), etag.New(),
		}
	},
}

func TestFiber(t *testing.T) {
	var all []fiberHandler
	for _, h := range fasthttptest.FiberHandlers("testdata") {
		all = append(all, fiberHandler{h.Name, func(c *fiber.Ctx) error { return h.Run(c, c.Context()) }})
	}
	all = append(all, ownFiberHandlers()...)
	f := baretest.Framework{Name: "fiber", Chains: sortedKeys(fiberChains)}
	for _, h := range all {
		f.Handlers = append(f.Handlers, h.name)
	}
	f.Start = func(t *testing.T, chain string, where baretest.Place, e *core.Engine, l net.Listener) {
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		app.Get("/ping", func(c *fiber.Ctx) error { return c.SendString("pong") })
		app.Use(func(c *fiber.Ctx) (err error) { // fasthttp has no recovery: a panic would end the process.
			defer func() {
				if p := recover(); p != nil {
					c.Response().Reset()
					err = c.Status(http.StatusBadGateway).SendString("outermost")
				}
			}()
			return c.Next()
		})
		if where == baretest.Outside {
			app.Use(idem.Fiber(e))
		}
		for _, h := range fiberChains[chain]() {
			app.Use(h)
		}
		if where == baretest.Inside {
			app.Use(idem.Fiber(e))
		}
		for i, h := range all {
			app.All("/"+strconv.Itoa(i), h.run)
		}
		go func() { _ = app.Listener(l) }()
		t.Cleanup(func() { _ = app.ShutdownWithTimeout(time.Second) })
	}
	f.Compare(t)
}

// ownFiberHandlers use what only Fiber v2 has.
func ownFiberHandlers() []fiberHandler {
	return []fiberHandler{
		{"c.Type", func(c *fiber.Ctx) error { return c.Type("html", "utf-8").SendString(html) }},
		{"c.Format", func(c *fiber.Ctx) error { return c.Format("a") }},
		{"c.Redirect", func(c *fiber.Ctx) error { return c.Redirect("/new", 303) }},
		{"c.SendFile", func(c *fiber.Ctx) error { return c.SendFile("testdata/file.txt") }},
		{"c.SendFile huge", func(c *fiber.Ctx) error { return c.SendFile("testdata/huge.txt") }},
		{"c.SendFile missing", func(c *fiber.Ctx) error { return c.SendFile("testdata/missing") }},
		{"c.Cookie", func(c *fiber.Ctx) error { c.Cookie(&fiber.Cookie{Name: "a", Value: "b"}); return c.SendString("x") }},
		{"fiber.Error", func(*fiber.Ctx) error { return fiber.NewError(409, "taken") }},
		{"fiber.ErrNotFound", func(*fiber.Ctx) error { return fiber.ErrNotFound }},
		{"net/http handler", adaptor.HTTPHandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); text(w, html) })},
	}
}
