package simulation

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mutant is a change of the engine that breaks a promise.
type mutant struct {
	name, file, old, new string
}

var mutants = []mutant{
	{"pending commits are given up at once", "internal/retry/queue.go", "givenUpAfter = 10", "givenUpAfter = 0"},
	{"a lease is renewed too late", "internal/lease/lease.go", "c.Began.Add(c.Lease / 3)", "c.Began.Add(2 * c.Lease)"},
	{"a claim counts that came too late", "operation.go", "time.Since(op.begun) >= op.claim.Lease", "false"},
	{"a Begin does not wait for pending commits", "pending.go", "\tif p == nil {", "\tif p != nil || p == nil {"},
	{"a handler is not told that its claim is lost", "internal/lease/lease.go", "\t\tr.holder.Cancel(why)\n", ""},
	{"a pending commit does not extend its lease", "internal/retry/queue.go", "switch p.Commit.Extend() {", "switch NotExtended {"},
	{"a panic frees the key", "settle.go", "driver.Failure{Cause: cause}, 0", "driver.Failure{Cause: cause, NoEffects: true}, 0"},
	{"an outcome that is refused for good keeps its body", "pending.go", "{ p.run.omitBody() }", "{}"},
	{"a weaker algorithm decides that two requests are the same", "fingerprint.go", "case !isTrusted:", "case false && !isTrusted:"},
	{
		"a request waits for a subscription that hangs", "internal/waiting/waiter.go",
		"\tcase <-timer.C:\n\t\tw.giveUp()", "\tcase <-make(chan bool):\n\t\tw.giveUp()",
	},
	{
		"a Begin that comes after its own Fail gets the claim", "memstore/memstore.go",
		"case r == nil && c.Fence == 0:", "case r == nil && c.Fence == 0:\n\t\t\treturn nil\n\t\tcase false:",
	},
	{"a claim without a run counts an attempt", "memstore/memstore.go", "\t\t\tr.claim.Attempt--\n", ""},
	{
		"a message is a duplicate without its result while the blob is unavailable", "blob.go",
		"if k.isTask && !errors.Is(err, fs.ErrNotExist)", "if false && !errors.Is(err, fs.ErrNotExist)",
	},
	{
		"a message is done without the result that was found", "task.go",
		"result.Replayed, result.Response = true, op.found", "_ = op.found",
	},
	{
		"the handler of a batch sees the run around it", "consumer/batch.go",
		"if key == driver.ContextKey {", "if false && key == driver.ContextKey {",
	},
	{
		"a redirected request gets a new key", "../adapters/client/operation.go",
		"if req.Response != nil {", "if false && req.Response != nil {",
	},
	{
		"a look under another name leaves a claim there", "lookback.go",
		"\tif !ok {\n\t\treturn seen, errors.ErrUnsupported", "\tif ok || !ok {\n\t\treturn seen, errors.ErrUnsupported",
	},
	{
		"a record is not looked for under its other name", "lookback.go",
		"\tcase seen.State == driver.Absent:", "\tcase seen.State != \"\":",
	},
	{"a claim hides the outcome under the other name", "lookback.go", "seen.State == driver.Completed {", "seen.State == \"\" {"},
	{
		"a claim is not looked for in the other store of a move", "movestore/begin.go",
		"err != nil || !counts(&seen, &c) {", "err != nil || counts(&seen, &c) || true {",
	},
	{"a wait has no end", "internal/waiting/waiter.go", "if rest <= 0 {", "if rest <= -1000000000000 {"},
}

// A mutant of code that has changed since would be noticed in the next soak only.
func TestMutantsChangeTheCodeAsItIs(t *testing.T) {
	for _, m := range mutants {
		m.source(t)
	}
}

// source returns the path and the text of the file that the mutant changes, in one place.
func (m mutant) source(t *testing.T) (path, text string) {
	path, err := filepath.Abs(filepath.Join("../../core", m.file))
	require.NoError(t, err)
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(source), m.old), "%s has this once: %s", m.file, m.old)
	return path, string(source)
}

// With SOAK, the simulation finds each mutant of the engine within ten thousand histories.
func TestMutantsAreFound(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("each mutant is built: set SOAK")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			path, source := m.source(t)
			mutated, overlay := filepath.Join(t.TempDir(), "mutated.go"), filepath.Join(t.TempDir(), "overlay.json")
			require.NoError(t, os.WriteFile(mutated, []byte(strings.Replace(source, m.old, m.new, 1)), 0o600))
			replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: mutated}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(overlay, replace, 0o600))

			test := exec.Command("go", "test", "-overlay", overlay, "-run", "^TestHistoriesKeepThePromises$", "-count=1", ".")
			test.Env = append(os.Environ(), "SEED=0", "HISTORIES="+strconv.Itoa(withinSeeds))
			out, err := test.CombinedOutput()
			_, found, isFound := strings.Cut(string(out), ": seed ")
			if !isFound {
				_, found, isFound = strings.Cut(string(out), "panic: ") // nothing goes on any more
			}
			found, _, _ = strings.Cut(found, "\n")
			assert.True(t, err != nil && isFound, "nothing was found: %s", out)
			t.Log(found)
		})
	}
}
