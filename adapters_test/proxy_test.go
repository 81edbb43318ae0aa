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
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idemhttp "github.com/go-idem/idem/adapters/http"
	idemproxy "github.com/go-idem/idem/adapters/proxy"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest"
)

// proxyFramework is the reverse proxy.
var proxyFramework = adaptertest.Framework{Name: "proxy", Start: startProxy, Skipped: notForProxy}

// startProxy starts two servers: the proxy, and behind it, on a port of its own, the service with the handler. The service knows
// nothing of the engine. A handler that streams says so in a header field, which the proxy removes.
func startProxy(e *core.Engine, h adaptertest.Handler, o adaptertest.Setup) func(context.Context) error {
	if o.Bare {
		return adaptertest.StartHTTP(e, h, o)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	stopService := adaptertest.StartHTTP(e, streaming(h), adaptertest.Setup{Bare: true, Listen: listener})
	cfg := idemproxy.Config{
		Upstream:    &url.URL{Scheme: "http", Host: listener.Addr().String()},
		ScopeHeader: o.Scope, ErrorLog: log.New(io.Discard, "", 0),
	}
	if o.Skip != "" {
		cfg.Skip = func(r *http.Request) bool { return r.Header.Get(o.Skip) != "" }
	}
	proxy, err := idemproxy.New(e, cfg)
	if err != nil {
		panic(err)
	}
	var opts []idemhttp.Option
	if o.Scope != "" {
		opts = append(opts, idemhttp.Scope(func(r *http.Request) string { return r.Header.Get(o.Scope) }))
	}
	stopProxy := adaptertest.ServeAround(adaptertest.BesideStatus(proxy, idemhttp.Status(e, opts...)), o)
	return func(ctx context.Context) error { return errors.Join(stopProxy(ctx), stopService(ctx)) }
}

// streaming is a handler in a service behind a proxy that says when it streams.
func streaming(h adaptertest.Handler) adaptertest.Handler {
	return func(r adaptertest.Request) adaptertest.Response {
		a := h(r)
		if a.Chunks != nil {
			header := http.Header{"X-Accel-Buffering": {"no"}}
			maps.Copy(header, a.Header)
			a.Header = header
		}
		return a
	}
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

// Each case that the proxy leaves out is one of the table, so that no case is left out by a name that was changed.
func TestTheCasesThatTheProxyLeavesOutAreThere(t *testing.T) {
	files, err := filepath.Glob("../internal/adaptertest/*.go")
	require.NoError(t, err)
	var sources strings.Builder
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		sources.Write(source)
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
