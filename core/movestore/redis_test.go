package movestore_test

import (
	"flag"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/movestore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
)

// Most tests of the contract on a server wait for leases, so more of them run at once than there are processors.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "16")
	m.Run()
}

// Two prefixes of a real server together are one store.
func TestAMoveToAnotherPrefixKeepsTheContract(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := step(redisstore.New(client), redisstore.New(client, redisstore.Prefix("new:")))
			storetest.Run(t, func(testing.TB) storetest.Harness { return storetest.Harness{Store: store, Advance: time.Sleep} })
		})
	}
}

// contended is one key for which processes of both steps compete.
type contended struct {
	*testing.T
	key, fingerprint [32]byte
	running, runs    atomic.Int32
}

// compete sends requests of one client to a process until it has the outcome, and makes it if the process has the claim.
func (k *contended) compete(store driver.Store) {
	for k.Context().Err() == nil {
		c := storetest.NewClaim(lease, retention)
		c.Key, c.Fingerprint = k.key, k.fingerprint
		entry, err := store.Begin(k.Context(), c)
		if !assert.NoError(k, err) {
			return
		}
		switch entry.State {
		case driver.Completed:
			assert.Equal(k, "kept", string(entry.Outcome))
			return
		case driver.Claimed:
			assert.EqualValues(k, 1, k.running.Add(1), "runs at the same time")
			assert.EqualValues(k, 1, k.runs.Add(1), "runs")
			c.Fence = entry.Fence
			k.running.Add(-1)
			assert.NoError(k, store.Complete(k.Context(), c, []byte("kept")))
		}
	}
}

// Clients of processes of both steps, which compete for each of many keys at the same time, make one run of each.
func TestProcessesOfBothStepsRunEachKeyOnce(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	from, to := redisstore.New(client, redisstore.Prefix("from:")), redisstore.New(client, redisstore.Prefix("to:"))
	processes := []driver.Store{movestore.Prepare(from, to), movestore.Move(from, to)}
	for range 200 {
		c := storetest.NewClaim(lease, retention)
		k := &contended{T: t, key: c.Key, fingerprint: c.Fingerprint}
		var clients sync.WaitGroup
		for i := range 8 {
			clients.Go(func() { k.compete(processes[i%2]) })
		}
		clients.Wait()
		assert.EqualValues(t, 1, k.runs.Load())
	}
}
