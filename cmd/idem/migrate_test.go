package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/internal/pgserver"
)

func TestMigrateMakesTheSchema(t *testing.T) {
	t.Parallel()
	url := pgserver.Database(t)
	none := call(t, url, nil, "migrate", "status")
	assert.Equal(t, finding, none.code)
	assert.Equal(t, "there is no store in schema \"idem\"\n", none.stdout)
	assert.Equal(t, badUsage, call(t, url, nil, "migrate", "up").code, "nobody can be asked")
	answering := func(answer string) result {
		p := &program{stdin: strings.NewReader(answer), asks: true, getenv: func(string) string { return "" }}
		return callWith(t, t.Context(), p, "migrate", "up", "--store", url)
	}
	assert.Equal(t, finding, answering("n\n").code)
	assert.Equal(t, finding, call(t, url, nil, "migrate", "status").code, "nothing was changed")
	up := answering("y\n")
	assert.Equal(t, 0, up.code)
	assert.Contains(t, up.stderr, "from version 0 to version 2?")
	assert.JSONEq(t, `{"version": 2, "latest": 2}`, call(t, url, nil, "migrate", "status", "--json").stdout)
	assert.Equal(t, 0, answering("").code, "there is nothing to ask")
	assert.Equal(t, http.StatusOK, send(handler(mustConnect(t, url), nil), "alice", "K", "").Code)
}

func TestWhatMigratePrintsMakesTheSchema(t *testing.T) {
	t.Parallel()
	url := pgserver.Database(t)
	sql := call(t, "", nil, "migrate", "sql", "--schema", "pay")
	require.Equal(t, 0, sql.code)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "CREATE SCHEMA pay;"+sql.stdout)
	require.NoError(t, err)
	assert.Equal(t, 0, call(t, url, nil, "migrate", "status", "--schema", "pay").code)
}

func TestMigrateLeavesASchemaOfALaterVersion(t *testing.T) {
	t.Parallel()
	url := pgserver.Database(t)
	mustConnect(t, url)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "UPDATE idem.store SET version = 99")
	require.NoError(t, err)
	for _, args := range [][]string{{"migrate", "status"}, {"migrate", "up", "--yes"}} {
		got := call(t, url, nil, args...)
		assert.Equal(t, storeFailed, got.code)
		assert.Contains(t, got.stderr, "has version 99, and this package knows 1 and 2")
		assert.Contains(t, got.stderr, "nothing was changed")
	}
}

func TestMigrateIsForPostgres(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"status"}, {"up", "--yes"}, {"down"}, {}, {"sql", "--schema", "x; --"}} {
		assert.Equal(t, badUsage, call(t, "redis://127.0.0.1:1", nil, append([]string{"migrate"}, args...)...).code, args)
	}
}
