package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
)

func TestLsListsWhatTheFlagsSelect(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, url string) {
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

// acting is a writer that calls a function before one of its writes.
type acting struct {
	strings.Builder
	after int
	act   func()
}

func (w *acting) Write(text []byte) (int, error) {
	if w.after--; w.after == 0 {
		w.act()
	}
	return w.Builder.Write(text)
}

func TestAScanThatStopsHalfwaySaysHowFarItCame(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, url string) {
		h := handler(mustConnect(t, url), nil)
		for i := range 600 { // more than a batch
			send(h, "alice", fmt.Sprint(i), "")
		}
		network := newNetwork(t, url)
		ctx, interrupt := context.WithCancel(t.Context())
		for _, test := range []struct {
			act  func()
			code int
			text string
		}{
			{interrupt, interrupted, "idem: interrupted; %d records were listed, nothing was changed"},
			{network.hang, storeFailed, "idem: the store does not respond; %d records were listed, nothing was changed: "},
		} {
			out, errs := &acting{after: 4, act: test.act}, &strings.Builder{}
			p := &program{stdin: strings.NewReader(""), stdout: out, stderr: errs, getenv: func(string) string { return "" }}
			code := p.run(ctx, "idem", "ls", "--limit", "0", "--store", network.url, "--timeout", "500ms")
			assert.Equal(t, test.code, code)
			listed := strings.Count(out.String(), "\n") - 1
			assert.Less(t, listed, 600)
			assert.Contains(t, errs.String(), fmt.Sprintf(test.text, listed))
			ctx = t.Context()
		}
	})
}

func TestEveryMasterOfAClusterIsScanned(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartMasters(t, 3)
	h := handler(redisstore.New(cluster.Client(t)), nil)
	for i := range 12 {
		require.Equal(t, http.StatusOK, send(h, "alice", fmt.Sprint(i), "").Code)
	}
	url := "redis+cluster://" + cluster.Nodes[0].Addr
	assert.Equal(t, 0, call(t, url, nil, "show", "alice", "7").code)
	assert.Equal(t, 12, strings.Count(call(t, url, nil, "ls", "--json").stdout, "\n"))
	got := call(t, url, nil, forget("alice", "--all", "--yes")...)
	assert.Equal(t, "12 records are forgotten\n", got.stdout)
	assert.Equal(t, 3, strings.Count(call(t, url, nil, "doctor").stdout, "appendonly of "))
}

func TestThePrimaryBehindSentinelsIsFound(t *testing.T) {
	t.Parallel()
	group := redistest.StartGroup(t)
	h := handler(redisstore.New(group.Client(t)), nil)
	require.Equal(t, http.StatusOK, send(h, "alice", "K", "").Code)
	url := "redis+sentinel://" + group.Sentinels[0].Addr + "?master_name=main&addr=" + group.Sentinels[1].Addr
	assert.Equal(t, 0, call(t, url, nil, forget("alice", "K", "--yes")...).code)
	assert.Empty(t, send(h, "alice", "K", "").Header().Get("Idempotent-Replayed"))
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
