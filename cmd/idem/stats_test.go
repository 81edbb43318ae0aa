package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
	mustConnect(t, url)
	got = call(t, url, nil, "doctor")
	assert.Equal(t, finding, got.code)
	assert.Contains(t, got.stdout, "fsync is off")
}
