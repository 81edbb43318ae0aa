package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/adapters/proxy"
	"github.com/go-idem/idem/core"
)

// The groups of flags of the proxy.
const (
	ofCaller = "Whose key it is: one of these is required"
	ofKeys   = "Keys and outcomes"
	ofServer = "Connections"
)

// proxyCommand returns the subcommand that guards a service. The proxy guards the service only where all requests come
// through it. It never guesses whose a key is: one of --scope-header and --single-tenant is required, since a wrong guess
// would replay a response to a stranger. The exit code is 0 after a signal and a complete shutdown, and 130 if requests were
// cut off.
func (p *program) proxyCommand() *cli.Command {
	return p.subcommand(&cli.Command{
		Name: "proxy", Usage: "guard a service in any language: forward requests to it under the engine",
		Description: "docs/proxy.md says what clients and the service see. SIGTERM and SIGINT end the proxy when the requests in\n" +
			"progress have ended, or after --shutdown-timeout.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Value: ":8080", Category: ofServer, Usage: "`ADDRESS` for clients"},
			&cli.StringFlag{Name: "upstream", Category: ofServer, Usage: "`URL` of the service, such as http://127.0.0.1:3000; required"},
			&cli.StringFlag{Name: "health-listen", Category: ofServer,
				Usage: "`ADDRESS` for GET /live and /ready, which says whether the store responds; default none"},
			&cli.DurationFlag{Name: "upstream-timeout", Value: time.Minute, Category: ofServer,
				Usage: "how long the service may take to begin its response, and to end it unless it is a stream"},
			&cli.DurationFlag{Name: "shutdown-timeout", Value: 30 * time.Second, Category: ofServer,
				Usage: "how long requests in progress may take after SIGTERM"},
			&cli.BoolFlag{Name: "trust-forwarded", Category: ofServer,
				Usage: "keep Forwarded and X-Forwarded-* of requests, which a proxy in front must set"},
			&cli.StringFlag{Name: "scope-header", Category: ofCaller,
				Usage: "`NAME` of the header field with the authenticated caller. A hop in front must authenticate the caller and replace\n" +
					"this field: a client that can choose it gets the responses of others"},
			&cli.BoolFlag{Name: "single-tenant", Category: ofCaller,
				Usage: "all callers share one set of keys, and may get each other's responses"},
			&cli.StringSliceFlag{Name: "methods", Value: []string{"POST", "PATCH"}, Category: ofKeys, Usage: "the guarded `METHODS`"},
			&cli.BoolFlag{Name: "require-key", Category: ofKeys, Usage: "refuse guarded requests without a key"},
			&cli.StringFlag{Name: "after-unknown", Value: "refuse", Category: ofKeys,
				Usage: "`refuse|run`: retries of a request whose outcome is unknown are refused until idem resolve settles it, or\n" +
					"are forwarded with \"Idempotency-Takeover: true\" to a service that looks for earlier effects"},
			&cli.DurationFlag{Name: "lease", Value: 30 * time.Second, Category: ofKeys,
				Usage: "how long a key is held after the proxy or the connection to the service broke"},
			&cli.DurationFlag{Name: "wait", Category: ofKeys,
				Usage: "how long a retry waits for a request in progress; default: it gets 409 at once"},
			&cli.DurationFlag{Name: "retention", Value: 24 * time.Hour, Category: ofKeys, Usage: "how long responses are replayed"},
			&cli.Int64Flag{Name: "max-body", Value: 1 << 20, Category: ofKeys,
				Usage: "`BYTES` of the longest body of a request with a key"},
			&cli.IntFlag{Name: "max-response-body", Value: 1 << 20, Category: ofKeys,
				Usage: "`BYTES` of the longest body of a response that is stored"},
		},
	}, 0, 0, p.proxy)
}

// proxy serves until ctx ends. It checks its flags before it listens. A Redis or PostgreSQL that is not up yet does not
// prevent the start: the proxy is not ready, and becomes ready when the store responds. /ready fails from the signal on, so
// that no new request is sent here during the shutdown.
func (p *program) proxy(ctx context.Context, cmd *cli.Command) error {
	upstream, err := proxyFlags(cmd)
	if err != nil {
		return err
	}
	at, err := p.open(cmd)
	if err != nil {
		return err
	}
	defer at.close()
	engine, err := p.proxyEngine(cmd, at)
	if err != nil {
		return err
	}
	handler, err := proxy.New(engine, proxy.Config{
		Upstream: upstream, ScopeHeader: cmd.String("scope-header"), TrustForwarded: cmd.Bool("trust-forwarded"),
		Timeout: cmd.Duration("upstream-timeout"), ErrorLog: log.New(p.stderr, "", log.LstdFlags),
	})
	if err != nil {
		return fail(badUsage, "%v", err)
	}
	// Without the store every request with a key is refused, so it is better sent to a proxy that has one.
	ready := func(probe context.Context) error { return cmp.Or(ctx.Err(), at.ping(probe)) }
	servers, err := p.listen(cmd, handler, proxy.Health(ready))
	if err != nil {
		return errors.Join(err, engine.Close(ctx))
	}
	return servers.serve(ctx, engine, cmd.Duration("shutdown-timeout"))
}

// proxyFlags checks the flags that the engine does not check, and returns the URL of the service. Each message names the
// flag, and says what to set it to.
func proxyFlags(cmd *cli.Command) (*url.URL, error) {
	const upstreamFix = "set it to http or https and a host, such as --upstream http://127.0.0.1:3000"
	upstream, err := url.Parse(cmd.String("upstream"))
	switch {
	case err != nil:
		return nil, fail(badUsage, "--upstream is no URL: %s", upstreamFix)
	case upstream.Scheme != "http" && upstream.Scheme != "https" || upstream.Host == "":
		return nil, fail(badUsage, "--upstream %q is not the URL of a service: %s", upstream.Redacted(), upstreamFix)
	// Exactly one of the two must say whose a key is.
	case cmd.Bool("single-tenant") && cmd.IsSet("scope-header"):
		return nil, fail(badUsage, "--scope-header and --single-tenant exclude each other: remove one")
	case !cmd.Bool("single-tenant") && cmd.String("scope-header") == "":
		return nil, fail(badUsage, "whose keys are they? Set --scope-header to the header field in which an authenticating hop in "+
			"front names the caller, or --single-tenant if there is only one")
	case cmd.String("after-unknown") != "refuse" && cmd.String("after-unknown") != "run":
		return nil, fail(badUsage, "--after-unknown must be refuse or run")
	}
	for _, name := range []string{"upstream-timeout", "shutdown-timeout"} {
		if cmd.Duration(name) <= 0 {
			return nil, fail(badUsage, "--%s must be positive, such as 30s", name)
		}
	}
	return upstream, nil
}

// flagOf has the flag for each field of the engine's config that a flag sets. An error of the engine names a field, which the
// operator of a proxy has never seen, so the message names the flag in its place.
var flagOf = map[string]string{
	"Key.Methods": "--methods", "Lease.Duration": "--lease", "Keep.Retention": "--retention", "Wait.Timeout": "--wait",
	"Limits.RequestBody": "--max-body", "Keep.MaxBody": "--max-response-body",
	"Secret": "--secret-file or $IDEM_SECRET", "PreviousSecrets": "--previous-secret-file or $IDEM_PREVIOUS_SECRET",
}

// proxyEngine returns the engine that the flags describe. Without --single-tenant the scope comes from the adapter, which
// reads --scope-header. --after-unknown run leaves OnUnknown unset: then a retry takes over, and the service learns it from a
// header field.
func (p *program) proxyEngine(cmd *cli.Command, at *store) (*core.Engine, error) {
	cfg := core.Config{Store: at.Store, Scope: core.ScopeByAdapter}
	if cmd.Bool("single-tenant") {
		cfg.Scope = core.SingleTenant
	}
	cfg.Key.Methods, cfg.Key.Required = cmd.StringSlice("methods"), cmd.Bool("require-key")
	cfg.Lease.Duration, cfg.Keep.Retention = cmd.Duration("lease"), cmd.Duration("retention")
	cfg.Wait.Timeout, cfg.Limits.RequestBody = cmd.Duration("wait"), cmd.Int64("max-body")
	cfg.Keep.MaxBody = cmd.Int("max-response-body")
	if cmd.String("after-unknown") == "refuse" {
		cfg.Lease.OnUnknown = core.RefuseUnknown
	}
	if err := p.readSecrets(cmd, &cfg); err != nil {
		return nil, err
	}
	engine, err := core.New(cfg)
	if wrong, ok := errors.AsType[*core.ConfigError](err); ok && flagOf[wrong.Field] != "" {
		return nil, fail(badUsage, "%s: %s", flagOf[wrong.Field], wrong.Reason)
	}
	if err != nil {
		return nil, fail(badUsage, "%v", err)
	}
	return engine, nil
}

// proxyServers are the listeners of a proxy and their servers. A proxy without --health-listen has one. The first one serves
// clients.
type proxyServers struct {
	servers   []*http.Server
	listeners []net.Listener
}

// listen opens the listeners, and prints their addresses. The addresses are printed because port 0 stands for any free port.
// The probes have a listener of their own, since all paths of the first one belong to the service. A server has a limit for
// the header of a request only: bodies and responses may be streams of any length.
func (p *program) listen(cmd *cli.Command, handler, health http.Handler) (*proxyServers, error) {
	s := &proxyServers{}
	for _, l := range []struct {
		flag    string
		handler http.Handler
	}{{"listen", handler}, {"health-listen", health}} {
		if cmd.String(l.flag) == "" && l.flag != "listen" {
			continue
		}
		listener, err := net.Listen("tcp", cmd.String(l.flag))
		if err != nil {
			s.close()
			return nil, fail(badUsage, "--%s: %v; set it to a free address, such as 127.0.0.1:8080", l.flag, err)
		}
		s.listeners = append(s.listeners, listener)
		s.servers = append(s.servers, &http.Server{
			Handler: l.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
			ErrorLog: log.New(p.stderr, "", log.LstdFlags),
		})
		fmt.Fprintf(p.stdout, "--%s %s\n", l.flag, listener.Addr())
	}
	return s, nil
}

// close closes the listeners of servers that do not serve.
func (s *proxyServers) close() {
	for _, listener := range s.listeners {
		_ = listener.Close()
	}
}

// serve serves until ctx ends, and then for at most limit, until the requests in progress have ended and their outcomes are
// stored. The server of the probes is the last to end, so that /live responds during the shutdown. The order is that of the
// dependencies: first no request is in progress, then the engine has stored their outcomes, and then the caller closes the
// store.
func (s *proxyServers) serve(ctx context.Context, engine *core.Engine, limit time.Duration) error {
	failed := make(chan error, len(s.servers))
	for i, server := range s.servers {
		go func() { failed <- server.Serve(s.listeners[i]) }()
	}
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	// ctx has ended by now, unless a server has failed, and the shutdown needs a time of its own.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	unfinished := s.servers[0].Shutdown(end)
	unfinished = errors.Join(unfinished, engine.Close(end))
	for _, server := range s.servers {
		_ = server.Close()
	}
	switch {
	case err != nil:
		return fail(badUsage, "cannot serve any longer: %v", err)
	case unfinished != nil:
		return fail(interrupted, "--shutdown-timeout is over: %s", strings.ReplaceAll(unfinished.Error(), "\n", "; "))
	}
	return nil
}
