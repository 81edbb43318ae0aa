// Package proxy makes a service in any language idempotent: [New] returns a reverse proxy that forwards requests to the service,
// the upstream, under a core.Engine.
//
//	guard, err := proxy.New(engine, proxy.Config{Upstream: upstream, ScopeHeader: "X-Account-Id"})
//	err = http.ListenAndServe(":8080", guard)
//
// The command idem proxy does this with flags.
//
// # What becomes of a key
//
// A response of the upstream counts like that of a handler: Keep.Policy decides. If there is none, the proxy responds itself:
//
//   - The upstream was certainly not reached (connection refused, no such host): 502 upstream-unreachable. Nothing has run, so a
//     retry runs at once.
//   - The connection broke after the request may have been sent, or in the middle of the response: 502 upstream-cut. The
//     upstream did not begin or end its response within Config.Timeout: 504 upstream-timeout. In both cases the outcome is
//     unknown. The key is held until its lease ends, and then Lease.OnUnknown decides. Without OnUnknown a retry is then sent
//     to the upstream, with "Idempotency-Takeover: true".
//
// An upstream whose connection broke may still work on the request. Set Lease.OnUnknown to core.RefuseUnknown unless the upstream
// looks for earlier effects itself.
//
// A client that leaves does not stop the request to the upstream, so that its outcome is stored.
//
// # Streams
//
// A response is held back until it is stored, also if the upstream sends it in chunks. It is a stream, which the client sees as
// it comes, if its Content-Type is text/event-stream, if it has the header field "X-Accel-Buffering: no", or if it is longer than
// Keep.MaxBody. The proxy removes X-Accel-Buffering. Informational responses are sent on at once. A connection that is
// upgraded, such as a WebSocket, is not captured: nothing is stored, and the key is free.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"time"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
)

// Config configures a proxy. Upstream is required; every other field has a default.
type Config struct {
	// Upstream is the service: a scheme, http or https, a host, and perhaps a path to put in front of that of each request.
	Upstream *url.URL

	// ScopeHeader is the name of the header field with the caller to which a key belongs. It MUST come from an authenticated
	// hop in front of the proxy, which replaces what clients send under this name: callers that can choose it get the stored
	// responses of others. A request with a key that does not have the field exactly once is refused with 401. Default "":
	// Config.Scope of the engine.
	ScopeHeader string

	// Skip returns true for requests that are forwarded without the engine. It must be safe for concurrent use. Default nil:
	// none.
	Skip func(*http.Request) bool

	// TrustForwarded keeps what the request says about earlier hops in Forwarded and X-Forwarded-For, -Host and -Proto, and
	// adds this hop. Set it only behind a proxy that sets these fields itself. Default false: they are replaced.
	TrustForwarded bool

	// Timeout is how long the upstream may take to begin its response, and then to end a response that is held back. Streams may
	// last longer. Default 1 min.
	Timeout time.Duration

	// Transport connects to the upstream. New copies it, and sets DisableCompression and ResponseHeaderTimeout. Default: HTTP/1.1,
	// without the proxies of the environment, and 5 s for a connection.
	Transport *http.Transport

	// ErrorLog gets a line for each request that has no response of the upstream. Default: the standard logger of package log.
	ErrorLog *log.Logger
}

// Proxy is a reverse proxy that forwards requests under an engine. It is safe for concurrent use.
type Proxy struct {
	cfg     Config
	engine  core.Config
	guard   http.Handler
	reverse *httputil.ReverseProxy
}

// New returns a proxy, or an error that names the field of cfg that is wrong.
func New(engine *core.Engine, cfg Config) (*Proxy, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	cfg.ErrorLog = cmp.Or(cfg.ErrorLog, log.Default())
	p := &Proxy{cfg: cfg, engine: engine.Config()}
	p.reverse = &httputil.ReverseProxy{
		Rewrite: p.rewrite, Transport: cfg.transport(), ModifyResponse: p.receive, ErrorHandler: p.fail, ErrorLog: cfg.ErrorLog,
	}
	var options []idem.Option
	if cfg.ScopeHeader != "" {
		options = append(options, idem.Scope(p.scope))
	}
	if cfg.Skip != nil {
		options = append(options, idem.Skip(cfg.Skip))
	}
	p.guard = idem.HTTP(engine, options...)(http.HandlerFunc(p.forward))
	return p, nil
}

// validate returns an error that names the field that is wrong.
func (c *Config) validate() error {
	u := c.Upstream
	switch {
	case u == nil:
		return errors.New("idem: proxy: Upstream is required")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("idem: proxy: Upstream must be http or https, a host, and perhaps a path, such as http://127.0.0.1:3000")
	case c.Timeout < 0:
		return errors.New("idem: proxy: Timeout must not be negative")
	case isOwnField(c.ScopeHeader):
		return errors.New("idem: proxy: ScopeHeader is a field that the proxy sets itself")
	}
	return nil
}

// transport returns what connects to the upstream.
func (c *Config) transport() *http.Transport {
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     30 * time.Second,
	}
	if c.Transport != nil {
		t = c.Transport.Clone()
	}
	t.DisableCompression = true // The upstream gets the client's Accept-Encoding, and the client the bytes of the upstream.
	t.ResponseHeaderTimeout = c.Timeout
	return t
}

// scope returns the caller of a request, or "" if the request does not have the field exactly once.
func (p *Proxy) scope(r *http.Request) string {
	values := r.Header.Values(p.cfg.ScopeHeader)
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{}
	p.guard.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
	if x.isCut { // the client has a part of the response, and must not take that for the whole
		panic(http.ErrAbortHandler)
	}
}

// forward is the handler that the engine runs.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r.Context())
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	gotConn := func(httptrace.GotConnInfo) { x.hasConnection.Store(true) }
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: gotConn})
	if x.run, x.isRun = core.FromContext(ctx); x.isRun {
		x.cancel, x.before = cancel, w.Header().Clone()
		w = &writer{w, x}
		defer x.end(r.Context())
	}
	p.reverse.ServeHTTP(w, r.WithContext(ctx))
}
