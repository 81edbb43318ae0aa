package plan

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
)

// TestThePlanIsWhatARealRedisTakes fills servers with records and compares what they take with the plan, its hash tables
// included. SOAK=1 makes eighty times as many.
func TestThePlanIsWhatARealRedisTakes(t *testing.T) {
	n := 2_500
	if os.Getenv("SOAK") != "" {
		n = 200_000
	}
	for _, c := range []struct {
		name string
		keys int
		plan func(Quantum) parts
		fill filler
	}{
		{"claims that run", n, Quantum.claim, claims},
		{"outcomes with a body of 512 bytes", n, completed(512), outcomes(t, 512)},
		{"outcomes with a body of 4 KiB", n / 4, completed(4 << 10), outcomes(t, 4<<10)},
		{"outcomes with a body of 64 KiB", n / 64, completed(64 << 10), outcomes(t, 64<<10)},
		{"locks of the textbook", n, func(q Quantum) parts { return q.key(textbookKey, textbookOwner) }, strs(textbookOwner)},
		{"results of the textbook", n, func(q Quantum) parts { return q.key(textbookKey, 512+textbookStatus) }, strs(512 + textbookStatus)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := server.Client(t)
			mustBePlannedFor(t, client)
			q := quantumOf(t, client)
			require.NoError(t, client.Close())
			took := usedBy(t, server, func(client *redis.Client) { fill(t, client, c.keys, c.fill) })
			require.EqualValues(t, c.keys, server.Client(t).DBSize(t.Context()).Val())
			planned := c.keys*c.plan(q).sum() + tables(c.keys)
			t.Logf("%d keys take %d bytes; planned %d, %+.2f %%", c.keys, took, planned, 100*(float64(planned)/float64(took)-1))
			assert.InEpsilon(t, took, planned, 0.01)
		})
	}
}

// filler returns a function that makes the key with a number.
type filler func(client *redis.Client) func(ctx context.Context, i int) error

func claims(client *redis.Client) func(context.Context, int) error {
	store := redisstore.New(client)
	return func(ctx context.Context, _ int) error {
		_, err := store.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
		return err
	}
}

func outcomes(t *testing.T, body int) filler {
	outcome := made(t, body)
	return func(client *redis.Client) func(context.Context, int) error {
		store := redisstore.New(client)
		return func(ctx context.Context, _ int) error { return complete(ctx, store, outcome) }
	}
}

// complete makes a record with an outcome.
func complete(ctx context.Context, store *redisstore.Store, outcome []byte) error {
	c := storetest.NewClaim(time.Minute, time.Hour)
	entry, err := store.Begin(ctx, c)
	if err != nil {
		return err
	}
	c.Fence, c.Attempt = entry.Fence, entry.Attempt
	return store.Complete(ctx, c, outcome)
}

func strs(length int) filler {
	value := strings.Repeat("x", length)
	return func(client *redis.Client) func(context.Context, int) error {
		return func(ctx context.Context, i int) error {
			return client.Set(ctx, fmt.Sprintf("%0*d", textbookKey, i), value, time.Hour).Err()
		}
	}
}

// fill makes n keys by four clients at once, and returns when the tables are as large as they will be.
func fill(t *testing.T, client *redis.Client, n int, keys filler) {
	one := keys(client)
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for i := w; i < n; i += 4 {
				if !assert.NoError(t, one(t.Context(), i)) {
					return
				}
			}
		})
	}
	workers.Wait()
	finishTables(t, client, n)
}

// finishTables ends the growing of both tables: the ones before are there until all their buckets have moved, and each look
// moves one.
func finishTables(t *testing.T, client *redis.Client, keys int) {
	for range buckets(keys)/1000 + 1 {
		_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range 1000 {
				p.RandomKey(t.Context()) // it looks at the key's expiry, too
			}
			return nil
		})
		require.NoError(t, err)
	}
}

// usedBy is what f's client leaves behind in the server's memory: before and after, a watcher alone is connected. It is
// new each time, because the server shrinks the buffers of a client that has been idle for seconds. The scripts, and the server's statistics of each command, are there before.
func usedBy(t *testing.T, server *redistest.Server, f func(*redis.Client)) int {
	used := func(during func(*redis.Client)) int {
		client := server.Client(t)
		during(client)
		require.NoError(t, client.Close())
		watcher := server.Client(t, func(o *redis.Options) { o.PoolSize = 1 })
		defer func() { assert.NoError(t, watcher.Close()) }()
		redistest.Eventually(t, "the clients are gone", func() bool { return number(t, watcher, "connected_clients") == 1 })
		return number(t, watcher, "used_memory")
	}
	before := used(func(client *redis.Client) {
		require.NoError(t, outcomes(t, 1)(client)(t.Context(), 0))
		require.NoError(t, strs(1)(client)(t.Context(), 0))
		require.NoError(t, client.RandomKey(t.Context()).Err())
		require.NoError(t, client.FlushAll(t.Context()).Err())
	})
	return used(f) - before
}

func number(t *testing.T, client *redis.Client, field string) int {
	n, err := strconv.Atoi(info(t, client, field))
	require.NoError(t, err, field)
	return n
}

// info returns a field of INFO; "" when it is not there.
func info(t *testing.T, client *redis.Client, field string) string {
	for line := range strings.Lines(client.Info(t.Context()).Val()) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// mustBePlannedFor skips servers that lay keys out another way: Redis 8 and Valkey 8 put names beside values or entries.
func mustBePlannedFor(t *testing.T, client *redis.Client) {
	version := cmp.Or(info(t, client, "valkey_version"), info(t, client, "redis_version"))
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	require.NoError(t, err, version)
	if n >= 8 {
		t.Skipf("THE PLAN IS FOR REDIS 5.0 TO 7, and this server is %s: set REDIS_SERVER to another", version)
	}
}

// quantumOf tells how the server's jemalloc was built. A name of 50 bytes is 54 with what is around it.
func quantumOf(t *testing.T, client *redis.Client) Quantum {
	name := strings.Repeat("k", nameLength)
	require.NoError(t, client.Set(t.Context(), name, strings.Repeat("x", claimLength), 0).Err())
	usage := client.MemoryUsage(t.Context(), name).Val()
	require.NoError(t, client.Del(t.Context(), name).Err())
	for _, q := range []Quantum{8, 16} {
		if claim := q.claim(); usage == int64(entryLength+claim[2].bytes+claim[3].bytes+claim[4].bytes) {
			return q
		}
	}
	require.Failf(t, "the plan is wrong, or this server has no jemalloc", "a claim takes %d bytes in MEMORY USAGE", usage)
	return 0
}

var header = []core.Field{
	{Name: "Content-Type", Value: "application/json"}, {Name: "Location", Value: "/payments/pay_1"}, {Name: "Etag", Value: `"1"`},
	{Name: "Vary", Value: "Accept"}, {Name: "Cache-Control", Value: "no-store"}, {Name: "X-Api-Version", Value: "2026-01-01"},
}

func completed(body int) func(Quantum) parts {
	l := Load{Body: body, Headers: 51, Ratio: 1}
	return func(q Quantum) parts { return q.completed(l.outcome()) }
}

// made is the outcome that the engine keeps of an answer with the six header lines.
func made(t *testing.T, body int) []byte {
	kept := &keeper{Store: memstore.New()}
	engine, err := core.New(core.Config{Store: kept, Scope: core.SingleTenant})
	require.NoError(t, err)
	_, err = engine.Do(t.Context(), core.Request{
		Method: "POST", Path: "/",
		Header: func(string) []string { return []string{"key"} },
		Body:   func(int64) ([]byte, error) { return nil, nil },
	}, func(context.Context) (*core.Response, error) {
		return &core.Response{Status: 201, Header: header, Body: make([]byte, body)}, nil
	})
	require.NoError(t, err)
	require.NoError(t, engine.Close(t.Context()))
	return kept.outcome
}

// keeper is a store that remembers the last outcome.
type keeper struct {
	driver.Store
	outcome []byte
}

func (k *keeper) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	k.outcome = outcome
	return k.Store.Complete(ctx, c, outcome)
}

func TestAnOutcomeIsAsLongAsTheEngineMakesIt(t *testing.T) {
	for _, body := range []int{0, 512, 64 << 10} {
		assert.Len(t, made(t, body), Load{Body: body, Headers: 51, Ratio: 1}.outcome())
	}
}

func TestSizesOfMemory(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want int
	}{
		{"24 bytes are 32 in steps of 16", Quantum(16).alloc(24), 32},
		{"24 bytes are 24 in steps of 8", Quantum(8).alloc(24), 24},
		{"a name is 64 in steps of 16", Quantum(16).alloc(54), 64},
		{"a name is 56 in steps of 8", Quantum(8).alloc(54), 56},
		{"above 128 the quantum does not matter", Quantum(8).alloc(129), 160},
		{"a size is enough for itself", Quantum(16).alloc(768), 768},
		{"one more is the next size", Quantum(16).alloc(769), 896},
		{"64 KiB and a little are 80 KiB", Quantum(16).alloc(64<<10 + 1), 80 << 10},
		{"strings to 255 bytes have 4 around them", text(255), 259},
		{"strings from 256 bytes have 6 around them", text(256), 262},
		{"strings from 64 KiB have 10 around them", text(64 << 10), 64<<10 + 10},
		{"a table has a bucket for each key", buckets(32768), 32768},
		{"a table doubles", buckets(32769), 65536},
		{"no table is smaller than 4", buckets(1), 4},
		{"a second has its rate", keys(2.5, time.Second), 3},
	} {
		assert.Equal(t, c.want, c.got, c.name)
	}
}
