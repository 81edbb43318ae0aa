package main

import (
	"context"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/cmd/idem/internal/plan"
)

// planCommand returns the subcommand that says how much memory a load takes. It is a calculation: it needs no store, and
// checks nothing of a server. The exit code is 0, or 2 for values that make no sense.
func (p *program) planCommand() *cli.Command {
	return p.subcommand(&cli.Command{
		Name: "plan", Usage: "how much memory a Redis needs for a load, and how many nodes a Cluster",
		Description: "It calls no server. Its sums are those of Redis 5.0 to 7; Redis 8 and Valkey 8 take less for each record.",
		Flags: append([]cli.Flag{
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
		}, clusterFlags()...),
	}, 0, 0, p.plan)
}

// clusterFlags returns the flags of the simulation. Without --simulate they have no effect.
func clusterFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "simulate", Usage: "draw the load of each node of a Redis Cluster, and what is lost with one; the flags below are for it"},
		&cli.IntFlag{Name: "nodes", Usage: "`N` masters. Default: as many as the limits need"},
		&cli.StringFlag{Name: "server", Value: "redis", Usage: "`redis` 7, or valkey 8.1 or later, which stores outcomes without a script"},
		&cli.BoolFlag{Name: "batches", Usage: "redisstore.Batch, with enough requests at once to fill the batches"},
		&cli.FloatFlag{Name: "replays", Value: 0.05, Usage: "`N` replays for each new key"},
		&cli.FloatFlag{Name: "hottest", Usage: "the `PART` of all requests that are replays of one key"},
		&cli.FloatFlag{Name: "zipf",
			Usage: "spread replays over the keys of a retention by Zipf's law with exponent `S`: 0 to 3. Default: evenly"},
		&cli.FloatFlag{Name: "tenant", Usage: "the `PART` of all new keys that one scope has"},
		&cli.FloatFlag{Name: "busy", Value: 0.5, Usage: "the `PART` of its core that a server may use for these calls"},
		&cli.IntFlag{Name: "node-memory", Value: 32_000_000_000, Usage: "`BYTES` of a master for records"},
		&cli.FloatFlag{Name: "node-network", Value: 5e9, Usage: "`BITS` per second of a master in each direction"},
		&cli.DurationFlag{Name: "lag", Value: 10 * time.Millisecond, Usage: "by which replicas are behind"},
		&cli.BoolFlag{Name: "wait", Usage: "redisstore.WaitReplicas(1, ...)"},
		&cli.DurationFlag{Name: "node-timeout", Value: 15 * time.Second, Usage: "cluster-node-timeout of the servers"},
		&cli.DurationFlag{Name: "reload", Value: time.Second, Usage: "ClusterStateReloadInterval of the clients"},
		&cli.DurationFlag{Name: "read-timeout", Value: 5 * time.Second, Usage: "ReadTimeout of the clients"},
		&cli.BoolFlag{Name: "partial", Usage: "the servers have cluster-require-full-coverage no"},
		&cli.DurationFlag{Name: "away", Usage: "how long requests of the keys of a lost master get 503. Default: by the flags above"},
		&cli.IntFlag{Name: "seconds", Value: 10, Usage: "`N` seconds to simulate"},
		&cli.StringFlag{Name: "svg", TakesFile: true, Usage: "write a picture of the masters, and of what a lost one costs, to a `FILE`, too"},
		&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "one `SEED` gives one result"},
	}
}

// plan prints the memory of a load. Without --handler a handler is taken to run for a whole lease.
func (p *program) plan(_ context.Context, cmd *cli.Command) error {
	load := plan.Load{
		Rate: cmd.Float("rate"), Lease: cmd.Duration("lease"), Handler: cmd.Duration("handler"), Retention: cmd.Duration("retention"),
		Body: cmd.Int("body"), Headers: cmd.Int("headers"), Ratio: cmd.Float("ratio"), Quantum: plan.Quantum(cmd.Int("quantum")),
	}
	if !cmd.IsSet("handler") {
		load.Handler = load.Lease
	}
	if cmd.Bool("simulate") {
		return p.simulate(load, cmd)
	}
	if file := cmd.String("svg"); file != "" {
		return fail(badUsage, "--svg %s: needs --simulate, of which it is a picture", file)
	}
	if err := load.Validate(); err != nil {
		return fail(badUsage, "%v", err)
	}
	if !cmd.Bool("json") {
		load.Explain(p.stdout)
		return nil
	}
	// Only the sums: how they come about is the text for people.
	claim, outcome, all := load.Bytes()
	p.printJSON(map[string]int{"claim_bytes": claim, "outcome_bytes": outcome, "bytes": all})
	return nil
}

// simulate prints the load of the nodes of a Cluster. Its costs of a call were measured for a few servers only, so another
// --server is refused in place of an estimate.
func (p *program) simulate(load plan.Load, cmd *cli.Command) error {
	if cmd.Bool("wait") && cmd.Bool("batches") {
		return fail(badUsage, "--batches: redisstore.Batch has no effect with --wait: leave one of them out")
	}
	server := cmd.String("server")
	if cmd.Bool("batches") {
		server += " batches"
	}
	costs, isKnown := plan.KnownCosts[server]
	if !isKnown {
		return fail(badUsage, "--server %s: must be redis or valkey", cmd.String("server"))
	}
	c := plan.Cluster{
		Load: load, Nodes: cmd.Int("nodes"), Replays: cmd.Float("replays"), Hottest: cmd.Float("hottest"), Zipf: cmd.Float("zipf"),
		Tenant: cmd.Float("tenant"), Costs: costs,
		Busy: cmd.Float("busy"), Memory: cmd.Int("node-memory"), Network: cmd.Float("node-network"),
		Lag: cmd.Duration("lag"), Wait: cmd.Bool("wait"), Seconds: cmd.Int("seconds"), Seed: cmd.Uint64("seed"),
		Outage: plan.Outage{
			NodeTimeout: cmd.Duration("node-timeout"), Reload: cmd.Duration("reload"), Read: cmd.Duration("read-timeout"),
			Partial: cmd.Bool("partial"), Away: cmd.Duration("away"),
		},
	}
	if err := c.Validate(); err != nil {
		return fail(badUsage, "%v", err)
	}
	if file := cmd.String("svg"); file != "" {
		if err := os.WriteFile(file, []byte(c.Picture()), 0o644); err != nil { // #nosec G306: it is a picture for everybody
			return fail(badUsage, "--svg: %v", err)
		}
	}
	if !cmd.Bool("json") {
		c.Draw(p.stdout)
		return nil
	}
	nodes, loss := c.Simulate()
	p.printJSON(map[string]any{"masters": c.Size(), "nodes": nodes, "loss": loss})
	return nil
}
