package pgstore_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/internal/pgserver"
)

// A connection keeps the plans that it has made, also if a table was empty then and has a million rows now. PostgreSQL makes them
// anew after ANALYZE, which autovacuum may not have done yet. So no function may read a whole table, however small it is.
func TestNoCallReadsAWholeTableHoweverItHasGrown(t *testing.T) {
	rows, calls := 5_000, 20
	if os.Getenv("SOAK") != "" {
		rows, calls = 1_000_000, 500
	}
	_, aside, schema := ownStore(t)
	pool := newPool(t, pgserver.Shared(t), func(c *pgxpool.Config) { c.MaxConns = 1 }) // the same plans for all calls
	store := pgstore.New(pool, pgstore.Schema(schema))
	tables := []string{"record", "tombstone", "checkpoint"}
	for _, table := range tables {
		execute(t, aside, "ALTER TABLE "+schema+"."+table+" SET (autovacuum_enabled = off)")
	}
	wholeReads := func() int {
		execute(t, aside, "SELECT pg_stat_force_next_flush()")
		execute(t, pool, "SELECT pg_stat_force_next_flush()")
		return count(t, aside, "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = ANY ($2)", schema, tables)
	}
	before := wholeReads() // by Migrate, to make the indexes
	small := everyCall(t, store, calls)
	for _, table := range tables {
		execute(t, aside, "VACUUM (ANALYZE) "+schema+"."+table) // so the planner knows that it is small
	}
	everyCall(t, store, calls)

	ended(t, aside, schema, "record", 1, 100*calls) // for Sweep
	ended(t, aside, schema, "record", 1<<60, rows)
	ended(t, aside, schema, "tombstone", 1<<60, rows)
	large := everyCall(t, store, calls)
	for _, table := range tables {
		execute(t, aside, "ANALYZE "+schema+"."+table)
	}
	analyzed := everyCall(t, store, calls)
	for call := range small {
		t.Logf("%s: p50 %v with few rows, %v with %d rows, %v after ANALYZE", call, small[call], large[call], rows, analyzed[call])
	}

	assert.Zero(t, wholeReads()-before, "reads of whole tables; each must be by an index")
	assert.Positive(t, count(t, aside, "SELECT min(idx_scan) FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = ANY ($2)",
		schema, tables), "reads by an index")
}

// everyCall makes each call of the store n times, and returns the median of their durations.
func everyCall(t *testing.T, store *pgstore.Store, n int) map[string]time.Duration {
	t.Helper()
	all := map[string][]time.Duration{}
	call := func(name string, f func() error) {
		began := time.Now()
		require.NoError(t, f(), name)
		all[name] = append(all[name], time.Since(began))
	}
	for range n {
		var c driver.Claim
		call("begin", func() error {
			c = claimed(t, store, func(c *driver.Claim) { c.LateRetry, c.Steps = time.Hour, true })
			return nil
		})
		call("checkpoint", func() error { return store.Checkpoint(ctx, c, "step", nil) })
		call("checkpoints", func() error { _, err := store.Checkpoints(ctx, c); return err })
		call("extend", func() error { return store.Extend(ctx, c) })
		call("complete", func() error { return store.Complete(ctx, c, []byte("made")) })
		call("replay", func() error { _, err := store.Begin(ctx, rival(c)); return err })
		c = claimed(t, store)
		call("fail", func() error { return store.Fail(ctx, c, driver.Failure{}) })
		call("sweep", func() error { _, err := store.Sweep(ctx, 10); return err })
	}
	medians := map[string]time.Duration{}
	for name, durations := range all {
		slices.Sort(durations)
		medians[name] = durations[len(durations)/2]
	}
	return medians
}
