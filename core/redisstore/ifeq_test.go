package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
)

// comparing is a hook that gives a server SET with IFEQ, which Debian's Redis 7.0 does not have: a script does the same on the real
// server. `make servers` runs these tests on servers that have it themselves, where the hook is not used.
type comparing struct{}

const compareAndSet = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end
return redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])`

// translated returns the script for a SET with IFEQ, or nil for any other command.
func translated(ctx context.Context, cmd redis.Cmder) *redis.Cmd {
	args := cmd.Args()
	if len(args) != 7 || args[0] != "set" || args[3] != "ifeq" {
		return nil
	}
	return redis.NewCmd(ctx, "eval", compareAndSet, 1, args[1], args[4], args[2], args[6])
}

// answer gives cmd the reply of its script.
func answer(cmd redis.Cmder, script *redis.Cmd) {
	if script.Err() != nil {
		cmd.SetErr(script.Err())
		return
	}
	cmd.(interface{ SetVal(any) }).SetVal(script.Val())
}

func (comparing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (comparing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		script := translated(ctx, cmd)
		if script == nil {
			return next(ctx, cmd)
		}
		err := next(ctx, script)
		answer(cmd, script)
		return err
	}
}

func (comparing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		sent := make([]redis.Cmder, len(cmds))
		for i, cmd := range cmds {
			if sent[i] = cmd; translated(ctx, cmd) != nil {
				sent[i] = translated(ctx, cmd)
			}
		}
		err := next(ctx, sent)
		for i, cmd := range cmds {
			if sent[i] != cmd {
				answer(cmd, sent[i].(*redis.Cmd))
			}
		}
		return err
	}
}

// canCompare gives the server of client SET with IFEQ, unless it has it.
func canCompare(client redis.UniversalClient) {
	if err := client.Do(ctx, "SET", "no key", "", "IFEQ", "", "PX", 1).Err(); err != nil && err != redis.Nil {
		client.AddHook(comparing{})
	}
}

// comparingStore is nativeStore on a server that has IFEQ.
func comparingStore(t *testing.T) (*redisstore.Store, *redis.Client) {
	store, client := nativeStore(t)
	canCompare(client)
	return store, client
}

// scriptsOf returns how many scripts of the store a call took.
func scriptsOf(t *testing.T, client *redis.Client, call func()) int {
	before := executions(t, client, "evalsha")
	call()
	return executions(t, client, "evalsha") - before
}

func TestAnOutcomeIsComparedAndSetOnlyWhereThatIsTheWholeCall(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*testing.T, *redisstore.Store, *redis.Client, *driver.Claim)
		scripts int
	}{
		"a claim that nobody has seen": {func(*testing.T, *redisstore.Store, *redis.Client, *driver.Claim) {}, 0},
		"a claim that a request waits for": {func(t *testing.T, s *redisstore.Store, _ *redis.Client, c *driver.Claim) {
			rival := rivalOf(*c)
			rival.Subscribed = true
			entry, err := s.Begin(ctx, rival)
			require.NoError(t, err)
			require.Equal(t, driver.InProgress, entry.State)
		}, 1},
		"a claim that has noted a withdrawn owner": {func(t *testing.T, s *redisstore.Store, _ *redis.Client, c *driver.Claim) {
			require.ErrorIs(t, s.Fail(ctx, rivalOf(*c), driver.Failure{NotRun: true}), driver.ErrLost)
		}, 1},
		"a claim that was extended": {func(t *testing.T, s *redisstore.Store, _ *redis.Client, c *driver.Claim) {
			require.NoError(t, s.Extend(ctx, *c))
		}, 1},
		"a run with steps": {func(t *testing.T, s *redisstore.Store, _ *redis.Client, c *driver.Claim) {
			require.NoError(t, s.Checkpoint(ctx, *c, "step", nil))
			c.Steps = true
		}, 1},
		"a run with steps that the record does not show": {func(_ *testing.T, _ *redisstore.Store, _ *redis.Client, c *driver.Claim) {
			c.Steps = true
		}, 1},
		"a key whose tombstone outlives it": {func(_ *testing.T, _ *redisstore.Store, _ *redis.Client, c *driver.Claim) {
			c.LateRetry = time.Hour
		}, 1},
		"a later attempt": {func(t *testing.T, s *redisstore.Store, _ *redis.Client, c *driver.Claim) {
			require.NoError(t, s.Fail(ctx, *c, driver.Failure{}))
			c.Owner[3] ^= 1
			entry, err := s.Begin(ctx, *c)
			require.NoError(t, err)
			c.Fence, c.Attempt = entry.Fence, entry.Attempt
			require.Equal(t, 2, c.Attempt)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			store, client := comparingStore(t)
			c, record := nativeClaim(t, store, client, time.Minute)
			test.prepare(t, store, client, &c)
			outcome := strings.Repeat("kept ", 100)
			scripts := scriptsOf(t, client, func() { require.NoError(t, store.Complete(ctx, c, []byte(outcome))) })
			assert.Equal(t, test.scripts, scripts)
			stored := client.Get(ctx, record).Val()
			assert.Equal(t, outcome, stored[58:])
			assert.Equal(t, "12", stored[:2])
			assert.InDelta(t, c.Retention.Milliseconds(), client.PTTL(ctx, record).Val().Milliseconds(), 5000)
			if c.LateRetry > 0 {
				assert.NotZero(t, client.Exists(ctx, record+":late").Val())
			}
			assert.Zero(t, client.Exists(ctx, record+":steps").Val())
			assert.NoError(t, store.Complete(ctx, c, []byte(outcome)), "a repeated call returns the same")
			assert.ErrorIs(t, store.Complete(ctx, c, []byte("another outcome")), driver.ErrLost)
			assert.Equal(t, stored, client.Get(ctx, record).Val())
		})
	}
}

func TestAnOutcomeOfAClaimThatHasVanishedOrWasTakenOverIsNotSet(t *testing.T) {
	store, client := comparingStore(t)
	gone, record := nativeClaim(t, store, client, time.Minute)
	require.NoError(t, client.Del(ctx, record).Err())
	assert.ErrorIs(t, store.Complete(ctx, gone, []byte("late")), driver.ErrGone)
	assert.Zero(t, client.Exists(ctx, record).Val())

	late, record := nativeClaim(t, store, client, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		entry, err := store.Begin(ctx, rivalOf(late))
		return err == nil && entry.State == driver.Claimed
	}, 20*time.Second, time.Millisecond)
	before := client.Get(ctx, record).Val()
	assert.ErrorIs(t, store.Complete(ctx, late, []byte("late")), driver.ErrLost)
	assert.Equal(t, before, client.Get(ctx, record).Val())
}

// The server has set the outcome, and its reply is lost: the repeated call finds that out.
func TestAnOutcomeWhoseReplyWasLostIsRecognised(t *testing.T) {
	_, client := comparingStore(t)
	losing, network := losingClient(t, client, -1)
	canCompare(losing)
	store := redisstore.New(losing)
	claimed(t, store, time.Minute)
	first := claimed(t, store, time.Minute)
	require.NoError(t, store.Complete(ctx, first, nil)) // and so it knows IFEQ
	c := claimed(t, store, time.Minute)
	network.lose(1)
	assert.Error(t, store.Complete(ctx, c, []byte("kept")), "nobody knows whether the call was executed")
	require.EqualValues(t, 1, network.lost.Load())
	assert.Equal(t, "12", client.Get(ctx, nameOf(c)).Val()[:2], "it was executed")
	require.NoError(t, store.Complete(ctx, c, []byte("kept")))
	network.lose(1)
	assert.Error(t, store.Complete(ctx, claimed(t, redisstore.New(client), time.Minute), []byte("kept")))
}

// A server that refuses IFEQ is asked for it once.
func TestAServerWithoutIFEQIsAskedOnce(t *testing.T) {
	store, client := nativeStore(t)
	c := claimed(t, store, time.Minute)
	require.NoError(t, redisstore.New(client, redisstore.Scripts()).Complete(ctx, c, nil)) // the server learns the script
	if err := client.Do(ctx, "SET", "no key", "", "IFEQ", "", "PX", 1).Err(); err == nil || err == redis.Nil {
		t.Skip("this server has it")
	}
	trips := &roundTrips{}
	client.AddHook(trips)
	for i, want := range []int64{2, 1, 1} {
		c := claimed(t, store, time.Minute)
		before := trips.n.Load()
		require.NoError(t, store.Complete(ctx, c, nil))
		assert.Equal(t, want, trips.n.Load()-before, "outcome %d", i)
	}
	only := redisstore.New(client, redisstore.Scripts())
	c = claimed(t, only, time.Minute)
	before := trips.n.Load()
	require.NoError(t, only.Complete(ctx, c, nil))
	assert.EqualValues(t, 1, trips.n.Load()-before, "with Scripts")
}

// An outcome that no replica has is set, and not durable.
func TestAnOutcomeThatIsComparedAndSetWaitsForReplicas(t *testing.T) {
	client, replica := replicated(t)
	canCompare(client)
	store := redisstore.New(client, redisstore.WaitReplicas(1, 200*time.Millisecond))
	patient := redisstore.New(client, redisstore.WaitReplicas(1, 4*time.Second)) // a busy replica is no broken one
	for _, s := range []*redisstore.Store{patient, store} {                      // each learns that it may send plain commands
		require.Eventually(t, func() bool {
			_, err := s.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
			return err == nil
		}, 20*time.Second, time.Millisecond)
	}
	c, record := nativeClaim(t, patient, client, time.Minute)
	replica.Pause()
	scripts := scriptsOf(t, client, func() {
		assert.ErrorIs(t, store.Complete(ctx, c, []byte("kept")), driver.ErrNotDurable)
	})
	assert.Zero(t, scripts)
	assert.Equal(t, "kept", client.Get(ctx, record).Val()[58:])
	replica.Resume()
	require.Eventually(t, func() bool { return store.Complete(ctx, c, []byte("kept")) == nil }, 20*time.Second, 10*time.Millisecond)
}
