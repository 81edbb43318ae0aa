package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/operator"
)

// forgetCommand returns the subcommand that deletes one record, or all of a caller. It deletes a record as it was seen,
// whatever its outcome, and so gives up the protection of its key. It never deletes the record of a run in progress or one
// that cannot be read. One key takes --fence, which a scope cannot have. The exit code is 1 if nothing was there, if the
// record was left, or if the answer was not yes.
func (p *program) forgetCommand() *cli.Command {
	return p.subcommand(&cli.Command{
		Name: "forget", Usage: "delete the record of a key, or all records of a caller", ArgsUsage: "SCOPE KEY, or SCOPE --all",
		Description: "The next request under the key is new and runs, so an operation that has happened happens again. A run in\n" +
			"progress is never interrupted, and its record is left. Bodies in a blob store stay until their time to live is over.",
		Flags: auditFlags(
			kindFlag(),
			&cli.BoolFlag{Name: "all", Usage: "all records of the caller, as to erase the caller"},
			&cli.Int64Flag{Name: "fence", Usage: "`FENCE` that show has printed: if the record has another one by now, nothing is done"},
			&cli.BoolFlag{Name: "yes", Usage: "do not ask"},
		),
	}, 1, 1, p.forget)
}

// forget forgets one record, or all of a caller.
func (p *program) forget(ctx context.Context, cmd *cli.Command) error {
	isOne := cmd.Args().Len() == 2
	if isOne == cmd.Bool("all") {
		return fail(badUsage, "forget takes a SCOPE and a KEY, or a SCOPE and --all")
	}
	// A flag that has no effect would let its user believe that fewer records go.
	if !isOne && (cmd.IsSet("kind") || cmd.IsSet("fence")) {
		return fail(badUsage, "--all takes neither --kind nor --fence")
	}
	// Without a terminal the question would read the input of a script, so the act is refused before anything is looked up.
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
	if isOne {
		return p.forgetOne(ctx, cmd, o, by)
	}
	return p.forgetAll(ctx, cmd, o, by)
}

// forgetOne forgets the record of a request or task. The record is looked up once: what is printed for the question is what
// is deleted, or nothing is.
func (p *program) forgetOne(ctx context.Context, cmd *cli.Command, o *storeOperator, by operator.By) error {
	task := taskOf(cmd)
	seen, err := o.lookToAct(ctx, cmd, task)
	if err != nil {
		return err
	}
	// The operator would refuse these as well. A record that cannot be read may be that of a later version, whose processes
	// can read it.
	if seen.State == driver.InProgress || seen.State == driver.Unreadable {
		return fail(finding, "the record is left; %s: it is %s: %s", nothingChanged, seen.State, meanings[seen.State])
	}
	if !cmd.Bool("yes") {
		printRecord(p.stderr, &seen)
		if err := p.confirm(ctx, "Forget this record? If its operation has happened, the next request does it again."); err != nil {
			return err
		}
	}
	// An interrupt from now on would leave open whether the record is deleted. The timeout of the store still ends the call.
	if err := o.Forget(context.WithoutCancel(ctx), by, task, seen); err != nil {
		return o.explain(ctx, err, mayBeDone)
	}
	if cmd.Bool("json") {
		p.printJSON(map[string]any{"record": nameOf(&seen), "forgotten": 1})
		return nil
	}
	fmt.Fprintln(p.stdout, "forgotten: the next request is new")
	return nil
}

// forgetAll forgets all records of a caller, except those in progress. An interrupt ends it: the records that were not
// reached stay, and the same command continues. Requests of the caller that come meanwhile make new records, so the caller is
// to be locked out first if the erasure must be complete. The exit code is 1 if records were left.
func (p *program) forgetAll(ctx context.Context, cmd *cli.Command, o *storeOperator, by operator.By) error {
	scope := cmd.Args().First()
	if err := p.reviewAll(ctx, cmd, o, scope); err != nil {
		return err
	}
	var sofar operator.Forgotten
	progress := p.newProgress()
	// sofar is what is done if ForgetScope fails halfway.
	done, err := o.ForgetScope(ctx, by, scope, func(f operator.Forgotten) {
		sofar = f
		progress.step()
	})
	progress.clear()
	if err != nil {
		return o.explain(ctx, err, fmt.Sprintf("%d records were forgotten; the same command continues", sofar.Records))
	}
	if cmd.Bool("json") {
		p.printJSON(map[string]any{"forgotten": done.Records, "in_progress": done.InProgress, "changed": done.Changed})
	} else {
		fmt.Fprintf(p.stdout, "%d records are forgotten\n", done.Records)
	}
	if left := done.InProgress + done.Changed; left > 0 {
		return fail(finding, "%d records are left: %d are in progress, and %d have changed at that moment or cannot be read; "+
			"try again later", left, done.InProgress, done.Changed)
	}
	return nil
}

// reviewed is how many records forget lists before it asks.
const reviewed = 100

// reviewAll lists the records of a caller on standard error, and asks whether they are to be forgotten. With --yes it counts
// them only, so that a wrong scope is reported before the audit has a line for it. Standard output stays free for the result.
func (p *program) reviewAll(ctx context.Context, cmd *cli.Command, o *storeOperator, scope string) error {
	// A program with another output, so that the listing is the one of idem ls.
	onStderr := &program{stdout: p.stderr, stderr: p.stderr, draws: p.draws}
	list, total := onStderr.newListing(false, 0), 0
	err := o.Scan(ctx, operator.Filter{Scope: scope}, func(seen driver.Record) bool {
		list.progress.step()
		if total++; !cmd.Bool("yes") && total <= reviewed {
			list.add(&seen)
		}
		return true
	})
	list.progress.clear()
	switch {
	case err != nil:
		return o.explain(ctx, err, nothingChanged)
	case total == 0:
		return o.nothingFound(ctx, "no record has this scope")
	case cmd.Bool("yes"):
		return nil
	}
	return p.confirm(ctx, fmt.Sprintf("Forget these records, %d in all? What has happened can happen again.", total))
}

// confirm asks a question, and returns nil after a yes. Any other answer, and the end of the input, means no. A goroutine
// reads the answer, because a read from a terminal cannot be interrupted; it ends with the process.
func (p *program) confirm(ctx context.Context, question string) error {
	fmt.Fprint(p.stderr, question, " [y/N] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(p.stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(p.stderr)
		return fail(interrupted, "interrupted; %s", nothingChanged)
	case text := <-answer:
		if text != "y" && text != "yes" {
			return fail(finding, "not confirmed; %s", nothingChanged)
		}
		return nil
	}
}
