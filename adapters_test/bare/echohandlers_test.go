package bare

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/go-idem/idem/internal/adaptertest/baretest"
)

// echoContext is what the contexts of the majors of Echo have in common.
type echoContext interface {
	Request() *http.Request
	SetCookie(*http.Cookie)
	Bind(any) error
	JSON(int, any) error
	JSONPretty(int, any, string) error
	JSONP(int, string, any) error
	JSONBlob(int, []byte) error
	XML(int, any) error
	String(int, string) error
	HTML(int, string) error
	Blob(int, string, []byte) error
	Stream(int, string, io.Reader) error
	NoContent(int) error
	Redirect(int, string) error
	File(string) error
	Attachment(string, string) error
	Inline(string, string) error
}

// echoHandler is a handler of Echo under test. C is the context of one major.
type echoHandler[C echoContext] struct {
	name string
	run  func(C) error
}

// echoNames returns the names of the handlers.
func echoNames[C echoContext](all []echoHandler[C]) (names []string) {
	for _, h := range all {
		names = append(names, h.name)
	}
	return names
}

// echoHandlers returns the handlers that run on all majors of Echo: those of net/http, and those that use the methods of a
// context. response returns the response of a context.
func echoHandlers[C echoContext](response func(C) http.ResponseWriter) (all []echoHandler[C]) {
	for _, h := range handlers() {
		all = append(all, echoHandler[C]{h.name, func(c C) error { h.run(response(c), c.Request()); return nil }})
	}
	value := map[string]any{"id": 1, "text": "<b>"}
	return append(all, []echoHandler[C]{
		{"c.JSON", func(c C) error { return c.JSON(201, value) }},
		{"c.JSON twice", func(c C) error { _ = c.JSON(201, value); return c.JSON(400, value) }},
		{"c.JSON of 204", func(c C) error { return c.JSON(204, value) }},
		{"c.JSON fails", func(c C) error { return c.JSON(200, func() {}) }},
		{"c.JSON long", func(c C) error { return c.JSON(200, letters(9000)) }},
		{"c.JSONPretty", func(c C) error { return c.JSONPretty(200, value, " ") }},
		{"c.JSONP", func(c C) error { return c.JSONP(200, "f", value) }},
		{"c.JSONBlob", func(c C) error { return c.JSONBlob(200, []byte("{}")) }},
		{"c.XML", func(c C) error { return c.XML(200, baretest.XMLValue{A: 1}) }},
		{"c.String", func(c C) error { return c.String(200, "x") }},
		{"c.HTML", func(c C) error { return c.HTML(200, html) }},
		{"c.Blob", func(c C) error { return c.Blob(200, "image/png", []byte("\x89PNG")) }},
		{"c.Stream", func(c C) error { return c.Stream(200, "text/x", strings.NewReader(letters(3000))) }},
		{"c.Stream fails", func(c C) error {
			return c.Stream(200, "text/x", io.MultiReader(strings.NewReader("abc"), baretest.FailingReader{}))
		}},
		{"c.NoContent", func(c C) error { return c.NoContent(204) }},
		{"c.NoContent 200", func(c C) error { return c.NoContent(200) }},
		{"c.NoContent 103", func(c C) error { return c.NoContent(103) }},
		{"c.NoContent 103, then c.JSON", func(c C) error {
			response(c).Header().Set("Link", "</a.css>; rel=preload")
			_ = c.NoContent(103)
			response(c).Header().Set("X-Late", "1")
			return c.JSON(201, value)
		}},
		{"c.Redirect", func(c C) error { return c.Redirect(303, "/new") }},
		{"c.Redirect invalid", func(c C) error { return c.Redirect(200, "/new") }},
		{"c.File", func(c C) error { return c.File("testdata/file.txt") }},
		{"c.File missing", func(c C) error { return c.File("testdata/missing") }},
		{"c.Attachment", func(c C) error { return c.Attachment("testdata/file.txt", "a b.txt") }},
		{"c.Inline", func(c C) error { return c.Inline("testdata/file.txt", "a.txt") }},
		{"c.SetCookie", func(c C) error {
			c.SetCookie(&http.Cookie{Name: "a", Value: "b"})
			return c.String(200, "x")
		}},
		{"error", func(C) error { return errors.New("x") }},
		{"error after fields", func(c C) error { response(c).Header().Set("X-A", "1"); return errors.New("x") }},
		{"error after a response", func(c C) error { _ = c.String(201, "x"); return errors.New("x") }},
		{"c.Bind fails", func(c C) error {
			c.Request().Header.Set("Content-Type", "application/json")
			return c.Bind(&struct{ A int }{})
		}},
		{"c.Response.Flush", func(c C) error {
			_, _ = response(c).Write([]byte("a"))
			flush(response(c))
			text(response(c), "b")
			return nil
		}},
	}...)
}
