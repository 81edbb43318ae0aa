package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSectionsThatAreMeasuredAgainTakeTheirPlaceInTheReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "PERFORMANCE.md")
	old := "# Performance\n\n|  |  |\n| date | then |\n\n## Server time\n\nold times\n\n## Memory\n\nbytes\n\n### Planned\n\na plan\n"
	require.NoError(t, os.WriteFile(file, []byte(old), 0o600))
	fresh := func() []string {
		parts := make([]string, len(headings))
		parts[0], parts[5] = "# Performance\n\nof this run\n", "\n## Server time\n\nnew times\n"
		return parts
	}
	b := &bench{again: "scripts"}
	for range 2 { // the second time the row is there
		parts, err := b.amend(file, fresh())
		require.NoError(t, err)
		report := strings.Join(parts, "")
		before, again, _ := strings.Cut(report, "| scripts, again | ")
		assert.Equal(t, "# Performance\n\n|  |  |\n| date | then |\n", before)
		_, rest, _ := strings.Cut(again, " |\n")
		assert.Equal(t, "\n## Server time\n\nnew times\n\n## Memory\n\nbytes\n\n### Planned\n\na plan\n", rest)
		require.NoError(t, os.WriteFile(file, []byte(report), 0o600))
	}
	whole, err := (&bench{}).amend(file, fresh())
	require.NoError(t, err)
	assert.Equal(t, fresh(), whole, "all was measured")
	first, err := b.amend(file+".none", fresh())
	require.NoError(t, err)
	assert.Equal(t, fresh(), first)
}

func TestARowIsAboutSectionsThatNoLaterOneNames(t *testing.T) {
	for old, left := range map[string]string{
		"| loads,duels,crowds, again | then |\n": "| loads,crowds, again | then |\n",
		"| duels,memory, again | then |\n":       "",
		"| clients, again | then |\n":            "| clients, again | then |\n",
		"| date | then |\n":                      "| date | then |\n",
	} {
		report := saysAgain("# Performance\n\n|  |  |\n"+old, "duels,memory")
		before, again, _ := strings.Cut(report, "| duels,memory, again | ")
		assert.Equal(t, "# Performance\n\n|  |  |\n"+left, before)
		assert.Contains(t, again, ", commit ")
	}
}

func TestTheReportIsMadeOfTheseParts(t *testing.T) {
	report, err := os.ReadFile("../docs/PERFORMANCE.md")
	require.NoError(t, err)
	for i, part := range partsOf(string(report)) {
		assert.NotEmpty(t, part, headings[i])
	}
	assert.True(t, string(report) == strings.Join(partsOf(string(report)), ""), "a part has changed on its way")
}
