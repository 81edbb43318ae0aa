package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/cmd/idem/internal/plan"
)

// planCommand returns the subcommand that says how much memory a load takes.
func (p *program) planCommand() *cli.Command {
	return p.subcommand(&cli.Command{
		Name: "plan", Usage: "how much memory a Redis needs for a load",
		Description: "It calls no server. Its sums are those of Redis 5.0 to 7; Redis 8 and Valkey 8 take less for each record.",
		Flags: []cli.Flag{
			&cli.FloatFlag{Name: "rate", Value: 1000, Usage: "`N` new keys per second; retries make none"},
			&cli.DurationFlag{Name: "lease", Value: 30 * time.Second, Usage: "Lease.Duration"},
			&cli.DurationFlag{Name: "handler", Usage: "how long a handler runs. Default: --lease"},
			&cli.DurationFlag{Name: "retention", Value: 24 * time.Hour, Usage: "Keep.Retention"},
			&cli.IntFlag{Name: "body", Value: 512, Usage: "`BYTES` of a response's body"},
			&cli.IntFlag{Name: "headers", Value: 51,
				Usage: "`BYTES` of the header fields that are stored: the value and 2 for a common name; name, value and 3 for another"},
			&cli.FloatFlag{Name: "ratio", Value: 1, Usage: "compressed size of an outcome, as a `PART` of its size"},
			&cli.IntFlag{Name: "quantum", Value: 16,
				Usage: "`BYTES` between jemalloc's small sizes: 16 in Debian's Redis, 8 in one built with its own jemalloc"},
		},
	}, 0, 0, p.plan)
}

// plan prints the memory of a load.
func (p *program) plan(_ context.Context, cmd *cli.Command) error {
	load := plan.Load{
		Rate: cmd.Float("rate"), Lease: cmd.Duration("lease"), Handler: cmd.Duration("handler"), Retention: cmd.Duration("retention"),
		Body: cmd.Int("body"), Headers: cmd.Int("headers"), Ratio: cmd.Float("ratio"), Quantum: plan.Quantum(cmd.Int("quantum")),
	}
	if !cmd.IsSet("handler") {
		load.Handler = load.Lease
	}
	if err := load.Validate(); err != nil {
		return fail(badUsage, "%v", err)
	}
	if !cmd.Bool("json") {
		load.Explain(p.stdout)
		return nil
	}
	claim, outcome, all := load.Bytes()
	p.printJSON(map[string]int{"claim_bytes": claim, "outcome_bytes": outcome, "bytes": all})
	return nil
}
