package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/operator"
)

// states are the states that a record can have; the first three say when their run was claimed.
var states = []driver.State{
	driver.Unknown, driver.InProgress, driver.Failed, driver.Completed, driver.Expired, driver.Unreadable,
}

// lsCommand returns the subcommand that lists records. The records are in no order, since the store has none, and those that
// come and go during the scan may be missing. The exit code is 1 if no record was listed.
func (p *program) lsCommand() *cli.Command {
	return p.subcommand(&cli.Command{
		Name: "ls", Usage: "list records",
		Description: "A record has no scope and key, but hashes of them: Event.Record of the hooks has the same name, so the log\n" +
			"of the service says which request it is. A scan reads the whole store in batches that delay nobody.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "state",
				Usage: "`STATES`: of unknown, in-progress, failed, completed, expired, unreadable. Default: all"},
			&cli.DurationFlag{Name: "older",
				Usage: "`AGE`: only records whose run was claimed so long ago, which unknown, in-progress and failed have"},
			&cli.StringFlag{Name: "scope", Usage: "`SCOPE`: only records of one caller. Default: all"},
			&cli.IntFlag{Name: "limit", Value: 100, Usage: "`N` records at most; 0 for all"},
		},
	}, 0, 0, p.ls)
}

// ls lists the records that the flags select. It asks the store for all states and selects them itself: so it knows whether
// there was any record, and an empty store, which often is the wrong store, gets another message than an empty selection.
func (p *program) ls(ctx context.Context, cmd *cli.Command) error {
	wanted, err := statesOf(cmd)
	if err != nil {
		return err
	}
	o, err := p.openOperator(cmd)
	if err != nil {
		return err
	}
	defer o.store.close()
	list := p.newListing(cmd.Bool("json"), cmd.Int("limit"))
	filter := operator.Filter{Scope: cmd.String("scope"), MinAge: cmd.Duration("older")}
	err = o.Scan(ctx, filter, func(seen driver.Record) bool {
		list.progress.step()
		return !slices.Contains(wanted, seen.State) || list.add(&seen)
	})
	list.progress.clear()
	listed := len(list.known)
	switch {
	case err != nil:
		return o.explain(ctx, err, fmt.Sprintf("%d records were listed, %s", listed, nothingChanged))
	// With --older the store selects, so a scan that finds nothing does not say that there is nothing.
	case listed == 0 && list.progress.read == 0 && filter.MinAge == 0:
		return o.nothingFound(ctx, "there is no record")
	case listed == 0:
		return fail(finding, "no record in %s is selected; %s", o.store.place, nothingChanged)
	case list.hasMore:
		fmt.Fprintf(p.stderr, "idem: these are %d records, and there are more: --limit 0 lists all\n", listed)
	}
	return nil
}

// statesOf returns the states that the flags select. It refuses --older for states without the time of a claim, which would
// silently select nothing.
func statesOf(cmd *cli.Command) (wanted []driver.State, err error) {
	for _, name := range cmd.StringSlice("state") {
		state := driver.State(strings.TrimSpace(name))
		if !slices.Contains(states, state) {
			return nil, fail(badUsage, "--state %q is none of %q", name, states)
		}
		if cmd.IsSet("older") && slices.Index(states, state) > 2 {
			return nil, fail(badUsage, "--older selects no record that is %s, since that does not say when its run was claimed", state)
		}
		wanted = append(wanted, state)
	}
	if cmd.Int("limit") < 0 || cmd.Duration("older") < 0 {
		return nil, fail(badUsage, "--limit and --older must not be negative")
	}
	if wanted == nil {
		return states, nil
	}
	return wanted, nil
}

// listing prints records, each once: a scan may find a record twice, if it changes or moves during the scan. known grows with
// the number of records that are listed, which --limit bounds by default.
type listing struct {
	p        *program
	json     bool
	limit    int // 0: none
	known    map[[32]byte]bool
	hasMore  bool
	progress *progress
}

// newListing returns a listing of at most this many records.
func (p *program) newListing(json bool, limit int) *listing {
	return &listing{p: p, json: json, limit: limit, known: map[[32]byte]bool{}, progress: p.newProgress()}
}

// add prints a record, and returns false if the listing has as many as it may. The record beyond the limit is not printed,
// but shows that there are more.
func (l *listing) add(seen *driver.Record) bool {
	if l.known[seen.Name] {
		return true
	}
	if l.limit > 0 && len(l.known) == l.limit {
		l.hasMore = true
		return false
	}
	l.progress.clear()
	l.known[seen.Name] = true
	switch {
	case l.json:
		l.p.printJSON(newRecord(seen))
	// The header comes with the first record, so that an empty listing prints nothing.
	case len(l.known) == 1:
		printRow(l.p.stdout, "RECORD", "STATE", "ATTEMPT", "CLAIMED", "KEPT FOR", "BYTES", "CAUSE")
		fallthrough
	default:
		printListed(l.p.stdout, seen)
	}
	return true
}

// printListed prints a record as a row. A cause is quoted and cut to 60 characters, since it is text of a handler and could
// be long or steer a terminal.
func printListed(w io.Writer, seen *driver.Record) {
	claimed, cause := "", ""
	if !seen.ClaimedAt.IsZero() {
		claimed = seen.ClaimedAt.UTC().Format(time.RFC3339)
	}
	if seen.Cause != "" {
		cause = fmt.Sprintf("%.60q", seen.Cause)
	}
	printRow(w, nameOf(seen), seen.State, seen.Attempt, claimed, rounded(seen.Expires), seen.Bytes, cause)
}

// printRow prints a row with the seven columns of a listing. Each row is printed as soon as it is found, so the widths cannot
// depend on what follows.
func printRow(w io.Writer, columns ...any) {
	row := fmt.Sprintf("%-44v  %-11v  %7v  %-20v  %-10v  %8v  %v", columns...)
	fmt.Fprintln(w, strings.TrimRight(row, " "))
}
