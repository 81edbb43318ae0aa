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
	"github.com/go-idem/idem/internal/redistest"
)

// calls are all that go over the network, by the name of the method.
var calls = map[string]func(context.Context, redis.UniversalClient, *redisstore.Store, driver.Claim) error{
	"Begin": func(ctx context.Context, _ redis.UniversalClient, s *redisstore.Store, _ driver.Claim) error {
		c := storetest.NewClaim(time.Minute, time.Hour)
		c.LateRetry = time.Hour
		_, err := s.Begin(ctx, c)
		return err
	},
	"Extend": func(ctx context.Context, _ redis.UniversalClient, s *redisstore.Store, c driver.Claim) error {
		return s.Extend(ctx, c)
	},
	"Complete": func(ctx context.Context, _ redis.UniversalClient, s *redisstore.Store, c driver.Claim) error {
		return s.Complete(ctx, c, []byte("outcome"))
	},
	"Fail": func(ctx context.Context, _ redis.UniversalClient, s *redisstore.Store, c driver.Claim) error {
		return s.Fail(ctx, c, driver.Failure{})
	},
	"Checkpoint": func(ctx context.Context, _ redis.UniversalClient, s *redisstore.Store, c driver.Claim) error {
		return s.Checkpoint(ctx, c, "step", nil)
	},
	"Checkpoints": func(ctx context.Context, _ redis.UniversalClient, s *redisstore.Store, c driver.Claim) error {
		_, err := s.Checkpoints(ctx, c)
		return err
	},
	"Reopen": func(ctx context.Context, _ redis.UniversalClient, s *redisstore.Store, c driver.Claim) error {
		return s.Reopen(ctx, c, nil)
	},
	"Watch": func(ctx context.Context, _ redis.UniversalClient, s *redisstore.Store, c driver.Claim) error {
		_, err := s.Watch(ctx, storetest.NewClaim(time.Minute, time.Hour).Key, func() {})
		return err
	},
	"Check": func(ctx context.Context, client redis.UniversalClient, _ *redisstore.Store, _ driver.Claim) error {
		_, err := redisstore.Check(ctx, client)
		return err
	},
}

// CON-11, and every other call that could hang: one to servers that answer nothing ends with its context, forty at once as well.
func TestNoCallOutlivesItsContextWhenTheServersHang(t *testing.T) {
	for engine, start := range map[string]func(*testing.T, *badnet.Net) redis.UniversalClient{
		"a server": func(t *testing.T, network *badnet.Net) redis.UniversalClient {
			return redistest.Start(t).Client(t, func(o *redis.Options) { o.Dialer = network.Dial })
		},
		"a cluster": func(t *testing.T, network *badnet.Net) redis.UniversalClient {
			return redistest.StartMasters(t, 3).Client(t, func(o *redis.ClusterOptions) { o.Dialer = network.Dial })
		},
	} {
		t.Run("on "+engine, func(t *testing.T) {
			t.Parallel()
			network := badnet.New(1)
			client := start(t, network)
			for way, options := range map[string][]redisstore.Option{
				"one by one": nil, "in batches": {redisstore.Batch()}, "confirmed": {redisstore.WaitReplicas(1, 100*time.Millisecond)},
			} {
				network.Set(badnet.Faults{})
				c := claimed(t, redisstore.New(client), time.Minute)
				c.Steps, c.LateRetry = true, time.Hour
				store := redisstore.New(client, options...)
				stop, err := store.Watch(ctx, c.Key, func() {})
				require.NoError(t, err)
				network.Set(badnet.Faults{Hole: true})
				for name, call := range calls {
					t.Run(way+", "+name, func(t *testing.T) { hangs(t, client, store, c, call) })
				}
				began := time.Now()
				stop()
				assert.Less(t, time.Since(began), busy, "stop")
				t.Run(way+", Watch without a connection", func(t *testing.T) { hangs(t, client, store, c, calls["Watch"]) })
			}
		})
	}
}

// hangs makes a call forty times at once. Each is to end within its bound.
func hangs(t *testing.T, client redis.UniversalClient, store *redisstore.Store, c driver.Claim, call func(context.Context, redis.UniversalClient, *redisstore.Store, driver.Claim) error) {
	took := make(chan time.Duration)
	for range 40 {
		go func() {
			bounded, cancel := context.WithTimeout(ctx, storeTimeout)
			defer cancel()
			began := time.Now()
			assert.Error(t, call(bounded, client, store, c))
			took <- time.Since(began)
		}()
	}
	for range 40 {
		assert.Less(t, <-took, storeTimeout+busy)
	}
}
