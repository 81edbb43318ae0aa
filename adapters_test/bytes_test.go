package adapters_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemfiber "github.com/go-idem/idem/adapters/fiber"
	"github.com/go-idem/idem/core"
)

// RPL-31: first answers of many handlers, with the engine and without, byte for byte.

// act is one thing that a handler does with its writer.
type act struct {
	text string
	do   func(http.ResponseWriter)
}

func set(name, value string) act {
	return act{fmt.Sprintf("set %s: %.20q", name, value), func(w http.ResponseWriter) { w.Header().Set(name, value) }}
}

func add(name, value string) act {
	return act{"add " + name, func(w http.ResponseWriter) { w.Header().Add(name, value) }}
}

func del(name string) act {
	return act{"delete " + name, func(w http.ResponseWriter) { w.Header().Del(name) }}
}

func status(code int) act {
	return act{fmt.Sprint("status ", code), func(w http.ResponseWriter) { w.WriteHeader(code) }}
}

func write(text string) act {
	return act{fmt.Sprintf("write %d bytes of %.12q", len(text), text), func(w http.ResponseWriter) { _, _ = io.WriteString(w, text) }}
}

func copyFrom(text string) act {
	return act{fmt.Sprint("copy ", len(text)), func(w http.ResponseWriter) {
		_, _ = io.Copy(w, io.LimitReader(strings.NewReader(text), int64(len(text))))
	}}
}

var (
	flush  = act{"flush", func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }}
	noType = act{"no type", func(w http.ResponseWriter) { w.Header()["Content-Type"] = nil }}
	noDate = act{"no date", func(w http.ResponseWriter) { w.Header()["Date"] = nil }}
	html   = "<html><body>" + strings.Repeat("text ", 100)
	long   = strings.Repeat("0123456789", 400) // longer than net/http's buffer
	huge   = strings.Repeat("0123456789", 2000)
)

// shown are the handlers that were shown to differ, and their kin.
var shown = [][]act{
	{set("Content-Type", "text/csv"), status(200), del("Content-Type"), write("a,b")},
	{status(200), set("Content-Type", "text/csv"), write("a,b")},
	{status(200), set("Content-Encoding", "x"), write("a,b")},
	{set("Content-Encoding", "x"), status(200), del("Content-Encoding"), write("a,b")},
	{set("Content-Encoding", ""), write(html)},
	{set("X-A", "1"), status(201), set("X-A", "2"), set("X-Late", "1"), write("x")},
	{status(201), flush, set("X-Late", "1"), write("x")},
	{status(201), flush, write(html)},
	{flush, write(html)},
	{write("<ht"), flush, write("ml>"), write("more")},
	{write("%P"), write("DF-1"), write(huge)},
	{write(huge), write(huge)},
	{write(""), write(html)},
	{write("x"), write(long), write("y")},
	{noType, write(html)},
	{noType, status(204)},
	{noDate, write("x")},
	{set("Date", "Mon, 02 Jan 2006 15:04:05 GMT"), write("x")},
	{set("Content-Length", "3"), write("abc")},
	{set("Content-Length", "5"), write("abc")},
	{set("Content-Length", "2"), write("abc")},
	{set("Content-Length", "many"), write("abc")},
	{set("Content-Length", "-1"), write("abc")},
	{set("Content-Length", "3"), status(200), del("Content-Length"), write("abcdef")},
	{status(200), set("Content-Length", "3"), write("abcdef")},
	{set("Content-Length", "3"), status(204)},
	{set("Content-Length", "3"), status(304)},
	{set("Content-Length", "0"), write("")},
	{set("Transfer-Encoding", "identity"), write(html)},
	{set("Transfer-Encoding", "chunked"), write(html)},
	{set("Connection", "close"), write(html)},
	{set("Trailer", "X-Sum"), write("body"), set("X-Sum", "4")},
	{set("Trailer", "X-Sum"), set("X-Sum", "3"), write("body"), set("X-Sum", "4")},
	{set("Trailer", "X-Sum"), set("X-Sum", "3"), write("body"), del("X-Sum")},
	{set("Trailer", "X-Sum, Content-Length"), write(long), set("X-Sum", "4")},
	{write("body"), set("Trailer", "X-Sum"), set("X-Sum", "4")},
	{write(long), set("Trailer", "X-Sum"), set("X-Sum", "4")},
	{set(http.TrailerPrefix+"X-More", "5"), write("body")},
	{write("body"), set(http.TrailerPrefix+"X-More", "5")},
	{write(long), set(http.TrailerPrefix+"X-More", "5")},
	{flush, write("body"), set(http.TrailerPrefix+"X-More", "5")},
	{set(http.TrailerPrefix+"X-More", "5"), status(204)},
	{set("Trailer", "X-Sum"), status(204), set("X-Sum", "4")},
	{set("Trailer", "X-Sum"), set("Content-Length", "4"), write("body"), set("X-Sum", "4")},
	{status(100), status(201), write("x")},
	{set("Link", "</a>"), status(103), del("Link"), status(201), write("x")},
	{status(304), write("x")},
	{status(204), write("x")},
	{status(205), write("x")},
	{set("Content-Type", "text/csv"), status(304)},
	{status(999), write("x")},
	{add("X-A", "1"), add("X-A", "2"), add("x-a", "3"), write("x")},
	{set("X-Outer", "mine"), write("x")},
	{del("X-Outer"), write("x")},
	{del("X-Outer"), status(204)},
	{add("X-Outer", "mine"), status(201), del("X-Outer"), flush, write("x")},
	{del("X-Typed"), copyFrom(html)},
	{status(201), copyFrom(html)},
	{copyFrom(long), copyFrom(huge)},
	{},
}

// made are n handlers of acts in any order.
func made(seed uint64, n int) (handlers [][]act) {
	r := rand.New(rand.NewPCG(seed, 1))
	choice := []func() act{
		func() act {
			return status([]int{200, 201, 202, 204, 205, 206, 301, 304, 400, 404, 418, 422, 500, 503, 999}[r.IntN(15)])
		},
		func() act {
			return write([]string{"", "x", "<html>", html, long, huge, "\x00\x01\x02", "%PDF-1"}[r.IntN(8)])
		},
		func() act { return write("abc") },
		func() act { return copyFrom([]string{"x", html, long}[r.IntN(3)]) },
		func() act { return flush },
		func() act { return set([]string{"X-A", "X-Outer", "X-Sum", "Etag"}[r.IntN(4)], fmt.Sprint(r.IntN(3))) },
		func() act {
			return add([]string{"X-A", "X-Outer", "Vary", "Set-Cookie"}[r.IntN(4)], fmt.Sprint(r.IntN(3)))
		},
		func() act {
			return del([]string{"X-A", "X-Outer", "Content-Type", "Content-Length", "Trailer"}[r.IntN(5)])
		},
		func() act { return set("Content-Type", []string{"text/csv", "", "application/json"}[r.IntN(3)]) },
		func() act { return set("Content-Encoding", []string{"x", ""}[r.IntN(2)]) },
		func() act { return set("Content-Length", []string{"0", "3", "4000", "x"}[r.IntN(4)]) },
		func() act { return set("Trailer", "X-Sum") },
		func() act { return set(http.TrailerPrefix+"X-More", fmt.Sprint(r.IntN(3))) },
		func() act { return []act{noType, noDate}[r.IntN(2)] },
	}
	for range n {
		var h []act
		for range r.IntN(7) {
			h = append(h, choice[r.IntN(len(choice))]())
		}
		handlers = append(handlers, h)
	}
	return handlers
}

// plain are the frameworks of mounts without an engine.
var plain = map[string]func(http.HandlerFunc) http.Handler{
	"http": func(h http.HandlerFunc) http.Handler { return h },
	"gin": func(h http.HandlerFunc) http.Handler {
		router := gin.New()
		router.Any("/*path", func(c *gin.Context) { h(c.Writer, c.Request) })
		return router
	},
	"echo": func(h http.HandlerFunc) http.Handler {
		app := echo.New()
		app.Any("/*", func(c echo.Context) error { h(c.Response(), c.Request()); return nil })
		return app
	},
}

// answered is an answer on the wire: its head but for its date and the informational ones before it, its body, trailers, and end.
type answered struct {
	informed        int
	head, body, end string
	trailer         http.Header
	header          http.Header
}

func ask(t *testing.T, addr, method string) answered {
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = io.WriteString(conn, method+" / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: K\r\nContent-Length: 1\r\n\r\nB")
	require.NoError(t, err)
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	var a answered
	for bytes.HasPrefix(all, []byte("HTTP/1.1 10")) {
		_, all, _ = bytes.Cut(all, []byte("\r\n\r\n"))
		a.informed++
	}
	head, _, _ := bytes.Cut(all, []byte("\r\n\r\n"))
	a.head = dateLine.ReplaceAllString(string(head)+"\r\n", "")
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(all)), &http.Request{Method: method})
	if err != nil {
		a.end = err.Error()
		return a
	}
	body, err := io.ReadAll(res.Body)
	a.body, a.end, a.trailer, a.header = string(body), fmt.Sprint(err), res.Trailer, res.Header
	a.header.Del("Date")
	return a
}

// unframed is a without what depends on whether the length of its body was known.
func (a answered) unframed() answered {
	a.head = regexp.MustCompile(`(Content-Length|Transfer-Encoding): [^\r]*\r\n`).ReplaceAllString(a.head, "")
	a.header.Del("Content-Length")
	a.trailer = nil
	return a
}

// framing are the lines that may differ between an answer and its replay, besides those that are of one exchange.
var framing = []string{"Date", "Content-Length", "Trailer", "Transfer-Encoding", "Connection", "Set-Cookie", marker, "Idempotent-Body"}

func TestFirstAnswersAreAsWithoutTheEngineByteForByteAndReplaysLikeThem(t *testing.T) {
	handlers := append(slices.Clone(shown), made(1, 300)...)
	for name, wrap := range mounts {
		t.Run(name, func(t *testing.T) {
			for _, acts := range handlers {
				for _, outer := range []bool{false, true} {
					var texts []string
					for _, a := range acts {
						texts = append(texts, a.text)
					}
					title := fmt.Sprint(strings.Join(texts, ", "), "; outer lines ", outer)
					h := func(w http.ResponseWriter, _ *http.Request) {
						for _, a := range acts {
							a.do(w)
						}
					}
					around := func(inner http.Handler) *httptest.Server {
						server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							if outer {
								w.Header().Set("X-Outer", "outer")
								w.Header().Set("Content-Type", "text/x-outer")
							}
							inner.ServeHTTP(w, r)
						}))
						server.Config.ErrorLog = log.New(io.Discard, "", 0)
						server.Start()
						return server
					}
					bare, guarded := around(plain[name](h)), around(wrap(newEngine(t).With(func(c *core.Config) {
						c.Keep.MaxBody = 10_000
						c.Keep.Policy = core.KeepAll
					}), h))
					want := ask(t, bare.Listener.Addr().String(), "POST")
					first := ask(t, guarded.Listener.Addr().String(), "POST")
					if strings.Contains(title, "copy") { // held back, its length is known
						want, first = want.unframed(), first.unframed()
					}
					assert.Equal(t, want, first, title)
					replay := ask(t, guarded.Listener.Addr().String(), "POST")
					isLike(t, first, replay, title)
					assert.Equal(t, ask(t, bare.Listener.Addr().String(), "HEAD"), ask(t, guarded.Listener.Addr().String(), "HEAD"), title)
					bare.Close()
					guarded.Close()
					if t.Failed() {
						return
					}
				}
			}
		})
	}
}

// isLike: a replay is what its first answer was, but for framing and a body that was too long, or broke off.
func isLike(t *testing.T, first, replay answered, title string) {
	t.Helper()
	if first.header == nil { // it can not be read, whoever sends it
		return
	}
	assert.Equal(t, []string{"true"}, replay.header.Values(marker), title)
	if replay.header.Get("Idempotent-Body") == "" {
		assert.Equal(t, first.body, replay.body, title)
	} else {
		assert.Empty(t, replay.body)
		assert.True(t, first.end != "<nil>" || len(first.body) > 10_000, title)
	}
	for _, name := range framing {
		delete(first.header, name)
		delete(replay.header, name)
	}
	assert.Equal(t, first.header, replay.header, title)
}

// deed is one thing that a Fiber handler does.
type deed struct {
	text string
	do   func(*fiber.Ctx)
}

// deeds are n handlers of deeds in any order.
func deeds(seed uint64, n int) (handlers [][]deed) {
	r := rand.New(rand.NewPCG(seed, 2))
	name := func() string {
		return []string{"X-A", "X-Outer", "Etag", "Content-Type", "Vary", "Cache-Control"}[r.IntN(6)]
	}
	choice := []func() deed{
		func() deed {
			code := []int{200, 201, 202, 204, 205, 206, 301, 304, 400, 404, 418, 422, 500, 503, 999}[r.IntN(15)]
			return deed{fmt.Sprint("status ", code), func(c *fiber.Ctx) { c.Status(code) }}
		},
		func() deed {
			text := []string{"", "x", html, long, huge}[r.IntN(5)]
			return deed{fmt.Sprint("send ", len(text)), func(c *fiber.Ctx) { _ = c.SendString(text) }}
		},
		func() deed { return deed{"write", func(c *fiber.Ctx) { _, _ = c.WriteString("abc") }} },
		func() deed { return deed{"json", func(c *fiber.Ctx) { _ = c.JSON([]int{1}) }} },
		func() deed { return deed{"send status", func(c *fiber.Ctx) { _ = c.SendStatus(418) }} },
		func() deed {
			n, v := name(), fmt.Sprint(r.IntN(3))
			return deed{"set " + n, func(c *fiber.Ctx) { c.Set(n, v) }}
		},
		func() deed {
			n, v := name(), fmt.Sprint(r.IntN(3))
			return deed{"add " + n, func(c *fiber.Ctx) { c.Response().Header.Add(n, v) }}
		},
		func() deed {
			n := name()
			return deed{"delete " + n, func(c *fiber.Ctx) { c.Response().Header.Del(n) }}
		},
		func() deed {
			return deed{"no default type", func(c *fiber.Ctx) { c.Response().Header.SetNoDefaultContentType(true) }}
		},
		func() deed {
			return deed{"cookie", func(c *fiber.Ctx) { c.Cookie(&fiber.Cookie{Name: "a", Value: "b"}) }}
		},
		func() deed { return deed{"stream", func(c *fiber.Ctx) { _ = c.SendStream(strings.NewReader(html)) }} },
		func() deed {
			return deed{"sized stream", func(c *fiber.Ctx) { _ = c.SendStream(strings.NewReader(long), len(long)) }}
		},
		func() deed {
			return deed{"trailer", func(c *fiber.Ctx) { _ = c.Response().Header.SetTrailer("X-Sum"); c.Set("X-Sum", "4") }}
		},
		func() deed { return deed{"redirect", func(c *fiber.Ctx) { _ = c.Redirect("/elsewhere", 303) }} },
	}
	for range n {
		var h []deed
		for range r.IntN(6) {
			h = append(h, choice[r.IntN(len(choice))]())
		}
		handlers = append(handlers, h)
	}
	return handlers
}

func TestFirstAnswersOfFiberAreAsWithoutTheEngineByteForByteAndReplaysLikeThem(t *testing.T) {
	for i, todo := range deeds(1, 300) {
		var texts []string
		for _, d := range todo {
			texts = append(texts, d.text)
		}
		outer := func(c *fiber.Ctx) error {
			if i%2 == 0 {
				c.Set("X-Outer", "outer")
				c.Set("Content-Type", "text/x-outer")
			}
			return c.Next()
		}
		title := fmt.Sprint(strings.Join(texts, ", "), "; outer lines ", i%2 == 0)
		h := func(c *fiber.Ctx) error {
			for _, d := range todo {
				d.do(c)
			}
			return nil
		}
		engine := newEngine(t).With(func(c *core.Config) { c.Keep.MaxBody, c.Keep.Policy = 10_000, core.KeepAll })
		bare, guarded := fiber.New(fiber.Config{DisableStartupMessage: true}), fiber.New(fiber.Config{DisableStartupMessage: true})
		bare.Use(outer)
		guarded.Use(outer, idemfiber.Fiber(engine))
		bare.Post("/", h)
		guarded.Post("/", h)
		bareAddr, addr := strings.TrimPrefix(serveFiber(t, bare), "http://"), strings.TrimPrefix(serveFiber(t, guarded), "http://")
		want, first := ask(t, bareAddr, "POST"), ask(t, addr, "POST")
		if strings.Contains(title, "stream") { // one of a known length is held back
			want, first = want.unframed(), first.unframed()
		}
		require.Equal(t, want, first, title)
		isLike(t, first, ask(t, addr, "POST"), title)
		require.False(t, t.Failed())
	}
}
