package pgstore_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/internal/pgserver"
)

// findings returns "setting is value" of each finding of Check, except those on the settings with which pgserver starts servers.
func findings(t *testing.T, pool *pgxpool.Pool, opts ...pgstore.Option) (texts []string) {
	t.Helper()
	found, err := pgstore.Check(ctx, pool, opts...)
	require.NoError(t, err)
	for _, f := range found {
		if f.Setting != "fsync" && f.Setting != "full_page_writes" && f.Setting != "idle_in_transaction_session_timeout" {
			text, _, _ := strings.Cut(f.String(), ":")
			texts = append(texts, text)
		}
	}
	return texts
}

func TestCheckFindsTheSettingsOfTheServer(t *testing.T) {
	server := pgserver.Shared(t)
	found, err := pgstore.Check(ctx, newPool(t, server))
	require.NoError(t, err)
	var settings []string
	for _, f := range found {
		settings = append(settings, f.Setting)
	}
	assert.Equal(t, []string{"fsync", "full_page_writes", "idle_in_transaction_session_timeout"}, settings, "pgserver turns two off")
	assert.Empty(t, findings(t, newPool(t, server)))

	changed := newPool(t, server, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		c.ConnConfig.RuntimeParams["tcp_keepalives_idle"] = "10"
	})
	assert.Equal(t, []string{"synchronous_commit is off", "default_transaction_isolation is serializable"}, findings(t, changed))
	found, err = pgstore.Check(ctx, changed)
	require.NoError(t, err)
	for _, f := range found {
		assert.NotEqual(t, "idle_in_transaction_session_timeout", f.Setting, "keepalives of ten seconds are enough")
	}
	_, err = pgstore.Check(ctx, changed, pgstore.Schema("Upper"))
	assert.ErrorContains(t, err, "Schema")
}

func TestCheckFindsAPooler(t *testing.T) {
	server := pgserver.Shared(t)
	direct := newPool(t, server)
	bouncer := server.Bouncer(t, "transaction")
	pool := func(mode pgx.QueryExecMode) *pgxpool.Pool {
		return newPool(t, bouncer, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
	}
	polls := "the connection of Watch is one through a pooler"
	plain, prepared, described := pool(pgx.QueryExecModeExec), pool(pgx.QueryExecModeCacheStatement), pool(pgx.QueryExecModeDescribeExec)
	assert.Equal(t, []string{polls}, findings(t, plain))
	assert.Empty(t, findings(t, plain, pgstore.ListenOn(direct)))
	assert.Equal(t, []string{polls}, findings(t, direct, pgstore.ListenOn(plain)))
	assert.Equal(t, []string{polls, "DefaultQueryExecMode is cache statement"}, findings(t, prepared))
	assert.Equal(t, []string{"DefaultQueryExecMode is describe exec"}, findings(t, described, pgstore.ListenOn(direct)))
}
