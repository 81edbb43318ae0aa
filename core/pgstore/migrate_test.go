package pgstore_test

import (
	"context"
	_ "embed"
	"fmt"
	"os"
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

//go:embed testdata/schema_1.sql
var schemaOne string

// byHand applies a schema file as somebody at a terminal does, under another name for the schema.
func byHand(t *testing.T, pool *pgxpool.Pool, file, schema string) {
	t.Helper()
	_, err := pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+schema+";"+strings.ReplaceAll(file, "idem.", schema+"."))
	require.NoError(t, err)
}

// versionOne is a schema as a process of version 1 has made it, and that process's store.
func versionOne(t *testing.T, pool *pgxpool.Pool) (oldStore, string) {
	t.Helper()
	schema := ownSchema()
	byHand(t, pool, strings.ReplaceAll(schemaOne, "'idem.wake'", `'"idem".wake'`), schema)
	return oldStore{pool, schema}, schema
}

// oldStore sends the statements of version 1.
type oldStore struct {
	pool   *pgxpool.Pool
	schema string
}

func (s oldStore) Begin(ctx context.Context, c driver.Claim) (entry driver.Entry, err error) {
	var left int64
	var bytes []byte
	row := s.pool.QueryRow(ctx, "SELECT * FROM "+s.schema+".begin($1, $2, $3, $4, $5, $6, $7, $8)", c.Key[:], c.Owner[:], c.Fingerprint[:],
		c.Lease.Microseconds(), c.Retention.Microseconds(), int64(1), c.Subscribed, c.LateRetry > 0)
	if err = row.Scan(&entry.State, &entry.Fence, &entry.Attempt, &entry.Takeover, &left, &bytes); entry.State == driver.Completed {
		entry.Outcome = bytes
	} else if entry.State == "lost" {
		return driver.Entry{}, driver.ErrLost
	}
	return entry, err
}

func (s oldStore) word(ctx context.Context, function string, args ...any) error {
	var word string
	if err := s.pool.QueryRow(ctx, "SELECT "+s.schema+function, args...).Scan(&word); err != nil || word == "ok" {
		return err
	}
	return driver.ErrLost
}

func (s oldStore) Extend(ctx context.Context, c driver.Claim) error {
	return s.word(ctx, ".extend($1, $2, $3, $4, $5)", c.Key[:], c.Owner[:], c.Fence, c.Lease.Microseconds(), c.Retention.Microseconds())
}

func (s oldStore) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	return s.word(ctx, ".complete($1, $2, $3, $4, $5, $6, $7)", c.Key[:], c.Owner[:], c.Fence, c.Retention.Microseconds(), c.LateRetry.Microseconds(), c.Steps, outcome)
}

func (s oldStore) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	return s.word(ctx, ".fail($1, $2, $3, $4, $5, $6)", c.Key[:], c.Owner[:], c.Fence, c.Retention.Microseconds(), f.NoEffects, []byte(f.Cause))
}

func (s oldStore) checkpoint(t *testing.T, c driver.Claim, step string) {
	t.Helper()
	require.NoError(t, s.word(ctx, ".checkpoint($1, $2, $3, $4, $5, $6)", c.Key[:], c.Owner[:], c.Fence, c.Retention.Microseconds(), []byte(step), []byte("result")))
}

func TestMigrateTakesTheRecordsOfVersionOneAlong(t *testing.T) {
	pool := newPool(t, pgserver.Shared(t))
	old, schema := versionOne(t, pool)
	running, failed, done, freed := claimed(t, old, stepping), claimed(t, old), claimed(t, old), claimed(t, old)
	old.checkpoint(t, running, "charge")
	require.NoError(t, old.Fail(ctx, failed, driver.Failure{}))
	require.NoError(t, old.Complete(ctx, done, []byte("kept")))
	require.NoError(t, old.Fail(ctx, freed, driver.Failure{NoEffects: true}))

	store := pgstore.New(pool, pgstore.Schema(schema))
	_, err := store.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
	require.ErrorContains(t, err, "run pgstore.Migrate", "a process that is ahead of its schema")
	for range 2 {
		require.NoError(t, pgstore.Migrate(ctx, pool, pgstore.Schema(schema)))
		assert.Equal(t, 2, count(t, pool, "SELECT version FROM "+schema+".store"))
	}
	assert.Equal(t, driver.InProgress, begin(t, store, rival(running)).State)
	assert.Equal(t, "kept", string(begin(t, store, rival(done)).Outcome))
	assert.Equal(t, 1, begin(t, store, other(freed)).Attempt-1)
	require.NoError(t, store.Extend(ctx, running))
	execute(t, pool, "UPDATE "+schema+".record SET lease_end = 1 WHERE state = 'STARTED'")
	for _, c := range []driver.Claim{running, failed} {
		for attempt := 2; attempt < 4; attempt++ {
			next := rival(c)
			claim(t, store, &next)
			assert.Equal(t, attempt, next.Attempt)
			assert.Equal(t, c.Fence, next.Operation, "the oldest claim that the record knows")
			if c.Key == running.Key {
				assert.Equal(t, map[string]string{"charge": "result"}, steps(t, store, next))
			}
			require.NoError(t, store.Fail(ctx, next, driver.Failure{}))
		}
	}
}

// A process of version 1 and one of version 2 are at work on one schema during a deploy.
func TestProcessesOfBothVersionsKeepTheContractOnOneSchema(t *testing.T) {
	pool := newPool(t, pgserver.Shared(t))
	old, schema := versionOne(t, pool)
	require.NoError(t, pgstore.Migrate(ctx, pool, pgstore.Schema(schema)))
	store := pgstore.New(pool, pgstore.Schema(schema))
	keepsTheContract(t, turns{&atomic.Int64{}, store, old})

	late := storetest.NewClaim(time.Minute, time.Hour)
	require.NoError(t, withdraws(t, store, late))
	comesTooLate(t, old, late, "withdrawn by the one, begun by the other")
	next := other(late)
	claim(t, old, &next)
	comesTooLate(t, store, late, "also under a claim of the other")
	assert.Equal(t, 1, next.Attempt)
	assert.Equal(t, next.Fence, begin(t, store, next).Operation)
	assert.ErrorIs(t, withdraws(t, old, rival(next)), driver.ErrLost)
	assert.ErrorIs(t, withdraws(t, old, storetest.NewClaim(time.Minute, time.Hour)), driver.ErrLost, "as it always was")
}

// turns sends each call through one store or the other.
type turns struct {
	n          *atomic.Int64
	store, old driver.Store
}

func (s turns) next() driver.Store {
	if s.n.Add(1)%2 == 0 {
		return s.old
	}
	return s.store
}

// Begin goes through the new store where an answer or a rule is asked for that the old one does not know.
func (s turns) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	return s.store.Begin(ctx, c)
}
func (s turns) Extend(ctx context.Context, c driver.Claim) error {
	return s.send(func(store driver.Store) error { return store.Extend(ctx, c) })
}
func (s turns) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	return s.send(func(store driver.Store) error { return store.Complete(ctx, c, outcome) })
}

// send asks the new store as well if a claim is lost, since the old one does not say whether the record is gone.
func (s turns) send(call func(driver.Store) error) error {
	err := call(s.next())
	if err == driver.ErrLost {
		err = call(s.store)
	}
	return err
}
func (s turns) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	return s.store.Fail(ctx, c, f)
}

// TestMigrateRunsUnderTheTrafficOfVersionOne: no request is run twice, none is refused, and none waits for long.
func TestMigrateRunsUnderTheTrafficOfVersionOne(t *testing.T) {
	pool := newPool(t, pgserver.Shared(t))
	old, schema := versionOne(t, pool)
	var migrated atomic.Bool
	var requests, afterwards atomic.Int64
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for last := false; !last; requests.Add(1) {
				last = migrated.Load() && afterwards.Add(1) > 200
				traffic(t, old, pgstore.New(pool, pgstore.Schema(schema)), migrated.Load())
			}
		})
	}
	require.Eventually(t, func() bool { return requests.Load() > 200 }, time.Minute, time.Millisecond)
	reading, err := pool.Begin(ctx) // a backup, say
	require.NoError(t, err)
	_, err = reading.Exec(ctx, "SELECT FROM "+schema+".record LIMIT 1")
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- pgstore.Migrate(ctx, pool, pgstore.Schema(schema)) }()
	seen := requests.Load()
	require.Eventually(t, func() bool { return requests.Load() > seen+500 }, time.Minute, time.Millisecond, "traffic goes on while Migrate waits")
	rollBack(reading)
	require.NoError(t, <-done)
	migrated.Store(true)
	clients.Wait()
}

// traffic is one key: of several requests that old processes get, and new ones once there are some, one runs.
func traffic(t *testing.T, old, now driver.Store, migrated bool) {
	base, runs, kept := storetest.NewClaim(time.Minute, time.Hour), atomic.Int64{}, fmt.Sprint(time.Now().UnixNano())
	var rivals sync.WaitGroup
	for i := range 3 {
		store := old
		if migrated && i == 0 {
			store = now
		}
		rivals.Go(func() {
			c := rival(base)
			began := time.Now()
			entry, err := store.Begin(ctx, c)
			assert.Less(t, time.Since(began), 5*time.Second)
			if !assert.NoError(t, err) || entry.State == driver.InProgress {
				return
			}
			if entry.State == driver.Completed {
				assert.Equal(t, kept, string(entry.Outcome))
				return
			}
			runs.Add(1)
			c.Fence = entry.Fence
			assert.NoError(t, store.Extend(ctx, c))
			assert.NoError(t, store.Complete(ctx, c, []byte(kept)))
		})
	}
	rivals.Wait()
	assert.EqualValues(t, 1, runs.Load())
}

func TestMigrateWaitsForALockUntilItsContextEnds(t *testing.T) {
	pool := newPool(t, pgserver.Shared(t))
	_, schema := versionOne(t, pool)
	reading, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer rollBack(reading)
	_, err = reading.Exec(ctx, "SELECT FROM "+schema+".record LIMIT 1")
	require.NoError(t, err)
	short, cancel := context.WithTimeout(ctx, 700*time.Millisecond)
	defer cancel()
	began := time.Now()
	assert.Error(t, pgstore.Migrate(short, pool, pgstore.Schema(schema)))
	assert.Less(t, time.Since(began), 5*time.Second)
	assert.Equal(t, 1, count(t, pool, "SELECT version FROM "+schema+".store"))
}

func TestMigrateRefusesWhatIsNotItsOwn(t *testing.T) {
	pool := newPool(t, pgserver.Shared(t))
	for _, test := range []struct{ name, prepare, says string }{
		{"a table store of somebody else's", "CREATE TABLE %[1]s.store (city text)", "pgstore.Schema"},
		{"one that has a version, too", "CREATE TABLE %[1]s.store (version int, city text)", "pgstore.Schema"},
		{"one of its columns alone", "CREATE TABLE %[1]s.store (version int, fence bigint)", "pgstore.Schema"},
		{"a table record of somebody else's", "CREATE TABLE %[1]s.record (artist text)", "pgstore.Schema"},
		{"a view checkpoint", "CREATE VIEW %[1]s.checkpoint AS SELECT 1 AS one", "pgstore.Schema"},
		{"a later version", "UPDATE %[1]s.store SET version = 99", "has version 99, and this package knows 1 and 2: deploy"},
		{"no version", "UPDATE %[1]s.store SET version = 0", "has version 0"},
		{"an empty table store", "DELETE FROM %[1]s.store", "has no version"},
	} {
		for _, made := range []string{"", schemaOne, currentSchema(t)} {
			if strings.Contains(test.prepare, "CREATE") != (made == "") {
				continue
			}
			schema := ownSchema()
			byHand(t, pool, made, schema)
			execute(t, pool, fmt.Sprintf(test.prepare, schema))
			before := shape(t, pool, schema)
			assert.ErrorContains(t, pgstore.Migrate(ctx, pool, pgstore.Schema(schema)), test.says, test.name)
			assert.Equal(t, before, shape(t, pool, schema), test.name)
		}
	}
}

// shape is what a schema holds, in text.
func shape(t *testing.T, pool *pgxpool.Pool, schema string) (text string) {
	t.Helper()
	require.NoError(t, pool.QueryRow(ctx, `SELECT
		(SELECT coalesce(string_agg(c.relname || '.' || a.attname, ' ' ORDER BY c.relname, a.attname), '') FROM pg_class c
			JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace = $1::regnamespace AND a.attnum > 0) || ' | ' ||
		(SELECT coalesce(string_agg(p.oid::regprocedure || ' ' || md5(p.prosrc), ' ' ORDER BY p.proname, p.pronargs), '') FROM pg_proc p
			WHERE p.pronamespace = $1::regnamespace)`, schema).Scan(&text))
	return text
}

func currentSchema(t *testing.T) string {
	t.Helper()
	file, err := os.ReadFile("schema.sql")
	require.NoError(t, err)
	return string(file)
}

// Whoever makes a schema, and whatever it was, it is the same.
func TestASchemaIsTheSameWhicheverWayItWasMade(t *testing.T) {
	pool := newPool(t, pgserver.Shared(t))
	var shapes []string
	for _, way := range [][]string{
		{"migrate"}, {"by hand"}, {"one by hand", "migrate"}, {"one by hand", "by hand"}, {"by hand", "by hand", "migrate"}, {"migrate", "by hand"},
	} {
		schema := ownSchema()
		for _, step := range way {
			switch step {
			case "migrate":
				require.NoError(t, pgstore.Migrate(ctx, pool, pgstore.Schema(schema)))
			case "by hand":
				byHand(t, pool, currentSchema(t), schema)
			case "one by hand":
				byHand(t, pool, schemaOne, schema)
			}
		}
		normal := strings.NewReplacer(schema, "schema", `"`+schema+`"`, "schema")
		var bodies string
		require.NoError(t, pool.QueryRow(ctx, `SELECT string_agg(proname || pronargs || prosrc, ' ' ORDER BY proname, pronargs)
			FROM pg_proc WHERE pronamespace = $1::regnamespace`, schema).Scan(&bodies))
		tables, _, _ := strings.Cut(shape(t, pool, schema), "|")
		shapes = append(shapes, normal.Replace(tables+strings.ReplaceAll(bodies, `"`+schema+`"`, schema)))
		assert.Equal(t, shapes[0], shapes[len(shapes)-1], strings.Join(way, ", then "))
	}
}

// A setting that somebody has made is not changed by the next upgrade.
func TestAutovacuumDoesNotWaitForAFifthOfTheRows(t *testing.T) {
	pool := newPool(t, pgserver.Shared(t))
	schema := ownSchema()
	factor := func() (option string) {
		require.NoError(t, pool.QueryRow(ctx, "SELECT array_to_string(reloptions, ' ') FROM pg_class WHERE oid = ($1 || '.record')::regclass",
			schema).Scan(&option))
		return option
	}
	byHand(t, pool, schemaOne, schema)
	require.NoError(t, pgstore.Migrate(ctx, pool, pgstore.Schema(schema)))
	assert.Equal(t, "autovacuum_vacuum_scale_factor=0.02", factor())
	execute(t, pool, "ALTER TABLE "+schema+".record SET (autovacuum_vacuum_scale_factor = 0.1)")
	byHand(t, pool, currentSchema(t), schema)
	assert.Equal(t, "autovacuum_vacuum_scale_factor=0.1", factor())
}

// A schema that was made by hand notifies the channel that Watch listens on, whatever its name.
func TestASchemaMadeByHandWakesWaiters(t *testing.T) {
	pool := newPool(t, pgserver.Shared(t))
	for _, files := range [][]string{{currentSchema(t)}, {schemaOne, currentSchema(t)}} {
		for _, verb := range []string{"complete", "fail"} {
			schema := ownSchema()
			for _, file := range files {
				byHand(t, pool, file, schema)
			}
			store, woken := pgstore.New(pool, pgstore.Schema(schema)), newWakes()
			c := claimed(t, store)
			watch(t, store, c.Key, woken)
			await(t, store, c)
			if verb == "complete" {
				require.NoError(t, store.Complete(ctx, c, nil))
			} else {
				require.NoError(t, store.Fail(ctx, c, driver.Failure{}))
			}
			woken.wait(t)
		}
	}
}

// A process of version 1 listens on the channel that Migrate made for it then.
func TestAProcessOfVersionOneIsWokenByTheOther(t *testing.T) {
	pool := newPool(t, pgserver.Shared(t))
	_, schema := versionOne(t, pool)
	require.NoError(t, pgstore.Migrate(ctx, pool, pgstore.Schema(schema)))
	conn, err := pool.Acquire(ctx)
	require.NoError(t, err)
	defer func() { _ = conn.Hijack().Close(ctx) }()
	_, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{`"` + schema + `".wake`}.Sanitize())
	require.NoError(t, err)
	store := pgstore.New(pool, pgstore.Schema(schema))
	c := claimed(t, store)
	await(t, store, c)
	require.NoError(t, store.Complete(ctx, c, nil))
	long, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err = conn.Conn().WaitForNotification(long)
	assert.NoError(t, err)
}
