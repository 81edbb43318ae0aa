package main

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/seal"
)

// failAfter sends a request of alice whose run fails after these steps.
func failAfter(t *testing.T, url, key string, codecs []driver.Codec, steps ...string) {
	t.Helper()
	cfg := core.Config{Store: mustConnect(t, url), Scope: core.ScopeByAdapter}
	cfg.Keep.Codecs = codecs
	engine, err := core.New(cfg)
	require.NoError(t, err)
	scope := idem.Scope(func(*http.Request) string { return "alice" })
	send(idem.HTTP(engine, scope)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range steps {
			_, err := core.Step(r.Context(), name, func(context.Context) (string, error) { return "private\x1b[2J", nil })
			assert.NoError(t, err)
		}
		w.WriteHeader(http.StatusInternalServerError)
	})), "alice", key, "")
}

func TestStepsListsTheFinishedStepsOfARun(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, url string) {
		failAfter(t, url, "K", nil, "charge", "notify\x1b[2J")
		got := call(t, url, nil, "steps", "alice", "K")
		assert.Equal(t, 0, got.code)
		assert.Regexp(t, `^"charge" +\d+ bytes\n"notify\\x1b\[2J" +\d+ bytes\n$`, got.stdout)
		hidden := call(t, url, nil, "steps", "alice", "K", "--json")
		assert.NotContains(t, got.stdout+got.stderr+hidden.stdout+hidden.stderr, "private")
		shown := call(t, url, nil, "steps", "alice", "K", "--reveal")
		assert.Contains(t, shown.stdout, `private\\u001b[2J`)
		assert.NotContains(t, shown.stdout, "\x1b")
		asJSON := call(t, url, nil, "steps", "alice", "K", "--reveal", "--json")
		assert.Contains(t, asJSON.stdout, `"result":"\"private`)
		none := call(t, url, nil, "steps", "alice", "L")
		assert.Equal(t, finding, none.code)
		assert.Contains(t, none.stderr, "no record has this scope and key")
		send(handler(mustConnect(t, url), nil), "alice", "done", "")
		without := call(t, url, nil, "steps", "alice", "done")
		assert.Equal(t, finding, without.code)
		assert.Contains(t, without.stderr, "there are no finished steps: a record with an outcome has none; nothing was changed")
	})
}

func TestStepsThatAreSealedAreShownWithTheirKey(t *testing.T) {
	t.Parallel()
	url, secret := redisURL(t), strings.Repeat("s", 32)
	codec, err := seal.New([]seal.Key{{ID: "2026", Secret: []byte(secret)}})
	require.NoError(t, err)
	failAfter(t, url, "K", []driver.Codec{codec}, "charge")
	blind := call(t, url, nil, "steps", "alice", "K", "--reveal")
	assert.Equal(t, 0, blind.code)
	assert.Contains(t, blind.stdout, "the result cannot be read")
	shown := call(t, url, nil, "steps", "alice", "K", "--reveal", "--seal-key", "2026="+written(t, secret))
	assert.Contains(t, shown.stdout, "private")
}
