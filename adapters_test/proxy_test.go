package adapters_test

import (
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemhttp "github.com/go-idem/idem/adapters/http"
	idemproxy "github.com/go-idem/idem/adapters/proxy"
	"github.com/go-idem/idem/core"
)

// startProxy starts two servers: the proxy, and behind it, on a port of its own, the service with the handler. The service knows
// nothing of the engine. A handler that streams says so in a header field, which the proxy removes.
func startProxy(e *core.Engine, h handler, o setup) func(context.Context) error {
	if o.bare {
		return startHTTP(e, h, o)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	stopService := startHTTP(e, streaming(h), setup{bare: true, listen: listener})
	cfg := idemproxy.Config{
		Upstream:    &url.URL{Scheme: "http", Host: listener.Addr().String()},
		ScopeHeader: o.scope, ErrorLog: log.New(io.Discard, "", 0),
	}
	if o.skip != "" {
		cfg.Skip = func(r *http.Request) bool { return r.Header.Get(o.skip) != "" }
	}
	proxy, err := idemproxy.New(e, cfg)
	if err != nil {
		panic(err)
	}
	scope := idemhttp.Scope(func(r *http.Request) string { return r.Header.Get(o.scope) })
	stopProxy := serveAround(besideStatus(proxy, idemhttp.Status(e, scope)), o)
	return func(ctx context.Context) error { return errors.Join(stopProxy(ctx), stopService(ctx)) }
}

// streaming is a handler in a service behind a proxy that says when it streams.
func streaming(h handler) handler {
	return func(r request) answer {
		a := h(r)
		if a.chunks != nil {
			header := http.Header{"X-Accel-Buffering": {"no"}}
			maps.Copy(header, a.header)
			a.header = header
		}
		return a
	}
}

// runOf returns the fence of the run and whether it is a takeover, from the context. A service behind a proxy reads them from the
// header.
func runOf(r request) core.Run {
	run, isKnown := core.FromContext(r.ctx)
	if !isKnown {
		run.Fence, _ = strconv.ParseInt(r.header(idemproxy.FenceHeader), 10, 64)
		run.Takeover = r.header(idemproxy.TakeoverHeader) == "true"
	}
	return run
}

// notForProxy has the cases that cannot apply to a handler in another process, with the reasons.
var notForProxy = map[string]string{
	"TestTheFrameworksOwnContextKnowsTheRun":             "the context of the run does not leave the proxy",
	"TestTheFrameworksOwnContextKnowsNoOtherRequestsRun": "the context of the run does not leave the proxy",
	"ERR-05 the handler's decision wins over the status": "core.Decide needs the context of the run",
	"LSE-02 an operator says that it ":                   "core.Decide needs the context of the run",
	"LSE-04 LSE-05 an owner that was away too long":      "core.ErrLost is the cause of the context of the run",
	"LSE-14 a handler that returns without an answer":    "a handler that cuts its connection leaves an unknown outcome",
	"ERR-06 a panic reaches the recovery outside":        "the recovery is in the service, which responds",
	"MTH-07 a hijacked connection works":                 "a connection without an upgrade has a response like any other",
}

// skipNotForProxy skips a test, or a part of one, that cannot apply to the proxy.
func (s *Behaviours) skipNotForProxy(name string) {
	if s.framework.name != "proxy" {
		return
	}
	for beginning, reason := range notForProxy {
		if strings.HasPrefix(name, beginning) {
			s.T().Skip(reason)
		}
	}
}

// Each case that the proxy leaves out is one of the table, so that no case is left out by a name that was changed.
func TestTheCasesThatTheProxyLeavesOutAreThere(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var sources strings.Builder
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		if file != "proxy_test.go" {
			sources.Write(source)
		}
	}
	for name := range notForProxy {
		declaration := `s.Run("` + name
		if strings.HasPrefix(name, "Test") {
			declaration = "func (s *Behaviours) " + name + "()"
		}
		assert.Equal(t, 1, strings.Count(sources.String(), declaration), name)
	}
	assert.LessOrEqual(t, len(notForProxy), 8)
}
