package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
)

// fullDisk is a writer that accepts nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestOutputThatIsLostIsSaid(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	send(handler(mustConnect(t, url), nil), "alice", "K", "")
	for _, args := range [][]string{{"show", "alice", "K"}, {"ls"}, {"ls", "--json"}, {"stats"}, {"plan"}, {"migrate", "sql"}} {
		var stderr strings.Builder
		p := &program{stdin: strings.NewReader(""), stdout: fullDisk{}, stderr: &stderr, getenv: func(string) string { return "" }}
		assert.Equal(t, badUsage, p.run(t.Context(), append([]string{"idem", "--store", url}, args...)...), args)
		assert.Contains(t, stderr.String(), "no space left on device", args)
	}
}

func TestAnAuditThatCannotBeWrittenPreventsAnAct(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	h := makeUnknown(t, url)
	p := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: fullDisk{}, getenv: func(string) string { return "" }}
	assert.Equal(t, badUsage, p.run(t.Context(), append([]string{"idem", "--store", url}, release("K", "--yes")...)...))
	assert.Contains(t, send(h, "alice", "K", "").Body.String(), "outcome-unknown")
}

func TestAPipeThatClosesEndsTheCommand(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	h := handler(mustConnect(t, url), nil)
	for _, key := range []string{"A", "B", "C"} {
		send(h, "alice", key, "")
	}
	n := &night{t: t, url: url, dir: t.TempDir()}
	printed, code := n.execute("idem ls | head -n 1")
	assert.Equal(t, 0, code)
	assert.Contains(t, printed, "RECORD")
}

// What clients, handlers and operators have written steers no terminal.
func TestHostileTextIsEscaped(t *testing.T) {
	t.Parallel()
	const hostile = "\x1b[2J\x07\u009b31m"
	url := redisURL(t)
	store := mustConnect(t, url)
	engine, err := core.New(core.Config{Store: store, Scope: core.ScopeByAdapter})
	require.NoError(t, err)
	_, err = engine.DoTask(t.Context(), core.Task{Kind: "JOB", Scope: hostile, Key: hostile}, func(context.Context) (*core.Response, error) {
		return nil, errors.New(hostile)
	})
	require.Error(t, err)
	for _, args := range [][]string{
		{"show", hostile, hostile, "--kind", "JOB"}, {"ls"}, {"ls", "--state", hostile}, {hostile}, {"--" + hostile},
		{"release", hostile, hostile, "--kind", "JOB", "--yes", "--who", hostile, "--reason", hostile}, {"migrate", hostile},
	} {
		got := call(t, url, nil, args...)
		assert.NotContains(t, got.stdout+got.stderr, "\x1b", args)
		assert.NotContains(t, got.stdout+got.stderr, "\u009b", args)
	}
}

// Two operators act on one record at the same time: the second one changes nothing.
func TestOfTwoOperatorsTheSecondChangesNothing(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	h := makeUnknown(t, url)
	outcome := written(t, "HTTP/1.1 201 Created\n\n")
	errs := &colleague{act: func() { assert.Equal(t, 0, call(t, url, nil, resolve("--outcome", outcome, "--no-codecs")...).code) }}
	p := &program{stdin: strings.NewReader(""), stdout: errs, stderr: errs, getenv: func(string) string { return "" }}
	assert.Equal(t, changed, p.run(t.Context(), append([]string{"idem", "--store", url}, release("K", "--yes")...)...))
	assert.Contains(t, errs.String(), "the record has changed since it was seen; nothing was changed")
	assert.Equal(t, 201, send(h, "alice", "K", "").Code, "the outcome is left")
}

// An interrupt between the audit and the act leaves nothing half done: the act that is in the audit is done.
func TestAnInterruptBetweenAuditAndActLetsTheActEnd(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	h := makeUnknown(t, url)
	ctx, interrupt := context.WithCancel(t.Context())
	errs := &colleague{act: interrupt}
	p := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: errs, getenv: func(string) string { return "" }}
	assert.Equal(t, 0, p.run(ctx, append([]string{"idem", "--store", url}, release("K", "--yes")...)...))
	assert.Equal(t, "very private", send(h, "alice", "K", "").Body.String())
}
