package redisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/badnet"
	"github.com/go-idem/idem/internal/redistest"
)

const (
	waits        = time.Second
	storeTimeout = 200 * time.Millisecond
	busy         = 700 * time.Millisecond // more, for a machine that has much to do
	warm         = 8                      // connections to a server that are there before anything goes wrong
)

// unsharded returns the arguments of a server without what Redis 7.0 has for Cluster. An older server needs none.
func unsharded(t *testing.T) []string {
	if !redistest.Shared(t).Knows(t, "SSUBSCRIBE") {
		return nil
	}
	return []string{"--rename-command", "SSUBSCRIBE", "", "--rename-command", "SPUBLISH", ""}
}

// unshard takes the right to sharded channels from the clients of a server, which must have them.
func unshard(t *testing.T, node *redistest.Server) {
	t.Helper()
	if !node.Knows(t, "SSUBSCRIBE") {
		t.Skip("this server has no sharded channels, so there is no right to take away")
	}
	require.NoError(t, node.Client(t).Do(ctx, "ACL", "SETUSER", "default", "-ssubscribe", "-spublish", "-sunsubscribe").Err())
}

// waitingOn are the servers that requests wait on, and the client of each, whose pool is full and stays so: what is dialled
// besides is a subscription.
var waitingOn = map[string]func(*testing.T, *badnet.Net) redis.UniversalClient{
	"a server": func(t *testing.T, network *badnet.Net) redis.UniversalClient {
		return warmed(t, redistest.Start(t).Client(t, func(o *redis.Options) {
			o.Dialer, o.PoolSize, o.MinIdleConns, o.MaxRetries, o.PipelinePoolSize = network.Dial, warm, warm, -1, -1
		}), 1)
	},
	"a cluster": func(t *testing.T, network *badnet.Net) redis.UniversalClient { return waitingOnCluster(t, network) },
	"a cluster before 7.0": func(t *testing.T, network *badnet.Net) redis.UniversalClient {
		return waitingOnCluster(t, network, unsharded(t)...)
	},
}

func waitingOnCluster(t *testing.T, network *badnet.Net, args ...string) redis.UniversalClient {
	client := redistest.StartMasters(t, 3, args...).Client(t, func(o *redis.ClusterOptions) {
		o.Dialer, o.PoolSize, o.MinIdleConns, o.MaxRedirects, o.PipelinePoolSize = network.Dial, warm, warm, 2, -1
	})
	require.NoError(t, client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return node.Ping(ctx).Err() }))
	return warmed(t, client, 3)
}

func warmed(t *testing.T, client redis.UniversalClient, servers uint32) redis.UniversalClient {
	redistest.Eventually(t, "the pools are full", func() bool {
		_ = client.Get(ctx, "warm").Err()
		return client.PoolStats().IdleConns == servers*warm
	})
	return client
}

// waitingService is an engine whose requests wait, with one run that lasts.
type waitingService struct {
	t      *testing.T
	engine *core.Engine
}

func newWaitingService(t *testing.T, store driver.Store) *waitingService {
	cfg := core.Config{Store: store, Scope: core.SingleTenant}
	cfg.Wait.Timeout, cfg.Wait.MaxPerKey, cfg.Limits.StoreTimeout = waits, 100, storeTimeout
	engine, err := core.New(cfg)
	require.NoError(t, err)
	return &waitingService{t: t, engine: engine}
}

// send is one request, and how long it took.
func (s *waitingService) send(ctx context.Context, key string, run func()) (core.Result, time.Duration) {
	began := time.Now()
	result, err := s.engine.Do(ctx, core.Request{
		Method: "POST", Path: "/",
		Header: func(string) []string { return []string{key} },
		Body:   func(int64) ([]byte, error) { return nil, nil },
	}, func(context.Context) (*core.Response, error) {
		run()
		return &core.Response{Status: 201}, nil
	})
	assert.NoError(s.t, err)
	return result, time.Since(began)
}

// hold starts runs of keys, which last until finish is called.
func (s *waitingService) hold(keys ...string) (finish func()) {
	letGo, began := make(chan struct{}), make(chan struct{})
	var runs sync.WaitGroup
	for _, key := range keys {
		runs.Go(func() { s.send(ctx, key, func() { began <- struct{}{}; <-letGo }) })
	}
	for range keys {
		<-began
	}
	return sync.OnceFunc(func() { close(letGo); runs.Wait() })
}

// CON-11.
func TestAFaultyConnectionOfASubscriptionHoldsNoWaiter(t *testing.T) {
	for engine, start := range waitingOn {
		t.Run("on "+engine, func(t *testing.T) {
			network := badnet.New(1)
			s := newWaitingService(t, redisstore.New(start(t, network)))
			for fault, faults := range map[string]badnet.Faults{
				"hangs from the start":                     {Later: true, Hole: true},
				"hangs when it subscribes":                 {Listeners: true, Hole: true},
				"is refused":                               {Refuse: true},
				"breaks when it subscribes":                {Listeners: true, LoseRequests: 1},
				"breaks when the server has subscribed it": {Listeners: true, LoseReplies: 1},
			} {
				t.Run("it "+fault, func(t *testing.T) { s.t = t; s.survives(network, faults, strings.ReplaceAll(fault, " ", "-")) })
			}
		})
	}
}

// survives has requests wait while the network has faults.
func (s *waitingService) survives(network *badnet.Net, faults badnet.Faults, name string) {
	keys := []string{name + "0", name + "1", name + "2", name + "3"}
	finish := s.hold(keys...)
	defer finish()
	connections, goroutines, hits := network.Open(), runtime.NumGoroutine(), network.Hits()
	network.Set(faults)
	s.crowd(keys)
	assert.Greater(s.t, network.Hits(), hits, "the fault has not happened")

	network.Set(badnet.Faults{})
	redistest.Eventually(s.t, "no connection and no goroutine is left", func() bool {
		return network.Open() <= connections && runtime.NumGoroutine() <= goroutines
	})
	finish()
	s.heals(name)
}

// crowd sends forty requests that wait for keys, a quarter of which hang up.
func (s *waitingService) crowd(keys []string) {
	var clients sync.WaitGroup
	for i := range 40 {
		clients.Go(func() {
			if i%4 > 0 {
				result, took := s.send(ctx, keys[i/4%len(keys)], func() {})
				assert.Contains(s.t, []string{"in-progress", "store-unavailable"}, result.Problem)
				assert.Less(s.t, took, waits+storeTimeout+busy)
				return
			}
			client, leave := context.WithTimeout(ctx, waits/3)
			defer leave()
			_, took := s.send(client, keys[i/4%len(keys)], func() {})
			assert.Less(s.t, took, waits/3+busy, "its client has left")
		})
	}
	clients.Wait()
}

// heals shows that who waits is woken again: sooner than a slow check would come.
func (s *waitingService) heals(name string) {
	tries := 0
	redistest.Eventually(s.t, "who waits is woken", func() bool {
		key := fmt.Sprint(name, "-heals-", tries)
		tries++
		finish := s.hold(key)
		defer finish()
		time.AfterFunc(300*time.Millisecond, finish)
		result, took := s.send(ctx, key, func() {})
		return result.Replayed && took < 700*time.Millisecond // a slow check would come after a second
	})
}

// CON-11: a Cluster before Redis 7.0, or one that does not let its clients have what is new there, wakes with what it has.
func TestAClusterWithoutShardedChannelsWakesWaiters(t *testing.T) {
	for name, deny := range map[string]func(*testing.T) *redis.ClusterClient{
		"the commands are unknown": func(t *testing.T) *redis.ClusterClient {
			return redistest.StartMasters(t, 3, unsharded(t)...).Client(t)
		},
		"the user may not": func(t *testing.T) *redis.ClusterClient {
			cluster := redistest.StartMasters(t, 3)
			for _, node := range cluster.Nodes {
				unshard(t, node)
			}
			return cluster.Client(t)
		},
		"one of them is older": func(t *testing.T) *redis.ClusterClient {
			cluster := redistest.StartMasters(t, 3)
			unshard(t, cluster.Nodes[1])
			return cluster.Client(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := deny(t)
			for _, opts := range [][]redisstore.Option{nil, {redisstore.Batch()}} {
				here, there := redisstore.New(client, opts...), redisstore.New(client, opts...) // two processes
				for range 12 {                                                                  // on each node
					wakes(t, here, there)
				}
				for range 3 {
					wakes(t, there, here)
				}
			}
		})
	}
}

// wakes shows that who waits at one process is woken when a run of the other ends.
func wakes(t *testing.T, waiter, runner *redisstore.Store) {
	t.Helper()
	c := claimed(t, runner, time.Minute)
	woken := make(chan struct{}, 100)
	bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stop, err := waiter.Watch(bounded, c.Key, func() { woken <- struct{}{} })
	require.NoError(t, err)
	defer stop()
	rival := c
	rival.Owner, rival.Subscribed = storetest.NewClaim(time.Minute, time.Hour).Owner, true
	for begins := 1; ; begins++ {
		entry, err := waiter.Begin(ctx, rival)
		require.NoError(t, err)
		if entry.State == driver.Completed {
			break
		}
		require.Equal(t, driver.InProgress, entry.State)
		if begins == 1 {
			require.NoError(t, runner.Complete(ctx, c, []byte("kept")))
		}
		select {
		case <-woken:
		case <-bounded.Done():
			t.Fatal("nobody was woken")
		}
	}
}
