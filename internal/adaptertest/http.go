package adaptertest

import (
	"bufio"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"

	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
)

// Serve runs a net/http server as every real one should be run: with its panics recovered outside the engine.
func Serve(l net.Listener, h http.Handler) func(context.Context) error {
	server := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(l) }()
	return server.Shutdown
}

// HTTP is the adapter for net/http.
var HTTP = Framework{Name: "http", Start: StartHTTP, Mount: MountHTTP, Nest: nestHTTP, Routers: httpRouters, Routed: httpRouted}

// StartHTTP starts a net/http server for HTTP.
func StartHTTP(e *core.Engine, h Handler, o Setup) func(context.Context) error {
	var next http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		a := h(Request{r.Context(), r.Method, r.URL.Path, string(body), r.ContentLength, r.Header.Get, r.Context()})
		WriteHTTP(w, a)
	})
	if !o.Bare {
		var opts []idemhttp.Option
		if o.Scope != "" {
			opts = append(opts, idemhttp.Scope(func(r *http.Request) string { return r.Header.Get(o.Scope) }))
		}
		if o.Skip != "" {
			opts = append(opts, idemhttp.Skip(func(r *http.Request) bool { return r.Header.Get(o.Skip) != "" }))
		}
		next = BesideStatus(idemhttp.HTTP(e, opts...)(next), idemhttp.Status(e, opts...))
	}
	return ServeAround(next, o)
}

// BesideStatus is a handler with the status of keys at GET /status.
func BesideStatus(guarded, status http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/status" {
			status.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// ServeAround serves next behind the middleware of a setup and one that recovers panics.
func ServeAround(next http.Handler, o Setup) func(context.Context) error {
	return Serve(o.Listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range o.Outer {
			w.Header().Set(name, value)
		}
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				http.Error(w, "recovered", http.StatusInternalServerError)
			} else if p != nil {
				panic(p)
			}
		}()
		next.ServeHTTP(w, r)
	}))
}

// WriteHTTP does what an answer says on a plain writer.
func WriteHTTP(w http.ResponseWriter, a Response) {
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	switch {
	case a.Panics != nil:
		panic(a.Panics)
	case a.Hijack:
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		AnswerRaw(conn, rw.Writer)
	case a.Err != nil:
		http.Error(w, a.Err.Error(), http.StatusTeapot)
	case a.Status != 0:
		w.WriteHeader(a.Status)
		if a.Body != "" {
			_, _ = io.WriteString(w, a.Body)
		}
		for i, chunk := range a.Chunks {
			if i > 0 && a.Before != nil {
				a.Before()
			}
			_, _ = io.WriteString(w, chunk)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// AnswerRaw speaks on a connection that was taken over.
func AnswerRaw(conn net.Conn, w *bufio.Writer) {
	_, _ = w.WriteString("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nraw")
	_ = w.Flush()
	_ = conn.Close()
}

// MountHTTP is the Mounter of HTTP.
func MountHTTP(e *core.Engine, h http.HandlerFunc) http.Handler {
	if e == nil {
		return h
	}
	return idemhttp.HTTP(e)(h)
}

func nestHTTP(t *testing.T, outer, inner *core.Engine, run func(io.Reader)) string {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		run(r.Body)
		w.WriteHeader(201)
		_, _ = io.WriteString(w, "made")
	})
	return NewServer(t, idemhttp.HTTP(outer)(idemhttp.HTTP(inner)(h)))
}

// httpRouters are the services of TestAMistypedRouteDoesNotUseItsKey.
var httpRouters = map[string]func(*testing.T, *core.Engine) (url string){
	"http": func(t *testing.T, e *core.Engine) string {
		if e == nil {
			return NewServer(t, httpRoutes())
		}
		return NewServer(t, idemhttp.HTTP(e)(httpRoutes()))
	},
	"http, a router of another kind": func(t *testing.T, e *core.Engine) string {
		h, route := otherRouter(httpRoutes())
		if e == nil {
			return NewServer(t, h)
		}
		return NewServer(t, idemhttp.HTTP(e, idemhttp.Route(func(r *http.Request) string {
			return strings.TrimSuffix(route(r), "/orders") // A handler that responds 201 is one, also if its route is not known.
		}))(h))
	},
}

func httpRoutes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
	mux.HandleFunc("POST /missing", http.NotFound)
	mux.HandleFunc("POST /forbidden", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(405) })
	mux.HandleFunc("GET /read-only", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// otherRouter makes of a mux a router of another kind, which writes its routes otherwise, and a function for the option Route.
func otherRouter(mux *http.ServeMux) (h http.Handler, route func(*http.Request) string) {
	return http.HandlerFunc(mux.ServeHTTP), func(r *http.Request) string {
		_, pattern := mux.Handler(r)
		_, path, _ := strings.Cut(pattern, " ")
		return strings.ReplaceAll(path, "{id}", ":id")
	}
}

var httpRouted = []Routed{
	{"net/http, around the mux", func(e *core.Engine) func(*http.Request) *http.Response {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /shop/orders/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
		return Recorded(idemhttp.HTTP(e)(mux))
	}, "/shop/orders/{id}", "", ""},
	{"net/http, inside the mux", func(e *core.Engine) func(*http.Request) *http.Response {
		mux := http.NewServeMux()
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
		mux.Handle("POST /shop/orders/{id}", idemhttp.HTTP(e)(handler))
		mux.Handle("POST /shop/", idemhttp.HTTP(e)(http.NotFoundHandler()))
		return Recorded(mux)
	}, "/shop/orders/{id}", "/shop/orders/{id}", "/shop/"},
	{"net/http, a router of another kind", func(e *core.Engine) func(*http.Request) *http.Response {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /shop/orders/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
		h, route := otherRouter(mux)
		return Recorded(idemhttp.HTTP(e, idemhttp.Route(route))(h))
	}, "/shop/orders/:id", "/shop/orders/:id", ""},
	{"net/http, a mux in a mux", func(e *core.Engine) func(*http.Request) *http.Response {
		inner, outer := http.NewServeMux(), http.NewServeMux()
		inner.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
		outer.Handle("/shop/", idemhttp.HTTP(e)(http.StripPrefix("/shop", inner)))
		return Recorded(outer)
	}, "/shop/", "/shop/", "/shop/"}, // http.StripPrefix hides the inner pattern
}
