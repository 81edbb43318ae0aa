package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/internal/pgserver"
)

var (
	sweepRows = flag.Int("sweep-rows", 300_000, "live rows of BenchmarkSweep, whose retention is that number of keys at --sweep-rate")
	sweepRate = flag.Int("sweep-rate", 500, "new keys a second of BenchmarkSweep")
	sweepNap  = flag.Duration("sweep-naptime", time.Minute, "how often autovacuum of BenchmarkSweep looks, at least 1s: a day's minute is 40 ms of a retention of a minute")
	sweepFor  = flag.Duration("sweep-for", 30*time.Second, "how long BenchmarkSweep lets keys come and go")
)

// A cleaner is a table of records, and a way to remove those that have expired.
type cleaner struct {
	name     string
	prepare  []string // after Migrate
	fill     string   // adds so many rows ($1), the next of which expires after so many µs ($2)
	pair     func(context.Context, *pgxpool.Pool, *pgstore.Store) (begin time.Duration, err error)
	clean    func(context.Context, *pgxpool.Pool, *pgstore.Store) error
	cleaning time.Duration // pause between two cleanings; 0: once for each partition
	tables   string        // matches their names
}

// partitions is how many partitions hold the records of one retention.
const partitions = 24

var cleaners = []cleaner{
	{
		name: "DELETE", fill: fillRecords, pair: pairOfStore, clean: sweepAll, cleaning: time.Second, tables: "record%",
	},
	{
		name: "DELETE, autovacuum as PostgreSQL has it", fill: fillRecords, pair: pairOfStore, clean: sweepAll, cleaning: time.Second,
		tables: "record%", prepare: []string{"ALTER TABLE idem.record RESET (autovacuum_vacuum_scale_factor)"},
	},
	{
		name: "partitions", fill: fillPartitions, pair: pairOfPartitions, clean: dropOldest, tables: "part%",
		prepare: []string{partitioned},
	},
}

const fillRecords = `INSERT INTO idem.record
	SELECT sha256(i::text::bytea), 'COMPLETED', 0, 1, i, 0, idem.now() + i * $2, false, '\x00'::bytea, sha256(i::text::bytea), NULL,
		decode(repeat('78', 573), 'hex'), i, NULL
	FROM generate_series(1, $1::bigint) i`

// partitioned is the least that keeps one record for a key in partitions by time: an advisory lock for the key, since no unique index
// covers two partitions, and a look into each.
const partitioned = `
CREATE TABLE idem.part (LIKE idem.record, part integer NOT NULL, PRIMARY KEY (key, part)) PARTITION BY LIST (part);
CREATE TABLE idem.part_now (part integer NOT NULL);
INSERT INTO idem.part_now VALUES (24);
DO $$ BEGIN
	FOR i IN 0..400 LOOP
		EXECUTE format('CREATE TABLE idem.part_%s PARTITION OF idem.part FOR VALUES IN (%s)', i, i);
		EXIT WHEN i = 24;
	END LOOP;
END $$;
CREATE FUNCTION idem.part_begin(record_key bytea, claim_owner bytea, claim_fingerprint bytea, lease bigint, retention bigint,
	OUT word text, OUT claim_fence bigint, OUT claim_part integer) LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
	r       idem.part;
	present bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended(encode(record_key, 'hex'), 0));
	SELECT * INTO r FROM idem.part WHERE key = record_key AND expires > idem.now();
	present := idem.now();
	IF r.key IS NOT NULL THEN
		word := lower(r.state);
		RETURN;
	END IF;
	word := 'claimed';
	claim_fence := present;
	SELECT n.part INTO claim_part FROM idem.part_now n;
	INSERT INTO idem.part VALUES (record_key, 'STARTED', 0, 1, claim_fence, present + lease, present + retention, false,
		claim_owner, claim_fingerprint, NULL, NULL, claim_fence, NULL, claim_part);
END $$;
CREATE FUNCTION idem.part_complete(record_key bytea, claim_owner bytea, claim_fence bigint, claim_part integer, retention bigint, kept bytea)
RETURNS text LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
BEGIN
	UPDATE idem.part SET state = 'COMPLETED', expires = idem.now() + retention, outcome = kept
		WHERE key = record_key AND part = claim_part AND owner = claim_owner AND fence = claim_fence;
	RETURN 'ok';
END $$;`

const fillPartitions = `INSERT INTO idem.part
	SELECT sha256(i::text::bytea), 'COMPLETED', 0, 1, i, 0, idem.now() + i * $2, false, '\x00'::bytea, sha256(i::text::bytea), NULL,
		decode(repeat('78', 573), 'hex'), i, NULL, (i - 1) * 24 / $1::bigint
	FROM generate_series(1, $1::bigint) i`

// outcomeOfSweep is as long as an outcome with a body of 512 bytes.
var outcomeOfSweep = slices.Repeat([]byte("x"), 573)

// retentionOfSweep is the time in which as many keys come as there are rows.
func retentionOfSweep() time.Duration { return time.Duration(*sweepRows / *sweepRate) * time.Second }

func pairOfStore(ctx context.Context, _ *pgxpool.Pool, store *pgstore.Store) (time.Duration, error) {
	c := driver.Claim{Lease: time.Minute, Retention: retentionOfSweep()}
	rand.Read(c.Key[:])
	rand.Read(c.Owner[:])
	start := time.Now()
	entry, err := store.Begin(ctx, c)
	took := time.Since(start)
	if err != nil || entry.State != driver.Claimed {
		return took, fmt.Errorf("begin returned %q: %w", entry.State, err)
	}
	c.Fence, c.Attempt = entry.Fence, entry.Attempt
	return took, store.Complete(ctx, c, outcomeOfSweep)
}

func pairOfPartitions(ctx context.Context, pool *pgxpool.Pool, _ *pgstore.Store) (time.Duration, error) {
	var key, fingerprint [32]byte
	var owner [16]byte
	rand.Read(key[:])
	rand.Read(owner[:])
	retention := retentionOfSweep().Microseconds()
	var word, status string
	var fence int64
	var part int
	start := time.Now()
	err := pool.QueryRow(ctx, "SELECT * FROM idem.part_begin($1, $2, $3, $4, $5)", key[:], owner[:], fingerprint[:], time.Minute.Microseconds(), retention).
		Scan(&word, &fence, &part)
	took := time.Since(start)
	if err != nil || word != "claimed" {
		return took, fmt.Errorf("begin returned %q: %w", word, err)
	}
	return took, pool.QueryRow(ctx, "SELECT idem.part_complete($1, $2, $3, $4, $5, $6)", key[:], owner[:], fence, part, retention, outcomeOfSweep).Scan(&status)
}

func sweepAll(ctx context.Context, _ *pgxpool.Pool, store *pgstore.Store) error {
	for {
		if n, err := store.Sweep(ctx, 1000); err != nil || n < 1000 {
			return err
		}
	}
}

// dropOldest drops the partition that has expired, and opens the next one.
func dropOldest(ctx context.Context, pool *pgxpool.Pool, _ *pgstore.Store) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var now int
		if err := tx.QueryRow(ctx, "UPDATE idem.part_now SET part = part + 1 RETURNING part").Scan(&now); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, fmt.Sprintf("DROP TABLE idem.part_%d; CREATE TABLE idem.part_%d PARTITION OF idem.part FOR VALUES IN (%[2]d)",
			now-partitions-1, now))
		return err
	})
}

// BenchmarkSweep measures what it costs to remove expired rows from a large table of pgstore while keys come at a rate, for
// docs/stores.md: by DELETE, and by partitions that are dropped. The retention is as short as that many rows and that rate make it.
//
//	go -C bench test -run '^$' -bench Sweep -benchtime 1x -timeout 30m . -sweep-rows 1000000 -sweep-for 90s
func BenchmarkSweep(b *testing.B) {
	for _, c := range cleaners {
		b.Run(c.name, func(b *testing.B) { c.measure(b) })
	}
}

// measure lets keys come and go for a while and reports what that took.
func (c *cleaner) measure(b *testing.B) {
	ctx := b.Context()
	server := pgserver.Start(b, "fsync=on", "full_page_writes=on", "shared_buffers=512MB", "max_wal_size=4GB",
		fmt.Sprintf("autovacuum_naptime=%dms", sweepNap.Milliseconds()))
	pool, err := pgxpool.New(ctx, server.URL+"&pool_max_conns=32")
	require.NoError(b, err)
	defer pool.Close()
	require.NoError(b, pgstore.Migrate(ctx, pool))
	for _, sql := range c.prepare {
		_, err := pool.Exec(ctx, sql)
		require.NoError(b, err)
	}
	_, err = pool.Exec(ctx, c.fill, *sweepRows, time.Second.Microseconds()/int64(*sweepRate))
	require.NoError(b, err)
	_, err = pool.Exec(ctx, "VACUUM ANALYZE")
	require.NoError(b, err)
	_, err = pool.Exec(ctx, "CHECKPOINT")
	require.NoError(b, err)
	store := pgstore.New(pool)
	bytesBefore, wal := c.bytes(b, pool), walBytes(b, pool)
	cleaned, stop := c.cleanFor(b, pool, store)
	begins := c.load(b, pool, store)
	stop()
	slices.Sort(begins)
	b.ReportMetric(begins[len(begins)/2].Seconds()*1e3, "p50-begin-ms")
	b.ReportMetric(begins[len(begins)*99/100].Seconds()*1e3, "p99-begin-ms")
	b.ReportMetric(begins[len(begins)-1].Seconds()*1e3, "max-begin-ms")
	b.ReportMetric(float64(len(begins))/sweepFor.Seconds(), "pairs/s")
	b.ReportMetric(float64(walBytes(b, pool)-wal)/float64(len(begins)), "WAL-bytes/pair")
	b.ReportMetric(100*cleaned().Seconds()/sweepFor.Seconds(), "%cleaning")
	b.ReportMetric(float64(c.bytes(b, pool))/float64(bytesBefore), "size-after/before")
	b.ReportMetric(float64(bytesBefore)/float64(*sweepRows), "bytes/row")
}

// load makes keys come at the rate, and returns how long each Begin took.
func (c *cleaner) load(b *testing.B, pool *pgxpool.Pool, store *pgstore.Store) (begins []time.Duration) {
	const callers = 16
	var mu sync.Mutex
	var done sync.WaitGroup
	end := time.Now().Add(*sweepFor)
	for range callers {
		done.Go(func() {
			tick := time.NewTicker(callers * time.Second / time.Duration(*sweepRate))
			defer tick.Stop()
			for time.Now().Before(end) {
				<-tick.C
				took, err := c.pair(b.Context(), pool, store)
				if err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				begins = append(begins, took)
				mu.Unlock()
			}
		})
	}
	done.Wait()
	return begins
}

// cleanFor cleans until stop is called. cleaned returns how long that took in all.
func (c *cleaner) cleanFor(b *testing.B, pool *pgxpool.Pool, store *pgstore.Store) (cleaned func() time.Duration, stop func()) {
	pause := c.cleaning
	if pause == 0 {
		pause = retentionOfSweep() / partitions
	}
	ended, over := make(chan struct{}), make(chan struct{})
	var sum time.Duration
	go func() {
		defer close(over)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			start := time.Now()
			if err := c.clean(b.Context(), pool, store); err != nil {
				b.Error(err)
			}
			sum += time.Since(start)
		}
	}()
	return func() time.Duration { return sum }, func() { close(ended); <-over }
}

// bytes returns the size of the tables with their indexes.
func (c *cleaner) bytes(b *testing.B, pool *pgxpool.Pool) (n int64) {
	require.NoError(b, pool.QueryRow(b.Context(), `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'idem' AND c.relkind = 'r' AND c.relname LIKE $1`, c.tables).Scan(&n))
	return n
}

// walBytes returns how many bytes the server has written to its log.
func walBytes(b *testing.B, pool *pgxpool.Pool) int64 {
	var text string
	require.NoError(b, pool.QueryRow(b.Context(), "SELECT (pg_current_wal_lsn() - '0/0')::bigint::text").Scan(&text))
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(b, err)
	return n
}
