package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

// doctorCommand returns the subcommand that checks the settings of a server. It promises only what the server says of itself
// at this moment: nothing about the client of the service, and nothing about later changes. The exit code is 1 for any
// finding, so that a deployment can stop at it.
func (p *program) doctorCommand() *cli.Command {
	return p.subcommand(&cli.Command{
		Name: "doctor", Usage: "find settings of the server that can lose records or make requests hang",
		Description: "The exit code is 1 if there is a finding. The client of the service is not seen: let the service call\n" +
			"redisstore.Check or pgstore.Check at its start, too. In Redis this writes a record that expires after 2 seconds.",
		Flags: []cli.Flag{&cli.DurationFlag{Name: "sample", Value: 5 * time.Second,
			Usage: "how long to watch whether the memory of a Redis with a maxmemory grows so that it ends within a day; 0s: not at all"}},
	}, 0, 0, p.doctor)
}

// problem is the JSON of a finding. Its fields are those of driver.Finding under names that do not change with the Go type.
type problem struct {
	Setting string `json:"setting"`
	Found   string `json:"found"`
	Why     string `json:"why"`
	Fix     string `json:"fix"`
}

// doctor checks the server, and whether records can be read. A finding does not end the check: all are printed. An error ends
// it, because a server that cannot be asked has not passed; what was found before is printed all the same.
func (p *program) doctor(ctx context.Context, cmd *cli.Command) error {
	if cmd.Duration("sample") < 0 {
		return fail(badUsage, "--sample must not be negative")
	}
	o, err := p.openOperator(cmd)
	if err != nil {
		return err
	}
	defer o.store.close()
	findings, err := o.store.check(ctx)
	// The growth needs two looks with a pause between them, so it comes last, and --sample 0s leaves it out.
	if err == nil && o.store.growth != nil && cmd.Duration("sample") > 0 {
		var growth []driver.Finding
		growth, err = o.store.growth(ctx, cmd.Duration("sample"))
		findings = append(findings, growth...)
	}
	if err == nil {
		_, err = o.Look(ctx, core.Task{Scope: "idem", Key: "doctor"}) // the schema may be missing
	}
	if err == nil || len(findings) > 0 {
		p.printFindings(findings, cmd.Bool("json"))
	}
	if err != nil {
		return o.explain(ctx, err, nothingChanged)
	}
	if len(findings) > 0 {
		return fail(finding, "%d findings", len(findings))
	}
	return nil
}

// printFindings prints findings on lines of their own. Without JSON it also says if there is none. With JSON no line at all
// means that there is none, so a script can count lines.
func (p *program) printFindings(findings []driver.Finding, asJSON bool) {
	for _, found := range findings {
		if asJSON {
			p.printJSON(problem(found))
		} else {
			fmt.Fprintln(p.stdout, found)
		}
	}
	if len(findings) == 0 && !asJSON {
		fmt.Fprintln(p.stdout, "no finding")
	}
}
