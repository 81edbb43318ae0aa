package main

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/operator"
)

// stepsCommand returns the subcommand that lists the finished steps of a run. It changes nothing: a run in progress is not
// disturbed. Names of steps are shown, and results only with --reveal. The exit code is 1 if there are no finished steps.
func (p *program) stepsCommand() *cli.Command {
	return p.subcommand(&cli.Command{
		Name: "steps", Usage: "list the finished steps of a run that has no outcome", ArgsUsage: "SCOPE KEY",
		Description: "The next run of the same request gets the result of each finished step and does not do that step again.\n" +
			"When a step ended is not stored. A result can have what is private, so only --reveal shows it.",
		Flags: []cli.Flag{kindFlag(),
			&cli.BoolFlag{Name: "reveal", Usage: "show the results"},
			&cli.StringFlag{Name: "seal-key",
				Usage: "`ID=FILE` with the ID and the 32 bytes of a key, if the service seals what it stores"},
		},
	}, 2, 0, p.steps)
}

// step is the JSON of a finished step. Result is a pointer, since an empty result is not the same as one that is not shown.
type step struct {
	Step   string  `json:"step"`
	Bytes  int     `json:"bytes"`
	Result *string `json:"result,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// newStep returns the JSON of a finished step, with its result if that is to be shown. A result that cannot be decoded or is
// no text is an error of this step alone: the other steps are still listed.
func newStep(of *operator.Step, reveal bool) step {
	s := step{Step: of.Name, Bytes: of.Bytes}
	switch {
	case reveal && of.Err != nil:
		s.Error = "the result cannot be read: " + of.Err.Error()
	case reveal && !utf8.Valid(of.Result):
		s.Error = fmt.Sprintf("the result has %d bytes that are no text", len(of.Result))
	case reveal:
		result := string(of.Result)
		s.Result = &result
	}
	return s
}

// steps prints the finished steps of a request or task.
func (p *program) steps(ctx context.Context, cmd *cli.Command) error {
	codecs, err := sealing(cmd.String("seal-key"))
	if err != nil {
		return err
	}
	o, err := p.openOperator(cmd, func(c *core.Config) { c.Keep.Codecs = codecs })
	if err != nil {
		return err
	}
	defer o.store.close()
	seen, err := o.lookToAct(ctx, cmd, taskOf(cmd))
	if err != nil {
		return err
	}
	found, err := o.Steps(ctx, seen)
	if err != nil {
		return o.explain(ctx, err, nothingChanged)
	}
	// Not an error of the store: a run may have no steps, or have finished none.
	if len(found) == 0 {
		return fail(finding, "there are no finished steps%s; %s", whyNoSteps[seen.State], nothingChanged)
	}
	for i := range found {
		p.printStep(cmd, newStep(&found[i], cmd.Bool("reveal")))
	}
	return nil
}

// whyNoSteps says why a record has no steps, where its state is the reason.
var whyNoSteps = map[driver.State]string{
	driver.Completed: ": a record with an outcome has none", driver.Expired: ": there is no record any more",
}

// printStep prints a step. For people names and results are quoted, because they are the text of a service. Otherwise a name
// could have line ends, or what steers a terminal.
func (p *program) printStep(cmd *cli.Command, s step) {
	switch {
	case cmd.Bool("json"):
		p.printJSON(s)
	case s.Error != "":
		fmt.Fprintf(p.stdout, "%-30q  %8d bytes  %s\n", s.Step, s.Bytes, s.Error)
	case s.Result != nil:
		fmt.Fprintf(p.stdout, "%-30q  %8d bytes  %q\n", s.Step, s.Bytes, *s.Result)
	default:
		fmt.Fprintf(p.stdout, "%-30q  %8d bytes\n", s.Step, s.Bytes)
	}
}
