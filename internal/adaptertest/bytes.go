package adaptertest

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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
)

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
)

// Bodies of responses. net/http finds the type of HTML. Long is longer than its buffer, and Huge than several.
var (
	HTML = "<html><body>" + strings.Repeat("text ", 100)
	Long = strings.Repeat("0123456789", 400)
	Huge = strings.Repeat("0123456789", 2000)
)

// shown are the handlers that were shown to differ, and their kin.
var shown = [][]act{
	{set("Content-Type", "text/csv"), status(200), del("Content-Type"), write("a,b")},
	{status(200), set("Content-Type", "text/csv"), write("a,b")},
	{status(200), set("Content-Encoding", "x"), write("a,b")},
	{set("Content-Encoding", "x"), status(200), del("Content-Encoding"), write("a,b")},
	{set("Content-Encoding", ""), write(HTML)},
	{set("X-A", "1"), status(201), set("X-A", "2"), set("X-Late", "1"), write("x")},
	{status(201), flush, set("X-Late", "1"), write("x")},
	{status(201), flush, write(HTML)},
	{flush, write(HTML)},
	{write("<ht"), flush, write("ml>"), write("more")},
	{write("%P"), write("DF-1"), write(Huge)},
	{write(Huge), write(Huge)},
	{write(""), write(HTML)},
	{write("x"), write(Long), write("y")},
	{noType, write(HTML)},
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
	{set("Transfer-Encoding", "identity"), write(HTML)},
	{set("Transfer-Encoding", "chunked"), write(HTML)},
	{set("Connection", "close"), write(HTML)},
	{set("Trailer", "X-Sum"), write("body"), set("X-Sum", "4")},
	{set("Trailer", "X-Sum"), set("X-Sum", "3"), write("body"), set("X-Sum", "4")},
	{set("Trailer", "X-Sum"), set("X-Sum", "3"), write("body"), del("X-Sum")},
	{set("Trailer", "X-Sum, Content-Length"), write(Long), set("X-Sum", "4")},
	{write("body"), set("Trailer", "X-Sum"), set("X-Sum", "4")},
	{write(Long), set("Trailer", "X-Sum"), set("X-Sum", "4")},
	{set(http.TrailerPrefix+"X-More", "5"), write("body")},
	{write("body"), set(http.TrailerPrefix+"X-More", "5")},
	{write(Long), set(http.TrailerPrefix+"X-More", "5")},
	{flush, write("body"), set(http.TrailerPrefix+"X-More", "5")},
	{set(http.TrailerPrefix+"X-More", "5"), write(Long), del(http.TrailerPrefix + "X-More")},
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
	{del("X-Typed"), copyFrom(HTML)},
	{status(201), copyFrom(HTML)},
	{copyFrom(Long), copyFrom(Huge)},
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
			return write([]string{"", "x", "<html>", HTML, Long, Huge, "\x00\x01\x02", "%PDF-1"}[r.IntN(8)])
		},
		func() act { return write("abc") },
		func() act { return copyFrom([]string{"x", HTML, Long}[r.IntN(3)]) },
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

// answered is an answer on the wire: its head but for its date and the informational ones before it, its body, trailers, and end.
type answered struct {
	informed        int
	head, body, end string
	trailer         http.Header
	header          http.Header
}

// Ask sends a request on a connection of its own, and reads to its end.
func Ask(t *testing.T, addr, method string) answered {
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
	a.head = DateLine.ReplaceAllString(string(head)+"\r\n", "")
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

// keptHeader is the writer of a handler that asks for the header once, and then keeps it.
type keptHeader struct {
	http.ResponseWriter
	header http.Header
}

func (k keptHeader) Header() http.Header { return k.header }

// Unwrap is for http.ResponseController.
func (k keptHeader) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// Unframed is a without what depends on whether the length of its body was known.
func (a answered) Unframed() answered {
	a.head = regexp.MustCompile(`(Content-Length|Transfer-Encoding): [^\r]*\r\n`).ReplaceAllString(a.head, "")
	a.header.Del("Content-Length")
	a.trailer = nil
	return a
}

// framing are the lines that may differ between an answer and its replay, besides those that are of one exchange.
var framing = []string{"Date", "Content-Length", "Trailer", "Transfer-Encoding", "Connection", "Set-Cookie", Marker, "Idempotent-Body"}

// RPL-31: the handlers that were shown to differ, and 300 random ones that are the same in each run, answer on the wire as
// without the engine. Only the date may differ, and the framing of a body that was copied, since the engine knows its length. A
// limit of 10 000 bytes lies between the bodies.
func TestFirstAnswersAreAsWithoutTheEngineByteForByteAndReplaysLikeThem(t *testing.T, f Framework) {
	handlers := append(slices.Clone(shown), made(1, 300)...)
	onNetHTTP(t, f, func(t *testing.T, wrap Mounter) {
		for i, acts := range handlers {
			for _, outer := range []bool{false, true} {
				var texts []string
				for _, a := range acts {
					texts = append(texts, a.text)
				}
				title := fmt.Sprint(strings.Join(texts, ", "), "; outer lines ", outer)
				h := func(w http.ResponseWriter, _ *http.Request) {
					if i%2 == 1 {
						w = keptHeader{w, w.Header()}
					}
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
				bare, guarded := around(wrap(nil, h)), around(wrap(NewEngine(t).With(func(c *core.Config) {
					c.Keep.MaxBody = 10_000
					c.Keep.Policy = core.KeepAll
				}), h))
				want := Ask(t, bare.Listener.Addr().String(), "POST")
				first := Ask(t, guarded.Listener.Addr().String(), "POST")
				if strings.Contains(title, "copy") { // held back, its length is known
					want, first = want.Unframed(), first.Unframed()
				}
				assert.Equal(t, want, first, title)
				replay := Ask(t, guarded.Listener.Addr().String(), "POST")
				IsLike(t, first, replay, title)
				assert.Equal(t, Ask(t, bare.Listener.Addr().String(), "HEAD"), Ask(t, guarded.Listener.Addr().String(), "HEAD"), title)
				bare.Close()
				guarded.Close()
				if t.Failed() {
					return
				}
			}
		}
	})
}

// IsLike checks that a replay is what its first answer was, but for framing and a body that was too long, or broke off.
func IsLike(t *testing.T, first, replay answered, title string) {
	t.Helper()
	if first.header == nil { // it can not be read, whoever sends it
		return
	}
	assert.Equal(t, []string{"true"}, replay.header.Values(Marker), title)
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

// DateLine is the one header field that differs between two responses of the same bytes.
var DateLine = regexp.MustCompile(`Date: [^\r]*\r\n`)
