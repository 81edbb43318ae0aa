package bare

import (
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/klauspost/compress/gzhttp"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest/baretest"
)

// wrapper wraps a handler of net/http.
type wrapper = func(http.Handler) http.Handler

// httpChains are the chains of net/http.
var httpChains = map[string]wrapper{
	"none":    func(h http.Handler) http.Handler { return h },
	"gzip":    func(h http.Handler) http.Handler { return gzhttp.GzipHandler(h) },
	"timeout": func(h http.Handler) http.Handler { return http.TimeoutHandler(h, baretest.Patience, "late") },
	"max bytes": func(h http.Handler) http.Handler {
		return http.MaxBytesHandler(h, 1000)
	},
	"strip prefix": func(h http.Handler) http.Handler {
		strip := http.StripPrefix("/none", h)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = "/none" + r.URL.Path
			strip.ServeHTTP(w, r)
		})
	},
	"recover": recovery,
	"fields": func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for name, value := range map[string]string{"X-A": "outer", "Content-Type": "text/outer", "Vary": "Outer", "Cache-Control": "outer"} {
				w.Header().Set(name, value)
			}
			h.ServeHTTP(w, r)
		})
	},
}

// recovery responds with 500 after a panic, unless the response has begun.
func recovery(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p)
			default:
				http.Error(w, "recovered", http.StatusInternalServerError)
			}
		}()
		h.ServeHTTP(w, r)
	})
}

func TestHTTP(t *testing.T) {
	all := handlers()
	f := baretest.Framework{Name: "http", Handlers: namesOf(all), Chains: sortedKeys(httpChains)}
	f.Start = func(t *testing.T, chain string, where baretest.Place, e *core.Engine, l net.Listener) {
		h := route(all)
		switch where {
		case baretest.Absent:
			h = httpChains[chain](h)
		case baretest.Outside:
			h = idem.HTTP(e)(httpChains[chain](h))
		case baretest.Inside:
			h = httpChains[chain](idem.HTTP(e)(h))
		}
		serve(t, l, h)
	}
	f.Compare(t)
}

// route returns the handler that runs handler i for the path /i.
func route(all []handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ping" {
			text(w, "pong")
			return
		}
		i, _ := strconv.Atoi(r.URL.Path[1:])
		all[i].run(w, r)
	})
}

// serve runs a server of net/http until the test ends.
func serve(t *testing.T, l net.Listener, h http.Handler) {
	// The second request of a connection needs no middleware: it only shows whether the connection is used again.
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ping" {
			text(w, "pong")
			return
		}
		h.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
}
