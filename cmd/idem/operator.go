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

// storeOperator is an operator of the records of one store.
type storeOperator struct {
	*operator.Operator
	store *store
}

// openOperator returns an operator for the flags. change may complete the config of the engine. The caller closes the store.
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

// newEngine returns an engine that names the records of a store as the flags say.
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

// readSecrets reads the secrets from files, or from the environment where no flag names one.
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

// readSecret returns the bytes of a file without one line end at its end.
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

// taskOf returns the request or task that the arguments and --kind name.
func taskOf(cmd *cli.Command) core.Task {
	return core.Task{Kind: cmd.String("kind"), Scope: cmd.Args().Get(0), Key: cmd.Args().Get(1)}
}

// kindFlag returns the flag that names the route of a key, or the kind of a task.
func kindFlag() cli.Flag {
	return &cli.StringFlag{Name: "kind",
		Usage: "`KIND`: the method and path of the request, such as \"POST /refunds\", if the service sets Key.PerRoute " +
			"(with Key.PerRouteChanged look with it and without it); the Kind of a task; " +
			"MESSAGE for a message, whose group is the SCOPE and whose ID is the KEY"}
}

// nothingFound says that there is no record, and what may be the reason.
func (o *storeOperator) nothingFound(ctx context.Context, what string) error {
	return fail(finding, "%s in %s; %s. If the service has one, another secret, --kind, prefix or schema makes every name differ%s",
		what, o.store.place, nothingChanged, o.otherPlaces(ctx))
}

// otherPlaces says in which other prefixes or schemas the server has records, if it has any.
func (o *storeOperator) otherPlaces(ctx context.Context) string {
	others, err := o.store.elsewhere(ctx)
	if err != nil || len(others) == 0 {
		return ""
	}
	return fmt.Sprintf(". This server also has records in %q", others)
}
