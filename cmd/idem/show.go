package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/core/driver"
)

// showCommand returns the subcommand that looks at one record. It says what the store knows of one key, and changes nothing.
// It never shows the request or the outcome. The exit code is 1 if there is no record. With --instance and without a SCOPE it
// scans the store, since an instance has no scope in it.
func (p *program) showCommand() *cli.Command {
	return p.subcommand(&cli.Command{
		Name: "show", Usage: "what became of a key", ArgsUsage: "SCOPE KEY, or with --instance nothing or the SCOPE",
		Description: "SCOPE is what Config.Scope of the service returns for the caller, KEY is what the client sent,\n" +
			"without quotes. " +
			"An argument that begins with a dash comes after two dashes: idem show -- alice -7",
		Flags: []cli.Flag{kindFlag(), &cli.StringFlag{Name: "instance",
			Usage: "`URI` that a problem had as its instance, in place of the KEY; without the SCOPE all records are searched"}},
	}, 0, 2, p.show)
}

// show prints the record of a request or task. With --json an absent record is printed as well, so that a script reads one
// object in any case.
func (p *program) show(ctx context.Context, cmd *cli.Command) error {
	instance := cmd.String("instance")
	if n := cmd.Args().Len(); instance == "" && n != 2 || instance != "" && n == 2 {
		return fail(badUsage, "show takes %s; idem show --help says more", argumentsOf(cmd))
	}
	o, err := p.openOperator(cmd)
	if err != nil {
		return err
	}
	defer o.store.close()
	task := taskOf(cmd)
	// The message about a record that is missing names what was looked for.
	what, look := "scope and key", func() (driver.Record, error) { return o.Look(ctx, task) }
	if instance != "" {
		what, look = "instance", func() (driver.Record, error) { return o.Find(ctx, task.Scope, instance) }
	}
	seen, err := look()
	if err != nil {
		return o.explain(ctx, err, nothingChanged)
	}
	if seen.State == driver.Absent {
		if cmd.Bool("json") {
			p.printJSON(newRecord(&seen))
		}
		return o.nothingFound(ctx, "no record has this "+what)
	}
	if cmd.Bool("json") {
		p.printJSON(newRecord(&seen))
		return nil
	}
	printRecord(p.stdout, &seen)
	return nil
}

// record is the JSON of a record. Durations are in seconds. A field is missing where its state has no such value. The time
// since the end of a lease is negative. Scripts depend on the names of its fields, so they do not follow those of
// driver.Record.
type record struct {
	Record           string       `json:"record"`
	State            driver.State `json:"state"`
	Attempt          int          `json:"attempt,omitempty"`
	Takeover         bool         `json:"takeover,omitempty"`
	Free             bool         `json:"free,omitempty"`
	Fence            int64        `json:"fence,omitempty"`
	ClaimedAt        *time.Time   `json:"claimed_at,omitempty"`
	LeaseSeconds     float64      `json:"lease_seconds,omitempty"`
	RetentionSeconds float64      `json:"retention_seconds,omitempty"`
	Steps            int          `json:"steps,omitempty"`
	Bytes            int          `json:"bytes,omitempty"`
	Cause            string       `json:"cause,omitempty"`
}

// newRecord returns the JSON of a record.
func newRecord(seen *driver.Record) record {
	r := record{
		Record: nameOf(seen), State: seen.State, Attempt: seen.Attempt, Takeover: seen.Takeover, Free: seen.Free, Fence: seen.Fence,
		LeaseSeconds: seen.Remaining.Seconds(), RetentionSeconds: seen.Expires.Seconds(), Steps: seen.Steps, Bytes: seen.Bytes,
		Cause: seen.Cause,
	}
	if !seen.ClaimedAt.IsZero() {
		at := seen.ClaimedAt.UTC()
		r.ClaimedAt = &at
	}
	return r
}

// nameOf returns the text form of a record's name. It is the name in Event.Record of the hooks, so the log of a service can
// be searched for it.
func nameOf(seen *driver.Record) string { return string(driver.AppendRecordName(nil, seen.Name)) }

// meanings says what a state means to an operator. Other messages use them too, so that a refusal says why.
var meanings = map[driver.State]string{
	driver.InProgress: "a process runs the handler, or its lease has not ended yet: wait",
	driver.Unknown:    "a process vanished during the run: find out what happened, then idem resolve",
	driver.Failed:     "the run ended without an outcome to store: the next request runs",
	driver.Completed:  "the outcome is stored: the same request gets it",
	driver.Expired:    "there was an outcome, and its retention is over",
	driver.Unreadable: "the record is damaged, or a later version wrote it",
}

// printRecord prints a record for people. The cause is quoted, because it is the text of a handler or of another service.
// Only lines that apply to the state are printed.
func printRecord(w io.Writer, seen *driver.Record) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s"+format+"\n", append([]any{name}, args...)...)
	}
	line("record", "%s", nameOf(seen))
	line("state", "%s: %s", seen.State, meanings[seen.State])
	if seen.Attempt > 0 {
		line("attempt", "%d%s", seen.Attempt, map[bool]string{true: ", after a run that vanished"}[seen.Takeover])
	}
	if seen.Fence != 0 {
		line("claimed", "%s, fence %d", seen.ClaimedAt.UTC().Format(time.RFC3339), seen.Fence)
	}
	switch {
	case seen.State == driver.InProgress:
		line("lease", "ends in %s unless it is renewed", rounded(seen.Remaining))
	case seen.State == driver.Unknown:
		line("lease", "ended %s ago", rounded(-seen.Remaining))
	}
	if seen.Cause != "" {
		line("cause", "%q", seen.Cause)
	}
	if seen.Steps > 0 {
		line("steps", "%d", seen.Steps)
	}
	if seen.Bytes > 0 {
		line("bytes", "%d", seen.Bytes)
	}
	line("kept for", "%s", rounded(seen.Expires))
}

// rounded returns a duration as people read it.
func rounded(d time.Duration) string {
	if d >= time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
