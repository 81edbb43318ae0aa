package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/badnet"
	"github.com/go-idem/idem/internal/hangtest"
	"github.com/go-idem/idem/internal/redistest"
)

// hanging is a store whose servers do not reply, and a claim that it has granted before.
type hanging struct {
	client redis.UniversalClient
	store  *redisstore.Store
	claim  driver.Claim
}

// calls returns all that go over the network, by their names.
func (h *hanging) calls() map[string]func(context.Context) error {
	calls := hangtest.StoreCalls(h.store, h.claim)
	calls["Store.Watch"] = func(ctx context.Context) error {
		return hangtest.Watch(ctx, h.store, storetest.NewClaim(time.Minute, time.Hour).Key)
	}
	calls["Check"] = func(ctx context.Context) error {
		_, err := redisstore.Check(ctx, h.client)
		return err
	}
	calls["CheckGrowth"] = func(ctx context.Context) error {
		_, err := redisstore.CheckGrowth(ctx, h.client, time.Hour)
		return err
	}
	return calls
}

// hangs are the ways in which a server does not reply.
var hangs = map[string]badnet.Faults{"no reply": {Hole: true}, "half a reply": {HalfReply: true}}

func TestTheListOfCallsThatCanHangIsComplete(t *testing.T) {
	hangtest.RequireAll(t, ".", new(hanging).calls())
}

// CON-11, and every other call that could hang: a call ends with its context when the servers do not reply, forty calls at once
// as well. No goroutine is left a while later, although the servers still do not reply.
func TestNoCallOutlivesItsContextWhenTheServersHang(t *testing.T) {
	single, cluster := redistest.Start(t), redistest.StartMasters(t, 3)
	clients := map[string]func(*badnet.Net) redis.UniversalClient{
		"a server": func(network *badnet.Net) redis.UniversalClient {
			return single.Client(t, func(o *redis.Options) { o.Dialer = network.Dial })
		},
		"a cluster": func(network *badnet.Net) redis.UniversalClient {
			return cluster.Client(t, func(o *redis.ClusterOptions) {
				o.Dialer, o.DialTimeout, o.ReadTimeout = network.Dial, time.Second, time.Second // no reload of the slots hangs for longer
			})
		},
	}
	t.Run("hanging", func(t *testing.T) {
		for engine, newClient := range clients {
			for fault, faults := range hangs {
				for way, options := range map[string][]redisstore.Option{
					"one by one": nil, "in batches": {redisstore.Batch()}, "confirmed": {redisstore.WaitReplicas(1, 100*time.Millisecond)},
				} {
					t.Run(engine+", "+fault+", "+way, func(t *testing.T) {
						t.Parallel()
						network := badnet.New(1)
						hangAll(t, network, newClient(network), faults, options)
					})
				}
			}
		}
	})
	hangtest.NoGoroutine(t, 10*time.Second, "github.com/go-idem/idem/core/redisstore", "github.com/redis/go-redis/v9")
}

// hangAll makes all calls while a network hangs, one kind after the other, and stops a watch from before.
func hangAll(t *testing.T, network *badnet.Net, client redis.UniversalClient, faults badnet.Faults, options []redisstore.Option) {
	c := claimed(t, redisstore.New(client), time.Minute)
	c.Steps, c.LateRetry = true, time.Hour
	h := &hanging{client, redisstore.New(client, options...), c}
	stop, err := h.store.Watch(ctx, c.Key, func() {})
	require.NoError(t, err)
	network.Set(faults)
	for name, call := range h.calls() {
		t.Run(name, func(t *testing.T) { endInTime(t, call) })
	}
	began := time.Now()
	stop()
	assert.Less(t, time.Since(began), busy, "stop")
	t.Run("Watch without a connection", func(t *testing.T) { endInTime(t, h.calls()["Store.Watch"]) })
}

// endInTime makes a call forty times at once.
func endInTime(t *testing.T, call func(context.Context) error) {
	hangtest.EndInTime(t, 40, storeTimeout, call)
}
