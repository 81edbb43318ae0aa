package bare

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// maxBody is Keep.MaxBody of the engines under test, in bytes. It is small, so that many bodies lie around it.
const maxBody = 10_000

// marker is the header field that only replays have.
const marker = "Idempotent-Replayed"

// place says where the engine is in a chain of middleware.
type place string

const (
	absent  place = "bare"
	outside place = "outside" // the engine runs before the middleware
	inside  place = "inside"  // the engine runs after the middleware
)

// framework is one framework with its handlers and its middleware.
type framework struct {
	name     string
	handlers []string // their names; handler i has the route /i
	chains   []string // the names of the chains of middleware; "none" has none
	start    func(t *testing.T, chain string, where place, e *core.Engine, l net.Listener)
}

// comparison is one handler in one chain, with the engine in one place.
type comparison struct {
	framework, chain string
	where            place
	shape, handler   string
}

// String returns the name by which the list of differences matches the comparison.
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
func (f framework) serve(t *testing.T, chain string, where place) string {
	t.Helper()
	engine, err := core.New(core.Config{
		Store: memstore.New(),
		Scope: core.SingleTenant,
		Keep:  core.KeepConfig{MaxBody: maxBody, Policy: core.KeepAll},
	})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f.start(t, chain, where, engine, l)
	return l.Addr().String()
}

// compare runs all comparisons of f.
func (f framework) compare(t *testing.T) {
	for n, chain := range f.chains {
		t.Run(chain, func(t *testing.T) {
			t.Parallel()
			asked := shapes
			if chain != "none" {
				asked = shapes[:1]
			}
			bare := f.serve(t, chain, absent)
			guarded := map[place]string{outside: f.serve(t, chain, outside)}
			if chain != "none" {
				guarded[inside] = f.serve(t, chain, inside)
			}
			for i := n % stride; i < len(f.handlers); i += stride {
				handler := f.handlers[i]
				for _, s := range asked {
					path := fmt.Sprintf("/%d", i)
					key := fmt.Sprintf("%s-%d", strings.ReplaceAll(s.name, " ", "-"), i)
					want := ask(t, bare, path, key, s)
					for where, addr := range guarded {
						c := comparison{f.name, chain, where, s.name, handler}
						first := ask(t, addr, path, key, s)
						c.checkFirst(t, want, first)
						if s.method == "" {
							c.checkReplay(t, first, ask(t, addr, path, key, s))
						}
					}
				}
			}
		})
	}
}

// checkFirst compares the first response with that of the bare route.
func (c comparison) checkFirst(t *testing.T, want, first reply) {
	t.Helper()
	if reflect.DeepEqual(want, first) {
		return
	}
	d := documented(c.String())
	switch {
	case d == nil:
		t.Errorf("FIRST %s\n--- bare\n%s\n--- guarded\n%s", c, want, first)
	case d.only == framingOnly && !reflect.DeepEqual(want.unframed(), first.unframed()):
		t.Errorf("FIRST %s differs by more than its framing\n--- bare\n%s\n--- guarded\n%s", c, want, first)
	}
}

// notReplayed are the header fields of one exchange and of framing (RPL-11 to RPL-16). The engine leaves them out of a replay.
var notReplayed = []string{
	"Date", "Content-Length", "Trailer", "Transfer-Encoding", "Connection", "Set-Cookie", "X-Request-Id", "Keep-Alive", "Upgrade",
	"Age", "Www-Authenticate", "Proxy-Authenticate", "Server-Timing", "Ratelimit-Limit", "X-Ratelimit-Limit", "X-Hop",
	"Alt-Svc", "Traceparent",
}

// checkReplay compares the second response under a key with the first. A second run must give the first response again.
func (c comparison) checkReplay(t *testing.T, first, second reply) {
	t.Helper()
	if second.header.Get(marker) == "" {
		d := documentedRerun(c.String())
		if d == nil {
			t.Errorf("RERUN %s: the handler ran again\n--- first\n%s\n--- second\n%s", c, first, second)
		}
		return
	}
	if first.header == nil { // No client can read the response of this handler.
		return
	}
	var faults []string
	if first.status != second.status {
		faults = append(faults, "status")
	}
	omitted := second.header.Get("Idempotent-Body") == "omitted"
	switch {
	case omitted && (second.unpacked().body != "" || first.end == "" && len(first.unpacked().body) <= maxBody):
		faults = append(faults, "omitted body")
	case !omitted && first.unpacked().body != second.unpacked().body:
		faults = append(faults, "body")
	}
	if second.end != "" {
		faults = append(faults, "end")
	}
	if a, b := comparable(first), comparable(second); !reflect.DeepEqual(a, b) {
		faults = append(faults, fmt.Sprintf("header %v, replay %v", a, b))
	}
	d := documentedReplay(c.String())
	if d != nil && d.only == framingOnly {
		faults = slices.DeleteFunc(faults, func(f string) bool { return strings.HasPrefix(f, "header") })
	}
	if len(faults) > 0 && (d == nil || d.only == framingOnly) {
		t.Errorf("REPLAY %s: %s\n--- first\n%s\n--- replay\n%s", c, strings.Join(faults, "; "), first, second)
	}
}

// comparable returns the header fields that a replay has in common with the first response.
func comparable(r reply) http.Header {
	h := maps.Clone(r.header)
	for _, name := range slices.Concat(notReplayed, []string{marker, "Idempotent-Body"}) {
		delete(h, name)
	}
	for name, values := range h {
		h[name] = []string{normal(name + ": " + strings.Join(values, "\n"))}
	}
	return h
}

// difference is a documented difference between a guarded route and a bare one.
type difference struct {
	where  string // a regular expression for comparison.String
	only   extent
	reason string
}

// extent says how far a difference may go.
type extent int

const (
	framingOnly extent = iota // Content-Length, Transfer-Encoding, Connection, and the bytes of compression; of a replay, its header
	everything
)

func find(list []difference, name string) *difference {
	for i := range list {
		if regexp.MustCompile("^(?:" + list[i].where + ")$").MatchString(name) {
			return &list[i]
		}
	}
	return nil
}

func documented(name string) *difference       { return find(differences, name) }
func documentedRerun(name string) *difference  { return find(reruns, name) }
func documentedReplay(name string) *difference { return find(replayDifferences, name) }
