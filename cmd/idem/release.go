package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/core/driver"
)

// releaseCommand returns the subcommand that frees a key whose run failed or vanished. It is for a key whose operation has
// not happened: the record and the results of its steps go, and any request may have the key. It never releases an outcome or
// a run in progress. The exit code is 1 if there is nothing to release, and 4 if the record has another fence than --fence,
// or changed between look and act.
func (p *program) releaseCommand() *cli.Command {
	return p.subcommand(&cli.Command{
		Name: "release", Usage: "free the key of a run that failed or vanished", ArgsUsage: "SCOPE KEY",
		Description: "The next request under the key is new and runs, also one with another body. The results of steps are\n" +
			"forgotten, so all steps run again. Use it only if the operation has not happened. An outcome is left (see idem\n" +
			"forget), and so is a run in progress.",
		Flags: auditFlags(
			kindFlag(),
			&cli.Int64Flag{Name: "fence", Usage: "`FENCE` that show has printed: if the record has another one by now, nothing is done"},
			&cli.BoolFlag{Name: "yes", Usage: "do not ask"},
		),
	}, 2, 0, p.release)
}

// release frees the key of a request or task.
func (p *program) release(ctx context.Context, cmd *cli.Command) error {
	if !p.asks && !cmd.Bool("yes") {
		return errNobodyToAsk
	}
	by, err := actorOf(cmd)
	if err != nil {
		return err
	}
	o, err := p.openOperator(cmd)
	if err != nil {
		return err
	}
	defer o.store.close()
	task := taskOf(cmd)
	seen, err := o.lookToAct(ctx, cmd, task)
	if err != nil {
		return err
	}
	// The operator refuses other states as well; here the message can say what the state means.
	if seen.State != driver.Failed && seen.State != driver.Unknown {
		return fail(finding, "there is nothing to release; %s: the record is %s: %s", nothingChanged, seen.State, meanings[seen.State])
	}
	if !cmd.Bool("yes") {
		printRecord(p.stderr, &seen)
		if err := p.confirm(ctx, "Free this key? If the operation has happened, the next request does it again."); err != nil {
			return err
		}
	}
	if err := o.Release(context.WithoutCancel(ctx), by, task, seen); err != nil {
		return o.explain(ctx, err, mayBeDone)
	}
	if cmd.Bool("json") {
		p.printJSON(map[string]any{"record": nameOf(&seen), "released": true})
		return nil
	}
	fmt.Fprintln(p.stdout, "released: the next request is new")
	return nil
}
