package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/bench/internal/report"
)

// The subjects of quotes.
const (
	redis   = "this library, redisstore"
	batched = "this library, redisstore in batches"
	local   = "this library, local replays"
	byHand  = "a guard by hand"
	raw     = "two raw script calls"
	own     = "this library"
)

// quotes are the figures of README.md and docs/stores.md, by the words around them and their place in results.json.
var quotes = []struct {
	pattern string
	figure  []string
}{
	{`adds (\d+) to \d+ allocations`, []string{"allocations", "fiber", "new"}},
	{`adds \d+ to (\d+) allocations`, []string{"allocations", "gin", "new"}},
	{`(\d+) µs on a claim`, []string{"scripts", "512 B", own, "begin_us"}},
	{`(\d+) µs on an outcome of 512 bytes`, []string{"scripts", "512 B", own, "complete_us"}},
	{`(\d+) µs on a replay`, []string{"scripts", "512 B", own, "replay_us"}},
	{`and (\d+), \d+ and \d+ µs on a busy server`, []string{"scripts", "512 B", own, "begin_busy_us"}},
	{`and \d+, (\d+) and \d+ µs on a busy server`, []string{"scripts", "512 B", own, "complete_busy_us"}},
	{`and \d+, \d+ and (\d+) µs on a busy server`, []string{"scripts", "512 B", own, "replay_busy_us"}},
	{`takes ([\d.]+) times the CPU of the two script calls`, []string{"duels", "http", "all new keys", redis, raw, "cpu"}},
	{`net/http and ([\d.]+) times on Fiber`, []string{"duels", "fiber", "all new keys", redis, raw, "cpu"}},
	{`guard by hand takes ([\d.]+) and`, []string{"duels", "http", "all new keys", byHand, raw, "cpu"}},
	{`guard by hand takes [\d.]+ and ([\d.]+) times`, []string{"duels", "fiber", "all new keys", byHand, raw, "cpu"}},
	{"`redisstore.Batch\\(\\)` takes ([\\d.]+) and", []string{"duels", "http", "all new keys", batched, raw, "cpu"}},
	{"`redisstore.Batch\\(\\)` takes [\\d.]+ and ([\\d.]+) times", []string{"duels", "fiber", "all new keys", batched, raw, "cpu"}},
	{`Replays reach ([\d.]+) to`, []string{"loads", "fiber", "all replays", redis, "of_raw"}},
	{`Replays reach [\d.]+ to ([\d.]+) times`, []string{"loads", "http", "all replays", redis, "of_raw"}},
	{"`Keep.LocalReplays` they reach ([\\d.]+) to", []string{"duels", "fiber", "all replays", local, "bare handler", "rate"}},
	{"`Keep.LocalReplays` they reach [\\d.]+ to ([\\d.]+) times",
		[]string{"duels", "http", "all replays", local, "bare handler", "rate"}},
	{`(\d+) bytes for a record while its request runs`, []string{"memory", "512 B", own, "running_bytes"}},
	{`(\d+) bytes with a response of 512 bytes and six header fields`, []string{"memory", "512 B", own, "completed_bytes"}},
	{`such a record takes (\d+) bytes`, []string{"memory", "512 B", own, "completed_bytes"}},
}

// Every figure of README.md and docs/stores.md is one of results.json, rounded to the digits that it is quoted with.
func TestThePagesQuoteTheResults(t *testing.T) {
	text := ""
	for _, page := range []string{"../README.md", "../docs/stores.md"} {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		text += strings.Join(strings.Fields(string(content)), " ") + "\n"
	}
	results, err := report.Load("results.json")
	require.NoError(t, err)
	for _, q := range quotes {
		quoted := regexp.MustCompile(q.pattern).FindAllStringSubmatch(text, -1)
		assert.NotEmpty(t, quoted, "neither page says anything like %s", q.pattern)
		value, err := results.Figure(q.figure...)
		require.NoError(t, err)
		for _, found := range quoted {
			assert.Equal(t, rounded(value, found[1]), found[1], "%q is %v: %q is stale", q.figure, value, found[0])
		}
	}
}

// rounded formats a value with as many digits after the point as another number has.
func rounded(value float64, like string) string {
	_, digits, _ := strings.Cut(like, ".")
	return strconv.FormatFloat(value, 'f', len(digits), 64)
}

func TestFiguresAreRoundedAsTheyAreQuoted(t *testing.T) {
	assert.Equal(t, "1.2", rounded(1.25, "0.7"))
	assert.Equal(t, "14", rounded(13.5, "10"))
}

func TestPartsAreChosenByName(t *testing.T) {
	all, err := choose("")
	require.NoError(t, err)
	assert.Len(t, all, len(names()))
	two, err := choose("memory,loads")
	require.NoError(t, err)
	require.Len(t, two, 2)
	assert.Equal(t, "memory", two[0].Name)
	_, err = choose("loads,speed")
	assert.ErrorContains(t, err, `"speed"`)
}
