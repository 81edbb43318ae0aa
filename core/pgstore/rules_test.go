package pgstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/pgserver"
)

// What storetest covers for any store is looked at here in the rows that PostgreSQL holds.

// counter counts the statements of a pool.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}
func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestEachCallIsOneStatement(t *testing.T) {
	statements := &counter{}
	store, _ := newStore(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = statements })
	everything := func(c *driver.Claim) { c.Subscribed, c.LateRetry, c.Steps = true, time.Hour, true }
	c, failing := claimed(t, store, everything), claimed(t, store)
	for _, verb := range []struct {
		name string
		send func() error
	}{
		{"a new claim", func() error { return once(t, store, storetest.NewClaim(time.Minute, time.Hour)) }},
		{"a conflict that waits", func() error { _, err := store.Begin(ctx, rival(c)); return err }},
		{"extend", func() error { return store.Extend(ctx, c) }},
		{"checkpoint", func() error { return store.Checkpoint(ctx, c, "step", nil) }},
		{"checkpoints", func() error { _, err := store.Checkpoints(ctx, c); return err }},
		{"complete", func() error { return store.Complete(ctx, c, nil) }},
		{"a replay", func() error { _, err := store.Begin(ctx, rival(c)); return err }},
		{"fail", func() error { return store.Fail(ctx, failing, driver.Failure{}) }},
		{"the next attempt", func() error { _, err := store.Begin(ctx, rival(failing)); return err }},
	} {
		before := statements.n.Load()
		require.NoError(t, verb.send(), verb.name)
		assert.EqualValues(t, 1, statements.n.Load()-before, verb.name)
	}
}

func TestACallWhoseReplyWasLostGetsTheSameReplyTheSecondTime(t *testing.T) {
	network := &network{}
	store, _ := newStore(t, func(c *pgxpool.Config) { c.ConnConfig.DialFunc = network.dial })
	c, failing := claimed(t, store), claimed(t, store)
	require.NoError(t, store.Extend(ctx, c)) // each function is prepared by now
	begun := storetest.NewClaim(time.Minute, time.Hour)
	for _, verb := range []struct {
		name string
		send func() error
	}{
		{"begin", func() error { return once(t, store, begun) }},
		{"extend", func() error { return store.Extend(ctx, c) }},
		{"complete", func() error { return store.Complete(ctx, c, []byte("kept")) }},
		{"fail", func() error { return store.Fail(ctx, failing, driver.Failure{}) }},
	} {
		network.breakAt("\x00\x00", answered, nothing) // any message with arguments
		require.Error(t, verb.send(), verb.name)
		network.broke(t)
		require.NoError(t, verb.send(), verb.name)
	}
	assert.Equal(t, driver.InProgress, begin(t, store, rival(begun)).State)
	assert.Equal(t, "kept", string(begin(t, store, rival(c)).Outcome))
	assert.Equal(t, 2, begin(t, store, rival(failing)).Attempt)
}

// once begins c, whose first attempt it must remain.
func once(t *testing.T, store driver.Store, c driver.Claim) error {
	entry, err := store.Begin(ctx, c)
	if err == nil {
		assert.Equal(t, driver.Claimed, entry.State, "a claim must recognise itself")
		assert.Equal(t, 1, entry.Attempt)
	}
	return err
}

// row is all that the store holds under c's key, in text.
func row(t *testing.T, pool *pgxpool.Pool, schema string, c driver.Claim) (text string) {
	t.Helper()
	require.NoError(t, pool.QueryRow(ctx, "SELECT r::text FROM "+schema+".record r WHERE key = $1", c.Key[:]).Scan(&text))
	return text
}

func TestACallOfAnotherOwnerOrFenceLeavesTheRowAlone(t *testing.T) {
	store, pool, schema := ownStore(t)
	c := claimed(t, store)
	for _, state := range []string{"STARTED", "COMPLETED"} {
		if state == "COMPLETED" {
			require.NoError(t, store.Complete(ctx, c, []byte("kept")))
		}
		before := row(t, pool, schema, c)
		require.Contains(t, before, state)
		stale, stranger := c, rival(c)
		stale.Fence--
		stranger.Fence = c.Fence // without one, a Fail withdraws
		for _, stranger := range []driver.Claim{stranger, stale} {
			assert.ErrorIs(t, store.Extend(ctx, stranger), driver.ErrLost)
			assert.ErrorIs(t, store.Complete(ctx, stranger, []byte("late")), driver.ErrLost)
			assert.ErrorIs(t, store.Fail(ctx, stranger, driver.Failure{NoEffects: true}), driver.ErrLost)
			assert.ErrorIs(t, store.Checkpoint(ctx, stranger, "step", nil), driver.ErrLost)
			_, err := store.Checkpoints(ctx, stranger)
			assert.ErrorIs(t, err, driver.ErrLost)
			assert.Equal(t, before, row(t, pool, schema, c), state)
		}
	}
}

func TestAMismatchTellsTheRecordsFingerprintAndChangesNothing(t *testing.T) {
	store, pool, schema := ownStore(t)
	c := claimed(t, store)
	before := row(t, pool, schema, c)
	stranger := other(c)
	stranger.Subscribed = true
	entry := begin(t, store, stranger)
	assert.Equal(t, driver.Entry{State: driver.Mismatch, Fingerprint: c.Fingerprint}, entry)
	assert.Equal(t, before, row(t, pool, schema, c))
}

// What only looks takes no lock: it neither waits for a writer nor makes one wait.
func TestWhatWritesNothingDoesNotWait(t *testing.T) {
	store, pool, schema := ownStore(t)
	running, done := claimed(t, store), claimed(t, store)
	require.NoError(t, store.Complete(ctx, done, []byte("kept")))
	await(t, store, running)
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer rollBack(tx)
	_, err = tx.Exec(ctx, "SELECT FROM "+schema+".record FOR UPDATE")
	require.NoError(t, err)
	assert.Equal(t, driver.Completed, begin(t, store, rival(done)).State)
	assert.Equal(t, driver.InProgress, begin(t, store, rival(running)).State)
	assert.Equal(t, driver.Mismatch, begin(t, store, other(running)).State)
	await(t, store, running) // one is remembered already
}

func rollBack(tx pgx.Tx) { _ = tx.Rollback(ctx) }

// setClock makes now() of a schema say what the test wants: so many µs since 1970.
func setClock(t *testing.T, pool *pgxpool.Pool, schema string, now int64) {
	t.Helper()
	execute(t, pool, fmt.Sprintf("CREATE OR REPLACE FUNCTION %s.now() RETURNS bigint LANGUAGE sql AS 'SELECT %d::bigint'", schema, now))
}

// A lease is extended between the two looks of a begin, at the row and at the clock.
func TestALeaseThatIsExtendedIsNeverCalledOver(t *testing.T) {
	store, pool, schema := ownStore(t)
	c := claimed(t, store)
	number := time.Now().UnixNano()
	holder, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer rollBack(holder)
	_, err = holder.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", number)
	require.NoError(t, err)
	execute(t, pool, fmt.Sprintf(`CREATE OR REPLACE FUNCTION %s.now() RETURNS bigint LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_advisory_xact_lock_shared(%d); RETURN %d; END'`, schema, number, c.Fence+2*c.Lease.Microseconds()))
	answer := make(chan driver.Entry)
	go func() {
		asking := rival(c)
		asking.NoTakeover = true
		entry, err := store.Begin(ctx, asking)
		assert.NoError(t, err)
		answer <- entry
	}()
	require.Eventually(t, func() bool {
		return count(t, pool, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") > 0
	}, 10*time.Second, time.Millisecond)
	execute(t, pool, "UPDATE "+schema+".record SET lease_end = lease_end + $1", 3*c.Lease.Microseconds())
	rollBack(holder)
	assert.Equal(t, driver.InProgress, (<-answer).State)
}

func TestTheFenceNeverGoesBack(t *testing.T) {
	store, pool, schema := ownStore(t)
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	base := storetest.NewClaim(time.Minute, time.Hour)
	var last int64
	next := func(why string, at time.Time) driver.Claim {
		t.Helper()
		setClock(t, pool, schema, at.UnixMicro())
		c := rival(base)
		claim(t, store, &c)
		require.Greater(t, c.Fence, last, why)
		last = c.Fence
		return c
	}
	c := next("at first it is the time", noon)
	require.Equal(t, noon.UnixMicro(), c.Fence)
	require.NoError(t, store.Fail(ctx, c, driver.Failure{}))
	c = next("after a clock that went back", noon.Add(-time.Hour/2))
	require.Equal(t, noon.UnixMicro()+1, c.Fence)
	c = next("after the retention, the row still there", noon.Add(time.Hour))
	require.Equal(t, 1, c.Attempt)

	setClock(t, pool, schema, noon.Add(3*time.Hour).UnixMicro())
	n, err := store.Sweep(ctx, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	c = next("after the row is gone, and a clock that went back", noon)
	require.Equal(t, 1, c.Attempt)
}

func TestTheServersClockCountsInMicroseconds(t *testing.T) {
	store, pool, schema := ownStore(t)
	now := time.Date(2026, 11, 21, 12, 0, 0, 123457000, time.UTC)
	setClock(t, pool, schema, now.UnixMicro())
	c := storetest.NewClaim(1234567*time.Microsecond, time.Hour+time.Nanosecond)
	claim(t, store, &c)
	var lease, expires int64
	require.NoError(t, pool.QueryRow(ctx, "SELECT lease_end, expires FROM "+schema+".record").Scan(&lease, &expires))
	assert.Equal(t, now.UnixMicro(), c.Fence)
	assert.Equal(t, c.Fence+1234567, lease)
	assert.Equal(t, c.Fence+time.Hour.Microseconds()+1, expires, "a retention is never shorter than asked for")
	setClock(t, pool, schema, now.UnixMicro()+1234566)
	assert.Equal(t, time.Microsecond, begin(t, store, rival(c)).Remaining)
	setClock(t, pool, schema, now.UnixMicro()+1234567)
	assert.Equal(t, driver.Claimed, begin(t, store, rival(c)).State)
}

func TestTheClockIsTheServersOwn(t *testing.T) {
	_, pool, schema := ownStore(t)
	early := time.Now().UnixMicro()
	var now int64
	require.NoError(t, pool.QueryRow(ctx, "SELECT "+schema+".now()").Scan(&now))
	assert.GreaterOrEqual(t, now, early)
	assert.LessOrEqual(t, now, time.Now().UnixMicro())
}

func TestAnAttemptIsCountedToSixDigits(t *testing.T) {
	store, pool, schema := ownStore(t)
	c := claimed(t, store)
	execute(t, pool, "UPDATE "+schema+".record SET attempt = 999998")
	for range 2 {
		require.NoError(t, store.Fail(ctx, c, driver.Failure{}))
		c = rival(c)
		claim(t, store, &c)
		assert.Equal(t, 999999, c.Attempt)
	}
}

func TestTheCauseOfAFailureIsKeptForOperators(t *testing.T) {
	store, pool, schema := ownStore(t)
	for cause, kept := range map[string]string{
		"status 503":             "status 503",
		"bad \xff bytes\x00":     "bad \xff bytes\x00",
		strings.Repeat("€", 100): strings.Repeat("€", 66) + "\xe2\x82",
	} {
		c := claimed(t, store)
		require.NoError(t, store.Fail(ctx, c, driver.Failure{Cause: cause}))
		var found []byte
		require.NoError(t, pool.QueryRow(ctx, "SELECT cause FROM "+schema+".record WHERE key = $1", c.Key[:]).Scan(&found))
		assert.Equal(t, kept, string(found))
		c = rival(c)
		claim(t, store, &c)
		assert.Zero(t, count(t, pool, "SELECT count(*) FROM "+schema+".record WHERE key = $1 AND cause IS NOT NULL", c.Key[:]))
	}
}

// expire ends the retention of what is stored under c's key.
func expire(t *testing.T, pool *pgxpool.Pool, schema string, c driver.Claim) {
	t.Helper()
	execute(t, pool, "UPDATE "+schema+".record SET expires = 1 WHERE key = $1", c.Key[:])
}

func TestSweepDeletesWhatHasExpiredInBatches(t *testing.T) {
	store, pool, schema := ownStore(t)
	for range 5 {
		c := claimed(t, store, func(c *driver.Claim) { c.Steps = true })
		require.NoError(t, store.Checkpoint(ctx, c, "step", []byte("result")))
		expire(t, pool, schema, c)
	}
	alive := claimed(t, store)
	for _, want := range []int{2, 2, 1, 0} {
		n, err := store.Sweep(ctx, 2)
		require.NoError(t, err)
		assert.Equal(t, want, n)
	}
	assert.Equal(t, 1, count(t, pool, "SELECT count(*) FROM "+schema+".record"))
	assert.Zero(t, count(t, pool, "SELECT count(*) FROM "+schema+".checkpoint"))
	assert.NoError(t, store.Extend(ctx, alive))
	_, err := store.Sweep(ctx, 0)
	assert.ErrorContains(t, err, "limit 0 must be positive")
}

// ended fills a store with so many records, or tombstones, whose time is over, and expires at first and after.
func ended(t *testing.T, pool *pgxpool.Pool, schema, table string, first, n int) {
	t.Helper()
	columns := map[string]string{
		"record":    "sha256(i::text::bytea), 'COMPLETED', 0, 1, i, i, i, false, 'owner', 'fingerprint', NULL, 'outcome'",
		"tombstone": "sha256(i::text::bytea), i",
	}[table]
	execute(t, pool, fmt.Sprintf("INSERT INTO %s.%s SELECT %s FROM generate_series(%d, %d) i", schema, table, columns, first, first+n-1))
}

// TestSweepsGoOnWhereTheLastHasEnded: an old snapshot keeps what is deleted in the index, and a sweep that begins with it
// takes the longer the more there is.
func TestSweepsGoOnWhereTheLastHasEnded(t *testing.T) {
	for _, table := range []string{"record", "tombstone"} {
		_, aside, schema := ownStore(t)
		pool := newPool(t, pgserver.Shared(t), func(c *pgxpool.Config) { c.MaxConns = 1 })
		store := pgstore.New(pool, pgstore.Schema(schema))
		ended(t, aside, schema, table, 1, 5000)
		snapshot, err := aside.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		require.NoError(t, err)
		defer rollBack(snapshot)
		_, err = snapshot.Exec(ctx, "SELECT FROM "+schema+"."+table)
		require.NoError(t, err)
		for range 10 {
			n, err := store.Sweep(ctx, 500)
			require.NoError(t, err)
			require.Equal(t, 500, n)
		}
		execute(t, pool, "SELECT pg_stat_force_next_flush()")
		read := count(t, pool, "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = $1 AND indexrelname = $2", schema, table+"_expires")
		assert.Less(t, read, 7000, "entries of the index that 10 sweeps of 5000 rows have looked at")
	}
}

// TestASweepThatSaysItHasSeenAllHas: rows may appear before the place where the last one ended, as those do that were locked
// then, or that a long transaction had not committed.
func TestASweepThatSaysItHasSeenAllHas(t *testing.T) {
	for _, table := range []string{"record", "tombstone"} {
		store, pool, schema := ownStore(t)
		ended(t, pool, schema, table, 1000, 30)
		sweep := func(limit, want int) {
			t.Helper()
			n, err := store.Sweep(ctx, limit)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		sweep(10, 10)
		ended(t, pool, schema, table, 1, 7)
		sweep(10, 10)
		sweep(15, 15)
		sweep(15, 2)
		ended(t, pool, schema, table, 1, 7)
		sweep(10, 7)
		sweep(10, 0)
	}
}

func TestSweepsAndCallsDoNotWaitForEachOther(t *testing.T) {
	store, pool, schema := ownStore(t)
	locked, free := claimed(t, store), claimed(t, store)
	expire(t, pool, schema, locked)
	expire(t, pool, schema, free)
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer rollBack(tx)
	_, err = tx.Exec(ctx, "SELECT FROM "+schema+".record WHERE key = $1 FOR UPDATE", locked.Key[:])
	require.NoError(t, err)
	n, err := store.Sweep(ctx, 10)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}

// TestSweepsNeverTakeAClaimAway: rows expire and are claimed anew while they are swept, and no two sweeps stand in each
// other's way.
func TestSweepsNeverTakeAClaimAway(t *testing.T) {
	store, pool, schema := ownStore(t)
	bases := make([]driver.Claim, 8)
	for i := range bases {
		bases[i] = storetest.NewClaim(time.Minute, time.Hour)
	}
	var sweeping, claiming sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		sweeping.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, err := store.Sweep(ctx, 3)
					assert.NoError(t, err)
				}
			}
		})
	}
	for _, base := range bases {
		claiming.Go(func() {
			var last int64
			for range 30 {
				c := rival(base)
				entry, err := store.Begin(ctx, c)
				if !assert.NoError(t, err) || !assert.Equal(t, driver.Claimed, entry.State) {
					return
				}
				assert.Equal(t, 1, entry.Attempt)
				assert.Greater(t, entry.Fence, last)
				last = entry.Fence
				c.Fence = entry.Fence
				assert.NoError(t, store.Complete(ctx, c, []byte("kept")), "a sweep took the claim")
				_, err = pool.Exec(ctx, "UPDATE "+schema+".record SET expires = 1 WHERE key = $1", c.Key[:])
				assert.NoError(t, err)
			}
		})
	}
	claiming.Wait()
	close(stop)
	sweeping.Wait()
}

func TestATombstoneOutlivesTheOutcome(t *testing.T) {
	store, pool, schema := ownStore(t)
	late := func(c driver.Claim) driver.Claim {
		c = rival(c)
		c.LateRetry = time.Hour
		return c
	}
	c := claimed(t, store, func(c *driver.Claim) { c.LateRetry = time.Hour })
	require.NoError(t, store.Complete(ctx, c, []byte("kept")))
	assert.Equal(t, driver.Completed, begin(t, store, late(c)).State, "while there is an outcome, it is the answer")

	expire(t, pool, schema, c)
	assert.Equal(t, driver.Entry{State: driver.Expired}, begin(t, store, late(c)))
	n, err := store.Sweep(ctx, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n, "the record, and not the tombstone")
	assert.Equal(t, driver.Entry{State: driver.Expired}, begin(t, store, late(c)), "also when the row is gone")
	assert.Equal(t, driver.Expired, begin(t, store, late(other(c))).State, "to another request too")

	execute(t, pool, "UPDATE "+schema+".tombstone SET expires = 1")
	assert.Equal(t, driver.Claimed, begin(t, store, late(c)).State, "after it the key is new")
	n, err = store.Sweep(ctx, 10)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Zero(t, count(t, pool, "SELECT count(*) FROM "+schema+".tombstone"))
}

func TestATombstoneEndsSoLongAfterTheRetention(t *testing.T) {
	store, pool, schema := ownStore(t)
	setClock(t, pool, schema, 1000)
	c := claimed(t, store, func(c *driver.Claim) {
		c.Lease, c.Retention, c.LateRetry = 10*time.Microsecond, 20*time.Microsecond, 30*time.Microsecond
	})
	setClock(t, pool, schema, 1001)
	require.NoError(t, store.Complete(ctx, c, nil))
	for at, want := range map[int64]driver.State{1020: driver.Completed, 1021: driver.Expired, 1050: driver.Expired} {
		setClock(t, pool, schema, at)
		again := rival(c)
		assert.Equal(t, want, begin(t, store, again).State, at)
	}
	setClock(t, pool, schema, 1051)
	assert.Equal(t, driver.Claimed, begin(t, store, rival(c)).State)
}

func TestATombstoneIsNeverCutShort(t *testing.T) {
	store, pool, schema := ownStore(t)
	c := claimed(t, store, func(c *driver.Claim) { c.LateRetry = 2 * time.Hour })
	require.NoError(t, store.Complete(ctx, c, nil))
	before := count(t, pool, "SELECT expires FROM "+schema+".tombstone")
	expire(t, pool, schema, c)
	c = rival(c)
	c.LateRetry = 0
	claim(t, store, &c)
	c.LateRetry = time.Microsecond
	require.NoError(t, store.Complete(ctx, c, nil))
	assert.Equal(t, before, count(t, pool, "SELECT expires FROM "+schema+".tombstone"))
}

func TestAClaimWithoutLateRetryIgnoresTombstonesAndLeavesNone(t *testing.T) {
	store, pool, schema := ownStore(t)
	plain := claimed(t, store)
	require.NoError(t, store.Complete(ctx, plain, nil))
	assert.Zero(t, count(t, pool, "SELECT count(*) FROM "+schema+".tombstone"))

	c := claimed(t, store, func(c *driver.Claim) { c.LateRetry = time.Hour })
	require.NoError(t, store.Complete(ctx, c, nil))
	expire(t, pool, schema, c)
	again := rival(c)
	again.LateRetry = 0
	assert.Equal(t, driver.Claimed, begin(t, store, again).State)
	failed := claimed(t, store, func(c *driver.Claim) { c.LateRetry = time.Hour })
	require.NoError(t, store.Fail(ctx, failed, driver.Failure{}))
	expire(t, pool, schema, failed)
	assert.Equal(t, driver.Claimed, begin(t, store, rival(failed)).State, "only an outcome leaves a tombstone")
}

func TestMigrateMayRunManyTimesAtOnce(t *testing.T) {
	pool, schema := newPool(t, pgserver.Shared(t)), ownSchema()
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() { assert.NoError(t, pgstore.Migrate(ctx, pool, pgstore.Schema(schema))) })
	}
	wg.Wait()
	store := pgstore.New(pool, pgstore.Schema(schema))
	c := claimed(t, store)
	require.NoError(t, pgstore.Migrate(ctx, pool, pgstore.Schema(schema)), "at the next start")
	assert.NoError(t, store.Extend(ctx, c), "records stay")
}

func TestMigrateFillsASchemaThatIsThereForARoleThatMayNotMakeOne(t *testing.T) {
	server, schema := pgserver.Shared(t), ownSchema()
	admin := newPool(t, server)
	execute(t, admin, "CREATE ROLE "+schema+" LOGIN; CREATE SCHEMA "+schema+" AUTHORIZATION "+schema)
	pool := newPool(t, server, func(c *pgxpool.Config) { c.ConnConfig.User = schema })
	require.NoError(t, pgstore.Migrate(ctx, pool, pgstore.Schema(schema)))
	claimed(t, pgstore.New(pool, pgstore.Schema(schema)))
	assert.ErrorContains(t, pgstore.Migrate(ctx, pool, pgstore.Schema(ownSchema())), "permission denied")
}

func TestStoresInTwoSchemasNeverMeet(t *testing.T) {
	a, pool, _ := ownStore(t)
	schema := "user" // a reserved word
	require.NoError(t, pgstore.Migrate(ctx, pool, pgstore.Schema(schema)))
	b := pgstore.New(pool, pgstore.Schema(schema))
	c := claimed(t, a)
	assert.Equal(t, driver.Claimed, begin(t, b, other(c)).State)
	_, err := a.Sweep(ctx, 1)
	assert.NoError(t, err)
}

// A tenant's search_path, a common way to keep tenants apart, does not lead the functions elsewhere.
func TestTheSearchPathDoesNotMatter(t *testing.T) {
	store, _ := newStore(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = "nowhere" })
	c := claimed(t, store, func(c *driver.Claim) { c.LateRetry, c.Steps = time.Hour, true })
	require.NoError(t, store.Checkpoint(ctx, c, "step", nil))
	require.NoError(t, store.Complete(ctx, c, nil))
	_, err := store.Sweep(ctx, 10)
	assert.NoError(t, err)
}

func TestAMissingSchemaIsNamed(t *testing.T) {
	pool := newPool(t, pgserver.Shared(t))
	store := pgstore.New(pool, pgstore.Schema("missing"))
	_, err := store.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
	assert.ErrorContains(t, err, "run pgstore.Migrate")
	assert.ErrorContains(t, store.Extend(ctx, driver.Claim{}), "run pgstore.Migrate")
	_, err = store.Sweep(ctx, 1)
	assert.ErrorContains(t, err, "run pgstore.Migrate")
}
