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

// quotes are the figures of the README: in it, and in a table of docs/PERFORMANCE.md.
var quotes = []struct{ pattern, section, row, column string }{
	{`(\d+) to \d+ allocations a request over the bare handler`, "## Allocations", "fiber", "a new key adds"},
	{`\d+ to (\d+) allocations a request over the bare handler`, "## Allocations", "gin", "a new key adds"},
	{`(\d+) µs of the server for a claim`, "## Server time", "512 B | this library", "begin, new"},
	{`(\d+) µs for an outcome of 512 bytes`, "## Server time", "512 B | this library", "complete"},
	{`(\d+) µs for a replay`, "## Server time", "512 B | this library", "replay"},
	{`and (\d+), \d+ and \d+ µs on a busy server`, "## Server time", "512 B | this library", "begin, busy"},
	{`and \d+, (\d+) and \d+ µs on a busy server`, "## Server time", "512 B | this library", "complete, busy"},
	{`and \d+, \d+ and (\d+) µs on a busy server`, "## Server time", "512 B | this library", "replay, busy"},
	{`a new request takes ([\d.]+) times the CPU of those two calls`, "## Side by side", "http | all new keys | this library, redisstore", "CPU"},
	{`net/http and ([\d.]+) times on Fiber`, "## Side by side", "fiber | all new keys | this library, redisstore", "CPU"},
	{`the guard by hand takes \(([\d.]+) and`, "## Side by side", "http | all new keys | a guard by hand", "CPU"},
	{`the guard by hand takes \([\d.]+ and ([\d.]+)\)`, "## Side by side", "fiber | all new keys | a guard by hand", "CPU"},
	{"([\\d.]+) and [\\d.]+ times with `redisstore.Batch", "## Side by side", "http | all new keys | this library, redisstore in batches", "CPU"},
	{"[\\d.]+ and ([\\d.]+) times with `redisstore.Batch", "## Side by side", "fiber | all new keys | this library, redisstore in batches", "CPU"},
	{`A replay has ([\d.]+) to [\d.]+ of their rate`, "### All replays", "gin | this library, redisstore", "of two raw script calls"},
	{`A replay has [\d.]+ to ([\d.]+) of their rate`, "### All replays", "http | this library, redisstore", "of two raw script calls"},
	{"([\\d.]+) to [\\d.]+ of the bare handler's with `Keep.LocalReplays", "## Side by side", "fiber | all replays | this library, local replays", "rate"},
	{"[\\d.]+ to ([\\d.]+) of the bare handler's with `Keep.LocalReplays", "## Side by side", "http | all replays | this library, local replays", "rate"},
	{`(\d+) bytes of the server while its request runs`, "## Memory", "512 B | this library", "running"},
	{`(\d+) bytes with an answer of 512 bytes and six header lines`, "## Memory", "512 B | this library", "completed"},
}

// Every figure of the README is the report's, rounded to the digits that it is quoted with.
func TestTheREADMEQuotesTheReport(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	report, err := os.ReadFile("../docs/PERFORMANCE.md")
	require.NoError(t, err)
	text := strings.Join(strings.Fields(string(readme)), " ")
	for _, q := range quotes {
		found := regexp.MustCompile(q.pattern).FindStringSubmatch(text)
		if !assert.NotNil(t, found, "the README says nothing like %s", q.pattern) {
			continue
		}
		value, err := cell(string(report), q.section, q.row, q.column)
		if assert.NoError(t, err) {
			assert.Equal(t, rounded(value, found[1]), found[1], "%s of %s in %s is %v: %q of the README is stale", q.column, q.row, q.section, value, found[0])
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
