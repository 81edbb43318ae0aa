package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/internal/redistest"
)

// waiting are the ways that wait for leases. They are played with SOAK, because a busy machine may be late for a lease of a second.
var waiting = map[string]bool{
	"the process dies after the effect, the client comes to another one later": true,
	"a process that was paused stores its response after another one has run":  true,
	"the handler takes longer than the lease or the lock":                      true,
	"two processes get the same request at the same time":                      true,
	"the client leaves while the handler runs, and comes again":                true,
}

// The page has what the program prints.
func TestThePageHasTheTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/compare.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), begin)
	has, _, ok := strings.Cut(rest, end)
	require.True(t, ok)

	assert.Equal(t, len(ways)+2, strings.Count(has, "\n"))
	all := ways
	t.Cleanup(func() { ways = all })
	if os.Getenv("SOAK") == "" {
		ways = slices.DeleteFunc(slices.Clone(all), func(w way) bool { return waiting[w.name] })
		require.Len(t, ways, len(all)-len(waiting))
	}
	for name := range waiting {
		assert.Contains(t, has, "| "+name+" | ")
	}
	for line := range strings.Lines(table(redistest.Start(t).Addr)) {
		assert.Contains(t, has, line)
	}
}
