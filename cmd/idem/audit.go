package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/operator"
)

// auditFlags returns the flags of every subcommand that acts. No act can be done without a name and a reason.
func auditFlags(more ...cli.Flag) []cli.Flag {
	return append(more,
		&cli.StringFlag{Name: "who", Required: true, Usage: "`WHO` acts, for the audit"},
		&cli.StringFlag{Name: "reason", Required: true, Usage: "`TEXT` that says why, for the audit"},
		auditFileFlag())
}

// auditFileFlag returns the flag of the file that auditor writes to. idem serve has it without --who, since there the page
// knows who acts.
func auditFileFlag() cli.Flag {
	return &cli.StringFlag{Name: "audit-file",
		Usage: "`FILE` to which a line of JSON is appended before the act; if that fails, nothing is done. Default: standard error"}
}

// actorOf returns who acts and why. The library refuses flags that are missing; this also refuses empty ones.
func actorOf(cmd *cli.Command) (operator.By, error) {
	by := operator.By{Who: cmd.String("who"), Why: cmd.String("reason")}
	if by.Who == "" || by.Why == "" {
		return by, fail(badUsage, "--who and --reason must say who acts and why")
	}
	return by, nil
}

// audited is the line of an act. Of an outcome it has the status and the length, since an audit log must not become a second
// store of private data. Happened is a pointer, because "it did not happen" is not the same as an act that says nothing of
// it.
type audited struct {
	Time     time.Time       `json:"time"`
	Action   operator.Action `json:"act"`
	Who      string          `json:"who"`
	Why      string          `json:"why"`
	Place    string          `json:"place"`
	Scope    string          `json:"scope"`
	Key      string          `json:"key,omitempty"`
	Kind     string          `json:"kind,omitempty"`
	Record   string          `json:"record,omitempty"`
	State    driver.State    `json:"state,omitempty"`
	Fence    int64           `json:"fence,omitempty"`
	Happened *bool           `json:"happened,omitempty"`
	Status   int             `json:"status,omitempty"`
	Length   int             `json:"length,omitempty"`
}

// auditor returns a function that writes a line before each act, to a file or, with "", to standard error. If the line cannot
// be written, its error prevents the act: an act that nobody can trace is worse than one that must be repeated. So the audit
// has each act that was done, and may have acts that then failed.
func (p *program) auditor(file, place string) func(context.Context, operator.Act) error {
	return func(_ context.Context, act operator.Act) error {
		line := audited{
			Time: time.Now().UTC(), Action: act.Action, Who: act.Who, Why: act.Why, Place: place, Scope: act.Task.Scope,
			Key: act.Task.Key, Kind: act.Task.Kind, State: act.Seen.State, Fence: act.Seen.Fence,
		}
		if act.Seen.State != "" {
			line.Record = nameOf(&act.Seen)
		}
		// Only a Resolve says whether something happened; release and forget leave that open.
		if happened := act.Outcome != nil; act.Action == operator.Resolve {
			line.Happened = &happened
			if happened {
				line.Status, line.Length = act.Outcome.Status, len(act.Outcome.Body)
			}
		}
		if err := p.audit(file, &line); err != nil {
			return fmt.Errorf("%w: %w", errNotAudited, err)
		}
		return nil
	}
}

// audit appends a line to a file, and waits until the disk has it; "" stands for standard error. It opens the file for each
// line, so that a log can be rotated while idem serve runs. A new file can be read by its owner only.
func (p *program) audit(file string, line *audited) error {
	if file == "" {
		return writeLine(p.stderr, line)
	}
	to, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = writeLine(to, line)
	// An act whose line is lost with the power would be an act that nobody can trace.
	if err == nil && isRegular(to) {
		err = to.Sync()
	}
	if closed := to.Close(); err == nil {
		err = closed
	}
	return err
}

// isRegular reports whether a file is on a disk, and no pipe or device, which has nothing to sync.
func isRegular(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode().IsRegular()
}

// writeLine writes a line in one call, so that the lines of several commands do not mix.
func writeLine(w io.Writer, line *audited) error {
	text, err := jsonLine(line)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}
