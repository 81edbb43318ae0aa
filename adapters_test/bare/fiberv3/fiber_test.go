package fiberv3

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/extractors"
	"github.com/gofiber/fiber/v3/log"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/gofiber/fiber/v3/middleware/cache"
	"github.com/gofiber/fiber/v3/middleware/compress"
	"github.com/gofiber/fiber/v3/middleware/cors"
	"github.com/gofiber/fiber/v3/middleware/csrf"
	"github.com/gofiber/fiber/v3/middleware/earlydata"
	"github.com/gofiber/fiber/v3/middleware/encryptcookie"
	"github.com/gofiber/fiber/v3/middleware/etag"
	"github.com/gofiber/fiber/v3/middleware/expvar"
	"github.com/gofiber/fiber/v3/middleware/favicon"
	"github.com/gofiber/fiber/v3/middleware/helmet"
	"github.com/gofiber/fiber/v3/middleware/keyauth"
	"github.com/gofiber/fiber/v3/middleware/limiter"
	"github.com/gofiber/fiber/v3/middleware/logger"
	"github.com/gofiber/fiber/v3/middleware/pprof"
	recovermw "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/gofiber/fiber/v3/middleware/redirect"
	"github.com/gofiber/fiber/v3/middleware/requestid"
	"github.com/gofiber/fiber/v3/middleware/rewrite"
	"github.com/gofiber/fiber/v3/middleware/session"
	"github.com/gofiber/fiber/v3/middleware/static"
	"github.com/gofiber/fiber/v3/middleware/timeout"

	idem "github.com/go-idem/idem/adapters/fiberv3"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest/baretest"
	"github.com/go-idem/idem/internal/adaptertest/fasthttptest"
)

// testdata has the files that handlers send.
const testdata = "../testdata"

// handler is a handler of Fiber under test.
type handler struct {
	name string
	run  fiber.Handler
}

// one returns a chain of one middleware.
func one(h fiber.Handler) []fiber.Handler { return []fiber.Handler{h} }

// withID sets a fixed X-Request-Id.
func withID() fiber.Handler {
	return requestid.New(requestid.Config{Generator: func() string { return "fixed" }})
}

// chains make the chains of Fiber. Middleware of Fiber may have state, so that each app needs its own.
var chains = map[string]func() []fiber.Handler{
	"none":      func() []fiber.Handler { return nil },
	"cache":     func() []fiber.Handler { return one(cache.New()) },
	"compress":  func() []fiber.Handler { return one(compress.New()) },
	"cors":      func() []fiber.Handler { return one(cors.New(cors.Config{ExposeHeaders: []string{"X-Total"}})) },
	"csrf":      func() []fiber.Handler { return one(csrf.New()) },
	"earlydata": func() []fiber.Handler { return one(earlydata.New()) },
	"encryptcookie": func() []fiber.Handler {
		return one(encryptcookie.New(encryptcookie.Config{Key: encryptcookie.GenerateKey(32)}))
	},
	"etag":    func() []fiber.Handler { return one(etag.New()) },
	"expvar":  func() []fiber.Handler { return one(expvar.New()) },
	"favicon": func() []fiber.Handler { return one(favicon.New()) },
	"helmet":  func() []fiber.Handler { return one(helmet.New()) },
	"keyauth": func() []fiber.Handler {
		return one(keyauth.New(keyauth.Config{
			Extractor: extractors.FromHeader("Host"), Validator: func(fiber.Ctx, string) (bool, error) { return true, nil },
		}))
	},
	"limiter": func() []fiber.Handler { return one(limiter.New(limiter.Config{Max: 1e6})) },
	"logger":  func() []fiber.Handler { return one(logger.New(logger.Config{Stream: io.Discard})) },
	"pprof":   func() []fiber.Handler { return one(pprof.New()) },
	"recover": func() []fiber.Handler { return one(recovermw.New()) },
	"redirect": func() []fiber.Handler {
		return one(redirect.New(redirect.Config{Rules: map[string]string{"/old": "/new"}}))
	},
	"requestid": func() []fiber.Handler { return one(withID()) },
	"rewrite": func() []fiber.Handler {
		return one(rewrite.New(rewrite.Config{Rules: map[string]string{"/old": "/new"}}))
	},
	"session": func() []fiber.Handler {
		keep := session.New(session.Config{KeyGenerator: func() string { return "fixed" }})
		return []fiber.Handler{keep, func(c fiber.Ctx) error {
			session.FromContext(c).Set("a", "b")
			return c.Next()
		}}
	},
	"static": func() []fiber.Handler { return one(static.New(testdata)) },
	"timeout": func() []fiber.Handler {
		return one(timeout.New(fiber.Ctx.Next, timeout.Config{Timeout: baretest.Patience}))
	},
	"adaptor": func() []fiber.Handler {
		return one(adaptor.HTTPMiddleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Outer", "1")
				next.ServeHTTP(w, r)
			})
		}))
	},
	"fields": func() []fiber.Handler {
		return one(func(c fiber.Ctx) error {
			for _, name := range []string{"X-A", "Content-Type", "Vary", "Cache-Control"} {
				c.Set(name, "text/outer")
			}
			return c.Next()
		})
	},
	"all": func() []fiber.Handler {
		return []fiber.Handler{recovermw.New(), withID(), cors.New(), helmet.New(), compress.New(), etag.New()}
	},
}

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // Middleware logs the panics that it recovers.
	baretest.Main(m, 1, reasons)
}

func TestFiber(t *testing.T) {
	all := handlers()
	f := baretest.Framework{Name: "fiberv3", Chains: slices.Sorted(maps.Keys(chains))}
	for _, h := range all {
		f.Handlers = append(f.Handlers, h.name)
	}
	f.Start = func(t *testing.T, chain string, where baretest.Place, e *core.Engine, l net.Listener) {
		app := fiber.New()
		app.Get("/ping", func(c fiber.Ctx) error { return c.SendString("pong") })
		app.Use(func(c fiber.Ctx) (err error) { // fasthttp has no recovery: a panic would end the process.
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
		for _, h := range chains[chain]() {
			app.Use(h)
		}
		if where == baretest.Inside {
			app.Use(idem.Fiber(e))
		}
		for i, h := range all {
			app.All("/"+strconv.Itoa(i), h.run)
		}
		go func() { _ = app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
		t.Cleanup(func() { _ = app.ShutdownWithTimeout(time.Second) })
	}
	f.Compare(t)
}

// handlers returns all handlers of Fiber v3 under test: those of all majors, and those that use what only Fiber v3 has.
func handlers() (all []handler) {
	for _, h := range fasthttptest.FiberHandlers(testdata) {
		all = append(all, handler{h.Name, func(c fiber.Ctx) error { return h.Run(c, c.RequestCtx()) }})
	}
	value := map[string]any{"a": 1}
	return append(all, []handler{
		{"c.Type", func(c fiber.Ctx) error { return c.Type("html", "utf-8").SendString(baretest.HTML) }},
		{"c.Format", func(c fiber.Ctx) error {
			return c.Format(fiber.ResFmt{MediaType: "text/html", Handler: func(c fiber.Ctx) error { return c.SendString("a") }})
		}},
		{"c.AutoFormat", func(c fiber.Ctx) error { return c.AutoFormat("a") }},
		{"c.JSON with type", func(c fiber.Ctx) error { return c.Status(422).JSON(value, "application/problem+json") }},
		{"c.Redirect", func(c fiber.Ctx) error { return c.Redirect().Status(303).To("/new") }},
		{"c.Redirect with flash", func(c fiber.Ctx) error { return c.Redirect().With("a", "b").To("/new") }},
		{"c.SendFile", func(c fiber.Ctx) error { return c.SendFile(testdata + "/file.txt") }},
		{"c.SendFile huge", func(c fiber.Ctx) error { return c.SendFile(testdata + "/huge.txt") }},
		{"c.SendFile missing", func(c fiber.Ctx) error { return c.SendFile(testdata + "/missing") }},
		{"c.SendFile range", func(c fiber.Ctx) error {
			c.Request().Header.Set("Range", "bytes=0-1")
			return c.SendFile(testdata+"/file.txt", fiber.SendFile{ByteRange: true})
		}},
		{"c.SendStreamWriter", func(c fiber.Ctx) error {
			return c.SendStreamWriter(func(w *bufio.Writer) { baretest.Text(w, baretest.HTML) })
		}},
		{"c.SendEarlyHints", func(c fiber.Ctx) error {
			if err := c.SendEarlyHints([]string{"</a.css>; rel=preload"}); err != nil {
				return err
			}
			return c.Status(201).SendString("x")
		}},
		{"c.Cookie", func(c fiber.Ctx) error { c.Cookie(&fiber.Cookie{Name: "a", Value: "b"}); return c.SendString("x") }},
		{"c.Res", func(c fiber.Ctx) error { c.Res().Set("X-A", "1"); return c.Res().Status(202).SendString("x") }},
		{"c.Drop", func(c fiber.Ctx) error { return c.Drop() }},
		{"c.End", func(c fiber.Ctx) error { _ = c.Status(201).SendString("x"); return c.End() }},
		{"fiber.Error", func(fiber.Ctx) error { return fiber.NewError(409, "taken") }},
		{"fiber.ErrNotFound", func(fiber.Ctx) error { return fiber.ErrNotFound }},
		{"net/http handler", adaptor.HTTPHandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			baretest.Text(w, baretest.HTML)
		})},
		{"panic of an error", func(fiber.Ctx) error { panic(fiber.ErrTeapot) }},
	}...)
}
