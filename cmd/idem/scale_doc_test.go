package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/cmd/idem/internal/plan"
)

var update = flag.Bool("update", false, "write the figures of docs/scale.md and its picture anew")

const scalePage, scalePicture = "../../docs/scale.md", "../../docs/scale.svg"

var (
	transcript  = regexp.MustCompile("(?s)```console\n\\$ idem (plan [^\n]*)\n.*?```")
	inDocs      = regexp.MustCompile(`--svg (\S+)`)
	tableOfRate = regexp.MustCompile(`(?s)<!-- table of rates -->\n.*?<!-- end -->`)
)

// The figures of the page are what the command prints, and its picture what the command draws: `go test . -run TestTheFiguresOfScale -update` writes them.
func TestTheFiguresOfScaleAreThoseOfThePlan(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(scalePage)
	require.NoError(t, err)
	seen, pictures := 0, t.TempDir()
	made := transcript.ReplaceAllStringFunc(string(page), func(block string) string {
		command := transcript.FindStringSubmatch(block)[1]
		result := call(t, "", nil, strings.Fields(inDocs.ReplaceAllString(command, "--svg "+pictures+"/$1"))...)
		require.Equal(t, 0, result.code, result.stderr)
		seen++
		return "```console\n$ idem " + command + "\n" + result.stdout + "```"
	})
	made = tableOfRate.ReplaceAllString(made, "<!-- table of rates -->\n\n"+ratesTable()+"\n<!-- end -->")
	assert.Equal(t, 7, seen, "commands on the page")
	drawn, err := os.ReadFile(pictures + "/scale.svg")
	require.NoError(t, err, "one of the commands makes the picture")
	if *update {
		require.NoError(t, os.WriteFile(scalePicture, drawn, 0o644))     // #nosec G306: it is a picture
		require.NoError(t, os.WriteFile(scalePage, []byte(made), 0o644)) // #nosec G306: it is a page
	}
	assert.Equal(t, made, string(page), "docs/scale.md is stale: run this test with -update")
	picture, err := os.ReadFile(scalePicture)
	require.NoError(t, err)
	assert.Equal(t, string(drawn), string(picture), "docs/scale.svg is stale: run this test with -update")
}

// ratesTable returns the table of how many masters each limit asks for.
func ratesTable() string {
	var b strings.Builder
	b.WriteString("| new keys a second | retention | memory in all | masters by CPU, plain | by CPU, in batches | by memory | by network |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, rate := range []float64{1_000, 10_000, 100_000, 1_000_000} {
		for _, retention := range []time.Duration{24 * time.Hour, time.Hour, 15 * time.Minute} {
			c := plan.Cluster{
				Load: plan.Load{Rate: rate, Lease: 30 * time.Second, Handler: 50 * time.Millisecond, Retention: retention, Body: 512, Headers: 51,
					Ratio: 1, Quantum: 16},
				Replays: 0.05, Costs: plan.KnownCosts["redis"], Busy: 0.5, Memory: 32e9, Network: 5e9,
			}
			plain := c.Size()
			c.Costs = plan.KnownCosts["valkey batches"]
			name := strings.TrimSuffix(strings.TrimSuffix(retention.String(), "0s"), "0m")
			fmt.Fprintf(&b, "| %.0f | %s | %s | %d | %d | %d | %d |\n", rate, name, plan.Approximate(c.Bytes()), plain.CPU, c.Size().CPU,
				plain.Memory, plain.Network)
		}
	}
	return b.String()
}
