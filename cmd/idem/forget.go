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

// forgetCommand returns the subcommand that deletes one record, or all of a caller.
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
	if !isOne && (cmd.IsSet("kind") || cmd.IsSet("fence")) {
		return fail(badUsage, "--all takes neither --kind nor --fence")
	}
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

// forgetOne forgets the record of a request or task.
func (p *program) forgetOne(ctx context.Context, cmd *cli.Command, o *storeOperator, by operator.By) error {
	task := taskOf(cmd)
	seen, err := o.lookToAct(ctx, cmd, task)
	if err != nil {
		return err
	}
	if seen.State == driver.InProgress || seen.State == driver.Unreadable {
		return fail(finding, "the record is left; %s: it is %s: %s", nothingChanged, seen.State, meanings[seen.State])
	}
	if !cmd.Bool("yes") {
		printRecord(p.stderr, &seen)
		if err := p.confirm(ctx, "Forget this record? If its operation has happened, the next request does it again."); err != nil {
			return err
		}
	}
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

// forgetAll forgets all records of a caller.
func (p *program) forgetAll(ctx context.Context, cmd *cli.Command, o *storeOperator, by operator.By) error {
	scope := cmd.Args().First()
	if err := p.reviewAll(ctx, cmd, o, scope); err != nil {
		return err
	}
	var sofar operator.Forgotten
	progress := p.newProgress()
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

// reviewAll lists the records of a caller, and asks whether they are to be forgotten.
func (p *program) reviewAll(ctx context.Context, cmd *cli.Command, o *storeOperator, scope string) error {
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

// confirm asks a question, and returns nil after a yes.
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
