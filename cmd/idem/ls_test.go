package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLsListsWhatTheFlagsSelect(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, url string) {
		mustConnect(t, url)
		none := call(t, url, nil, "ls")
		assert.Equal(t, finding, none.code)
		assert.Contains(t, none.stderr, "there is no record")
		h := handler(mustConnect(t, url), nil)
		for i := range 5 {
			send(h, "alice", fmt.Sprint("done", i), "")
		}
		send(h, "alice", "failed", "fail")
		send(h, "bob", "done", "")
		lines := func(args ...string) int {
			got := call(t, url, nil, append([]string{"ls", "--json"}, args...)...)
			assert.Equal(t, got.stdout == "", got.code == finding)
			return strings.Count(got.stdout, "\n")
		}
		assert.Equal(t, 7, lines())
		assert.Equal(t, 6, lines("--scope", "alice"))
		assert.Equal(t, 6, lines("--state", "completed"))
		assert.Equal(t, 6, lines("--state", "failed,completed", "--scope", "alice"))
		assert.Equal(t, 1, lines("--state", "failed"))
		assert.Equal(t, 1, lines("--older", "1us"), "only a claim has an age")
		assert.Equal(t, 0, lines("--older", "1h"))
		assert.Equal(t, 0, lines("--state", "unknown"))
		assert.Equal(t, 0, lines("--scope", "carol"))
		first := call(t, url, nil, "ls", "--limit", "2")
		assert.Equal(t, 0, first.code)
		assert.Equal(t, 3, strings.Count(first.stdout, "\n"), "the first line names the columns")
		assert.Contains(t, first.stderr, "these are 2 records, and there are more: --limit 0 lists all")
		all := call(t, url, nil, "ls", "--limit", "7")
		assert.Empty(t, all.stderr)
		assert.Contains(t, all.stdout, `"status 500"`)
		assert.Equal(t, 8, strings.Count(call(t, url, nil, "ls", "--limit", "0").stdout, "\n"))
	})
}

func TestLsRefusesWhatItCannotSelect(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--state", "running"}, {"--state", "unknown,"}, {"--older", "5m", "--state", "completed"}, {"--limit", "-1"},
		{"--older", "-1s"}, {"alice"},
	} {
		assert.Equal(t, badUsage, call(t, "redis://127.0.0.1:1", nil, append([]string{"ls"}, args...)...).code, args)
	}
}

// interrupting is a writer that interrupts the command after so many writes.
type interrupting struct {
	strings.Builder
	after     int
	interrupt func()
}

func (w *interrupting) Write(text []byte) (int, error) {
	if w.after--; w.after == 0 {
		w.interrupt()
	}
	return w.Builder.Write(text)
}

func TestAnInterruptedScanSaysHowFarItCame(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, url string) {
		h := handler(mustConnect(t, url), nil)
		for i := range 600 { // more than a batch
			send(h, "alice", fmt.Sprint(i), "")
		}
		ctx, interrupt := context.WithCancel(t.Context())
		out, errs := &interrupting{after: 4, interrupt: interrupt}, &strings.Builder{}
		p := &program{stdin: strings.NewReader(""), stdout: out, stderr: errs, getenv: func(string) string { return "" }}
		code := p.run(ctx, "idem", "ls", "--limit", "0", "--store", url)
		assert.Equal(t, interrupted, code)
		listed := strings.Count(out.String(), "\n") - 1
		assert.Less(t, listed, 600)
		assert.Equal(t, fmt.Sprintf("idem: interrupted; %d records were listed, nothing was changed\n", listed), errs.String())
	})
}

func TestAScanShowsItsProgressOnATerminalOnly(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	send(handler(mustConnect(t, url), nil), "alice", "K", "")
	p := &program{getenv: func(string) string { return "" }, draws: true}
	got := callWith(t, t.Context(), p, "ls", "--state", "unknown", "--store", url)
	assert.Equal(t, "\r\x1b[K1 read\r\x1b[Kidem: no record in prefix \"idem:\" is selected; nothing was changed\n", got.stderr)
	quiet := call(t, url, nil, "ls", "--state", "unknown")
	assert.Equal(t, "idem: no record in prefix \"idem:\" is selected; nothing was changed\n", quiet.stderr)
}
