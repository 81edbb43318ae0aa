package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/compress"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/operator"
	"github.com/go-idem/idem/core/seal"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/pgserver"
	"github.com/go-idem/idem/internal/redistest"
)

// makeUnknown makes the outcome of alice's key K unknown, and returns the handler of its service.
func makeUnknown(t *testing.T, url string, changes ...func(*core.Config)) http.Handler {
	t.Helper()
	return makeKeyUnknown(t, url, "K", changes...)
}

// makeKeyUnknown makes the outcome of a key of alice unknown, and returns the handler of its service.
func makeKeyUnknown(t *testing.T, url, key string, changes ...func(*core.Config)) http.Handler {
	t.Helper()
	store := mustConnect(t, url)
	short := handler(store, nil, append(changes, func(c *core.Config) { c.Lease.Duration = lease / 4 })...)
	redistest.Eventually(t, "the outcome is unknown", func() bool {
		send(short, "alice", key, "vanish")
		var shown strings.Builder
		p := &program{stdout: &shown, stderr: io.Discard, getenv: func(string) string { return "" }}
		return p.run(t.Context(), "idem", "--store", url, "show", "alice", key) == 0 && strings.Contains(shown.String(), "unknown:")
	})
	return handler(store, nil, changes...)
}

// resolve returns the arguments that resolve alice's key K.
func resolve(more ...string) []string {
	return append([]string{"resolve", "alice", "K", "--who", "ann", "--reason", "ticket 1"}, more...)
}

func TestResolveSealsTheOutcomeOfAServiceThatSeals(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("s", 32)
	codec, err := seal.New([]seal.Key{{ID: "2026", Secret: []byte(secret)}})
	require.NoError(t, err)
	url := redisURL(t)
	h := makeUnknown(t, url, func(c *core.Config) { c.Keep.Codecs = []driver.Codec{codec} })
	outcome := written(t, "HTTP/1.1 201 Created\n\n"+strings.Repeat("x", 2<<20))
	require.Equal(t, 0, call(t, url, nil, resolve("--outcome", outcome, "--seal-key", "2026="+written(t, secret))...).code)
	replay := send(h, "alice", "K", "")
	assert.Equal(t, http.StatusCreated, replay.Code)
	assert.Equal(t, 2<<20, replay.Body.Len(), "no body is too long")
}

func TestACompressingServiceReadsAnOutcomeThatIsNotCompressed(t *testing.T) {
	t.Parallel()
	zstd, err := compress.Zstd(compress.Threshold(1))
	require.NoError(t, err)
	url := redisURL(t)
	h := makeUnknown(t, url, func(c *core.Config) { c.Keep.Codecs = []driver.Codec{zstd} })
	outcome := written(t, "HTTP/1.1 201 Created\n\n"+strings.Repeat("x", 2000))
	unclear := call(t, url, nil, resolve("--outcome", outcome)...)
	assert.Contains(t, unclear.stderr, "how does the service store outcomes?")
	require.Equal(t, 0, call(t, url, nil, resolve("--outcome", outcome, "--no-codecs")...).code)
	assert.Equal(t, 2000, send(h, "alice", "K", "").Body.Len())
}

// colleague is a standard error that calls a function before the first line is written.
type colleague struct {
	strings.Builder
	act func()
}

func (c *colleague) Write(text []byte) (int, error) {
	if act := c.act; act != nil {
		c.act = nil
		act()
	}
	return c.Builder.Write(text)
}

func TestAnActOnARecordThatHasChangedIsNotDone(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, url string) {
		h := makeUnknown(t, url)
		errs := &colleague{act: func() { assert.Equal(t, 0, call(t, url, nil, resolve("--not-done")...).code) }}
		p := &program{stdin: strings.NewReader(""), stdout: errs, stderr: errs, getenv: func(string) string { return "" }}
		outcome := written(t, "HTTP/1.1 201 Created\n\n")
		assert.Equal(t, changed, p.run(t.Context(), append([]string{"idem", "--store", url}, resolve("--outcome", outcome, "--no-codecs")...)...))
		assert.Contains(t, errs.String(), "the record has changed since it was seen; nothing was changed")
		assert.False(t, send(h, "alice", "K", "").Header().Get("Idempotent-Replayed") == "true", "it ran, as the colleague has said")
		got := call(t, url, nil, resolve("--not-done", "--fence", "7")...)
		assert.Equal(t, changed, got.code)
	})
}

func TestResolveRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	h := makeUnknown(t, url)
	outcome := written(t, "HTTP/1.1 201 Created\n\n")
	directory := t.TempDir()
	for name, args := range map[string][]string{
		"neither":             resolve(),
		"both":                resolve("--not-done", "--outcome", outcome),
		"no file":             resolve("--no-codecs", "--outcome", filepath.Join(directory, "none")),
		"no response":         resolve("--no-codecs", "--outcome", written(t, "done")),
		"unknown codecs":      resolve("--outcome", outcome),
		"no codecs and one":   resolve("--outcome", outcome, "--no-codecs", "--seal-key", "2026="+written(t, strings.Repeat("s", 32))),
		"nobody":              {"resolve", "alice", "K", "--not-done", "--reason", "ticket 1"},
		"an empty who":        {"resolve", "alice", "K", "--not-done", "--reason", "ticket 1", "--who", ""},
		"no reason":           {"resolve", "alice", "K", "--not-done", "--who", "ann"},
		"no seal key":         resolve("--not-done", "--seal-key", "2026"),
		"a short seal key":    resolve("--not-done", "--seal-key", "2026="+outcome),
		"a retention of 1 ms": resolve("--not-done", "--retention", "1ms"),
		"no audit":            resolve("--not-done", "--audit-file", filepath.Join(directory, "none", "log")),
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, badUsage, call(t, url, nil, args...).code)
			assert.Contains(t, send(h, "alice", "K", "").Body.String(), "outcome-unknown")
		})
	}
	none := call(t, url, nil, "resolve", "bob", "K", "--not-done", "--who", "ann", "--reason", "ticket 1")
	assert.Equal(t, finding, none.code)
	assert.Contains(t, none.stderr, "no record has this scope and key")
	assert.NotContains(t, none.stderr, "ticket 1", "what is not tried is not audited")
}

func TestAReplicaIsReadAndNotChanged(t *testing.T) {
	t.Parallel()
	primary, replica := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	url := "redis://" + primary.Addr
	h := makeUnknown(t, url)
	host, port, _ := strings.Cut(primary.Addr, ":")
	require.NoError(t, replica.Client(t).ReplicaOf(t.Context(), host, port).Err())
	redistest.Eventually(t, "the replica has the record", func() bool { return replica.Info(t, "master_link_status") == "up" })
	assert.Equal(t, 0, call(t, "redis://"+replica.Addr, nil, "show", "alice", "K").code)
	got := call(t, "redis://"+replica.Addr, nil, resolve("--not-done")...)
	assert.Equal(t, storeFailed, got.code)
	assert.Contains(t, got.stderr, "this server is a read-only replica; nothing was changed: name the primary")
	assert.Contains(t, send(h, "alice", "K", "").Body.String(), "outcome-unknown")
}

// demoted is a store whose server becomes a replica when an operator has claimed a record.
type demoted struct{ *memstore.Store }

func (demoted) Complete(context.Context, driver.Claim, []byte) error {
	return errors.New("READONLY You can't write against a read only replica.")
}

func TestAServerThatIsDemotedWhileAnOutcomeIsResolvedLeavesADoubt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	records := demoted{memstore.New(memstore.Clock(func() time.Time { return now }))}
	config := core.Config{Store: records, Scope: core.ScopeByAdapter}
	config.Lease.OnUnknown = core.RefuseUnknown
	engine, err := core.New(config)
	require.NoError(t, err)
	acts, err := operator.New(engine, operator.Config{})
	require.NoError(t, err)
	o, task := &storeOperator{acts, &store{Store: records}}, core.Task{Scope: "alice", Key: "K"}
	absent, err := o.Look(t.Context(), task)
	require.NoError(t, err)
	claim := storetest.NewClaim(time.Minute, time.Hour)
	claim.Key = absent.Name
	_, err = records.Begin(t.Context(), claim)
	require.NoError(t, err)
	now = now.Add(2 * time.Minute)
	seen, err := o.Look(t.Context(), task)
	require.NoError(t, err)
	err = o.settle(t.Context(), operator.By{Who: "ann", Why: "ticket 1"}, task, seen, &core.Response{Status: 201})
	assert.EqualError(t, err, "this server is a read-only replica; "+mayBeClaimed+": name the primary in the URL of the store")
}

func TestAReadOnlyDatabaseIsNotChanged(t *testing.T) {
	t.Parallel()
	url := pgserver.Database(t)
	h := makeUnknown(t, url)
	got := call(t, url+"?options=-c%20default_transaction_read_only%3Don", nil, resolve("--not-done")...)
	assert.Equal(t, storeFailed, got.code)
	assert.Contains(t, got.stderr, "read-only replica; nothing was changed")
	assert.Contains(t, send(h, "alice", "K", "").Body.String(), "outcome-unknown")
}

func TestAServerThatDiesDuringAnActLeavesADoubt(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	url := "redis://" + server.Addr
	makeUnknown(t, url)
	errs := &colleague{act: server.Kill}
	p := &program{stdin: strings.NewReader(""), stdout: errs, stderr: errs, getenv: func(string) string { return "" }}
	code := p.run(t.Context(), append([]string{"idem", "--store", url, "--timeout", "300ms"}, resolve("--not-done")...)...)
	assert.Equal(t, storeFailed, code)
	assert.Contains(t, errs.String(), "the store does not respond; it may have been done all the same")
}

func TestResolveRevivesADeadMessage(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	engine, err := core.New(core.Config{Store: mustConnect(t, url), Scope: core.ScopeByAdapter})
	require.NoError(t, err)
	c, err := consumer.New(engine, consumer.Config{MaxAttempts: 1})
	require.NoError(t, err)
	m := consumer.Message{Group: "billing", ID: "7", Payload: []byte("{}")}
	deliver := func(failure error) consumer.Verdict {
		return consumer.Consume(t.Context(), c, m, func(context.Context) (string, error) { return "", failure }).Verdict
	}
	deliver(errors.New("no bank"))
	require.Equal(t, consumer.Dead, deliver(nil))
	revive := []string{"resolve", "billing", "7", "--kind", "MESSAGE", "--not-done", "--who", "ann", "--reason", "ticket 1"}
	assert.Equal(t, 0, call(t, url, nil, revive...).code)
	assert.Equal(t, consumer.Done, deliver(nil))
	again := call(t, url, nil, revive...)
	assert.Equal(t, finding, again.code)
	assert.Contains(t, again.stderr, "there is nothing to resolve; nothing was changed")
}
