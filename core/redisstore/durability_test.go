package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
)

// replicated starts a primary with one replica that keeps up.
func replicated(t *testing.T) (client *redis.Client, replica *redistest.Server) {
	primary := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := strings.Cut(primary.Addr, ":")
	replica = redistest.Start(t, "--replicaof", host, port, "--repl-diskless-sync-delay", "0")
	client = primary.Client(t)
	require.Eventually(t, func() bool {
		return strings.Contains(client.Info(ctx, "replication").Val(), "state=online")
	}, 20*time.Second, 10*time.Millisecond)
	return client, replica
}

func TestAWriteThatNoReplicaHasIsNotDurable(t *testing.T) {
	t.Parallel()
	client, replica := replicated(t)
	store := redisstore.New(client, redisstore.WaitReplicas(1, 200*time.Millisecond))
	patient := redisstore.New(client, redisstore.WaitReplicas(1, 4*time.Second)) // a busy replica is no broken one
	completing, failing := claimed(t, patient, time.Minute), claimed(t, patient, time.Minute)

	replica.Pause()
	c := storetest.NewClaim(time.Minute, time.Hour)
	_, err := store.Begin(ctx, c)
	assert.ErrorIs(t, err, driver.ErrNotDurable)
	assert.ErrorIs(t, store.Complete(ctx, completing, []byte("kept")), driver.ErrNotDurable)
	assert.ErrorIs(t, store.Complete(ctx, completing, []byte("kept")), driver.ErrNotDurable, "sent again, it waits for the write before")
	assert.NoError(t, store.Fail(ctx, failing, driver.Failure{}), "what is lost of a failure is run again all the same")
	other := failing
	other.Fingerprint[5], other.Owner[0] = ^other.Fingerprint[5], ^other.Owner[0]
	_, err = store.Begin(ctx, other)
	assert.NoError(t, err, "a refusal writes nothing")

	replica.Resume()
	require.Eventually(t, func() bool { return store.Complete(ctx, completing, []byte("kept")) == nil }, 20*time.Second, 10*time.Millisecond)
	_, err = patient.Begin(ctx, c)
	assert.NoError(t, err)
}

func TestNothingRunsThatIsNotDurable(t *testing.T) {
	t.Parallel()
	client, replica := replicated(t)
	engine, err := core.New(core.Config{
		Store: redisstore.New(client, redisstore.WaitReplicas(1, 200*time.Millisecond)), Scope: core.SingleTenant,
	})
	require.NoError(t, err)
	ran := 0
	send := func() core.Result {
		result, err := engine.Do(ctx, core.Request{
			Method: "POST", Path: "/",
			Header: func(string) []string { return []string{"key"} },
			Body:   func(int64) ([]byte, error) { return nil, nil },
		}, func(context.Context) (*core.Response, error) {
			ran++
			return &core.Response{Status: 201}, nil
		})
		require.NoError(t, err)
		return result
	}
	replica.Pause()
	refused := send()
	assert.Equal(t, "not-durable", refused.Problem)
	assert.Equal(t, 503, refused.Response.Status)
	assert.Zero(t, ran)
	replica.Resume()
	require.NoError(t, engine.Close(ctx), "the claim is given back")
	require.Eventually(t, func() bool { return send().Problem == "" }, 20*time.Second, 10*time.Millisecond)
	assert.Equal(t, 1, ran)
}

// One master has lost its replica. What it holds is not durable, whatever the others could say of theirs.
func TestAClusterWaitsOnTheNodeOfTheKey(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	client := c.Client(t)
	store := redisstore.New(client, redisstore.WaitReplicas(1, time.Second)) // as long as a replica takes on a machine with other work
	claimed(t, store, time.Minute)
	c.Nodes[3].Pause() // the replica of the first
	defer c.Nodes[3].Resume()
	alone, accompanied := 0, 0
	for range 1000 {
		if alone >= 2 && accompanied >= 4 {
			return
		}
		claim := storetest.NewClaim(time.Minute, time.Hour)
		holder, err := client.MasterForKey(ctx, "idem:{"+string(driver.AppendRecordName(nil, claim.Key))+"}")
		require.NoError(t, err)
		_, err = store.Begin(ctx, claim)
		if holder.Options().Addr != c.Nodes[0].Addr {
			assert.NoError(t, err)
			accompanied++
			continue
		}
		alone++
		assert.ErrorIs(t, err, driver.ErrNotDurable)
	}
	assert.Fail(t, "all keys are on masters of one kind", "%d without a replica, %d with one", alone, accompanied)
}

func TestAWaitThatCannotSucceedPanicsAtStartUp(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	for name, option := range map[string]redisstore.Option{
		"no replica":       redisstore.WaitReplicas(0, time.Second),
		"negative":         redisstore.WaitAOF(-1, time.Second),
		"no time":          redisstore.WaitReplicas(1, 0),
		"too little to be": redisstore.WaitAOF(0, time.Microsecond),
	} {
		assert.Panics(t, func() { redisstore.New(client, option) }, name)
	}
}

// WAITAOF is there from Redis 7.2 on; an older server says so, and nothing runs. The server writes its file to disk at each
// command: otherwise it does so once a second, which may be more than the store waits for.
func TestWaitAOFIsRefusedByAServerThatHasNone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	store := redisstore.New(server.Client(t), redisstore.WaitAOF(0, 2*time.Second))
	_, err := store.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
	if server.Knows(t, "WAITAOF") {
		assert.NoError(t, err)
		return
	}
	assert.ErrorContains(t, err, "WAITAOF")
}
