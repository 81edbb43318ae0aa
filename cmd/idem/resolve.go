package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/operator"
	"github.com/go-idem/idem/core/seal"
)

// resolveCommand returns the subcommand that settles an unknown outcome. It stores what a person has found out, and cannot
// check it. It never resolves a run in progress, and asks for no confirmation, because --outcome or --not-done is the
// confirmation. The exit code is 1 if there is nothing to resolve, and 4 if the record has changed.
func (p *program) resolveCommand() *cli.Command {
	return p.subcommand(&cli.Command{
		Name: "resolve", Usage: "say what became of a run that vanished", ArgsUsage: "SCOPE KEY",
		Description: "With --outcome the operation has happened, and every retry gets that response. With --not-done it has not\n" +
			"happened, and the next request runs. Find out first: idem cannot check it. A dead message runs again with --not-done.\n" +
			"The file has a response of HTTP/1.1: a status line, header fields, an empty line, and the body as it is.\n" +
			"For a message the body is its result, as Config.Marshal makes it, which is JSON by default.\n" +
			"The flags of times must be as in the config of the service. With --outcome say how the service stores outcomes, by\n" +
			"--no-codecs or --seal-key. A service with codecs of its own in Keep.Codecs must use core/operator, since it cannot\n" +
			"read what this command stores.",
		Flags: auditFlags(append(storedFormFlags(),
			&cli.StringFlag{Name: "outcome", Usage: "`FILE` with the response that retries get"},
			&cli.BoolFlag{Name: "not-done", Usage: "the operation has not happened"},
			kindFlag(),
			&cli.Int64Flag{Name: "fence", Usage: "`FENCE` that show has printed: if the record has another one by now, nothing is done"},
		)...),
	}, 2, 0, p.resolve)
}

// storedFormFlags returns the flags that say how the service stores outcomes, and for how long. A store keeps the bytes of an
// outcome as the codecs of the service make them, and this command cannot see which these are.
func storedFormFlags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{Name: "retention", Value: 24 * time.Hour, Usage: "Keep.Retention: how long the outcome is kept"},
		&cli.DurationFlag{Name: "late-retry", Usage: "Keep.LateRetry: how much longer the key is remembered"},
		&cli.StringFlag{Name: "seal-key",
			Usage: "`ID=FILE` with the ID and the 32 bytes of the first key, if Keep.Codecs of the service has core/seal; " +
				"with another one, retries get 503"},
		&cli.BoolFlag{Name: "no-codecs", Usage: "Keep.Codecs of the service is empty, or has core/compress only"},
	}
}

// resolve settles the outcome of a request or task. It reads the outcome and the key of a codec before it opens the store, so
// that a mistake in a file changes nothing.
func (p *program) resolve(ctx context.Context, cmd *cli.Command) error {
	if err := checkResolution(cmd); err != nil {
		return err
	}
	by, err := actorOf(cmd)
	if err != nil {
		return err
	}
	outcome, keep, err := resolution(cmd)
	if err != nil {
		return err
	}
	o, err := p.openOperator(cmd, keep)
	if err != nil {
		return err
	}
	defer o.store.close()
	task := taskOf(cmd)
	seen, err := o.lookToAct(ctx, cmd, task)
	if err != nil {
		return err
	}
	if err := o.settle(ctx, by, task, seen, outcome); err != nil {
		return err
	}
	p.printResolved(cmd, &seen, outcome)
	return nil
}

// settle resolves the outcome of a record that was seen, if it is unknown or may be that of a dead task. A completed record
// of a request, whose kind is empty or a route, is never dead. Whether that of a task is dead, only the engine can read from
// its outcome: if it refuses and the record is still as it was seen, the reason is not a change, so the exit code is 1 and
// not 4.
func (o *storeOperator) settle(
	ctx context.Context, by operator.By, task core.Task, seen driver.Record, outcome *core.Response,
) error {
	isTask := task.Kind != "" && !strings.Contains(task.Kind, " ")
	if seen.State != driver.Unknown && !(seen.State == driver.Completed && isTask) {
		return fail(finding, "there is nothing to resolve; %s: the record is %s: %s", nothingChanged, seen.State, meanings[seen.State])
	}
	err := o.Resolve(context.WithoutCancel(ctx), by, task, seen, outcome) // an interrupt does not leave it half done
	if errors.Is(err, core.ErrNotUnknown) && seen.State == driver.Completed {
		if now, again := o.Look(ctx, task); again == nil && now.Version == seen.Version {
			return fail(finding, "there is nothing to resolve; %s: the message or task is not dead", nothingChanged)
		}
	}
	if isReadOnly(err) {
		if now, again := o.Look(ctx, task); again != nil || now.Version != seen.Version { // the server has become a replica in between
			return o.explain(ctx, err, mayBeClaimed)
		}
	}
	return o.explain(ctx, err, mayBeDone)
}

// errWhichForm refuses to store outcomes in a form that nobody has named.
var errWhichForm = fail(badUsage, "how does the service store outcomes? Set --no-codecs if its Keep.Codecs is empty or has "+
	"core/compress only, or --seal-key ID=FILE if it has core/seal. With codecs of its own the service could not read the outcome: "+
	"use core/operator; %s", nothingChanged)

// checkResolution refuses flags that do not say what happened, or how the service stores outcomes. An outcome in another form
// would make all retries fail, so the command does not guess the form.
func checkResolution(cmd *cli.Command) error {
	switch {
	case cmd.IsSet("outcome") == cmd.Bool("not-done"):
		return fail(badUsage, "did it happen? Set --outcome FILE or --not-done")
	// With --not-done nothing is stored, so the form does not matter.
	case cmd.IsSet("outcome") && cmd.IsSet("seal-key") == cmd.Bool("no-codecs"):
		return errWhichForm
	}
	return nil
}

// lookToAct returns the record on which to act. It must be there, and have the fence that the operator has seen. --fence
// carries what an operator has seen in an earlier call of idem show over to this call: without it a run that vanished in
// between would be settled by a decision about an earlier one.
func (o *storeOperator) lookToAct(ctx context.Context, cmd *cli.Command, task core.Task) (driver.Record, error) {
	seen, err := o.Look(ctx, task)
	if err != nil {
		return seen, o.explain(ctx, err, nothingChanged)
	}
	if seen.State == driver.Absent {
		return seen, o.nothingFound(ctx, "no record has this scope and key")
	}
	if cmd.IsSet("fence") && cmd.Int64("fence") != seen.Fence {
		return seen, fail(changed, "the record has changed since it was seen; %s: it is %s, fence %d",
			nothingChanged, seen.State, seen.Fence)
	}
	return seen, nil
}

// resolution returns the outcome that the flags give, nil for none, and how the engine is to keep it. The engine would leave
// out a body that is longer than Keep.MaxBody, so the limit grows with the file.
func resolution(cmd *cli.Command) (outcome *core.Response, keep func(*core.Config), err error) {
	longest := longestBody
	if cmd.IsSet("outcome") {
		if outcome, err = readOutcome(cmd.String("outcome")); err != nil {
			return nil, nil, err
		}
		longest = max(longest, len(outcome.Body)) // no body is left out
	}
	keep, err = keeping(cmd, longest)
	return outcome, keep, err
}

// longestBody is the longest body of an outcome that is stored, if none is longer.
const longestBody = 1 << 20

// keeping returns how the engine is to keep outcomes, as storedFormFlags say.
func keeping(cmd *cli.Command, longest int) (func(*core.Config), error) {
	codecs, err := sealing(cmd.String("seal-key"))
	return func(c *core.Config) {
		c.Keep.Retention, c.Keep.LateRetry = cmd.Duration("retention"), cmd.Duration("late-retry")
		c.Keep.MaxBody, c.Keep.Codecs = longest, codecs
	}, err
}

// sealing returns the codec of a service that seals outcomes with this key, or none for "". A key is in a file and not in the
// flag, as a secret is.
func sealing(key string) ([]driver.Codec, error) {
	if key == "" {
		return nil, nil
	}
	id, file, _ := strings.Cut(key, "=")
	secret, err := os.ReadFile(file)
	if err != nil {
		return nil, fail(badUsage, "--seal-key must be ID=FILE: %v", err)
	}
	codec, err := seal.New([]seal.Key{{ID: id, Secret: secret}})
	if err != nil {
		return nil, fail(badUsage, "--seal-key: %v", err)
	}
	return []driver.Codec{codec}, nil
}

// printResolved says what happens from now on.
func (p *program) printResolved(cmd *cli.Command, seen *driver.Record, outcome *core.Response) {
	if cmd.Bool("json") {
		p.printJSON(map[string]any{"record": nameOf(seen), "resolved": true, "happened": outcome != nil})
		return
	}
	if outcome == nil {
		fmt.Fprintln(p.stdout, "resolved: it did not happen, and the next request runs")
		return
	}
	fmt.Fprintf(p.stdout, "resolved: it happened, and the same request gets %d\n", outcome.Status)
}
