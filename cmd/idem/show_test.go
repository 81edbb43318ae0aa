package main

import (
	"encoding/json"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/internal/pgserver"
	"github.com/go-idem/idem/internal/redistest"
)

func TestShowSaysWhatBecameOfAKey(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, url string) {
		h := handler(mustConnect(t, url), nil)
		send(h, "alice", "done", "")
		send(h, "alice", "failed", "fail")
		done := call(t, url, nil, "show", "alice", "done")
		assert.Equal(t, 0, done.code)
		assert.Contains(t, done.stdout, "state     completed: the outcome is stored")
		assert.NotContains(t, done.stdout+done.stderr, "private", "no body is shown")
		failed := call(t, url, nil, "show", "--json", "alice", "failed")
		assert.Equal(t, 0, failed.code)
		var seen record
		require.NoError(t, json.Unmarshal([]byte(failed.stdout), &seen))
		assert.Equal(t, driver.Failed, seen.State)
		assert.Equal(t, "status 500", seen.Cause)
		assert.Equal(t, 1, seen.Attempt)
		assert.NotNil(t, seen.ClaimedAt)
		_, isName := driver.ParseRecordName(seen.Record)
		assert.True(t, isName)
		none := call(t, url, nil, "show", "--json", "bob", "done")
		assert.Equal(t, finding, none.code)
		assert.Contains(t, none.stdout, `"state":"absent"`)
		assert.Contains(t, none.stderr, "no record has this scope and key")
		assert.Contains(t, none.stderr, "another secret, --kind, prefix or schema makes every name differ")
	})
}

func TestShowFindsTheRecordOfAProblem(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, url string) {
		h := handler(mustConnect(t, url), nil)
		send(h, "alice", "K", "")
		var problem core.Problem
		other := request("alice", "K", "")
		other.URL.Path, other.RequestURI = "/payments", "/payments"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, other)
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem))
		assert.NotEmpty(t, problem.Instance)
		for _, scope := range [][]string{nil, {"alice"}} {
			found := call(t, url, nil, append([]string{"show", "--instance", problem.Instance}, scope...)...)
			assert.Equal(t, 0, found.code)
			assert.Contains(t, found.stdout, strings.TrimPrefix(problem.Instance, "urn:idem:"))
			assert.Contains(t, found.stdout, "state     completed: the outcome is stored")
		}
		none := call(t, url, nil, "show", "--instance", problem.Instance, "bob")
		assert.Equal(t, finding, none.code)
		assert.Contains(t, none.stderr, "no record has this instance")
		assert.Equal(t, badUsage, call(t, url, nil, "show", "--instance", "K", "alice").code)
	})
}

func TestShowFindsARecordOnlyUnderItsRouteAndSecret(t *testing.T) {
	t.Parallel()
	url, secret := redisURL(t), "0123456789abcdef"
	h := handler(mustConnect(t, url), nil, func(c *core.Config) { c.Key.PerRoute, c.Secret = true, []byte(secret) })
	send(h, "alice", "K", "")
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	other := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(other, []byte("fedcba9876543210"), 0o600))
	show := func(environment map[string]string, more ...string) int {
		return call(t, url, environment, append([]string{"show", "alice", "K"}, more...)...).code
	}
	assert.Equal(t, 0, show(nil, "--kind", "POST /refunds", "--secret-file", file))
	assert.Equal(t, 0, show(map[string]string{"IDEM_SECRET": secret}, "--kind", "POST /refunds"))
	assert.Equal(t, 0, show(nil, "--kind", "POST /refunds", "--secret-file", other, "--previous-secret-file", file))
	assert.Equal(t, 0, show(map[string]string{"IDEM_PREVIOUS_SECRET": secret}, "--kind", "POST /refunds"))
	assert.Equal(t, finding, show(nil, "--kind", "POST /payments", "--secret-file", file))
	assert.Equal(t, finding, show(nil, "--secret-file", file))
	assert.Equal(t, finding, show(nil, "--kind", "POST /refunds", "--secret-file", other))
	assert.Equal(t, finding, show(nil, "--kind", "POST /refunds"))
	assert.Equal(t, badUsage, show(map[string]string{"IDEM_SECRET": "short"}))
	assert.Equal(t, badUsage, show(nil, "--secret-file", filepath.Join(t.TempDir(), "none")))
}

func TestShowNamesOtherPrefixesAndSchemas(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, url string) {
		send(handler(mustConnect(t, url), nil), "alice", "K", "")
		place := map[bool]string{true: "--prefix=pay:", false: "--schema=pay"}[url[:5] == "redis"]
		found := call(t, url, nil, "show", "alice", "K", place)
		if strings.HasPrefix(url, "sqlite") {
			assert.Equal(t, badUsage, found.code)
			assert.Contains(t, found.stderr, "SQLite has neither")
			return
		}
		if place == "--schema=pay" {
			assert.Equal(t, storeFailed, found.code)
			assert.Contains(t, found.stderr, "the schema is missing")
			assert.Contains(t, found.stderr, `This server also has records in ["idem"]`)
			return
		}
		assert.Equal(t, finding, found.code)
		assert.Contains(t, found.stderr, `This server also has records in ["idem:"]`)
	})
}

func TestBadUsageIsSaidBeforeTheStoreIsCalled(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"no command":             {},
		"another command":        {"erase"},
		"no arguments":           {"show"},
		"one argument":           {"show", "alice"},
		"three arguments":        {"show", "alice", "K", "K"},
		"an empty argument":      {"show", "alice", ""},
		"an instance and a key":  {"show", "alice", "K", "--instance", "urn:idem:x"},
		"a relative file":        {"show", "alice", "K", "--store", "sqlite://payments.db"},
		"a parameter of a file":  {"show", "alice", "K", "--store", "sqlite:///none.db?mode=ro"},
		"a # in a file's name":   {"show", "alice", "K", "--store", "sqlite:///none#1.db"},
		"another flag":           {"show", "alice", "K", "--secret", "x"},
		"a password on a flag":   {"show", "alice", "K", "--store", "redis://:hush@127.0.0.1:1"},
		"a password as a query":  {"show", "alice", "K", "--store", "postgres://127.0.0.1:1/db?password=hush"},
		"a password with a /":    {"show", "alice", "K", "--store", "redis://:hush/hush@127.0.0.1:1"},
		"another scheme":         {"show", "alice", "K", "--store", "mysql://127.0.0.1:1"},
		"no scheme":              {"show", "alice", "K", "--store", "127.0.0.1:1"},
		"a schema of Redis":      {"show", "alice", "K", "--schema", "pay"},
		"a prefix of PostgreSQL": {"show", "alice", "K", "--prefix", "pay", "--store", "postgres://127.0.0.1:1/db"},
		"an empty hash tag":      {"show", "alice", "K", "--prefix", "a{}", "--store", "redis+cluster://127.0.0.1:1"},
		"a bad schema":           {"show", "alice", "K", "--schema", "x; --", "--store", "postgres://127.0.0.1:1/db"},
		"a Sentinel of nobody":   {"show", "alice", "K", "--store", "redis+sentinel://127.0.0.1:1"},
		"no time":                {"show", "alice", "K", "--timeout", "0s"},
	} {
		t.Run(name, func(t *testing.T) {
			got := call(t, "redis://127.0.0.1:1", nil, args...)
			assert.Equal(t, badUsage, got.code)
			assert.NotContains(t, got.stdout+got.stderr, "hush")
		})
	}
	for _, url := range []string{
		"", "redis://:hush@[::", "redis+cluster://:hush@127.0.0.1:x", "postgres://u:hush@[::/db",
		"redis://:hush/x@127.0.0.1:1", "postgres://u:hush?x@127.0.0.1:1/db", "rediss://:hush#x@127.0.0.1:1", "redis://:x%hush@127.0.0.1:1",
		"redis://:/hush@127.0.0.1:1", "redis://u:1/hush@127.0.0.1:1/0", "redis://:1?hush@127.0.0.1:1", "postgres://u:1/hush@127.0.0.1:1/db",
		"postgres://u:1?hush@127.0.0.1:1/db", "redis://u:x@y/hush@127.0.0.1:1",
	} {
		got := call(t, url, nil, "show", "alice", "K")
		assert.Equal(t, badUsage, got.code)
		assert.NotContains(t, strings.ReplaceAll(got.stderr, "such as", ""), "hu", "not even a part of the password")
	}
}

func TestAScopeMayHaveTheNameOfACommand(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	h := handler(mustConnect(t, url), nil)
	for _, name := range []string{"help", "h", "show", "--json", "-7"} {
		send(h, name, name, "")
		got := call(t, url, nil, "show", "--", name, name)
		assert.Equal(t, 0, got.code)
		assert.Contains(t, got.stdout, "completed")
	}
	assert.Contains(t, call(t, url, nil, "show", "help", "h").stderr, "no record has this scope and key")
}

func TestADeadServerIsSaidToBeDead(t *testing.T) {
	t.Parallel()
	dead := redistest.FreeAddr()
	for _, url := range []string{
		"redis://" + dead, "redis+cluster://" + dead, "redis+sentinel://" + dead + "?master_name=main",
		"postgres://postgres@" + dead + "/db",
	} {
		t.Run(url[:strings.Index(url, ":")], func(t *testing.T) {
			t.Parallel()
			requireNoResponse(t, url)
			assert.Contains(t, call(t, url, nil, "show", "alice", "K").stderr, "connection refused")
		})
	}
}

// requireNoResponse requires that each subcommand says that the store does not respond.
func requireNoResponse(t *testing.T, url string) {
	t.Helper()
	for _, args := range [][]string{
		{"show", "alice", "K"}, {"steps", "alice", "K"}, {"ls"}, {"stats"}, {"doctor"},
		resolve("--not-done"), release("K", "--yes"), forget("alice", "K", "--yes"),
		forget("alice", "--all", "--yes"),
	} {
		got := call(t, url, nil, append(args, "--timeout", "100ms")...)
		assert.Equal(t, storeFailed, got.code, url)
		assert.Contains(t, got.stderr, "the store does not respond; ", url)
		assert.Contains(t, got.stderr, "nothing was changed", url)
	}
}

func TestAServerThatHangsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Pause()
	t.Cleanup(server.Resume)
	requireNoResponse(t, "redis://"+server.Addr)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	requireNoResponse(t, "postgres://postgres@"+silent.Addr().String()+"/db")
}

func TestAServerThatRefusesIsHeard(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Config(t, "requirepass", "hush")
	for password, answer := range map[string]string{"": "NOAUTH", "guess": "WRONGPASS"} {
		got := call(t, "redis://:"+password+"@"+server.Addr, nil, "show", "alice", "K")
		assert.Equal(t, storeFailed, got.code)
		assert.Contains(t, got.stderr, "the store refuses; nothing was changed: "+answer)
	}
	assert.Equal(t, finding, call(t, "redis://:hush@"+server.Addr, nil, "show", "alice", "K").code)
	got := call(t, "postgres://postgres@"+strings.Split(pgserver.Database(t), "@")[1]+"nothing", nil, "show", "alice", "K")
	assert.Equal(t, storeFailed, got.code)
	assert.Contains(t, got.stderr, "the store refuses; nothing was changed")
}
