// Command idem is for the people who run a service with idem: it looks at records, lists and counts them, settles what is
// stuck, and forgets what must go. idem proxy guards a service in any language.
//
//	go -C cmd/idem install . # in a clone of the repository
//	export IDEM_STORE=redis://127.0.0.1:6379
//	idem show alice 8e03978e-40d5-43dd-bc93-6894a57f9324
//
// # Commands
//
// These commands change no record:
//
//	show     says what became of one key
//	ls       lists records by state, age and caller
//	stats    counts records and their bytes by state
//	steps    lists the finished steps of a run that has no outcome
//	doctor   checks the settings of the server; in Redis it writes a record that expires after 2 seconds
//	plan     says how much memory a load needs; it calls no server
//
// These commands act. They need --who and --reason, and write both to the audit before they act:
//
//	resolve  says what became of a run that vanished
//	release  frees the key of a run that failed or vanished
//	forget   deletes the record of one key, or all records of a caller
//
// The others are migrate, which makes or upgrades the schema of PostgreSQL, serve, which serves a page that does the same as
// these commands, and proxy.
//
// # Promises
//
// An act is about the record as the operator has seen it: if the record has changed since then, nothing is done. No act
// interrupts a run in progress. A message about an error says whether nothing was changed, or whether the act may have been
// done.
//
// The command never shows the body of an outcome, and the results of steps only with --reveal. It takes no secret from a
// flag, because every user of a machine sees the arguments of its processes.
//
// # Exit codes
//
//	0    done
//	1    idem doctor has a finding; nothing was found; nothing, or not all, could be done with what was found; not confirmed
//	2    bad usage, or a file, an address, the audit or the output of this machine cannot be used
//	3    the store does not respond, or refuses the command
//	4    the record has changed since it was seen
//	130  interrupted, or the requests in progress of a proxy or page did not end in time
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"
)

func main() {
	redis.SetLogger(silent{}) // one for the process: clients read it without a lock
	p := &program{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv,
		asks: isTerminal(os.Stdin), draws: isTerminal(os.Stderr),
	}
	// A signal ends ctx, and each command then ends as its documentation says, with its connections closed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second interrupt ends the process at once
	os.Exit(p.run(ctx, os.Args...))
}

// program is one call of the command. Tests make one with streams and an environment of their own.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	asks           bool // stdin is a terminal, so that somebody can confirm an act
	draws          bool // stderr is a terminal, so that scans show their progress
}

// isTerminal reports whether a file is a terminal, or another character device. /dev/null is one too: a command that asks
// there reads the end of the input, which is no yes.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// run runs the command with these arguments, of which the first is its name, and returns its exit code. It is the only place
// where an error becomes a message and an exit code. An error without a code comes from the command-line library, which has
// refused the arguments. All errors pass withoutControls, since many have text of a server or of a client.
func (p *program) run(ctx context.Context, args ...string) int {
	out := &checkedWriter{Writer: p.stdout}
	p.stdout = out
	err := p.command().Run(ctx, args)
	// The act is done by now, so the message must not sound as if it could be tried again.
	if err == nil && out.err != nil {
		err = fail(badUsage, "what was printed is not complete: %v; what was asked for is done", out.err)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(p.stderr, "idem: "+withoutControls(strings.TrimPrefix(err.Error(), "idem: ")))
	if failed, ok := errors.AsType[*failure](err); ok {
		return failed.code
	}
	return badUsage // the command-line library has refused the arguments
}

// The groups of flags in the help.
const (
	ofStore  = "Which store"
	ofSecret = "Secrets: the bytes of Config.Secret and Config.PreviousSecrets, never the value of a flag"
)

// command returns the command with all its subcommands. The flags of the store and of the secrets belong to all subcommands,
// because every subcommand must find the records under the same names as the service.
func (p *program) command() *cli.Command {
	return &cli.Command{
		Name: "idem", Usage: "look at the records of a service, settle what is stuck, forget what must go; guard a service",
		Description: "Exit codes: 0 done; 1 a finding, nothing was found, not all could be done, or not confirmed; 2 bad usage;\n" +
			"3 the store does not respond, or refuses; 4 the record has changed since it was seen; 130 interrupted.",
		Writer: p.stdout, ErrWriter: p.stderr, Reader: p.stdin,
		EnableShellCompletion: true, Version: version(),
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // run returns the code
		OnUsageError:   func(_ context.Context, _ *cli.Command, err error, _ bool) error { return err },
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "store", Category: ofStore,
				Usage: "`URL`: redis://, rediss://, redis+sentinel://, redis+cluster://, postgres://, sqlite:///path or dynamodb://table; with a password only in $IDEM_STORE"},
			&cli.StringFlag{Name: "prefix", Category: ofStore, Value: "idem:", Usage: "`TEXT` with which all keys in Redis begin"},
			&cli.StringFlag{Name: "schema", Category: ofStore, Value: "idem", Usage: "`NAME` of the schema in PostgreSQL"},
			&cli.DurationFlag{Name: "timeout", Category: ofStore, Value: 10 * time.Second, Usage: "for each call of the store"},
			&cli.StringFlag{Name: "secret-file", Category: ofSecret,
				Usage: "`FILE` with the secret; one line end at its end is no part of it. Default: $IDEM_SECRET"},
			&cli.StringSliceFlag{Name: "previous-secret-file", Category: ofSecret,
				Usage: "`FILE` with an earlier secret; empty for records without one. Default: $IDEM_PREVIOUS_SECRET"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON: one object, or one on each line"},
		},
		Action: noCommand,
		Commands: []*cli.Command{
			p.showCommand(), p.stepsCommand(), p.lsCommand(), p.resolveCommand(), p.releaseCommand(), p.forgetCommand(), p.statsCommand(),
			p.doctorCommand(), p.planCommand(), p.migrateCommand(), p.serveCommand(), p.proxyCommand(),
		},
	}
}

// version returns the version that this command was installed by, or "(devel)".
func version() string {
	info, _ := debug.ReadBuildInfo() // of every program that is built in a module
	return info.Main.Version
}

// noCommand refuses arguments that begin with no subcommand.
func noCommand(_ context.Context, cmd *cli.Command) error {
	if cmd.Args().Present() {
		return fail(badUsage, "there is no command %q; idem --help lists all", cmd.Args().First())
	}
	return fail(badUsage, "which command? idem --help lists all")
}

// subcommand completes a subcommand that takes this many arguments, of which the optional ones are the last. It refuses empty
// arguments: an unset variable of a script would otherwise stand for the empty scope, which is a scope like any other.
func (p *program) subcommand(c *cli.Command, required, optional int, act func(context.Context, *cli.Command) error) *cli.Command {
	c.HideHelpCommand = true // or a scope named help would be taken for it
	c.OnUsageError = func(_ context.Context, _ *cli.Command, err error, _ bool) error { return err }
	c.Action = func(ctx context.Context, cmd *cli.Command) error {
		n := cmd.Args().Len()
		if n < required || n > required+optional {
			return fail(badUsage, "%s takes %s; idem %s --help says more", c.Name, argumentsOf(c), c.Name)
		}
		for _, argument := range cmd.Args().Slice() {
			if argument == "" {
				return fail(badUsage, "an argument of %s is empty", c.Name)
			}
		}
		return act(ctx, cmd)
	}
	return c
}

// argumentsOf names the arguments of a subcommand.
func argumentsOf(c *cli.Command) string {
	if c.ArgsUsage == "" {
		return "no arguments"
	}
	return c.ArgsUsage
}
