package proxy

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
)

// The type of each problem leads to an entry that says the status, and whether a new key is safe.
func TestEveryProblemOfTheProxyIsExplainedInTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/problems.md")
	require.NoError(t, err)
	for _, problem := range []core.Problem{unreachable, cut, timedOut} {
		_, entry, found := strings.Cut(string(page), "\n### "+problem.Code+"\n")
		assert.True(t, found, problem.Code)
		entry, _, _ = strings.Cut(entry, "\n### ")
		assert.True(t, strings.HasPrefix(entry, "Status "+strconv.Itoa(problem.Status)), problem.Code)
		isUnsafe := strings.Contains(entry, "`\"safe_new_key\": false`")
		assert.Equal(t, problem.SafeNewKey != nil, isUnsafe, problem.Code)
		assert.False(t, problem.SafeNewKey != nil && *problem.SafeNewKey, "%s: an earlier request may have run", problem.Code)
	}
}
