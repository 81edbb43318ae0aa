package bare

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
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
	"github.com/valyala/fasthttp"

	idem "github.com/go-idem/idem/adapters/fiber"
	"github.com/go-idem/idem/core"
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
	all := fiberHandlers()
	f := framework{name: "fiber", chains: sortedKeys(fiberChains)}
	for _, h := range all {
		f.handlers = append(f.handlers, h.name)
	}
	f.start = func(t *testing.T, chain string, where place, e *core.Engine, l net.Listener) {
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
		if where == outside {
			app.Use(idem.Fiber(e))
		}
		for _, h := range fiberChains[chain]() {
			app.Use(h)
		}
		if where == inside {
			app.Use(idem.Fiber(e))
		}
		for i, h := range all {
			app.All("/"+strconv.Itoa(i), h.run)
		}
		go func() { _ = app.Listener(l) }()
		t.Cleanup(func() { _ = app.ShutdownWithTimeout(time.Second) })
	}
	f.compare(t)
}

// fiberStatuses set each kind of status, without a body and with one.
func fiberStatuses() (all []fiberHandler) {
	for _, code := range []int{
		200, 201, 202, 203, 204, 205, 206, 226, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404, 405, 407, 408, 409, 410, 412,
		415, 418, 422, 425, 429, 431, 451, 499, 500, 501, 502, 503, 504, 599, 999,
	} {
		all = append(all,
			fiberHandler{fmt.Sprint("status ", code), func(c *fiber.Ctx) error { c.Status(code); return nil }},
			fiberHandler{fmt.Sprintf("status %d with body", code), func(c *fiber.Ctx) error { return c.Status(code).SendString("body") }})
	}
	for _, code := range []int{100, 101, 102, 103, 199} {
		all = append(all,
			fiberHandler{fmt.Sprint("status ", code), func(c *fiber.Ctx) error { c.Status(code); return nil }},
			fiberHandler{fmt.Sprintf("status %d with field and body", code), func(c *fiber.Ctx) error {
				c.Set("Link", "</a.css>; rel=preload")
				return c.Status(code).SendString("body")
			}})
	}
	for _, code := range []int{204, 304, 409, 500} {
		all = append(all, fiberHandler{fmt.Sprint("c.SendStatus ", code), func(c *fiber.Ctx) error { return c.SendStatus(code) }})
	}
	for _, n := range []int{1, 199, 200, 201, 511, 2048, 4096, 4097, 9_999, 10_000, 10_001, 40_000} {
		all = append(all,
			fiberHandler{fmt.Sprintf("%d bytes", n), func(c *fiber.Ctx) error { return c.SendString(letters(n)) }},
			fiberHandler{fmt.Sprintf("stream of %d bytes", n), func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader(letters(n))) }},
			fiberHandler{fmt.Sprintf("sized stream of %d bytes", n), func(c *fiber.Ctx) error {
				return c.SendStream(strings.NewReader(letters(n)), n)
			}})
	}
	return all
}

// fiberFields is a handler of Fiber that sets header fields and sends a body.
func fiberFields(name, body string, pairs ...string) fiberHandler {
	return fiberHandler{name, func(c *fiber.Ctx) error {
		for i := 0; i < len(pairs); i += 2 {
			c.Response().Header.Add(pairs[i], pairs[i+1])
		}
		return c.SendString(body)
	}}
}

// fiberHandlers returns all handlers of Fiber under test.
func fiberHandlers() []fiberHandler {
	return append(append(fiberStatuses(), fiberStreams()...),
		fiberFields("many fields", "x", "X-A", "1", "X-A", "2", "x-b", "3", "Vary", "Accept", "Vary", "Origin"),
		fiberFields("empty field", "x", "X-Empty", ""), fiberFields("spaces in a field", "x", "X-Spaces", "  a  "),
		fiberFields("line break in a field", "x", "X-Break", "a\r\nX-Evil: b"), fiberFields("no ASCII", "x", "X-Text", "grüße"),
		fiberFields("long field", "x", "X-Long", letters(2000)), fiberFields("type", html, "Content-Type", "text/csv"),
		fiberFields("json", `{"a":1}`, "Content-Type", "application/json"), fiberFields("encoding br", "\x01\x02", "Content-Encoding", "br"),
		fiberFields("etag", "x", "Etag", `"v1"`, "Last-Modified", "Fri, 01 May 2020 12:00:00 GMT"),
		fiberFields("cache-control", "x", "Cache-Control", "no-store"), fiberFields("date", "x", "Date", "Mon, 02 Jan 2006 15:04:05 GMT"),
		fiberFields("connection close", "x", "Connection", "close"), fiberFields("hop", "x", "Connection", "X-Hop", "X-Hop", "1"),
		fiberFields("server", "x", "Server", "mine"), fiberFields("location", "x", "Location", "/new"), fiberFields("marker", "x", marker, "true"),
		fiberFields("length", "abcd", "Content-Length", "4"), fiberFields("wrong length", "abcd", "Content-Length", "2"),
		fiberFields("chunked by hand", "x", "Transfer-Encoding", "chunked"), fiberFields("upgrade", "x", "Upgrade", "h2c"),
		fiberFields("cookies", "x", "Set-Cookie", "a=1; Path=/", "Set-Cookie", "b=2; HttpOnly"),
		fiberFields("exchange", "x", "X-Request-Id", "1", "Age", "5", "Alt-Svc", "clear", "Server-Timing", "a"),
		fiberHandler{"nothing", func(*fiber.Ctx) error { return nil }},
		fiberHandler{"next", func(c *fiber.Ctx) error { return c.Next() }},
		fiberHandler{"c.JSON", func(c *fiber.Ctx) error { return c.Status(201).JSON(fiber.Map{"a": 1}) }},
		fiberHandler{"c.JSON twice", func(c *fiber.Ctx) error { _ = c.JSON("a"); return c.JSON("b") }},
		fiberHandler{"c.JSON fails", func(c *fiber.Ctx) error { return c.JSON(func() {}) }},
		fiberHandler{"c.JSONP", func(c *fiber.Ctx) error { return c.JSONP("a") }},
		fiberHandler{"c.XML", func(c *fiber.Ctx) error { return c.XML(xmlValue{1}) }},
		fiberHandler{"c.Send", func(c *fiber.Ctx) error { return c.Send([]byte("\x89PNG")) }},
		fiberHandler{"c.Write", func(c *fiber.Ctx) error { _, _ = c.WriteString("a"); _, err := c.Write([]byte("b")); return err }},
		fiberHandler{"c.Type", func(c *fiber.Ctx) error { return c.Type("html", "utf-8").SendString(html) }},
		fiberHandler{"c.Format", func(c *fiber.Ctx) error { return c.Format("a") }},
		fiberHandler{"c.Redirect", func(c *fiber.Ctx) error { return c.Redirect("/new", 303) }},
		fiberHandler{"c.Attachment", func(c *fiber.Ctx) error { c.Attachment("a b.txt"); return c.SendString("x") }},
		fiberHandler{"c.Download", func(c *fiber.Ctx) error { return c.Download("testdata/file.txt") }},
		fiberHandler{"c.SendFile", func(c *fiber.Ctx) error { return c.SendFile("testdata/file.txt") }},
		fiberHandler{"c.SendFile huge", func(c *fiber.Ctx) error { return c.SendFile("testdata/huge.txt") }},
		fiberHandler{"c.SendFile missing", func(c *fiber.Ctx) error { return c.SendFile("testdata/missing") }},
		fiberHandler{"c.Cookie", func(c *fiber.Ctx) error { c.Cookie(&fiber.Cookie{Name: "a", Value: "b"}); return c.SendString("x") }},
		fiberHandler{"c.ClearCookie", func(c *fiber.Ctx) error { c.ClearCookie("a"); return c.SendString("x") }},
		fiberHandler{"c.Vary", func(c *fiber.Ctx) error { c.Vary("Accept"); c.Append("Link", "</a>", "</b>"); return c.SendString("x") }},
		fiberHandler{"c.Response.Reset", func(c *fiber.Ctx) error { c.Response().Reset(); return c.SendString("x") }},
		fiberHandler{"no default type", func(c *fiber.Ctx) error { c.Response().Header.SetNoDefaultContentType(true); return c.SendString("x") }},
		fiberHandler{"deleted field", func(c *fiber.Ctx) error {
			c.Response().Header.Del("X-A")
			c.Response().Header.Del("Vary")
			return c.SendString("x")
		}},
		fiberHandler{"set body raw", func(c *fiber.Ctx) error { c.Response().SetBodyRaw([]byte(html)); return nil }},
		fiberHandler{"connection closed", func(c *fiber.Ctx) error { c.Context().SetConnectionClose(); return c.SendString("x") }},
		fiberHandler{"trailer", func(c *fiber.Ctx) error {
			_ = c.Response().Header.SetTrailer("X-Sum")
			c.Set("X-Sum", "4")
			return c.SendStream(strings.NewReader("body"))
		}},
		fiberHandler{"error", func(*fiber.Ctx) error { return errors.New("x") }},
		fiberHandler{"error after fields", func(c *fiber.Ctx) error { c.Set("X-A", "1"); c.Status(201); return errors.New("x") }},
		fiberHandler{"error after a response", func(c *fiber.Ctx) error { _ = c.SendString("abc"); return errors.New("x") }},
		fiberHandler{"fiber.Error", func(*fiber.Ctx) error { return fiber.NewError(409, "taken") }},
		fiberHandler{"fiber.ErrNotFound", func(*fiber.Ctx) error { return fiber.ErrNotFound }},
		fiberHandler{"panic", func(*fiber.Ctx) error { panic("x") }},
		fiberHandler{"panic after text", func(c *fiber.Ctx) error { c.Set("X-A", "1"); _ = c.SendString("abc"); panic("x") }},
		fiberHandler{"net/http handler", adaptor.HTTPHandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); text(w, html) })},
		fiberHandler{"echo of the body", func(c *fiber.Ctx) error { return c.Send(c.Body()) }},
		fiberHandler{"hijack", func(c *fiber.Ctx) error {
			c.Context().HijackSetNoResponse(true)
			c.Context().Hijack(func(conn net.Conn) {
				text(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nraw")
			})
			return nil
		}},
	)
}

// fiberStreams stream.
func fiberStreams() []fiberHandler {
	return []fiberHandler{
		{"stream writer", func(c *fiber.Ctx) error {
			c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
				for i := range 5 {
					_, _ = fmt.Fprintf(w, "part %d\n", i)
					_ = w.Flush()
				}
			})
			return nil
		}},
		{"empty stream writer", func(c *fiber.Ctx) error { c.Context().SetBodyStreamWriter(func(*bufio.Writer) {}); return nil }},
		{"events", func(c *fiber.Ctx) error {
			c.Set("Content-Type", "text/event-stream")
			c.Context().SetBodyStreamWriter(func(w *bufio.Writer) { text(w, "data: 1\n\n") })
			return nil
		}},
		{"stream of 204", func(c *fiber.Ctx) error { return c.Status(204).SendStream(strings.NewReader("x")) }},
		{"stream too short", func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader("abc"), 10) }},
		{"stream too long", func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader("abcdef"), 3) }},
		{"huge stream too short", func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader(letters(11_000)), 12_000) }},
		{"stream fails", func(c *fiber.Ctx) error {
			return c.SendStream(io.MultiReader(strings.NewReader("abc"), failingReader{}))
		}},
		{"limited stream", func(c *fiber.Ctx) error { return c.SendStream(&io.LimitedReader{R: strings.NewReader("abcdef"), N: 3}) }},
		{"stream of a buffer", func(c *fiber.Ctx) error { return c.SendStream(bytes.NewBufferString(html)) }},
		{"immediate header flush", func(c *fiber.Ctx) error {
			c.Response().ImmediateHeaderFlush = true
			return c.SendStream(strings.NewReader(html))
		}},
		{"raw body of fasthttp", func(c *fiber.Ctx) error {
			var r fasthttp.Response
			r.SetStatusCode(202)
			r.SetBodyString("copied")
			r.CopyTo(c.Response())
			return nil
		}},
	}
}
