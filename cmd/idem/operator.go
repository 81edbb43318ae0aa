package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/operator"
)

// storeOperator is an operator of the records of one store. Its functions know the place of the records, such as a prefix,
// which their messages name.
type storeOperator struct {
	*operator.Operator
	store *store
}

// openOperator returns an operator for the flags. change may complete the config of the engine. The caller closes the store.
// No server is called yet, except that a file of SQLite is opened.
func (p *program) openOperator(cmd *cli.Command, change ...func(*core.Config)) (*storeOperator, error) {
	at, err := p.open(cmd)
	if err != nil {
		return nil, err
	}
	found, err := p.newOperator(cmd, at, change)
	if err != nil {
		at.close()
		return nil, err
	}
	return &storeOperator{found, at}, nil
}

// newEngine returns an engine that names the records of a store as the flags say. The name of a record is a hash of secret,
// scope, route and key, so the engine needs the secrets of the service, and one key for each route if --kind names a route:
// only a route has a space in it. The engine runs no handler.
func (p *program) newEngine(cmd *cli.Command, at *store, change []func(*core.Config)) (*core.Engine, error) {
	config := core.Config{Store: at.Store, Scope: core.ScopeByAdapter}
	config.Key.PerRoute = strings.Contains(cmd.String("kind"), " ")
	config.Lease.OnUnknown = core.RefuseUnknown
	if err := p.readSecrets(cmd, &config); err != nil {
		return nil, err
	}
	for _, change := range change {
		change(&config)
	}
	engine, err := core.New(config)
	if err != nil {
		return nil, fail(badUsage, "%v", err)
	}
	return engine, nil
}

// newOperator returns an operator of the records of a store.
func (p *program) newOperator(cmd *cli.Command, at *store, change []func(*core.Config)) (*operator.Operator, error) {
	engine, err := p.newEngine(cmd, at, change)
	if err != nil {
		return nil, err
	}
	found, err := operator.New(engine, operator.Config{Audit: p.auditor(cmd.String("audit-file"), at.place)})
	if err != nil {
		return nil, fail(badUsage, "%v", err)
	}
	return found, nil
}

// readSecrets reads the secrets from files, or from the environment where no flag names one. There is no flag with a secret
// as its value, since the arguments of a process are visible to others. An empty file of --secret-file is an error: it would
// give every record another name, and the operator would find nothing.
func (p *program) readSecrets(cmd *cli.Command, cfg *core.Config) (err error) {
	cfg.Secret = []byte(p.getenv("IDEM_SECRET"))
	if cmd.IsSet("secret-file") {
		if cfg.Secret, err = readSecret(cmd.String("secret-file")); err != nil {
			return err
		}
		if len(cfg.Secret) == 0 {
			return fail(badUsage, "the secret in %s is empty", cmd.String("secret-file"))
		}
	}
	if previous := p.getenv("IDEM_PREVIOUS_SECRET"); previous != "" && !cmd.IsSet("previous-secret-file") {
		cfg.PreviousSecrets = [][]byte{[]byte(previous)}
	}
	for _, file := range cmd.StringSlice("previous-secret-file") {
		secret, err := readSecret(file)
		if err != nil {
			return err
		}
		cfg.PreviousSecrets = append(cfg.PreviousSecrets, secret)
	}
	return nil
}

// readSecret returns the bytes of a file without one line end at its end, which editors add and which is no part of a secret.
func readSecret(file string) ([]byte, error) {
	secret, err := os.ReadFile(file)
	if err != nil {
		return nil, fail(badUsage, "the secret cannot be read: %v", err)
	}
	secret, hasLineEnd := bytes.CutSuffix(secret, []byte("\n"))
	if hasLineEnd {
		secret = bytes.TrimSuffix(secret, []byte("\r"))
	}
	return secret, nil
}

// taskOf returns the request or task that the arguments and --kind name. An argument that is missing is empty, as the KEY is
// where --instance stands for it.
func taskOf(cmd *cli.Command) core.Task {
	return core.Task{Kind: cmd.String("kind"), Scope: cmd.Args().Get(0), Key: cmd.Args().Get(1)}
}

// kindFlag returns the flag that names the route of a key, or the kind of a task. Without it the key is one of a request to a
// service without Key.PerRoute.
func kindFlag() cli.Flag {
	return &cli.StringFlag{Name: "kind",
		Usage: "`KIND`: the method and path of the request, such as \"POST /refunds\", if the service sets Key.PerRoute " +
			"(with Key.PerRouteChanged look with it and without it); the Kind of a task; " +
			"MESSAGE for a message, whose group is the SCOPE and whose ID is the KEY"}
}

// nothingFound says that there is no record, and what may be the reason. An operator who is told that a record is absent may
// believe that nothing has happened. So the message lists what makes idem look under another name, and where else this server
// has records.
func (o *storeOperator) nothingFound(ctx context.Context, what string) error {
	return fail(finding, "%s in %s; %s. If the service has one, another secret, --kind, prefix or schema makes every name differ%s",
		what, o.store.place, nothingChanged, o.otherPlaces(ctx))
}

// otherPlaces says in which other prefixes or schemas the server has records, if it has any. An error here is left out: the
// message that it completes has an error of its own.
func (o *storeOperator) otherPlaces(ctx context.Context) string {
	others, err := o.store.elsewhere(ctx)
	if err != nil || len(others) == 0 {
		return ""
	}
	return fmt.Sprintf(". This server also has records in %q", others)
}
