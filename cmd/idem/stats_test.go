package main

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/pgserver"
	"github.com/go-idem/idem/internal/redistest"
)

func TestStatsCountsEachRecordOnce(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, url string) {
		h := handler(mustConnect(t, url), nil, func(c *core.Config) { c.Keep.LateRetry = time.Hour })
		empty := call(t, url, nil, "stats", "--json")
		assert.Equal(t, finding, empty.code)
		assert.Contains(t, empty.stdout, `"records":0`)
		send(h, "alice", "K", "")
		send(h, "alice", "L", "")
		send(h, "bob", "K", "fail")
		got := call(t, url, nil, "stats")
		assert.Equal(t, 0, got.code)
		assert.Regexp(t, `(?m)^completed +2 +\d\d+$`, got.stdout)
		assert.Regexp(t, `(?m)^failed +1 +\d\d+$`, got.stdout)
		assert.Regexp(t, `(?m)^unknown +0 +0$`, got.stdout)
		assert.Regexp(t, `(?m)^all +3 +\d\d+$`, got.stdout)
		assert.Regexp(t, `(?m)^all +1 +\d\d+$`, call(t, url, nil, "stats", "--scope", "bob").stdout)
		assert.Contains(t, call(t, url, nil, "stats", "--json").stdout, `"completed":{"records":2,"bytes":`)
	})
}

func TestDoctorHasAFindingOrNone(t *testing.T) {
	t.Parallel()
	well := redistest.Start(t, "--appendonly", "yes")
	got := call(t, "redis://"+well.Addr, nil, "doctor")
	assert.Equal(t, 0, got.code)
	assert.Equal(t, "no finding\n", got.stdout)
	well.Config(t, "maxmemory", "100mb")
	assert.Equal(t, 0, call(t, "redis://"+well.Addr, nil, "doctor", "--sample", "10ms").code)
	assert.Equal(t, badUsage, call(t, "redis://"+well.Addr, nil, "doctor", "--sample", "-1s").code)
	ill := redistest.Start(t)
	got = call(t, "redis://"+ill.Addr, nil, "doctor")
	assert.Equal(t, finding, got.code)
	line := "appendonly of " + ill.Addr + " is no: a restart forgets every key since the last snapshot; set yes\n"
	assert.Contains(t, got.stdout, line)
	assert.Contains(t, call(t, "redis://"+ill.Addr, nil, "doctor", "--json").stdout, `"found":"no"`)
}

func TestDoctorChecksPostgreSQL(t *testing.T) {
	t.Parallel()
	url := pgserver.Database(t)
	got := call(t, url, nil, "doctor")
	assert.Equal(t, storeFailed, got.code)
	assert.Contains(t, got.stderr, "the schema is missing")
	assert.Contains(t, got.stdout, "fsync is off", "an error does not hide what was found before")
	mustConnect(t, url)
	got = call(t, url, nil, "doctor")
	assert.Equal(t, finding, got.code)
	assert.Contains(t, got.stdout, "fsync is off")
}

func TestDoctorNamesWhatDoesNotWorkThroughPgBouncer(t *testing.T) {
	t.Parallel()
	server := pgserver.Shared(t)
	mustConnect(t, server.URL)
	assert.NotContains(t, call(t, server.URL, nil, "doctor").stdout, "pooler")
	pooled, err := url.Parse(server.Bouncer(t, "transaction").URL)
	require.NoError(t, err)
	const waits = "the connection of Watch is one through a pooler: a waiting request is not notified; it polls after 1, 2 and 4 seconds; " +
		"pass a pool of direct connections with pgstore.ListenOn\n"
	const prepares = "DefaultQueryExecMode is cache statement: "
	got := call(t, pooled.String(), nil, "doctor")
	assert.Equal(t, finding, got.code, got.stderr)
	assert.Contains(t, got.stdout, waits)
	assert.Contains(t, got.stdout, prepares)

	parameters := pooled.Query()
	parameters.Set("default_query_exec_mode", "exec")
	pooled.RawQuery = parameters.Encode()
	got = call(t, pooled.String(), nil, "doctor")
	assert.Equal(t, finding, got.code, got.stderr)
	assert.Contains(t, got.stdout, waits)
	assert.NotContains(t, got.stdout, prepares)
}
