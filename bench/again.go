package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// headings are what the parts of a report begin with, in their order.
var headings = []string{
	"# Performance", "## End to end", "## Side by side", "## One key, many clients", "## Allocations", "## Server time", "## Client", "## Cluster",
	"## Live keys", "## Memory", "### Compressed, sealed", "### Planned", "## Hottest lines",
}

// partsOf takes a report apart, a part for each heading, "" for one that is not there.
func partsOf(report string) []string {
	parts, at := make([]string, len(headings)), 0
	for line := range strings.Lines(report) {
		if i := slices.Index(headings, strings.TrimSuffix(line, "\n")); i >= 0 {
			at = i
		}
		parts[at] += line
	}
	for i, part := range parts {
		if part != "" {
			parts[i] = "\n" + strings.TrimSpace(part) + "\n"
		}
	}
	parts[0] = strings.TrimPrefix(parts[0], "\n")
	return parts
}

// amend puts parts that were measured again into the report of a file, which says so then. Without the file, or when all
// was measured, they are the report.
func (b *bench) amend(file string, parts []string) ([]string, error) {
	old, err := os.ReadFile(file)
	if b.again == "" || os.IsNotExist(err) {
		return parts, nil
	}
	for i, part := range partsOf(string(old)) {
		if parts[i] == "" {
			parts[i] = part
		}
		if i == 0 {
			parts[0] = saysAgain(part, b.again)
		}
	}
	return parts, err
}

// saysAgain adds a row to the table that a report begins with, and takes what it is about out of earlier ones.
func saysAgain(about, sections string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSpace(about) + "\n") {
		b.WriteString(without(line, strings.Split(sections, ",")))
	}
	return b.String() + fmt.Sprintf("| %s%s%s, commit %s |\n", sections, againMark, time.Now().UTC().Format(time.DateOnly), commit())
}

const againMark = ", again | "

// without returns a row that says which sections were measured again without some of them, "" when it is about no other.
func without(line string, sections []string) string {
	names, rest, ok := strings.Cut(strings.TrimPrefix(line, "| "), againMark)
	if !ok {
		return line
	}
	left := slices.DeleteFunc(strings.Split(names, ","), func(name string) bool { return slices.Contains(sections, name) })
	if len(left) == 0 {
		return ""
	}
	return "| " + strings.Join(left, ",") + againMark + rest
}
