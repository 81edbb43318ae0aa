package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/operator"
)

// statsCommand returns the subcommand that counts records. It changes nothing. The counts are of no single moment, because
// requests come and go during the scan. The exit code is 1 if there is no record.
func (p *program) statsCommand() *cli.Command {
	return p.subcommand(&cli.Command{
		Name: "stats", Usage: "count records and their bytes by state",
		Description: "A scan reads the whole store in batches that delay nobody. Bytes are those of records with their outcomes,\n" +
			"as the store counts them, without the results of steps.",
		Flags: []cli.Flag{&cli.StringFlag{Name: "scope", Usage: "`SCOPE`: only records of one caller. Default: all"}},
	}, 0, 0, p.stats)
}

// count is how many records there are, and how long they are together.
type count struct {
	Records int `json:"records"`
	Bytes   int `json:"bytes"`
}

// add counts a record.
func (c *count) add(seen *driver.Record) {
	c.Records++
	c.Bytes += seen.Bytes
}

// stats counts the records of a store, each once, although a scan may find one twice: known needs 32 bytes and more for each
// record of the store. After an error it prints no counts, which would be taken for all.
func (p *program) stats(ctx context.Context, cmd *cli.Command) error {
	o, err := p.openOperator(cmd)
	if err != nil {
		return err
	}
	defer o.store.close()
	var total count
	byState := map[driver.State]*count{}
	for _, state := range states {
		byState[state] = &count{}
	}
	known, progress := map[[32]byte]bool{}, p.newProgress()
	err = o.Scan(ctx, operator.Filter{Scope: cmd.String("scope")}, func(seen driver.Record) bool {
		progress.step()
		if !known[seen.Name] {
			known[seen.Name] = true
			byState[seen.State].add(&seen)
			total.add(&seen)
		}
		return true
	})
	progress.clear()
	if err != nil {
		return o.explain(ctx, err, fmt.Sprintf("%d records were counted, which are not all; %s", total.Records, nothingChanged))
	}
	// The zeros are printed even if there is no record, since a script reads them.
	p.printStats(cmd.Bool("json"), byState, total)
	if total.Records == 0 {
		return o.nothingFound(ctx, "there is no record")
	}
	return nil
}

// printStats prints how many records there are. Every state has a line, in the same order, also if no record has it.
func (p *program) printStats(json bool, byState map[driver.State]*count, total count) {
	if json {
		p.printJSON(map[string]any{"states": byState, "records": total.Records, "bytes": total.Bytes})
		return
	}
	const row = "%-11v  %9v  %12v\n"
	fmt.Fprintf(p.stdout, row, "STATE", "RECORDS", "BYTES")
	for _, state := range states {
		fmt.Fprintf(p.stdout, row, state, byState[state].Records, byState[state].Bytes)
	}
	fmt.Fprintf(p.stdout, row, "all", total.Records, total.Bytes)
}
