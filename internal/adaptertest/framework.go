package adaptertest

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	idemproxy "github.com/go-idem/idem/adapters/proxy"
	"github.com/go-idem/idem/core"
)

// Request is what a handler under test sees, whatever the framework.
type Request struct {
	Ctx    context.Context
	Method string
	Path   string
	Body   string
	Length int64
	Header func(string) string
	Own    context.Context // the framework's, where its context is one
}

// Response is what a handler under test does. Each framework does it in its own way.
type Response struct {
	Status int // 0: nothing is written at all
	Header http.Header
	Body   string
	Chunks []string // written one by one, flushed after each
	Err    error    // returned to the framework, which turns it into the answer
	Panics any
	Hijack bool   // answers on the raw connection
	Before func() // called between the chunks
}

// Handler is a handler under test.
type Handler func(Request) Response

// Setup is what surrounds the handler.
type Setup struct {
	Bare   bool              // without the engine
	Outer  map[string]string // header lines set by a middleware outside
	Scope  string            // name of the header that the adapter's Scope option reads
	Skip   string            // name of the header that the adapter's Skip option looks for
	Listen net.Listener
}

// Framework is an adapter under test.
type Framework struct {
	Name string
	// Start starts a server in which every route leads to the handler. It returns a function that shuts the server down gracefully.
	Start   func(engine *core.Engine, h Handler, o Setup) (shutdown func(context.Context) error)
	Skipped map[string]string // the beginnings of the names of tests that cannot apply, with the reasons

	// Fasthttp is set for frameworks on fasthttp: they speak HTTP/1.1 only, and send a stream when the handler has returned.
	Fasthttp bool
	// Mount is set for frameworks on net/http.
	Mount Mounter

	// The tests that need one of the following leave out a framework that does not have it.

	// Nest starts a server in which a handler that calls run with the body and responds "made" is behind two engines.
	Nest func(t *testing.T, outer, inner *core.Engine, run func(body io.Reader)) (url string)
	// CORS starts a server in which the framework's CORS middleware, outside the engine, exposes a header field. The handler
	// responds with Text.
	CORS func(t *testing.T, e *core.Engine, exposed string) (url string)
	// Chain starts a server with the framework's middleware for request ids, CORS and compression, outside the engine or inside.
	// The handler responds with Text.
	Chain func(t *testing.T, e *core.Engine, outside bool) (url string)
	// Deadline starts a server with the framework's middleware for deadlines, inside the engine and around h.
	Deadline func(t *testing.T, e *core.Engine, h func(context.Context) error) (url string)
	// Bridge starts a server in which the framework calls a middleware of net/http around a handler that calls run and returns an
	// error.
	Bridge func(t *testing.T, middleware func(http.Handler) http.Handler, run func()) (url string)
	// Routers start servers with POST /orders, whose handler responds 201, POST /missing and POST /forbidden, whose handlers
	// respond 404 and 405, and GET /read-only. Without an engine, the routes are bare.
	Routers map[string]func(t *testing.T, e *core.Engine) (url string)
	// Routed has each way of the framework to put the middleware before routes.
	Routed []Routed
}

// Listen listens on a free port.
func Listen(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	return l
}

// Recovered is the error by which the recovery of a framework reports a panic.
type Recovered struct{}

// Error implements error. The behaviours expect its text as the body after a panic, as ServeAround sends it.
func (*Recovered) Error() string { return "recovered" }

// RunOf returns the fence of the run and whether it is a takeover, from the context. A service behind a proxy reads them from the
// header.
func RunOf(r Request) core.Run {
	run, isKnown := core.FromContext(r.Ctx)
	if !isKnown {
		run.Fence, _ = strconv.ParseInt(r.Header(idemproxy.FenceHeader), 10, 64)
		run.Takeover = r.Header(idemproxy.TakeoverHeader) == "true"
	}
	return run
}
