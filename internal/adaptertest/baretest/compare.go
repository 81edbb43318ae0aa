package baretest

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// maxBody is Keep.MaxBody of the engines under test, in bytes. It is small, so that many bodies lie around it.
const maxBody = 10_000

// The header fields that only replays have.
const (
	Marker      = "Idempotent-Replayed"
	omittedBody = "Idempotent-Body"
)

// Place says where the engine is in a chain of middleware.
type Place string

const (
	Absent  Place = "bare"    // the route has no engine
	Outside Place = "outside" // the engine runs before the middleware
	Inside  Place = "inside"  // the engine runs after the middleware
)

// Framework is one framework with its handlers and its middleware.
type Framework struct {
	Name     string
	Handlers []string // their names; handler i has the route /i
	Chains   []string // the names of the chains of middleware; "none" has none
	// Start starts the server of one chain with the engine in one place.
	Start func(t *testing.T, chain string, where Place, e *core.Engine, l net.Listener)
}

// comparison is one handler in one chain, with the engine in one place.
type comparison struct {
	framework, chain string
	where            Place
	shape, handler   string
}

// String returns the name of the comparison in the lists of differences.
func (c comparison) String() string {
	return fmt.Sprintf("%s/%s/%s/%s/%s", c.framework, c.chain, c.where, c.shape, c.handler)
}

// plainShape is the request that every handler gets in every chain.
var plainShape = shape{name: "post", fields: "Origin: https://shop.example\r\nAccept-Encoding: gzip\r\n"}

// shapes are the requests that every handler gets without middleware.
var shapes = []shape{
	plainShape,
	{name: "head", method: http.MethodHead},
	{name: "options", method: http.MethodOptions},
	{name: "http10", version: "1.0"},
	{name: "http10 keep-alive", version: "1.0", fields: "Connection: keep-alive\r\n"},
	{name: "close", fields: "Connection: close\r\n"},
	{name: "chunked", body: "Transfer-Encoding: chunked\r\n\r\n1\r\nB\r\n0\r\n\r\n"},
}

// serve starts the server of one chain, and returns its address.
func (f Framework) serve(t *testing.T, chain string, where Place) string {
	t.Helper()
	engine, err := core.New(core.Config{
		Store: memstore.New(),
		Scope: core.SingleTenant,
		Keep:  core.KeepConfig{MaxBody: maxBody, Policy: core.KeepAll},
		Wait:  core.WaitConfig{Timeout: Patience}, // The client of a hijacked connection may send again before the run has ended.
	})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f.Start(t, chain, where, engine, l)
	return l.Addr().String()
}

// Compare runs all comparisons of f.
func (f Framework) Compare(t *testing.T) {
	r, compared := readRecord(t, f), atomic.Int64{}
	t.Cleanup(func() { // after all chains
		if stride == 1 && int(compared.Load()) == len(f.Chains) {
			r.finish(t)
			wholeRuns.Add(1)
		}
	})
	for n, chain := range f.Chains {
		t.Run(chain, func(t *testing.T) {
			t.Parallel()
			f.compareChain(t, chain, n%stride, r)
			compared.Add(1)
		})
	}
}

// compareChain runs the comparisons of one chain, from the handler with the index start on.
func (f Framework) compareChain(t *testing.T, chain string, start int, r *record) {
	asked := shapes
	if chain != "none" {
		asked = shapes[:1]
	}
	bare := f.serve(t, chain, Absent)
	guarded := map[Place]string{Outside: f.serve(t, chain, Outside)}
	if chain != "none" {
		guarded[Inside] = f.serve(t, chain, Inside)
	}
	for i := start; i < len(f.Handlers); i += stride {
		for _, s := range asked {
			path := fmt.Sprintf("/%d", i)
			key := fmt.Sprintf("%s-%d", strings.ReplaceAll(s.name, " ", "-"), i)
			want := ask(t, bare, path, key, s)
			for where, addr := range guarded {
				c := comparison{f.Name, chain, where, s.name, f.Handlers[i]}
				first := ask(t, addr, path, key, s)
				r.check(t, ofFirst, c, want, first, delta(want, first))
				if s.method == "" {
					c.checkSecond(t, r, first, ask(t, addr, path, key, s))
				}
			}
		}
	}
}

// notReplayed are the header fields of one exchange and of framing (RPL-11 to RPL-16), which the engine leaves out of a replay,
// and those that only replays have.
var notReplayed = []string{
	"Date", "Content-Length", "Trailer", "Transfer-Encoding", "Connection", "Set-Cookie", "X-Request-Id", "Keep-Alive", "Upgrade",
	"Age", "Www-Authenticate", "Proxy-Authenticate", "Server-Timing", "Ratelimit-Limit", "X-Ratelimit-Limit", "X-Hop",
	"Alt-Svc", "Traceparent", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", Marker, omittedBody,
}

// checkSecond compares the second response under a key with the first. A replay has no 1xx responses and no trailers, and its
// framing is its own. A second run must give the first response again, byte for byte.
func (c comparison) checkSecond(t *testing.T, r *record, first, second reply) {
	t.Helper()
	if !second.isReplay() {
		r.check(t, ofRerun, c, first, second, delta(first, second))
		return
	}
	if first.header == nil { // No client can read the response of this handler.
		return
	}
	a, b := first.replayed(), second.replayed()
	if second.end != "" {
		t.Errorf("%s: the replay broke off: %s\n%s", c, second.end, second)
	}
	isOmitted := second.header.Get(omittedBody) == "omitted"
	mayOmit := first.end != "" || len(a.body) > maxBody
	if isOmitted && mayOmit {
		a.body = ""
	}
	parts := delta(a, b)
	if isOmitted && !mayOmit {
		parts = append(parts, "field "+omittedBody+": is there")
	}
	r.check(t, ofReplay, c, first, second, parts)
}

// replayed returns those parts of r that a replay and the first response have in common.
func (r reply) replayed() reply {
	fields := strings.Split(r.head, "\r\n")
	fields = slices.DeleteFunc(fields, func(field string) bool {
		name, _, _ := strings.Cut(field, ": ")
		return slices.ContainsFunc(notReplayed, func(not string) bool { return strings.EqualFold(name, not) })
	})
	slices.Sort(fields[1:])
	return reply{head: strings.Join(fields, "\r\n"), body: r.unpacked().body}
}
