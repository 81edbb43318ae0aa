package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/inspect"
	"github.com/go-idem/idem/core/operator"
)

// serveCommand returns the subcommand that serves the page of package inspect. The page has no passwords, so it decides by
// two rules who may do what: without --actor-header it only reads, and only for this machine; with it, a proxy in front
// vouches for the name. The page never acts without a name. The exit code is 0 after a signal, 2 for an address or flag that
// is refused, and 130 if an act may not have ended.
func (p *program) serveCommand() *cli.Command {
	return p.subcommand(&cli.Command{
		Name: "serve", Usage: "serve a page that shows records, and settles them if it knows who asks",
		Description: "Without --actor-header the page is read-only, and for requests of this machine alone, since it has no\n" +
			"passwords.\n" +
			"With --actor-header it acts for the name in that header field, which an authenticating proxy in front must replace:\n" +
			"who can reach the address directly can take any name. So the address stays on loopback, or in a network of the proxy.\n" +
			"With it, say how the service stores outcomes by --no-codecs or --seal-key, and give --retention and --late-retry\n" +
			"of the service.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:8099", Usage: "`ADDRESS`; one that is not loopback needs --actor-header"},
			&cli.StringFlag{Name: "actor-header", Usage: "`NAME` of the header field with the authenticated operator"},
			auditFileFlag(),
			perRouteFlag(),
		}, storedFormFlags()...),
	}, 0, 0, p.serve)
}

// perRouteFlag returns the flag for engines with one key for each route. Other commands see that in --kind.
func perRouteFlag() cli.Flag {
	return &cli.BoolFlag{Name: "per-route", Usage: "the service sets Key.PerRoute"}
}

// serve serves the page until ctx ends. Key.PerRoute comes from a flag here: the other commands see it in --kind, and the
// page has no kind before its reader types one.
func (p *program) serve(ctx context.Context, cmd *cli.Command) error {
	if err := checkServe(cmd); err != nil {
		return err
	}
	keep, err := keeping(cmd, longestBody)
	if err != nil {
		return err
	}
	at, err := p.open(cmd)
	if err != nil {
		return err
	}
	defer at.close()
	engine, err := p.newEngine(cmd, at, []func(*core.Config){keep, func(c *core.Config) { c.Key.PerRoute = cmd.Bool("per-route") }})
	if err != nil {
		return err
	}
	options := inspect.Options{
		Check: at.check, Operator: operator.Config{Audit: p.auditor(cmd.String("audit-file"), at.place)},
	}
	if name := cmd.String("actor-header"); name != "" {
		options.Actor = func(r *http.Request) string { return onlyValue(r.Header, name) }
	}
	page, err := inspect.Handler(engine, options)
	if err != nil {
		return fail(badUsage, "%v", err)
	}
	return p.servePage(ctx, cmd.String("listen"), page)
}

// onlyValue returns the value of a header field, or "" if a request has more than one: then a client has added its own. The
// proxy is to replace the field; one that only adds its own would leave a name of the client's choice.
func onlyValue(h http.Header, name string) string {
	if values := h.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}

// checkServe refuses flags under which others could read or act: a page without names on an address that other machines
// reach. A host name other than localhost is refused too, since it may stand for any address. A page that acts must know how
// the service stores outcomes, as idem resolve must.
func checkServe(cmd *cli.Command) error {
	host, _, err := net.SplitHostPort(cmd.String("listen"))
	ip := net.ParseIP(host)
	switch acts := cmd.String("actor-header") != ""; {
	case err != nil:
		return fail(badUsage, "--listen must be an address such as 127.0.0.1:8099: %v", err)
	// A name may resolve to any address, and an empty host means all addresses.
	case !acts && host != "localhost" && (ip == nil || !ip.IsLoopback()):
		return fail(badUsage, "--listen %s is not loopback, and without --actor-header the page knows nobody who asks",
			cmd.String("listen"))
	case acts && cmd.IsSet("seal-key") == cmd.Bool("no-codecs"):
		return errWhichForm
	}
	return nil
}

// servePage listens, prints the URL of the page, and serves until ctx ends. Before it returns, it waits for acts in progress,
// since an act that is cut off may or may not be done.
func (p *program) servePage(ctx context.Context, address string, page http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fail(badUsage, "--listen: %v; set it to a free address, such as 127.0.0.1:8099", err)
	}
	server := &http.Server{
		// The page has short forms only, so even the whole of a request has a limit.
		Handler: page, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		ErrorLog: log.New(p.stderr, "", log.LstdFlags),
	}
	fmt.Fprintf(p.stdout, "http://%s/\n", listener.Addr())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fail(badUsage, "cannot serve any longer: %v", err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second) // longer than an act may take
	defer cancel()
	if err := server.Shutdown(end); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fail(interrupted, "an act may not have ended: %v", err)
	}
	return nil
}
