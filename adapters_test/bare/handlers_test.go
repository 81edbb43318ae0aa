package bare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"strings"
	"testing/fstest"
	"time"

	"github.com/go-idem/idem/internal/adaptertest/baretest"
)

// handler is a handler of net/http under test. Gin and Echo run it with their own writers.
type handler struct {
	name string
	run  http.HandlerFunc
}

var (
	html  = baretest.HTML
	epoch = time.Date(2020, 5, 1, 12, 0, 0, 0, time.UTC)
	files = fstest.MapFS{
		"page.html":  {Data: []byte(html), ModTime: epoch},
		"data.bin":   {Data: []byte(letters(5000)), ModTime: epoch},
		"huge.bin":   {Data: []byte(letters(30_000)), ModTime: epoch},
		"empty.txt":  {ModTime: epoch},
		"dir/a.json": {Data: []byte(`{"a":1}`), ModTime: epoch},
	}
)

// letters returns n bytes of text.
func letters(n int) string { return baretest.Letters(n) }

// flush flushes w if w can.
func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// text writes s to w.
func text(w io.Writer, s string) { baretest.Text(w, s) }

// onlyReader hides all methods of a reader but Read, so that io.Copy has nothing else to use.
type onlyReader struct{ io.Reader }

// handlers returns all handlers of net/http under test.
func handlers() []handler {
	var all []handler
	for _, group := range [][]handler{
		statusHandlers(), sizeHandlers(), headerHandlers(), lengthHandlers(), trailerHandlers(), streamHandlers(), informationalHandlers(),
		panicHandlers(), hijackHandlers(), copyHandlers(), fileHandlers(), bodyHandlers(), libraryHandlers(),
	} {
		all = append(all, group...)
	}
	return all
}

// statusHandlers set each kind of status, without a body and with one.
func statusHandlers() (all []handler) {
	for _, code := range []int{
		200, 201, 202, 203, 204, 205, 206, 207, 226, 299, 300, 301, 302, 303, 304, 305, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407,
		408, 409, 410, 411, 412, 413, 415, 416, 418, 421, 422, 425, 428, 429, 431, 451, 499, 500, 501, 502, 503, 504, 507, 511, 599, 600, 999,
	} {
		all = append(all, handler{fmt.Sprint("status ", code), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }})
	}
	for _, code := range []int{200, 201, 204, 205, 206, 304, 404, 500, 999} {
		all = append(all, handler{fmt.Sprintf("status %d with body", code), func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			text(w, "body")
		}})
	}
	for _, code := range []int{301, 302, 303, 307, 308} {
		all = append(all, handler{fmt.Sprint("redirect ", code), func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere?a=b", code)
		}})
	}
	return append(all,
		handler{"nothing", func(http.ResponseWriter, *http.Request) {}},
		handler{"empty write", func(w http.ResponseWriter, _ *http.Request) { text(w, "") }},
		handler{"two statuses", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.WriteHeader(404); text(w, "x") }},
		handler{"status after a write", func(w http.ResponseWriter, _ *http.Request) { text(w, "x"); w.WriteHeader(404) }},
		handler{"status 101", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Upgrade", "x")
			w.Header().Set("Connection", "Upgrade")
			w.WriteHeader(101)
		}},
		handler{"status 99", func(w http.ResponseWriter, _ *http.Request) {
			defer func() { w.Header().Set("X-Panic", fmt.Sprint(recover() != nil)) }()
			w.WriteHeader(99)
		}},
	)
}

// sizeHandlers write bodies of sizes around each limit: of detection, of net/http's buffers, of compression, and of MaxBody.
func sizeHandlers() (all []handler) {
	for _, n := range []int{1, 255, 256, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 9_999, 10_000, 10_001, 40_000} {
		all = append(all, handler{fmt.Sprintf("%d bytes", n), func(w http.ResponseWriter, _ *http.Request) { text(w, letters(n)) }})
	}
	for _, n := range []int{400, 2048, 2049, 10_000, 10_001} {
		all = append(all, handler{fmt.Sprintf("%d bytes in writes of 100", n), func(w http.ResponseWriter, _ *http.Request) {
			for left := n; left > 0; left -= 100 {
				text(w, letters(min(left, 100)))
			}
		}})
	}
	return append(all,
		handler{"short, then long", func(w http.ResponseWriter, _ *http.Request) { text(w, "<ht"); text(w, "ml>"+letters(5000)) }},
		handler{"empty, then long", func(w http.ResponseWriter, _ *http.Request) { text(w, ""); text(w, letters(5000)) }},
		handler{"over the limit in two", func(w http.ResponseWriter, _ *http.Request) { text(w, letters(9000)); text(w, letters(9000)) }},
	)
}

// fields is a handler that sets header fields and writes a body.
func fields(name, body string, pairs ...string) handler {
	return handler{name, func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(pairs); i += 2 {
			w.Header().Add(pairs[i], pairs[i+1])
		}
		text(w, body)
	}}
}

// headerHandlers set header fields of all shapes.
func headerHandlers() []handler {
	return []handler{
		fields("many fields", "x", "X-A", "1", "X-A", "2", "x-b", "3", "Vary", "Accept", "Vary", "Origin"),
		fields("empty field", "x", "X-Empty", ""),
		fields("spaces in a field", "x", "X-Spaces", "  a  "),
		fields("line break in a field", "x", "X-Break", "a\r\nX-Evil: b"),
		fields("no ASCII", "x", "X-Text", "grüße"),
		fields("invalid name", "x", "X Invalid", "1"),
		fields("long field", "x", "X-Long", letters(3000)),
		fields("cookies", "x", "Set-Cookie", "a=1; Path=/", "Set-Cookie", "b=2; HttpOnly"),
		fields("type", html, "Content-Type", "text/csv"),
		fields("empty type", html, "Content-Type", ""),
		fields("two types", html, "Content-Type", "text/csv", "Content-Type", "text/plain"),
		fields("detected html", html), fields("detected pdf", "%PDF-1.7"), fields("detected binary", "\x00\x01\x02"),
		fields("detected png", "\x89PNG\x0d\x0a\x1a\x0a"), fields("json", `{"a":1}`, "Content-Type", "application/json; charset=utf-8"),
		fields("encoding br", "\x01\x02", "Content-Encoding", "br"), fields("empty encoding", html, "Content-Encoding", ""),
		fields("etag", "x", "Etag", `"v1"`, "Last-Modified", "Fri, 01 May 2020 12:00:00 GMT"),
		fields("cache-control", "x", "Cache-Control", "no-store, private", "Pragma", "no-cache"),
		fields("fixed date", "x", "Date", "Mon, 02 Jan 2006 15:04:05 GMT"),
		fields("connection close", "x", "Connection", "close"), fields("connection keep-alive", "x", "Connection", "keep-alive"),
		fields("hop", "x", "Connection", "X-Hop", "X-Hop", "1"), fields("keep-alive", "x", "Keep-Alive", "timeout=5"),
		fields("upgrade", "x", "Upgrade", "h2c"), fields("server", "x", "Server", "mine"), fields("location", "x", "Location", "/new"),
		fields("authenticate", "x", "Www-Authenticate", "Basic", "Proxy-Authenticate", "Basic"),
		fields("exchange", "x", "X-Request-Id", "1", "Age", "5", "Alt-Svc", "clear", "Server-Timing", "a", "Traceparent", "b"),
		fields("rate limits", "x", "Ratelimit-Limit", "1", "X-Ratelimit-Remaining", "2"),
		fields("marker", "x", baretest.Marker, "true"), fields("cors", "x", "Access-Control-Allow-Origin", "*", "Vary", "Origin"),
		fields("chunked by hand", "x", "Transfer-Encoding", "chunked"), fields("identity", html, "Transfer-Encoding", "identity"),
		fields("nosniff", html, "X-Content-Type-Options", "nosniff"), fields("disposition", "x", "Content-Disposition", `attachment; filename="a"`),
		{"no type", func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = nil; text(w, html) }},
		{"no date", func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = nil; text(w, "x") }},
		{"lower case name", func(w http.ResponseWriter, _ *http.Request) { w.Header()["x-lower"] = []string{"1"}; text(w, "x") }},
		{"field after status", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-A", "1")
			w.WriteHeader(201)
			w.Header().Set("X-A", "2")
			w.Header().Set("X-Late", "1")
			text(w, "x")
		}},
		{"cleared header", func(w http.ResponseWriter, _ *http.Request) { clear(w.Header()); text(w, "x") }},
		{"deleted Vary", func(w http.ResponseWriter, _ *http.Request) { w.Header().Del("Vary"); text(w, html) }},
		{"set cookie", func(w http.ResponseWriter, _ *http.Request) {
			http.SetCookie(w, &http.Cookie{Name: "a", Value: "b c", Secure: true})
		}},
		{"negotiated", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("Vary", "Accept")
			if strings.Contains(r.Header.Get("Accept"), "json") {
				text(w, `{}`)
				return
			}
			http.Error(w, "not acceptable", http.StatusNotAcceptable)
		}},
	}
}

// lengthHandlers set Content-Length by hand, rightly and wrongly.
func lengthHandlers() (all []handler) {
	for _, length := range []string{"0", "2", "4", "5", "04", "+4", "-1", "4x", " 4 ", "99999999999999999999"} {
		all = append(all, fields(fmt.Sprintf("length %q of 4 bytes", length), "abcd", "Content-Length", length))
	}
	all = append(all, fields("two lengths", "abcd", "Content-Length", "4", "Content-Length", "4"),
		fields("length of long", letters(5000), "Content-Length", "5000"), fields("length of huge", letters(12_000), "Content-Length", "12000"),
		fields("short of a huge length", letters(5000), "Content-Length", "12000"),
		fields("length and chunks", "abcd", "Content-Length", "4", "Transfer-Encoding", "chunked"), fields("length without body", "", "Content-Length", "5"))
	for _, code := range []int{204, 205, 304, 200} {
		all = append(all, handler{fmt.Sprintf("length 3 of status %d", code), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			w.WriteHeader(code)
		}})
	}
	return append(all, handler{"result of writes", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "40")
		n1, err1 := io.WriteString(w, letters(30))
		n2, err2 := io.WriteString(w, letters(30))
		text(w, fmt.Sprintf("%010v", fmt.Sprint(n1, err1, n2, errors.Is(err2, http.ErrContentLength))[:10]))
	}}, handler{"result of a write to 204", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(204)
		if n, err := w.Write([]byte("x")); n != 0 || !errors.Is(err, http.ErrBodyNotAllowed) {
			panic(fmt.Sprint(n, err))
		}
	}})
}

// trailerHandlers send trailers, announced and not.
func trailerHandlers() []handler {
	return []handler{
		{"trailer", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			text(w, "body")
			w.Header().Set("X-Sum", "4")
		}},
		{"two trailers", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Trailer", "X-Sum, X-B")
			text(w, letters(5000))
			w.Header().Set("X-Sum", "4")
			w.Header().Add("X-B", "1")
			w.Header().Add("X-B", "2")
		}},
		{"trailer without value", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Trailer", "X-Sum"); text(w, "body") }},
		{"trailer by prefix", func(w http.ResponseWriter, _ *http.Request) {
			text(w, "body")
			flush(w)
			w.Header().Set(http.TrailerPrefix+"X-More", "5")
		}},
		{"trailer by prefix without flush", func(w http.ResponseWriter, _ *http.Request) {
			text(w, "body")
			w.Header().Set(http.TrailerPrefix+"X-More", "5")
		}},
		{"trailer of 204", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			w.WriteHeader(204)
			w.Header().Set("X-Sum", "4")
		}},
	}
}

// streamHandlers flush.
func streamHandlers() []handler {
	return []handler{
		{"flush", func(w http.ResponseWriter, _ *http.Request) { flush(w) }},
		{"flush of status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202); flush(w) }},
		{"flush then text", func(w http.ResponseWriter, _ *http.Request) { flush(w); text(w, html) }},
		{"text then flush", func(w http.ResponseWriter, _ *http.Request) { text(w, html); flush(w) }},
		{"stream", func(w http.ResponseWriter, _ *http.Request) {
			for i := range 5 {
				_, _ = fmt.Fprintf(w, "part %d\n", i)
				flush(w)
			}
		}},
		{"events", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
				flush(w)
			}
		}},
		{"huge stream", func(w http.ResponseWriter, _ *http.Request) { text(w, "a"); flush(w); text(w, letters(30_000)) }},
		{"stream with length", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			text(w, "01234")
			flush(w)
			text(w, "56789")
		}},
		{"stream too short", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			text(w, "01234")
			flush(w)
		}},
		{"flush of 204", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204); flush(w) }},
		{"flush of 304", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304); flush(w); text(w, "x") }},
		{"flusher", func(w http.ResponseWriter, _ *http.Request) {
			f, ok := w.(http.Flusher)
			text(w, fmt.Sprint(ok))
			if ok {
				f.Flush()
			}
		}},
	}
}

// informationalHandlers send 1xx responses.
func informationalHandlers() []handler {
	return []handler{
		{"early hints", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</a.css>; rel=preload")
			w.WriteHeader(103)
			w.Header().Del("Link")
			w.WriteHeader(201)
			text(w, "x")
		}},
		{"processing twice", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(102); w.WriteHeader(102); text(w, "x") }},
		{"continue", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(100); w.WriteHeader(204) }},
		{"hints alone", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Link", "</a>"); w.WriteHeader(103) }},
	}
}

// panicHandlers panic. In chains with a recovery, that responds.
func panicHandlers() []handler {
	return []handler{
		{"panic", func(http.ResponseWriter, *http.Request) { panic("x") }},
		{"panic after field", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-A", "1"); panic("x") }},
		{"panic after status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); panic("x") }},
		{"panic after text", func(w http.ResponseWriter, _ *http.Request) { text(w, "abc"); panic("x") }},
		{"panic after long text", func(w http.ResponseWriter, _ *http.Request) { text(w, letters(9000)); panic("x") }},
		{"panic after huge text", func(w http.ResponseWriter, _ *http.Request) { text(w, letters(20_000)); panic("x") }},
		{"panic after flush", func(w http.ResponseWriter, _ *http.Request) { text(w, "abc"); flush(w); panic("x") }},
		{"abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{"recovered panic", func(w http.ResponseWriter, _ *http.Request) {
			defer func() { http.Error(w, fmt.Sprint(recover()), 500) }()
			panic("x")
		}},
	}
}

// hijackHandlers take the connection over.
func hijackHandlers() []handler {
	raw := func(w http.ResponseWriter) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			text(w, err.Error())
			return
		}
		text(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nraw")
		_ = conn.Close()
	}
	return []handler{
		{"hijack", func(w http.ResponseWriter, _ *http.Request) { raw(w) }},
		{"hijack after field", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-A", "1"); raw(w) }},
		{"hijacker", func(w http.ResponseWriter, _ *http.Request) {
			h, ok := w.(http.Hijacker)
			if !ok {
				text(w, "no hijacker")
				return
			}
			conn, _, err := h.Hijack()
			if err != nil {
				text(w, err.Error())
				return
			}
			text(conn, "HTTP/1.1 204 No Content\r\n\r\n")
			_ = conn.Close()
		}},
	}
}

// copyHandlers use io.Copy and the optional methods of writers.
func copyHandlers() (all []handler) {
	for _, n := range []int{0, 10, 511, 512, 3000, 9_999, 20_000} {
		all = append(all,
			handler{fmt.Sprintf("copy of %d", n), func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.Copy(w, strings.NewReader(letters(n)))
			}},
			handler{fmt.Sprintf("copy of %d from a plain reader", n), func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.Copy(w, onlyReader{strings.NewReader(letters(n))})
			}})
	}
	return append(all,
		handler{"copy after text", func(w http.ResponseWriter, _ *http.Request) {
			text(w, "abc")
			_, _ = io.Copy(w, onlyReader{strings.NewReader(letters(3000))})
		}},
		handler{"read from", func(w http.ResponseWriter, _ *http.Request) {
			if f, ok := w.(io.ReaderFrom); ok {
				_, _ = f.ReadFrom(strings.NewReader(letters(3000)))
				return
			}
			text(w, letters(3000))
		}},
		handler{"deadlines", func(w http.ResponseWriter, _ *http.Request) {
			c := http.NewResponseController(w)
			text(w, fmt.Sprint(c.SetReadDeadline(time.Now().Add(baretest.Patience)), c.SetWriteDeadline(time.Now().Add(baretest.Patience)), c.EnableFullDuplex()))
		}},
	)
}

// fileHandlers serve files.
func fileHandlers() []handler {
	serve := func(name string, prepare ...func(*http.Request)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			clone := r.Clone(r.Context())
			for _, p := range prepare {
				p(clone)
			}
			content, _ := fs.ReadFile(files, name)
			http.ServeContent(w, clone, name, epoch, bytes.NewReader(content))
		}
	}
	with := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	get := func(r *http.Request) { r.Method = http.MethodGet }
	server := func(path string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			clone := r.Clone(r.Context())
			clone.URL.Path = path
			http.FileServerFS(files).ServeHTTP(w, clone)
		}
	}
	return []handler{
		{"file html", serve("page.html")}, {"file long", serve("data.bin")}, {"file huge", serve("huge.bin")}, {"file empty", serve("empty.txt")},
		{"file range", serve("data.bin", with("Range", "bytes=10-19"))}, {"file ranges", serve("empty.txt", with("Range", "bytes=10-19"))},
		{"file bad range", serve("data.bin", with("Range", "bytes=9999-"))},
		{"file not modified", serve("data.bin", get, with("If-Modified-Since", epoch.Format(http.TimeFormat)))},
		{"file precondition failed", serve("data.bin", with("If-Unmodified-Since", "Mon, 02 Jan 2006 15:04:05 GMT"))},
		{"server file", server("/data.bin")}, {"server directory", server("/dir/")}, {"server redirect", server("/dir")}, {"server 404", server("/none")},
		{"http.ServeFile", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, "testdata/file.txt") }},
		{"http.ServeFile huge", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, "testdata/huge.txt") }},
	}
}

// bodyHandlers do things with the request's body.
func bodyHandlers() []handler {
	return []handler{
		{"echo of the body", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, onlyReader{r.Body}) }},
		{"closed body", func(w http.ResponseWriter, r *http.Request) {
			_ = r.Body.Close()
			_, err := io.ReadAll(r.Body)
			text(w, fmt.Sprint(err))
		}},
		{"body after the response", func(w http.ResponseWriter, r *http.Request) {
			text(w, "x")
			flush(w)
			body, err := io.ReadAll(r.Body)
			text(w, fmt.Sprint(string(body), err))
		}},
		{"MaxBytesReader", func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 0))
			http.Error(w, fmt.Sprint(err), http.StatusRequestEntityTooLarge)
		}},
		{"form", func(w http.ResponseWriter, r *http.Request) {
			text(w, fmt.Sprint(r.FormValue("a"), r.ParseForm(), r.ContentLength))
		}},
		{"write after return", func(w http.ResponseWriter, _ *http.Request) {
			text(w, "x")
			go func() { time.Sleep(10 * time.Millisecond) }()
		}},
	}
}

// libraryHandlers are handlers and writers of the standard library.
func libraryHandlers() []handler {
	return []handler{
		{"http.Error", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad", 400) }},
		{"http.Error after fields", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "999")
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Etag", `"x"`)
			http.Error(w, "bad", 500)
		}},
		{"http.NotFound", http.NotFound},
		{"json encoder", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"id": 1, "items": []int{1, 2, 3}})
		}},
		{"multipart", func(w http.ResponseWriter, _ *http.Request) {
			m := multipart.NewWriter(w)
			_ = m.SetBoundary("b")
			w.Header().Set("Content-Type", m.FormDataContentType())
			_ = m.WriteField("a", "1")
			_ = m.Close()
		}},
		{"timeout handler", http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-A", "1")
			w.WriteHeader(201)
			text(w, html)
		}), baretest.Patience, "late").ServeHTTP},
		{"mux 404", http.NewServeMux().ServeHTTP},
	}
}
