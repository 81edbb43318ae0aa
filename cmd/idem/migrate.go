package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/core/pgstore"
)

// migrateCommand returns the subcommand that makes or upgrades the schema of PostgreSQL. sql is for those who review
// statements, or apply them with a tool of their own. The command needs no --who and no --reason, since it changes the schema
// and no record.
func (p *program) migrateCommand() *cli.Command {
	return p.subcommand(&cli.Command{
		Name: "migrate", Usage: "make or upgrade the schema in PostgreSQL", ArgsUsage: "status, sql or up",
		Description: "status says which version the schema has; the exit code is 1 if up would change it. sql prints what up would\n" +
			"apply, and calls no server: apply it in one transaction (psql -1), in a schema that exists. up applies it. Processes\n" +
			"of the earlier version may run meanwhile.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "yes", Usage: "do not ask"}},
	}, 1, 0, p.migrate)
}

// migrate does what its argument says.
func (p *program) migrate(ctx context.Context, cmd *cli.Command) error {
	switch action := cmd.Args().First(); action {
	case "sql":
		return p.printSchema(cmd)
	case "status", "up":
		// Refused before a connection is made, as in the commands that act on records.
		if action == "up" && !p.asks && !cmd.Bool("yes") {
			return errNobodyToAsk
		}
		at, err := p.open(cmd)
		if err != nil {
			return err
		}
		defer at.close()
		if at.migration == nil {
			return fail(badUsage, "only PostgreSQL has a schema to migrate")
		}
		if action == "up" {
			return p.migrateUp(ctx, cmd, at)
		}
		return p.migrationStatus(ctx, cmd, at)
	default:
		return fail(badUsage, "migrate takes %s, and not %q", cmd.ArgsUsage, action)
	}
}

// migration is what idem migrate does with a schema. Only PostgreSQL has one: the other stores have no schema that an
// operator must change.
type migration struct {
	version func(context.Context) (found, latest int, err error)
	up      func(context.Context) error
}

// printSchema prints the statements that make or upgrade a schema. They are the same for each version that a schema can have,
// so no server is called.
func (p *program) printSchema(cmd *cli.Command) error {
	text, err := pgstore.SchemaSQL(pgstore.Schema(cmd.String("schema")))
	if err != nil {
		return fail(badUsage, "%v", err)
	}
	if cmd.Bool("json") {
		p.printJSON(map[string]string{"sql": text})
		return nil
	}
	_, err = fmt.Fprint(p.stdout, text)
	return err
}

// migrationStatus prints the version of a schema. The exit code is 1 if the versions differ, so that a deployment can stop at
// it.
func (p *program) migrationStatus(ctx context.Context, cmd *cli.Command, at *store) error {
	found, latest, err := at.migration.version(ctx)
	if err != nil {
		return explain(ctx, err, nothingChanged)
	}
	p.printVersion(cmd, at, found, latest)
	if found != latest {
		return fail(finding, "the store in %s is not of version %d: idem migrate up changes that", at.place, latest)
	}
	return nil
}

// migrateUp makes or upgrades a schema. If it has the latest version already, there is no question and nothing changes. After
// an error the schema has one of two versions, since an upgrade is one transaction; which of them, a lost connection leaves
// open.
func (p *program) migrateUp(ctx context.Context, cmd *cli.Command, at *store) error {
	found, latest, err := at.migration.version(ctx)
	if err != nil {
		return explain(ctx, err, nothingChanged)
	}
	if found != latest {
		if !cmd.Bool("yes") {
			question := fmt.Sprintf("Change the store in %s from version %d to version %d?", at.place, found, latest)
			if err := p.confirm(ctx, question); err != nil {
				return err
			}
		}
		if err := at.migration.up(ctx); err != nil {
			return explain(ctx, err, "the schema has its earlier version or version "+fmt.Sprint(latest)+", as idem migrate status says")
		}
	}
	p.printVersion(cmd, at, latest, latest)
	return nil
}

// printVersion prints which version a schema has.
func (p *program) printVersion(cmd *cli.Command, at *store, found, latest int) {
	switch {
	case cmd.Bool("json"):
		p.printJSON(map[string]any{"version": found, "latest": latest})
	case found == 0:
		fmt.Fprintf(p.stdout, "there is no store in %s\n", at.place)
	default:
		fmt.Fprintf(p.stdout, "the store in %s has version %d; the latest is %d\n", at.place, found, latest)
	}
}
