package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/redistest"
)

// forget returns arguments that forget.
func forget(more ...string) []string {
	return append([]string{"forget", "--who", "ann", "--reason", "ticket 1"}, more...)
}

func TestForgetMakesAKeyNew(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, url string) {
		h := handler(mustConnect(t, url), nil)
		send(h, "alice", "K", "")
		got := call(t, url, nil, forget("alice", "K", "--yes")...)
		assert.Equal(t, 0, got.code)
		assert.Contains(t, got.stderr, `"act":"forget","who":"ann","why":"ticket 1"`)
		assert.Empty(t, send(h, "alice", "K", "").Header().Get("Idempotent-Replayed"))
		none := call(t, url, nil, forget("alice", "L", "--yes")...)
		assert.Equal(t, finding, none.code)
		assert.NotContains(t, none.stderr, "ticket 1", "what is not tried is not audited")
		assert.Equal(t, changed, call(t, url, nil, forget("alice", "K", "--yes", "--fence", "7")...).code)
	})
}

func TestForgetErasesACaller(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, url string) {
		released, running, ended := make(chan bool), make(chan bool), make(chan bool)
		h := handler(mustConnect(t, url), func() { running <- true; <-released }, func(c *core.Config) { c.Keep.LateRetry = time.Hour })
		for i := range 3 {
			send(h, "alice", fmt.Sprint(i), "")
		}
		send(h, "bob", "K", "")
		go func() { send(h, "alice", "running", "hang"); ended <- true }()
		<-running
		log := filepath.Join(t.TempDir(), "audit")
		got := call(t, url, nil, forget("alice", "--all", "--yes", "--json", "--audit-file", log)...)
		assert.Equal(t, finding, got.code)
		assert.JSONEq(t, `{"forgotten": 3, "in_progress": 1, "changed": 0}`, got.stdout)
		assert.Contains(t, got.stderr, "1 records are left: 1 are in progress")
		released <- true
		<-ended
		assert.Equal(t, 0, call(t, url, nil, forget("alice", "--all", "--yes", "--audit-file", log)...).code)
		assert.Equal(t, finding, call(t, url, nil, forget("alice", "--all", "--yes", "--audit-file", log)...).code, "none is left")
		acts, err := os.ReadFile(log)
		require.NoError(t, err)
		assert.Equal(t, 2, strings.Count(string(acts), `"act":"forget-scope"`), "one line for each act")
		assert.Equal(t, "true", send(h, "bob", "K", "").Header().Get("Idempotent-Replayed"))
	})
}

// terminal is a standard error that calls a function at each progress that is drawn.
type terminal struct {
	strings.Builder
	drawn func()
}

func (e *terminal) Write(text []byte) (int, error) {
	if strings.HasSuffix(string(text), " read") {
		e.drawn()
	}
	return e.Builder.Write(text)
}

// The server has become a replica after the first record was forgotten, as in a failover.
func TestAForgetThatIsRefusedHalfwaySaysWhatIsForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	url, draws := "redis://"+server.Addr, 0
	h := handler(mustConnect(t, url), nil)
	for i := range 3 {
		send(h, "alice", fmt.Sprint(i), "")
	}
	errs := &terminal{drawn: func() {
		if draws++; draws == 2 { // the first is of the scan that counts the records
			require.NoError(t, server.Client(t).ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
		}
	}}
	p := &program{stdin: strings.NewReader(""), stdout: errs, stderr: errs, draws: true, getenv: func(string) string { return "" }}
	code := p.run(t.Context(), append([]string{"idem", "--store", url}, forget("alice", "--all", "--yes")...)...)
	assert.Equal(t, storeFailed, code)
	assert.Contains(t, errs.String(), "this server is a read-only replica; 1 records were forgotten; the same command continues")
}

func TestForgetListsAndAsks(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	h := handler(mustConnect(t, url), nil)
	send(h, "alice", "K", "")
	send(h, "alice", "L", "fail")
	answering := func(answer string, args ...string) result {
		p := &program{stdin: strings.NewReader(answer), asks: true, getenv: func(string) string { return "" }}
		return callWith(t, t.Context(), p, append(forget("--store", url), args...)...)
	}
	for _, answer := range []string{"", "\n", "n\n", "yeah\n"} {
		got := answering(answer, "alice", "K")
		assert.Equal(t, finding, got.code)
		assert.Contains(t, got.stderr, "completed")
		assert.Contains(t, got.stderr, "not confirmed; nothing was changed")
		got = answering(answer, "alice", "--all")
		assert.Equal(t, finding, got.code)
		assert.Contains(t, got.stderr, "Forget these records, 2 in all?")
		assert.Contains(t, got.stderr, `"status 500"`)
	}
	assert.Equal(t, "true", send(h, "alice", "K", "").Header().Get("Idempotent-Replayed"))
	assert.Equal(t, 0, answering("y\n", "alice", "K").code)
	got := answering("yes\n", "alice", "--all")
	assert.Equal(t, 0, got.code)
	assert.Equal(t, "1 records are forgotten\n", got.stdout)
}

func TestAQuestionCanBeInterrupted(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	h := handler(mustConnect(t, url), nil)
	send(h, "alice", "K", "")
	ctx, interrupt := context.WithCancel(t.Context())
	silent, never := io.Pipe()
	defer never.Close()
	errs := &colleague{act: interrupt}
	p := &program{stdin: silent, stdout: errs, stderr: errs, asks: true, getenv: func(string) string { return "" }}
	assert.Equal(t, interrupted, p.run(ctx, append([]string{"idem", "--store", url}, forget("alice", "K")...)...))
	assert.Contains(t, errs.String(), "interrupted; nothing was changed")
	assert.Equal(t, "true", send(h, "alice", "K", "").Header().Get("Idempotent-Replayed"))
}

func TestForgetRefusesWhatIsNotClear(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"nobody can be asked":       forget("alice", "K"),
		"a caller without --all":    forget("alice", "--yes"),
		"a key and --all":           forget("alice", "K", "--all", "--yes"),
		"a kind and --all":          forget("alice", "--all", "--yes", "--kind", "JOB"),
		"a fence and --all":         forget("alice", "--all", "--yes", "--fence", "7"),
		"nobody who does it":        {"forget", "alice", "K", "--yes", "--reason", "ticket 1"},
		"an empty name of a caller": forget("", "--all", "--yes"),
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, badUsage, call(t, "redis://127.0.0.1:1", nil, args...).code)
		})
	}
}
