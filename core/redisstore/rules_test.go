package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// The rules that the scripts carry, each on a real server. What the contract of storetest covers for any store is looked
// at here in the bytes that Redis holds.

// lossy dials connections that lose replies: after lose(n), the next n replies reach this process and go no further, and
// their connections break. The server has executed what they answer. After loseRequest the next request gets lost instead.
type lossy struct {
	left, lost atomic.Int64
	request    atomic.Bool
}

func (l *lossy) loseRequest() { l.request.Store(true) }

func (l *lossy) lose(n int64) { l.left.Store(n); l.lost.Store(0) }

func (l *lossy) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return &lossyConn{conn, l}, err
}

type lossyConn struct {
	net.Conn
	*lossy
}

func (c *lossyConn) Write(p []byte) (int, error) {
	if c.request.CompareAndSwap(true, false) {
		_ = c.Close()
		return 0, io.EOF
	}
	return c.Conn.Write(p)
}

func (c *lossyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.left.Add(-1) >= 0 {
		c.lost.Add(1)
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// losingClient returns a client of the same server that loses replies, and sends a command again so often. It has one connection.
func losingClient(t *testing.T, client *redis.Client, retries int) (*redis.Client, *lossy) {
	network, options := &lossy{}, *client.Options()
	options.Dialer, options.PoolSize, options.PipelinePoolSize, options.MaxRetries = network.dial, 1, -1, retries
	losing := redis.NewClient(&options)
	t.Cleanup(func() { _ = losing.Close() })
	return losing, network
}

// executions returns how often the server has executed a command.
func executions(t *testing.T, client *redis.Client, command string) int {
	t.Helper()
	stats, err := client.Info(ctx, "commandstats").Result()
	require.NoError(t, err)
	match := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+)`).FindStringSubmatch(stats)
	if match == nil {
		return 0
	}
	n, err := strconv.Atoi(match[1])
	require.NoError(t, err)
	return n
}

func TestRule1ACallWhoseReplyWasLostGetsTheSameReplyTheSecondTime(t *testing.T) {
	server := redistest.Start(t)
	observer := server.Client(t)
	network := &lossy{}
	store := redisstore.New(server.Client(t, func(o *redis.Options) { o.Dialer, o.PoolSize = network.dial, 1 }), redisstore.Scripts())
	warm := claimed(t, store, time.Minute)
	require.NoError(t, store.Extend(ctx, warm))
	require.NoError(t, store.Complete(ctx, warm, nil))
	require.NoError(t, store.Fail(ctx, claimed(t, store, time.Minute), driver.Failure{}))

	twice := func(name string, verb func() error) {
		before := executions(t, observer, "evalsha")
		network.lose(1)
		require.NoError(t, verb(), name)
		require.EqualValues(t, 1, network.lost.Load(), "%s: no reply was lost", name)
		require.Equal(t, before+2, executions(t, observer, "evalsha"), "%s was not executed twice", name)
	}
	c := storetest.NewClaim(time.Minute, time.Hour)
	var entry driver.Entry
	twice("begin", func() (err error) { entry, err = store.Begin(ctx, c); return err })
	require.Equal(t, driver.Claimed, entry.State, "a claim must recognise itself")
	c.Fence, c.Attempt = entry.Fence, entry.Attempt
	again, err := store.Begin(ctx, c)
	require.NoError(t, err)
	require.Equal(t, entry.Fence, again.Fence)
	twice("extend", func() error { return store.Extend(ctx, c) })
	twice("complete", func() error { return store.Complete(ctx, c, []byte("kept")) })
	failing := claimed(t, store, time.Minute)
	twice("fail", func() error { return store.Fail(ctx, failing, driver.Failure{}) })
}

func TestRule2ACallOfAnotherOwnerOrFenceLeavesTheBytesAlone(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store, prefix := prefixed(t, client)
	c := claimed(t, store, time.Minute)
	key := onlyKey(t, client, prefix)
	for _, state := range []string{"STARTED", "COMPLETED"} {
		before := client.Get(ctx, key).Val()
		stranger, stale := c, c
		stranger.Owner[0] ^= 1
		stale.Fence--
		for _, other := range []driver.Claim{stranger, stale} {
			assert.ErrorIs(t, store.Extend(ctx, other), driver.ErrLost)
			assert.ErrorIs(t, store.Complete(ctx, other, []byte("late")), driver.ErrLost)
			assert.ErrorIs(t, store.Fail(ctx, other, driver.Failure{NoEffects: true}), driver.ErrLost)
			assert.Equal(t, before, client.Get(ctx, key).Val(), state)
		}
		_ = store.Complete(ctx, c, []byte("kept"))
	}
}

// An outcome lies where other records have their owner, and could look like one.
func TestRule2AnOutcomeIsNotTakenForAnOwner(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store, prefix := prefixed(t, client)
	c := claimed(t, store, time.Minute)
	key := onlyKey(t, client, prefix)
	other := storetest.NewClaim(time.Minute, time.Hour)
	other.Key, other.Fingerprint, other.WantRemaining = c.Key, c.Fingerprint, true
	outcome := "9000000000000000" + string(other.Owner[:])
	require.NoError(t, store.Complete(ctx, c, []byte(outcome)))
	before := client.Get(ctx, key).Val()
	require.Equal(t, outcome, before[58:])

	for _, fence := range []int64{0, c.Fence} {
		other.Fence = fence
		assert.ErrorIs(t, store.Extend(ctx, other), driver.ErrLost)
		assert.ErrorIs(t, store.Complete(ctx, other, []byte("late")), driver.ErrLost)
		assert.ErrorIs(t, store.Complete(ctx, other, []byte(outcome)), driver.ErrLost, "also with the outcome that is kept")
		assert.ErrorIs(t, store.Fail(ctx, other, driver.Failure{}), driver.ErrLost)
		assert.ErrorIs(t, store.Checkpoint(ctx, other, "step", nil), driver.ErrLost)
		entry, err := store.Begin(ctx, other)
		require.NoError(t, err)
		assert.Equal(t, driver.Completed, entry.State)
		assert.Equal(t, outcome, string(entry.Outcome))
		assert.Equal(t, before, client.Get(ctx, key).Val())
	}
	c.Fence++
	assert.ErrorIs(t, store.Complete(ctx, c, []byte(outcome)), driver.ErrLost, "another fence")
}

func TestRule3TheFenceNeverGoesBack(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store, prefix := prefixed(t, client)
	c := storetest.NewClaim(time.Minute, time.Hour)
	last := client.Time(ctx).Val().UnixMicro() - 1
	next := func(why string) {
		t.Helper()
		run := storetest.NewClaim(time.Minute, time.Hour)
		c.Owner, c.Fence = run.Owner, 0
		entry, err := store.Begin(ctx, c)
		require.NoError(t, err)
		require.Equal(t, driver.Claimed, entry.State, why)
		require.Greater(t, entry.Fence, last, why)
		last = entry.Fence
		c.Fence = entry.Fence
	}
	next("first: not below the server's clock")
	require.NoError(t, store.Fail(ctx, c, driver.Failure{}))
	next("after fail")
	key := onlyKey(t, client, prefix)
	require.NoError(t, client.Del(ctx, key).Err())
	next("after deletion")

	ahead := last + time.Hour.Microseconds() // as a server whose clock was an hour ahead would have left it
	record := client.Get(ctx, key).Val()
	require.NoError(t, client.SetRange(ctx, key, 10, strconv.FormatInt(ahead, 10)).Err())
	c.Fence, last = ahead, ahead
	require.Len(t, record, 90)
	require.NoError(t, store.Fail(ctx, c, driver.Failure{}))
	next("after a clock that went back")
	require.Equal(t, ahead+1, last)
}

// The fence of a native claim is up to a ms ahead of the clock, and an outcome does not say what it was.
func TestRule3AReopenedRecordIsAheadOfEveryClaimBeforeIt(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store, _ := prefixed(t, client)
	c := claimed(t, store, time.Minute)
	require.NoError(t, store.Complete(ctx, c, []byte("dead")))
	now := client.Time(ctx).Val().UnixMicro()
	require.NoError(t, store.Reopen(ctx, rivalOf(c), []byte("dead")))
	seen, err := store.Look(ctx, c.Key)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, seen.Fence, now+1000)
}

func TestRule4TheServersClockCountsInMicroseconds(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store, prefix := prefixed(t, client)
	lease := 1234567 * time.Microsecond
	c := claimed(t, store, lease)
	record := client.Get(ctx, onlyKey(t, client, prefix)).Val()
	end, err := strconv.ParseInt(record[58:74], 10, 64)
	require.NoError(t, err, "the number must be plain decimal: %q", record[58:74])
	assert.Equal(t, c.Fence+lease.Microseconds(), end, "a new key's fence is the time of its claim")
	assert.InDelta(t, client.Time(ctx).Val().UnixMicro(), c.Fence, 5e6)
}

func TestRule4NoDurationIsTooLong(t *testing.T) {
	store, _ := prefixed(t, redistest.Shared(t).Client(t))
	const longest = time.Duration(math.MaxInt64)
	c := storetest.NewClaim(longest, longest)
	c.LateRetry, c.WantRemaining = longest, true
	entry, err := store.Begin(ctx, c)
	require.NoError(t, err)
	require.Equal(t, driver.Claimed, entry.State)
	require.Greater(t, entry.Remaining, 99*365*24*time.Hour)
	c.Fence, c.Attempt = entry.Fence, entry.Attempt
	require.NoError(t, store.Extend(ctx, c))
	rival := c
	rival.Owner[0] ^= 1
	rival.Fence = 0
	require.ErrorIs(t, store.Fail(ctx, rival, driver.Failure{}), driver.ErrLost)
	rival.Owner[0] ^= 2
	entry, err = store.Begin(ctx, rival)
	require.NoError(t, err)
	require.Equal(t, driver.InProgress, entry.State)
	require.NoError(t, store.Complete(ctx, c, []byte("kept")))
	entry, err = store.Begin(ctx, rival)
	require.NoError(t, err)
	require.Equal(t, driver.Completed, entry.State)
	require.Greater(t, entry.Remaining, longest-time.Hour)
}

func TestRule5ARecordOutlivesItsLease(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store, prefix := prefixed(t, client)
	c := claimed(t, store, 10*time.Millisecond)
	time.Sleep(15 * time.Millisecond)
	ttl := client.PTTL(ctx, onlyKey(t, client, prefix)).Val()
	assert.Greater(t, ttl, c.Retention-time.Minute)
	heir := c
	heir.Owner[0] ^= 1
	entry, err := store.Begin(ctx, heir)
	require.NoError(t, err)
	assert.Equal(t, 2, entry.Attempt)
	assert.True(t, entry.Takeover)
}

func TestRule6AMismatchChangesNothing(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store, prefix := prefixed(t, client)
	c := claimed(t, store, time.Minute)
	key := onlyKey(t, client, prefix)
	before, ttl := client.Get(ctx, key).Val(), client.PTTL(ctx, key).Val()
	other := storetest.NewClaim(time.Minute, 2*time.Hour)
	other.Key = c.Key
	entry, err := store.Begin(ctx, other)
	require.NoError(t, err)
	assert.Equal(t, driver.Mismatch, entry.State)
	assert.Equal(t, before, client.Get(ctx, key).Val())
	assert.LessOrEqual(t, client.PTTL(ctx, key).Val(), ttl)
}

func TestRule7ScriptsUseTheKeysOfOneSlotAndNothingThatSomeServerLacks(t *testing.T) {
	files, err := filepath.Glob("../../lua/*.lua")
	require.NoError(t, err)
	require.Len(t, files, 12)
	calls := regexp.MustCompile(`redis\.p?call\('(\w+)'(?:, ([^,)]+))?`)
	shared := regexp.MustCompile(`return store_or_read\(([^,)]+)`) // of results.lua, whose functions have the key as a parameter
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, absent := range []string{"#!", "cjson", "cmsgpack", "struct.", "bit.", "tostring", "loadstring"} {
			code := regexp.MustCompile(`--[^\n]*`).ReplaceAllString(string(source), "")
			assert.NotContains(t, code, absent, file)
		}
		for _, call := range calls.FindAllStringSubmatch(string(source), -1) {
			if call[1] != "TIME" && (call[2] != "key" || filepath.Base(file) != "results.lua") {
				assert.Regexp(t, `^KEYS\[[1-3]\]$`, call[2], "%s: %s", file, call[0])
			}
		}
	}
	for _, file := range []string{"../../lua/step.lua", "../../lua/steps.lua"} {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, call := range shared.FindAllStringSubmatch(string(source), -1) {
			assert.Regexp(t, `^KEYS\[[1-2]\]$`, call[1], "%s: %s", file, call[0])
		}
	}
	client := redistest.Shared(t).Client(t)
	store, prefix := prefixed(t, client)
	c := claimed(t, store, time.Minute)
	name := onlyKey(t, client, prefix)
	assert.Regexp(t, `^`+regexp.QuoteMeta(prefix)+`\{[\w-]{11}\.[\w-]{32}\}$`, name)
	require.NoError(t, store.Checkpoint(ctx, c, "charge", []byte("done")))
	c.LateRetry = time.Hour
	require.NoError(t, store.Complete(ctx, c, []byte("kept")))
	for _, key := range client.Keys(ctx, prefix+"*").Val() {
		assert.True(t, strings.HasPrefix(key, name), "%s does not share the slot of %s", key, name)
	}
}

func TestRule8WhatIsNoRecordOfThisFormatIsRefusedAndLeftAlone(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store, prefix := prefixed(t, client)
	c := claimed(t, store, time.Minute)
	key := onlyKey(t, client, prefix)
	record := client.Get(ctx, key).Val()
	require.Len(t, record, 90)
	contents := map[string]string{
		"nothing, LSE-13":              "",
		"no operation":                 record[:3] + "1000002" + record[10:],
		"half an operation":            record + record[:8],
		"half a noted owner":           record + record[10:26] + "half of",
		"too many noted owners":        record + record[10:26] + strings.Repeat(record[74:], 17),
		"FAILED without its end":       "1401" + record[4:] + record[10:26] + "02" + record[74:],
		"FAILED with too many owners":  "1401" + record[4:] + record[10:26] + "17" + strings.Repeat(record[74:], 17),
		"FAILED without an owner":      "1400" + record[4:80],
		"FAILED without an operation":  "1400000002" + record[10:],
		"FAILED with letters as count": "1401" + record[4:] + record[10:26] + "no bank",
		"a format from the future":     "3" + record[1:],
		"an unknown state":             "13" + record[2:],
		"a short header":               record[:89],
		"letters for a number":         record[:10] + "x" + record[11:],
		"a short COMPLETED header":     "12" + record[2:57],
		"something else":               "hello",
	}
	refuse := func(name string) {
		before := client.Dump(ctx, key).Val()
		rival := c
		rival.Owner[0] ^= 1
		for _, rival.LateRetry = range []time.Duration{0, time.Hour} {
			for _, rival.WantRemaining = range []bool{false, true} {
				_, err := store.Begin(ctx, rival)
				assert.ErrorIs(t, err, driver.ErrUnreadable, name)
			}
		}
		withdrawn := rival
		withdrawn.Fence = 0
		assert.ErrorIs(t, store.Fail(ctx, withdrawn, driver.Failure{}), driver.ErrUnreadable, name)
		assert.ErrorIs(t, store.Checkpoint(ctx, c, "step", nil), driver.ErrUnreadable, name)
		_, err := store.Checkpoints(ctx, c)
		assert.ErrorIs(t, err, driver.ErrUnreadable, name)
		assert.ErrorIs(t, store.Extend(ctx, c), driver.ErrUnreadable, name)
		assert.ErrorIs(t, store.Complete(ctx, c, nil), driver.ErrUnreadable, name)
		assert.ErrorIs(t, store.Reopen(ctx, rival, nil), driver.ErrUnreadable, name)
		assert.ErrorIs(t, store.Fail(ctx, c, driver.Failure{}), driver.ErrUnreadable, name)
		assert.Equal(t, before, client.Dump(ctx, key).Val(), "%s was changed", name)
	}
	for name, content := range contents {
		require.NoError(t, client.Set(ctx, key, content, time.Hour).Err())
		refuse(name)
	}
	require.NoError(t, client.Del(ctx, key).Err())
	require.NoError(t, client.LPush(ctx, key, "a foreign type").Err())
	refuse("a list")

	require.NoError(t, client.Set(ctx, key+":late", "", time.Hour).Err())
	require.NoError(t, client.Set(ctx, key, "", time.Hour).Err())
	refuse("nothing, beside a tombstone")
}

func TestRule8NoFlippedBitOfAKeptHeaderRunsTheHandlerAgain(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store, prefix := prefixed(t, client)
	c := claimed(t, store, time.Minute)
	require.NoError(t, store.Complete(ctx, c, []byte("kept")))
	key := onlyKey(t, client, prefix)
	record := []byte(client.Get(ctx, key).Val())
	rival := c
	rival.Owner[0] ^= 1
	for bit := range 8 * 58 {
		flipped := append([]byte{}, record...)
		flipped[bit/8] ^= 1 << (bit % 8)
		require.NoError(t, client.Set(ctx, key, flipped, time.Hour).Err())
		entry, err := store.Begin(ctx, rival)
		switch {
		case err != nil:
			require.ErrorIs(t, err, driver.ErrUnreadable, "bit %d", bit)
		case entry.State == driver.Completed:
			require.Equal(t, "kept", string(entry.Outcome), "bit %d", bit)
		default:
			require.Equal(t, driver.Mismatch, entry.State, "bit %d", bit)
		}
	}
}

func TestRule9AFullServerRefusesBeginAndRecordsWhatWasBegun(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
	client := server.Client(t)
	store := redisstore.New(client)
	extending, failing := claimed(t, store, time.Minute), claimed(t, store, time.Minute)
	completing, plain := claimed(t, store, time.Minute), claimed(t, store, time.Minute)
	for _, size := range []int{10_000, 500, 10} {
		var err error
		for i := 0; err == nil; i++ {
			err = client.Set(ctx, fmt.Sprint("filler", size, i), strings.Repeat("x", size), 0).Err()
		}
		require.ErrorContains(t, err, "OOM", "the server is not full")
	}
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "2mb").Err()) // the buffer that a connection frees makes no room then

	absent := storetest.NewClaim(time.Minute, time.Hour)
	assert.ErrorIs(t, store.Fail(ctx, absent, driver.Failure{NoEffects: true}), driver.ErrLost, "there is no room to note it, nor for its begin")
	_, err := store.Begin(ctx, absent)
	assert.ErrorContains(t, err, "OOM")
	for range 16 {
		withdrawn := extending
		withdrawn.Owner, withdrawn.Fence = storetest.NewClaim(0, 0).Owner, 0
		assert.ErrorIs(t, store.Fail(ctx, withdrawn, driver.Failure{NoEffects: true}), driver.ErrLost)
		_, err = store.Begin(ctx, withdrawn)
		assert.ErrorIs(t, err, driver.ErrLost, "it is noted in the record of another")
	}
	assert.NoError(t, store.Extend(ctx, extending))
	assert.NoError(t, store.Checkpoint(ctx, extending, "charge", []byte("done")))
	waiting := extending
	waiting.Owner[0] ^= 1
	waiting.Subscribed = true
	waits, err := store.Begin(ctx, waiting)
	assert.NoError(t, err, "who waits is not woken then, but waits")
	assert.Equal(t, driver.InProgress, waits.State)
	assert.NoError(t, store.Complete(ctx, plain, make([]byte, 4096)))
	completing.LateRetry, completing.Steps = time.Hour, true
	assert.NoError(t, store.Complete(ctx, completing, make([]byte, 4096)))
	assert.NoError(t, store.Fail(ctx, failing, driver.Failure{Cause: "test"}))
	for _, c := range []driver.Claim{plain, completing, failing, extending} {
		assert.Positive(t, client.PTTL(ctx, nameOf(c)).Val(), "the record has an end")
	}
	completing.Owner[0] ^= 1
	entry, err := store.Begin(ctx, completing)
	require.NoError(t, err, "a replay needs no memory")
	assert.Len(t, entry.Outcome, 4096)
}

// What a run has done must not be lost because memory is short, nor what an operator has decided, also while the slot moves.
func TestRule9AFullServerTakesEachCallForARecordThatIsThere(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	client, moving := server.Client(t), server.Client(t)
	moving.AddHook(slotMoves)
	stores := map[bool]*redisstore.Store{false: redisstore.New(client), true: redisstore.New(moving)}
	for name, call := range recordCalls {
		for isMoving, store := range stores {
			if name == "Begin" || isMoving && call.whole {
				continue
			}
			c := call.prepare(t, stores[false])
			require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
			require.ErrorContains(t, client.Set(ctx, "filler", "", 0).Err(), "OOM", "the server is not full")
			assert.NoError(t, call.do(store, c), "%s, moving %t", name, isMoving)
			require.NoError(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
		}
	}
}

func TestRule10AClaimWhoseBeginHadNoAnswerIsGivenBack(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store, _ := prefixed(t, client)
	faulty := storetest.NewFaulty(store)
	engine, err := core.New(core.Config{Store: faulty, Scope: core.SingleTenant})
	require.NoError(t, err)
	request := core.Request{
		Method: "POST", Path: "/",
		Header: func(string) []string { return []string{"key"} },
		Body:   func(int64) ([]byte, error) { return nil, nil },
	}
	ran := 0
	run := func(context.Context) (*core.Response, error) {
		ran++
		return &core.Response{Status: 201}, nil
	}
	faulty.Inject("begin", storetest.After, 1)
	result, err := engine.Do(ctx, request, run)
	require.NoError(t, err)
	require.Equal(t, "store-unavailable", result.Problem)
	require.Zero(t, ran)
	require.NoError(t, engine.Close(ctx), "waits for the detached fail")

	result, err = engine.Do(ctx, request, run)
	require.NoError(t, err)
	require.Equal(t, 201, result.Response.Status, "the key must be free at once, not after a lease")
	require.Equal(t, 1, ran)
}

// LSE-18: nothing ran, so nothing is in progress, and nothing is unknown.
func TestRule10ABeginThatIsExecutedAfterItsOwnFailHoldsNothing(t *testing.T) {
	inRedis, _ := prefixed(t, redistest.Shared(t).Client(t))
	for name, store := range map[string]driver.Store{"memory": memstore.New(), "Redis": inRedis} {
		for rules, onUnknown := range map[string]func(context.Context, *core.Request) (*core.Response, error){"runs again": nil, "refuses what is unknown": core.RefuseUnknown} {
			t.Run(name+" "+rules, func(t *testing.T) {
				slow := storetest.NewFaulty(store)
				slow.Inject("begin", storetest.Late, 1)
				engine, err := core.New(core.Config{Store: slow, Scope: core.SingleTenant, Lease: core.LeaseConfig{OnUnknown: onUnknown}})
				require.NoError(t, err)
				request := core.Request{
					Method: "POST", Path: "/",
					Header: func(string) []string { return []string{t.Name()} },
					Body:   func(int64) ([]byte, error) { return nil, nil },
				}
				attempts := []int{}
				run := func(ctx context.Context) (*core.Response, error) {
					run, _ := core.FromContext(ctx)
					attempts = append(attempts, run.Attempt)
					return &core.Response{Status: 201}, nil
				}
				refused, err := engine.Do(ctx, request, run)
				require.NoError(t, err)
				require.Equal(t, "store-unavailable", refused.Problem)
				require.NoError(t, engine.Close(ctx), "waits for the fail")
				require.Equal(t, 1, slow.Calls("fail"))
				result, err := engine.Do(ctx, request, run)
				require.NoError(t, err)
				require.NotNil(t, result.Response, result.Problem)
				require.Equal(t, 201, result.Response.Status)
				require.Equal(t, []int{1}, attempts)
			})
		}
	}
}

// LSE-18: a record notes the last sixteen runs that have failed or withdrawn. It stays readable however many there were.
func TestRule10ARecordNotesTheLastSixteenOwners(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store, prefix := prefixed(t, client)
	c, owners := storetest.NewClaim(time.Minute, time.Hour), [][16]byte{}
	for attempt := 1; attempt <= 20; attempt++ {
		c.Owner[0]++
		owners = append(owners, c.Owner)
		entry, err := store.Begin(ctx, c)
		require.NoError(t, err)
		require.Equal(t, driver.Claimed, entry.State, "attempt %d", attempt)
		require.Equal(t, attempt, entry.Attempt)
		assert.LessOrEqual(t, client.StrLen(ctx, onlyKey(t, client, prefix)).Val(), int64(106+16*16))
		c.Fence, c.Attempt = entry.Fence, entry.Attempt
		require.NoError(t, store.Fail(ctx, c, driver.Failure{Cause: "no bank"}))
	}
	late := c
	for _, late.Owner = range owners[4:] {
		_, err := store.Begin(ctx, late)
		assert.ErrorIs(t, err, driver.ErrLost)
	}
}

// LSE-18: what is noted in a FAILED record leaves its cause, which an operator reads.
func TestRule10AFailureKeepsItsCauseWhenOwnersAreNoted(t *testing.T) {
	store, _ := prefixed(t, redistest.Shared(t).Client(t))
	c := claimed(t, store, time.Minute)
	require.NoError(t, store.Fail(ctx, c, driver.Failure{Cause: "no bank"}))
	for range 20 {
		withdrawn := c
		withdrawn.Owner, withdrawn.Fence = storetest.NewClaim(0, 0).Owner, 0
		require.ErrorIs(t, store.Fail(ctx, withdrawn, driver.Failure{NoEffects: true}), driver.ErrLost)
		seen, err := store.Look(ctx, c.Key)
		require.NoError(t, err)
		require.Equal(t, "no bank", seen.Cause)
		_, err = store.Begin(ctx, withdrawn)
		require.ErrorIs(t, err, driver.ErrLost)
	}
}

// So it is in a record that an earlier version has written, which notes nobody.
func TestRule10AFailureOfAnEarlierVersionKeepsItsCause(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store, prefix := prefixed(t, client)
	for attempt, operation := range map[string]string{"000001": "", "000002": "1790000000000001"} {
		c := claimed(t, store, time.Minute)
		key := prefix + "{" + string(driver.AppendRecordName(nil, c.Key)) + "}"
		claim := client.Get(ctx, key).Val()
		failed := "1400" + attempt + claim[10:90] + operation + "no bank"
		require.NoError(t, client.Set(ctx, key, failed, time.Hour).Err())
		for range 2 {
			seen, err := store.Look(ctx, c.Key)
			require.NoError(t, err)
			assert.Equal(t, driver.Failed, seen.State)
			assert.Equal(t, "no bank", seen.Cause)
			withdrawn := c
			withdrawn.Owner, withdrawn.Fence = storetest.NewClaim(0, 0).Owner, 0
			require.ErrorIs(t, store.Fail(ctx, withdrawn, driver.Failure{NoEffects: true}), driver.ErrLost)
		}
		c.Owner[0]++
		entry, err := store.Begin(ctx, c)
		require.NoError(t, err)
		assert.Equal(t, driver.Claimed, entry.State)
	}
}

// The runs of an operation find its steps by the fence of its first claim, also if an earlier version has written the record.
func TestRule10AnOperationOfAnEarlierVersionGoesOn(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store, prefix := prefixed(t, client)
	const first, none = "1790000000000001", "0000000000000000"
	for name, test := range map[string]struct{ beginning, end, operation string }{
		"its first run has failed":                   {"1400000001", "no bank", ""},
		"its second run has failed":                  {"1400000002", first + "no bank", first},
		"its first run came after a withdrawn begin": {"1100000001", none, ""},
	} {
		c := claimed(t, store, 0)
		key := prefix + "{" + string(driver.AppendRecordName(nil, c.Key)) + "}"
		claim := client.Get(ctx, key).Val()
		require.NoError(t, client.Set(ctx, key, test.beginning+claim[10:]+test.end, time.Hour).Err(), name)
		want := test.operation
		if want == "" {
			want = claim[10:26] // of the record itself
		}
		assert.Equal(t, want, fmt.Sprint(heir(t, store, c).Operation), name)
	}
}

// A record has room for six digits.
func TestTheAttemptsOfAKeyAreCountedToAMillionAndNotBeyond(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store, prefix := prefixed(t, client)
	c := claimed(t, store, time.Minute)
	require.NoError(t, store.Fail(ctx, c, driver.Failure{Cause: "no bank"}))
	require.NoError(t, client.SetRange(ctx, onlyKey(t, client, prefix), 4, "999998").Err())
	for range 3 {
		c.Owner[0]++
		entry, err := store.Begin(ctx, c)
		require.NoError(t, err)
		require.Equal(t, driver.Claimed, entry.State)
		assert.Equal(t, 999_999, entry.Attempt)
		c.Fence, c.Attempt = entry.Fence, entry.Attempt
		require.NoError(t, store.Fail(ctx, c, driver.Failure{Cause: "no bank"}))
	}
}

func TestScriptFlushUnderLoadIsHealedInTheSameCall(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	store := redisstore.New(client)
	stop := make(chan struct{})
	var flushes sync.WaitGroup
	flushes.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				assert.NoError(t, client.ScriptFlush(ctx).Err())
			}
		}
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				c := storetest.NewClaim(time.Minute, time.Hour)
				entry, err := store.Begin(ctx, c)
				if !assert.NoError(t, err) {
					return
				}
				c.Fence, c.Attempt = entry.Fence, entry.Attempt
				assert.NoError(t, store.Extend(ctx, c))
				assert.NoError(t, store.Complete(ctx, c, []byte("kept")))
			}
		})
	}
	wg.Wait()
	close(stop)
	flushes.Wait()
	assert.NotZero(t, executions(t, client, "eval"), "no script was missing: nothing was tested")
}

// roundTrips counts what a client sends.
type roundTrips struct{ n atomic.Int64 }

func (*roundTrips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *roundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { r.n.Add(1); return next(ctx, cmd) }
}

func (r *roundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { r.n.Add(1); return next(ctx, cmds) }
}

func TestANewRequestIsTwoRoundTripsAndEverythingElseOne(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store := redisstore.New(client, redisstore.Scripts())
	warm := claimed(t, store, time.Minute)
	require.NoError(t, store.Complete(ctx, warm, nil))
	trips := &roundTrips{}
	client.AddHook(trips)
	expect := func(name string, want, wantScripts int64, verb func()) {
		scripts, sent := executions(t, client, "evalsha"), trips.n.Load()
		verb()
		assert.EqualValues(t, want, trips.n.Load()-sent, "%s: round trips", name)
		assert.EqualValues(t, wantScripts, executions(t, client, "evalsha")-scripts, "%s: scripts that the server executed", name)
	}
	c := storetest.NewClaim(time.Minute, time.Hour)
	begin := func(c driver.Claim, want driver.State) driver.Entry {
		entry, err := store.Begin(ctx, c)
		require.NoError(t, err)
		require.Equal(t, want, entry.State)
		return entry
	}
	rival, stranger := c, c
	rival.Owner[0] ^= 1
	stranger.Owner[0] ^= 2
	stranger.Fingerprint[0] ^= 1
	expect("begin and conflict", 2, 2, func() {
		c.Fence = begin(c, driver.Claimed).Fence
		begin(rival, driver.InProgress)
	})
	short := storetest.NewClaim(time.Minute, time.Hour)
	short.Fence = begin(short, driver.Claimed).Fence
	expect("complete", 1, 1, func() { require.NoError(t, store.Complete(ctx, c, make([]byte, 64<<10))) })
	expect("complete", 1, 1, func() { require.NoError(t, store.Complete(ctx, short, make([]byte, 1<<10))) })
	expect("replay of 1 KiB", 1, 1, func() { require.Len(t, begin(short, driver.Completed).Outcome, 1<<10) })
	expect("mismatch", 1, 1, func() { begin(stranger, driver.Mismatch) })
	expect("the first replay of 64 KiB", 2, 1, func() { require.Len(t, begin(rival, driver.Completed).Outcome, 64<<10) })
	begin(rival, driver.Completed) // pipelines have connections of their own, which introduce themselves
	expect("replay of 64 KiB", 1, 1, func() { require.Len(t, begin(rival, driver.Completed).Outcome, 64<<10) })
}

func TestADeadServerIsAnErrorWithinTheDeadline(t *testing.T) {
	server := redistest.Start(t)
	store := redisstore.New(server.Client(t))
	claimed(t, store, time.Minute)
	server.Pause()
	t.Cleanup(server.Resume)
	deadline, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err := store.Begin(deadline, storetest.NewClaim(time.Minute, time.Hour))
	require.Error(t, err)
	require.False(t, errors.Is(err, driver.ErrLost))
	require.NoError(t, ctx.Err())
	require.Error(t, deadline.Err(), "it must wait for the deadline, and no longer")
}
