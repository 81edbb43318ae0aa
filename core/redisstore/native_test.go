package redisstore_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
)

// nativeStore returns a store on a server of its own that claims with SET, and a client of the server. A server before Redis 7.0
// has no native claims.
func nativeStore(t *testing.T, args ...string) (*redisstore.Store, *redis.Client) {
	server := redistest.Start(t, args...)
	if !server.Knows(t, "PEXPIRETIME") {
		t.Skip("this server has no PEXPIRETIME, so it gets scripts alone")
	}
	client := server.Client(t)
	store := redisstore.New(client)
	claimed(t, store, time.Minute) // by a script, and then the store knows
	require.NoError(t, client.FlushDB(ctx).Err())
	return store, client
}

// nativeClaim returns a native claim and the name of its record.
func nativeClaim(t *testing.T, store *redisstore.Store, client *redis.Client, lease time.Duration) (driver.Claim, string) {
	c := claimed(t, store, lease)
	require.True(t, strings.HasPrefix(client.Get(ctx, nameOf(c)).Val(), "2100000001"), "a script has made the claim")
	return c, nameOf(c)
}

func rivalOf(c driver.Claim) driver.Claim {
	c.Owner[0] ^= 1
	c.Fence, c.Attempt = 0, 0
	return c
}

func TestANativeClaimSaysWhenItWasMadeByItsExpiry(t *testing.T) {
	store, client := nativeStore(t)
	before := client.Time(ctx).Val().UnixMilli()
	c, name := nativeClaim(t, store, client, 90*time.Second)
	after := client.Time(ctx).Val().UnixMilli()
	record := client.Get(ctx, name).Val()
	require.Len(t, record, 90)
	assert.Equal(t, fmt.Sprintf("%013d%03d", c.Retention.Milliseconds(), c.Fence%1000), record[10:26])
	assert.Equal(t, fmt.Sprintf("%016d", c.Lease.Microseconds()), record[58:74])
	assert.GreaterOrEqual(t, c.Fence/1000, before)
	assert.LessOrEqual(t, c.Fence/1000, after)
	expires := client.PExpireTime(ctx, name).Val()
	assert.Equal(t, c.Fence/1000+c.Retention.Milliseconds(), expires.Milliseconds())

	entry, err := store.Begin(ctx, rivalOf(c))
	require.NoError(t, err)
	require.Equal(t, driver.InProgress, entry.State)
	assert.Equal(t, expires, client.PExpireTime(ctx, name).Val(), "a request that finds the claim prolongs it")
}

func TestANativeClaimIsExtendedByTheLeaseOfTheCall(t *testing.T) {
	store, client := nativeStore(t)
	c, _ := nativeClaim(t, store, client, time.Minute)
	c.Lease, c.Retention = time.Hour, 2*time.Hour
	require.NoError(t, store.Extend(ctx, c))
	entry, err := store.Begin(ctx, rivalOf(c))
	require.NoError(t, err)
	require.Equal(t, driver.InProgress, entry.State)
	assert.InDelta(t, time.Hour, entry.Remaining, float64(time.Minute))
}

func TestRequestsTakeScriptsOnlyWhereAPlainCommandDoesNotDo(t *testing.T) {
	store, client := nativeStore(t)
	trips := &roundTrips{}
	client.AddHook(trips)
	expect := func(name string, wantTrips, wantScripts int, call func()) {
		t.Helper()
		scripts, sent := executions(t, client, "evalsha"), int(trips.n.Load())
		call()
		assert.Equal(t, wantTrips, int(trips.n.Load())-sent, "%s: round trips", name)
		assert.Equal(t, wantScripts, executions(t, client, "evalsha")-scripts, "%s: scripts", name)
	}
	begin := func(c driver.Claim, want driver.State) (entry driver.Entry) {
		entry, err := store.Begin(ctx, c)
		require.NoError(t, err)
		require.Equal(t, want, entry.State)
		return entry
	}
	claimed(t, store, time.Minute) // pipelines have connections of their own, which introduce themselves
	unsupported := client.Do(ctx, "SET", "no key", "", "IFEQ", "", "PX", 1).Err()
	scripts := 0
	if unsupported != nil && unsupported != redis.Nil { // before Redis 8.4 and Valkey 8.1
		require.ErrorContains(t, unsupported, "syntax error")
		scripts = 1
	}
	c := claimed(t, store, time.Minute)
	require.NoError(t, store.Complete(ctx, c, make([]byte, 64<<10))) // the store learns whether there is IFEQ
	rival, stranger := rivalOf(c), rivalOf(c)
	stranger.Fingerprint[0] ^= 1
	expect("replay of 64 KiB", 1, 0, func() { require.Len(t, begin(rival, driver.Completed).Outcome, 64<<10) })
	expect("mismatch", 2, 1, func() { begin(stranger, driver.Mismatch) })
	rival.WantRemaining = true
	expect("replay with the rest of the retention", 3, 1, func() { assert.NotZero(t, begin(rival, driver.Completed).Remaining) })
	late := storetest.NewClaim(time.Minute, time.Hour)
	late.LateRetry = time.Hour
	expect("claim with a tombstone", 1, 1, func() { begin(late, driver.Claimed) })
	next := storetest.NewClaim(time.Minute, time.Hour)
	expect("claim", 1, 0, func() {
		entry := begin(next, driver.Claimed)
		next.Fence, next.Attempt = entry.Fence, entry.Attempt
	})
	expect("conflict", 2, 1, func() { begin(rivalOf(next), driver.InProgress) })
	expect("complete", 1, scripts, func() { require.NoError(t, store.Complete(ctx, next, []byte("kept"))) })
	require.NoError(t, store.Complete(ctx, next, []byte("kept"))) // the server learns the script
	expect("a repeated complete", 2-scripts, 1, func() { require.NoError(t, store.Complete(ctx, next, []byte("kept"))) })
}

// A replay writes nothing, so it waits for no replica, and a server that has lost its replicas goes on to replay.
func TestAReplayByAPlainCommandNeedsNoReplica(t *testing.T) {
	others, client := nativeStore(t)
	kept, _ := nativeClaim(t, others, client, time.Minute)
	require.NoError(t, others.Complete(ctx, kept, []byte("kept")))
	store := redisstore.New(client, redisstore.WaitReplicas(1, time.Millisecond))
	for range 2 { // by a script, and then the store knows
		entry, err := store.Begin(ctx, rivalOf(kept))
		require.NoError(t, err)
		assert.Equal(t, "kept", string(entry.Outcome))
	}
	_, err := store.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
	assert.ErrorIs(t, err, driver.ErrNotDurable)
}

// Rule 1: the reply to SET is lost, and go-redis sends it again.
func TestANativeClaimWhoseReplyWasLostRecognisesItself(t *testing.T) {
	_, client := nativeStore(t)
	losing, network := losingClient(t, client, client.Options().MaxRetries)
	store := redisstore.New(losing)
	claimed(t, store, time.Minute)
	for _, change := range []func(*driver.Claim){func(*driver.Claim) {}, func(c *driver.Claim) { c.NoTakeover = true }} {
		c := storetest.NewClaim(time.Minute, time.Hour)
		change(&c)
		network.lose(1)
		entry, err := store.Begin(ctx, c)
		require.NoError(t, err)
		require.EqualValues(t, 1, network.lost.Load(), "no reply was lost")
		require.Equal(t, driver.Claimed, entry.State)
		again, err := store.Begin(ctx, c)
		require.NoError(t, err)
		assert.Equal(t, []int64{entry.Fence, entry.Operation, 1}, []int64{again.Fence, again.Operation, int64(again.Attempt)})
		c.Fence, c.Attempt = entry.Fence, entry.Attempt
		assert.NoError(t, store.Complete(ctx, c, []byte("kept")))
	}
}

// The reply that a claim is made has no value. The client has it from its last try, so the error of an earlier one is over.
func TestANativeClaimThatTheClientHasSentAgainIsMadeByTheTryThatArrived(t *testing.T) {
	_, client := nativeStore(t)
	losing, network := losingClient(t, client, 1)
	store := redisstore.New(losing)
	claimed(t, store, time.Minute)
	before := executions(t, client, "set")
	network.loseRequest()
	claimed(t, store, time.Minute)
	assert.False(t, network.request.Load(), "no request was lost")
	assert.Equal(t, before+1, executions(t, client, "set"))
}

// ownersCalls are all calls of an owner, each of which must come last for its claim.
var ownersCalls = map[string]func(*redisstore.Store, driver.Claim) error{
	"extend":     func(s *redisstore.Store, c driver.Claim) error { return s.Extend(ctx, c) },
	"complete":   func(s *redisstore.Store, c driver.Claim) error { return s.Complete(ctx, c, []byte("kept")) },
	"fail":       func(s *redisstore.Store, c driver.Claim) error { return s.Fail(ctx, c, driver.Failure{}) },
	"checkpoint": func(s *redisstore.Store, c driver.Claim) error { return s.Checkpoint(ctx, c, "step", nil) },
}

// Rule 2: the record says whose claim it is, and which of the owner's claims, if an earlier one has vanished.
func TestANativeClaimIsNotTakenForAnotherOfItsOwner(t *testing.T) {
	store, client := nativeStore(t)
	for name, call := range ownersCalls {
		c, record := nativeClaim(t, store, client, time.Minute)
		fences := []int64{c.Fence - 1, c.Fence + 1}
		if name != "complete" { // which compares the last digits alone
			fences = append(fences, c.Fence+1000*c.Lease.Milliseconds()+1000)
		}
		for _, fence := range fences {
			other := c
			other.Fence = fence
			before := client.Get(ctx, record).Val()
			assert.ErrorIs(t, call(store, other), driver.ErrLost, "%s with another fence", name)
			assert.ErrorIs(t, call(store, rivalOf(c)), driver.ErrLost, "%s of another owner", name)
			assert.Equal(t, before[:90], client.Get(ctx, record).Val()[:90], "only a withdrawn owner is noted behind it")
		}
		assert.NoError(t, call(store, c), name)
	}
}

// A key that moves to another node of a Cluster keeps the time that is left, on the clock of that node.
func TestANativeClaimThatHasMovedStaysThatOfItsOwner(t *testing.T) {
	store, client := nativeStore(t)
	for name, call := range ownersCalls {
		for _, later := range []time.Duration{-20 * time.Second, 20 * time.Second, 5 * time.Millisecond} {
			c, record := nativeClaim(t, store, client, time.Minute)
			dump, left := client.Dump(ctx, record).Val(), client.PTTL(ctx, record).Val()
			require.NoError(t, client.RestoreReplace(ctx, record, left+later, dump).Err())
			entry, err := store.Begin(ctx, rivalOf(c))
			require.NoError(t, err)
			assert.Equal(t, driver.InProgress, entry.State)
			assert.NoError(t, call(store, c), "%s, %v later", name, later)
			assert.NoError(t, call(store, c), "%s again, %v later", name, later)
		}
	}
}

func TestANativeClaimWithoutAnExpiryEndsAllTheSame(t *testing.T) {
	store, client := nativeStore(t)
	lease := 300 * time.Millisecond
	c := heir(t, store, storetest.NewClaim(lease, 100*365*24*time.Hour))
	record := nameOf(c)
	require.True(t, client.Persist(ctx, record).Val())
	seen, err := store.Look(ctx, c.Key)
	require.NoError(t, err)
	assert.Equal(t, driver.InProgress, seen.State)
	assert.Zero(t, seen.Expires)
	assert.EqualValues(t, -1, client.PTTL(ctx, record).Val(), "look has changed something")
	entry, err := store.Begin(ctx, rivalOf(c))
	require.NoError(t, err)
	require.Equal(t, driver.InProgress, entry.State)
	assert.InDelta(t, c.Retention, client.PTTL(ctx, record).Val(), float64(time.Minute), "a record without a TTL is never gone")
	time.Sleep(lease + 5*time.Millisecond)
	entry, err = store.Begin(ctx, rivalOf(c))
	require.NoError(t, err)
	require.Equal(t, driver.Claimed, entry.State)
	assert.Greater(t, entry.Fence, c.Fence)
	assert.True(t, entry.Takeover)

	for name, call := range ownersCalls {
		c, record := nativeClaim(t, store, client, time.Minute)
		require.True(t, client.Persist(ctx, record).Val())
		assert.NoError(t, call(store, c), name)
		assert.NotEqualValues(t, -1, client.PTTL(ctx, record).Val(), name)
	}
}

// Rule 3, after an operator has forgotten a record as fast as one can. Of two fences of one ms, that of the process with fewer claims
// would be the lower one.
func TestTheFenceOfANativeClaimIsGreaterAfterForget(t *testing.T) {
	store, client := nativeStore(t)
	other := redisstore.New(client)
	claimed(t, other, time.Minute) // by a script, and then it knows
	for range 200 {
		claimed(t, store, time.Minute)
	}
	for range 100 {
		c, _ := nativeClaim(t, store, client, time.Minute)
		require.NoError(t, store.Complete(ctx, c, nil))
		seen, err := store.Look(ctx, c.Key)
		require.NoError(t, err)
		require.NoError(t, store.Forget(ctx, seen))
		entry, err := other.Begin(ctx, rivalOf(c))
		require.NoError(t, err)
		require.Greater(t, entry.Fence, c.Fence)
	}
}

// A full server refuses every SET, also one that would only read.
func TestAFullServerReplaysAndRecordsNativeClaims(t *testing.T) {
	store, client := nativeStore(t, "--maxmemory-policy", "noeviction")
	kept, _ := nativeClaim(t, store, client, time.Minute)
	require.NoError(t, store.Complete(ctx, kept, []byte("kept")))
	running := map[string]driver.Claim{}
	for name := range ownersCalls {
		running[name], _ = nativeClaim(t, store, client, time.Minute)
	}
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	_, err := store.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
	assert.ErrorContains(t, err, "OOM")
	entry, err := store.Begin(ctx, rivalOf(kept))
	require.NoError(t, err)
	assert.Equal(t, "kept", string(entry.Outcome))
	for name, call := range ownersCalls {
		entry, err := store.Begin(ctx, rivalOf(running[name]))
		require.NoError(t, err)
		assert.Equal(t, driver.InProgress, entry.State)
		assert.NoError(t, call(store, running[name]), name)
	}
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	_, _ = nativeClaim(t, store, client, time.Minute) // and is used again
}

// A server, or a user, without PEXPIRETIME gets scripts alone.
func TestAServerWithoutPEXPIRETIMEGetsScriptsAlone(t *testing.T) {
	clients := map[string]*redis.Client{"the server is as it is": redistest.Shared(t).Client(t)}
	if redistest.Shared(t).Knows(t, "PEXPIRETIME") {
		clients = map[string]*redis.Client{
			"the command is unknown": redistest.Start(t, "--rename-command", "PEXPIRETIME", "").Client(t),
			"the user may not":       withoutRight(t, "-pexpiretime"),
		}
	}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			store := redisstore.New(client)
			for range 3 {
				c := claimed(t, store, time.Minute)
				assert.True(t, strings.HasPrefix(client.Get(ctx, nameOf(c)).Val(), "1100000001"))
				require.NoError(t, store.Complete(ctx, c, nil))
			}
		})
	}
}

// withoutRight returns a client of a server whose users lack a right.
func withoutRight(t *testing.T, rule string) *redis.Client {
	client := redistest.Start(t).Client(t)
	if !redistest.Shared(t).Knows(t, "ACL") {
		t.Skip("this server has no users with rights")
	}
	require.NoError(t, client.Do(ctx, "ACL", "SETUSER", "default", rule).Err())
	return client
}

// A user that may not send scripts claims nothing: a run would have no end.
func TestAUserWithoutScriptsClaimsNothing(t *testing.T) {
	client := withoutRight(t, "-@scripting")
	_, err := redisstore.New(client).Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
	require.ErrorContains(t, err, "NOPERM")
	assert.Zero(t, client.DBSize(ctx).Val())
}

// What almost is a native claim is refused and left alone.
func TestADamagedNativeClaimIsRefused(t *testing.T) {
	store, client := nativeStore(t)
	c, name := nativeClaim(t, store, client, time.Minute)
	record := client.Get(ctx, name).Val()
	for damage, text := range map[string]string{
		"another state":             "22" + record[2:],
		"a takeover":                "211" + record[3:],
		"a second attempt":          record[:9] + "2" + record[10:],
		"letters for a retention":   record[:10] + "x" + record[11:],
		"letters for a lease":       record[:58] + "x" + record[59:],
		"too short":                 record[:89],
		"half an operation":         record + record[:8],
		"half a noted owner":        record + record[:20],
		"a mark that nobody writes": record[:3] + "3" + record[4:],
	} {
		require.NoError(t, client.Set(ctx, name, text, time.Hour).Err())
		_, err := store.Begin(ctx, rivalOf(c))
		assert.ErrorIs(t, err, driver.ErrUnreadable, damage)
		for call, do := range ownersCalls {
			if !strings.HasPrefix(damage, "letters") || call != "complete" { // which needs no duration any more
				assert.ErrorIs(t, do(store, c), driver.ErrUnreadable, "%s: %s", damage, call)
			}
		}
		assert.Equal(t, text, client.Get(ctx, name).Val(), damage)
	}
}

// A withdrawn Begin that arrives late, after a native claim has noted it.
func TestANativeClaimNotesAWithdrawnOwner(t *testing.T) {
	store, client := nativeStore(t)
	c, _ := nativeClaim(t, store, client, time.Minute)
	withdrawn := rivalOf(c)
	for range 3 {
		assert.ErrorIs(t, store.Fail(ctx, withdrawn, driver.Failure{NotRun: true}), driver.ErrLost)
		_, err := store.Begin(ctx, withdrawn)
		assert.ErrorIs(t, err, driver.ErrLost)
		withdrawn.Owner[1]++
	}
	require.NoError(t, store.Extend(ctx, c))
	require.NoError(t, store.Fail(ctx, c, driver.Failure{}))
	withdrawn.Owner[1]--
	_, err := store.Begin(ctx, withdrawn)
	assert.ErrorIs(t, err, driver.ErrLost, "the noted owner stays noted")
}

func TestWhatTheServerRefusesOfANativeClaimIsLeftToTheScript(t *testing.T) {
	for name, test := range map[string]struct {
		replies map[string]refusal
		trips   []int64 // of three claims in a row
	}{
		"a SET that it does not know":         {map[string]refusal{"set": "ERR syntax error"}, []int64{2, 1, 1}},
		"a SET that the user may not send":    {map[string]refusal{"set": "NOPERM no right"}, []int64{2, 1, 1}},
		"a SET that it has no memory for":     {map[string]refusal{"set": "OOM no memory"}, []int64{2, 2, 2}},
		"the expiry":                          {map[string]refusal{"pexpiretime": "NOPERM no right"}, []int64{2, 2, 2}},
		"the expiry, since the server starts": {map[string]refusal{"pexpiretime": "LOADING"}, []int64{2, 2, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			store, client := nativeStore(t)
			claimed(t, store, time.Minute) // pipelines have connections of their own, which introduce themselves
			trips := refuse(client, test.replies)
			for i, want := range test.trips {
				before := trips.n.Load()
				c := claimed(t, store, time.Minute)
				assert.Equal(t, want, trips.n.Load()-before, "claim %d", i)
				assert.NoError(t, store.Extend(ctx, c))
				assert.NoError(t, store.Complete(ctx, c, []byte("kept")))
			}
		})
	}
}

func TestAUserWithoutPEXPIRETIMEIsAskedOnce(t *testing.T) {
	client := withoutRight(t, "-pexpiretime")
	trips := &roundTrips{}
	client.AddHook(trips)
	store := redisstore.New(client)
	claimed(t, store, time.Minute)
	before := trips.n.Load()
	claimed(t, store, time.Minute)
	assert.EqualValues(t, 1, trips.n.Load()-before)
}

// Rule 4.
func TestNoDurationOfANativeClaimIsTooLong(t *testing.T) {
	store, client := nativeStore(t)
	const longest = time.Duration(math.MaxInt64)
	c := heir(t, store, storetest.NewClaim(longest, longest))
	require.True(t, strings.HasPrefix(client.Get(ctx, nameOf(c)).Val(), "21"), "a script has made the claim")
	entry, err := store.Begin(ctx, rivalOf(c))
	require.NoError(t, err)
	require.Equal(t, driver.InProgress, entry.State)
	assert.Greater(t, entry.Remaining, 99*365*24*time.Hour)
	assert.Greater(t, client.PTTL(ctx, nameOf(c)).Val(), longest-time.Hour)
	assert.NoError(t, store.Extend(ctx, c))
}

// Rule 4: the expiry counts in ms, and a lease must not end before its time for that.
func TestTheLeaseOfANativeClaimDoesNotEndEarly(t *testing.T) {
	store, client := nativeStore(t)
	for range 50 {
		before := client.Time(ctx).Val()
		c, _ := nativeClaim(t, store, client, time.Minute)
		entry, err := store.Begin(ctx, rivalOf(c))
		require.NoError(t, err)
		require.Equal(t, driver.InProgress, entry.State)
		ends := client.Time(ctx).Val().Add(entry.Remaining) // or a little earlier
		require.False(t, ends.Before(before.Add(c.Lease)), "%v early", before.Add(c.Lease).Sub(ends))
	}
}

// A key that notes a withdrawn owner and then moves to another node stays that of its owner.
func TestANativeClaimThatNotesAnOwnerAndHasMovedStaysThatOfItsOwner(t *testing.T) {
	store, client := nativeStore(t)
	for name, call := range ownersCalls {
		c, record := nativeClaim(t, store, client, time.Minute)
		require.ErrorIs(t, store.Fail(ctx, rivalOf(c), driver.Failure{NotRun: true}), driver.ErrLost)
		dump, left := client.Dump(ctx, record).Val(), client.PTTL(ctx, record).Val()
		require.NoError(t, client.RestoreReplace(ctx, record, left+5*time.Second, dump).Err())
		assert.NoError(t, call(store, c), name)
	}
}
