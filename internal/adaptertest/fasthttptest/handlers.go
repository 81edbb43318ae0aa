package fasthttptest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/internal/adaptertest/baretest"
)

// requestCtx is fasthttp's context.
type requestCtx = fasthttp.RequestCtx

// FiberContext is what the contexts of the majors of Fiber have in common.
type FiberContext interface {
	Next() error
	Body() []byte
	Send([]byte) error
	SendString(string) error
	SendStatus(int) error
	SendStream(io.Reader, ...int) error
	JSON(any, ...string) error
	JSONP(any, ...string) error
	XML(any) error
	Write([]byte) (int, error)
	WriteString(string) (int, error)
	Set(string, string)
	Append(string, ...string)
	Vary(...string)
	Attachment(...string)
	Download(string, ...string) error
	ClearCookie(...string)
}

// FiberHandler is a handler of Fiber under test.
type FiberHandler struct {
	Name string
	Run  func(FiberContext, *requestCtx) error
}

// fiberStatuses set each kind of status, without a body and with one.
func fiberStatuses() (all []FiberHandler) {
	for _, code := range []int{
		200, 201, 202, 203, 204, 205, 206, 226, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404, 405, 407, 408, 409, 410,
		412,
		415, 418, 422, 425, 429, 431, 451, 499, 500, 501, 502, 503, 504, 599, 999,
	} {
		all = append(all,
			FiberHandler{fmt.Sprint("status ", code), func(_ FiberContext, r *requestCtx) error {
				r.SetStatusCode(code)
				return nil
			}},
			FiberHandler{fmt.Sprintf("status %d with body", code), func(c FiberContext, r *requestCtx) error {
				r.SetStatusCode(code)
				return c.SendString("body")
			}})
	}
	for _, code := range []int{100, 101, 102, 103, 199} {
		all = append(all,
			FiberHandler{fmt.Sprint("status ", code), func(_ FiberContext, r *requestCtx) error {
				r.SetStatusCode(code)
				return nil
			}},
			FiberHandler{fmt.Sprintf("status %d with field and body", code), func(c FiberContext, r *requestCtx) error {
				c.Set("Link", "</a.css>; rel=preload")
				r.SetStatusCode(code)
				return c.SendString("body")
			}})
	}
	for _, code := range []int{204, 304, 409, 500} {
		all = append(all, FiberHandler{fmt.Sprint("c.SendStatus ", code), func(c FiberContext, _ *requestCtx) error {
			return c.SendStatus(code)
		}})
	}
	for _, n := range []int{1, 199, 200, 201, 511, 2048, 4096, 4097, 9_999, 10_000, 10_001, 40_000} {
		all = append(all,
			FiberHandler{fmt.Sprintf("%d bytes", n), func(c FiberContext, _ *requestCtx) error {
				return c.SendString(baretest.Letters(n))
			}},
			FiberHandler{fmt.Sprintf("stream of %d bytes", n), func(c FiberContext, r *requestCtx) error {
				return c.SendStream(strings.NewReader(baretest.Letters(n)))
			}},
			FiberHandler{fmt.Sprintf("sized stream of %d bytes", n), func(c FiberContext, r *requestCtx) error {
				return c.SendStream(strings.NewReader(baretest.Letters(n)), n)
			}})
	}
	return all
}

// fiberFields is a handler of Fiber that sets header fields and sends a body.
func fiberFields(name, body string, pairs ...string) FiberHandler {
	return FiberHandler{name, func(c FiberContext, r *requestCtx) error {
		for i := 0; i < len(pairs); i += 2 {
			r.Response.Header.Add(pairs[i], pairs[i+1])
		}
		return c.SendString(body)
	}}
}

// FiberHandlers returns the handlers that run on all majors of Fiber. dir has the files that they send.
func FiberHandlers(dir string) []FiberHandler {
	return append(append(fiberStatuses(), fiberStreams()...),
		fiberFields("many fields", "x", "X-A", "1", "X-A", "2", "x-b", "3", "Vary", "Accept", "Vary", "Origin"),
		fiberFields("empty field", "x", "X-Empty", ""), fiberFields("spaces in a field", "x", "X-Spaces", "  a  "),
		fiberFields("line break in a field", "x", "X-Break", "a\r\nX-Evil: b"), fiberFields("no ASCII", "x", "X-Text", "grüße"),
		fiberFields("long field", "x", "X-Long", baretest.Letters(2000)),
		fiberFields("type", baretest.HTML, "Content-Type", "text/csv"),
		fiberFields("json", `{"a":1}`, "Content-Type", "application/json"),
		fiberFields("encoding br", "\x01\x02", "Content-Encoding", "br"),
		fiberFields("etag", "x", "Etag", `"v1"`, "Last-Modified", "Fri, 01 May 2020 12:00:00 GMT"),
		fiberFields("cache-control", "x", "Cache-Control", "no-store"),
		fiberFields("date", "x", "Date", "Mon, 02 Jan 2006 15:04:05 GMT"),
		fiberFields("connection close", "x", "Connection", "close"), fiberFields("hop", "x", "Connection", "X-Hop", "X-Hop", "1"),
		fiberFields("server", "x", "Server", "mine"),
		fiberFields("location", "x", "Location", "/new"),
		fiberFields("marker", "x", baretest.Marker, "true"),
		fiberFields("length", "abcd", "Content-Length", "4"), fiberFields("wrong length", "abcd", "Content-Length", "2"),
		fiberFields("chunked by hand", "x", "Transfer-Encoding", "chunked"), fiberFields("upgrade", "x", "Upgrade", "h2c"),
		fiberFields("cookies", "x", "Set-Cookie", "a=1; Path=/", "Set-Cookie", "b=2; HttpOnly"),
		fiberFields("exchange", "x", "X-Request-Id", "1", "Age", "5", "Alt-Svc", "clear", "Server-Timing", "a"),
		FiberHandler{"nothing", func(FiberContext, *requestCtx) error { return nil }},
		FiberHandler{"next", func(c FiberContext, _ *requestCtx) error { return c.Next() }},
		FiberHandler{"c.JSON", func(c FiberContext, r *requestCtx) error {
			r.SetStatusCode(201)
			return c.JSON(map[string]any{"a": 1})
		}},
		FiberHandler{"c.JSON twice", func(c FiberContext, _ *requestCtx) error { _ = c.JSON("a"); return c.JSON("b") }},
		FiberHandler{"c.JSON fails", func(c FiberContext, _ *requestCtx) error { return c.JSON(func() {}) }},
		FiberHandler{"c.JSONP", func(c FiberContext, _ *requestCtx) error { return c.JSONP("a") }},
		FiberHandler{"c.XML", func(c FiberContext, _ *requestCtx) error { return c.XML(baretest.XMLValue{A: 1}) }},
		FiberHandler{"c.Send", func(c FiberContext, _ *requestCtx) error { return c.Send([]byte("\x89PNG")) }},
		FiberHandler{"c.Write", func(c FiberContext, r *requestCtx) error {
			_, _ = c.WriteString("a")
			_, err := c.Write([]byte("b"))
			return err
		}},
		FiberHandler{"c.Attachment", func(c FiberContext, _ *requestCtx) error {
			c.Attachment("a b.txt")
			return c.SendString("x")
		}},
		FiberHandler{"c.Download", func(c FiberContext, _ *requestCtx) error { return c.Download(dir + "/file.txt") }},
		FiberHandler{"c.ClearCookie", func(c FiberContext, _ *requestCtx) error { c.ClearCookie("a"); return c.SendString("x") }},
		FiberHandler{"c.Vary", func(c FiberContext, r *requestCtx) error {
			c.Vary("Accept")
			c.Append("Link", "</a>", "</b>")
			return c.SendString("x")
		}},
		FiberHandler{"c.Response.Reset", func(c FiberContext, r *requestCtx) error {
			r.Response.Reset()
			return c.SendString("x")
		}},
		FiberHandler{"no default type", func(c FiberContext, r *requestCtx) error {
			r.Response.Header.SetNoDefaultContentType(true)
			return c.SendString("x")
		}},
		FiberHandler{"deleted field", func(c FiberContext, r *requestCtx) error {
			r.Response.Header.Del("X-A")
			r.Response.Header.Del("Vary")
			return c.SendString("x")
		}},
		FiberHandler{"set body raw", func(c FiberContext, r *requestCtx) error {
			r.Response.SetBodyRaw([]byte(baretest.HTML))
			return nil
		}},
		FiberHandler{"connection closed", func(c FiberContext, r *requestCtx) error {
			r.SetConnectionClose()
			return c.SendString("x")
		}},
		FiberHandler{"trailer", func(c FiberContext, r *requestCtx) error {
			_ = r.Response.Header.SetTrailer("X-Sum")
			c.Set("X-Sum", "4")
			return c.SendStream(strings.NewReader("body"))
		}},
		FiberHandler{"error", func(FiberContext, *requestCtx) error { return errors.New("x") }},
		FiberHandler{"error after fields", func(c FiberContext, r *requestCtx) error {
			c.Set("X-A", "1")
			r.SetStatusCode(201)
			return errors.New("x")
		}},
		FiberHandler{"error after a response", func(c FiberContext, _ *requestCtx) error {
			_ = c.SendString("abc")
			return errors.New("x")
		}},
		FiberHandler{"panic", func(FiberContext, *requestCtx) error { panic("x") }},
		FiberHandler{"panic after text", func(c FiberContext, r *requestCtx) error {
			c.Set("X-A", "1")
			_ = c.SendString("abc")
			panic("x")
		}},
		FiberHandler{"echo of the body", func(c FiberContext, _ *requestCtx) error { return c.Send(c.Body()) }},
		FiberHandler{"hijack", func(c FiberContext, r *requestCtx) error {
			r.HijackSetNoResponse(true)
			r.Hijack(func(conn net.Conn) {
				baretest.Text(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nraw")
			})
			return nil
		}},
	)
}

// fiberStreams stream.
func fiberStreams() []FiberHandler {
	return []FiberHandler{
		{"stream writer", func(c FiberContext, r *requestCtx) error {
			r.SetBodyStreamWriter(func(w *bufio.Writer) {
				for i := range 5 {
					_, _ = fmt.Fprintf(w, "part %d\n", i)
					_ = w.Flush()
				}
			})
			return nil
		}},
		{"empty stream writer", func(c FiberContext, r *requestCtx) error {
			r.SetBodyStreamWriter(func(*bufio.Writer) {})
			return nil
		}},
		{"events", func(c FiberContext, r *requestCtx) error {
			c.Set("Content-Type", "text/event-stream")
			r.SetBodyStreamWriter(func(w *bufio.Writer) { baretest.Text(w, "data: 1\n\n") })
			return nil
		}},
		{"stream of 204", func(c FiberContext, r *requestCtx) error {
			r.SetStatusCode(204)
			return c.SendStream(strings.NewReader("x"))
		}},
		{"stream too short", func(c FiberContext, _ *requestCtx) error { return c.SendStream(strings.NewReader("abc"), 10) }},
		{"stream too long", func(c FiberContext, r *requestCtx) error {
			return c.SendStream(strings.NewReader("abcdef"), 3)
		}},
		{"huge stream too short", func(c FiberContext, r *requestCtx) error {
			return c.SendStream(strings.NewReader(baretest.Letters(11_000)), 12_000)
		}},
		{"stream fails", func(c FiberContext, r *requestCtx) error {
			return c.SendStream(io.MultiReader(strings.NewReader("abc"), baretest.FailingReader{}))
		}},
		{"limited stream", func(c FiberContext, r *requestCtx) error {
			return c.SendStream(&io.LimitedReader{R: strings.NewReader("abcdef"), N: 3})
		}},
		{"stream of a buffer", func(c FiberContext, r *requestCtx) error {
			return c.SendStream(bytes.NewBufferString(baretest.HTML))
		}},
		{"immediate header flush", func(c FiberContext, r *requestCtx) error {
			r.Response.ImmediateHeaderFlush = true
			return c.SendStream(strings.NewReader(baretest.HTML))
		}},
		{"raw body of fasthttp", func(c FiberContext, r *requestCtx) error {
			var other fasthttp.Response
			other.SetStatusCode(202)
			other.SetBodyString("copied")
			other.CopyTo(&r.Response)
			return nil
		}},
	}
}
