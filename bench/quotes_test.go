package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// quotes are the figures of README.md and docs/stores.md: each is in a table of docs/PERFORMANCE.md, too.
var quotes = []struct{ pattern, section, row, column string }{
	{`adds (\d+) to \d+ allocations`, "## Allocations", "fiber", "a new key adds"},
	{`adds \d+ to (\d+) allocations`, "## Allocations", "gin", "a new key adds"},
	{`(\d+) µs on a claim`, "## Server time", "512 B | this library", "begin, new"},
	{`(\d+) µs on an outcome of 512 bytes`, "## Server time", "512 B | this library", "complete"},
	{`(\d+) µs on a replay`, "## Server time", "512 B | this library", "replay"},
	{`and (\d+), \d+ and \d+ µs on a busy server`, "## Server time", "512 B | this library", "begin, busy"},
	{`and \d+, (\d+) and \d+ µs on a busy server`, "## Server time", "512 B | this library", "complete, busy"},
	{`and \d+, \d+ and (\d+) µs on a busy server`, "## Server time", "512 B | this library", "replay, busy"},
	{`takes ([\d.]+) times the CPU of the two script calls`, "## Side by side", "http | all new keys | this library, redisstore", "CPU"},
	{`net/http and ([\d.]+) times on Fiber`, "## Side by side", "fiber | all new keys | this library, redisstore", "CPU"},
	{`guard by hand takes ([\d.]+) and`, "## Side by side", "http | all new keys | a guard by hand", "CPU"},
	{`guard by hand takes [\d.]+ and ([\d.]+) times`, "## Side by side", "fiber | all new keys | a guard by hand", "CPU"},
	{"`redisstore.Batch\\(\\)` takes ([\\d.]+) and", "## Side by side", "http | all new keys | this library, redisstore in batches", "CPU"},
	{"`redisstore.Batch\\(\\)` takes [\\d.]+ and ([\\d.]+) times", "## Side by side", "fiber | all new keys | this library, redisstore in batches", "CPU"},
	{`Replays reach ([\d.]+) to`, "### All replays", "gin | this library, redisstore", "of two raw script calls"},
	{`Replays reach [\d.]+ to ([\d.]+) times`, "### All replays", "http | this library, redisstore", "of two raw script calls"},
	{"`Keep.LocalReplays` they reach ([\\d.]+) to", "## Side by side", "fiber | all replays | this library, local replays", "rate"},
	{"`Keep.LocalReplays` they reach [\\d.]+ to ([\\d.]+) times", "## Side by side", "http | all replays | this library, local replays", "rate"},
	{`(\d+) bytes for a record while its request runs`, "## Memory", "512 B | this library", "running"},
	{`(\d+) bytes with a response of 512 bytes and six header fields`, "## Memory", "512 B | this library", "completed"},
	{`such a record takes (\d+) bytes`, "## Memory", "512 B | this library", "completed"},
}

// Every figure of README.md and docs/stores.md is the report's, rounded to the digits that it is quoted with.
func TestTheREADMEQuotesTheReport(t *testing.T) {
	text := ""
	for _, page := range []string{"../README.md", "../docs/stores.md"} {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		text += strings.Join(strings.Fields(string(content)), " ") + "\n"
	}
	report, err := os.ReadFile("../docs/PERFORMANCE.md")
	require.NoError(t, err)
	for _, q := range quotes {
		quoted := regexp.MustCompile(q.pattern).FindAllStringSubmatch(text, -1)
		assert.NotEmpty(t, quoted, "neither page says anything like %s", q.pattern)
		for _, found := range quoted {
			value, err := cell(string(report), q.section, q.row, q.column)
			if assert.NoError(t, err) {
				assert.Equal(t, rounded(value, found[1]), found[1], "%s of %s in %s is %v: %q is stale", q.column, q.row, q.section, value, found[0])
			}
		}
	}
}

// rounded is value with as many digits behind the point as like has.
func rounded(value float64, like string) string {
	_, digits, _ := strings.Cut(like, ".")
	return strconv.FormatFloat(value, 'f', len(digits), 64)
}

// cell finds a figure in a section of the report, by the beginning of its row and the first column of a name.
func cell(report, section, row, column string) (float64, error) {
	_, text, _ := strings.Cut(report, "\n"+section+"\n")
	at := -1
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		switch {
		case strings.HasPrefix(line, "#"):
			return 0, fmt.Errorf("%s has no row %q", section, row)
		case at < 0:
			at = slices.Index(cells, column)
		case strings.HasPrefix(line, "| "+row+" | ") && at < len(cells):
			return strconv.ParseFloat(strings.Trim(cells[at], "*×"), 64)
		}
	}
	return 0, fmt.Errorf("%s has no row %q with a column %q", section, row, column)
}

func TestACellIsFoundByItsSectionRowAndColumn(t *testing.T) {
	report := "# Report\n\n## One\n\n| a | b | b |\n| --- | --- | --- |\n| x | 1.25× | 2 |\n\n## Two\n\n| a | b |\n| --- | --- |\n| x | **3** |\n| y | 4 |\n"
	for _, c := range []struct {
		section, row, column string
		want                 float64
	}{{"## One", "x", "b", 1.25}, {"## Two", "x", "b", 3}, {"## Two", "y", "b", 4}} {
		value, err := cell(report, c.section, c.row, c.column)
		require.NoError(t, err)
		assert.Equal(t, c.want, value)
	}
	for _, c := range [][3]string{{"## One", "y", "b"}, {"## Two", "x", "c"}, {"## Three", "x", "b"}} {
		_, err := cell(report, c[0], c[1], c[2])
		assert.Error(t, err, c)
	}
	assert.Equal(t, "1.2", rounded(1.25, "0.7"))
	assert.Equal(t, "14", rounded(13.5, "10"))
}
