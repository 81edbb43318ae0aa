package plan

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
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

// planned is a Cluster of three masters for n new keys a second, with responses of 512 bytes.
func planned(n int) Cluster {
	return Cluster{
		Load: Load{Rate: float64(n), Lease: time.Minute, Handler: time.Millisecond, Retention: time.Hour, Body: 512, Headers: 51, Ratio: 1,
			Quantum: 16},
		Nodes: 3, Replays: 0.05, Costs: KnownCosts["redis"], Busy: 0.5, Memory: 1 << 30, Network: 1e9,
		Lag: 10 * time.Millisecond, Outage: Outage{NodeTimeout: 15 * time.Second, Reload: time.Second, Away: 16 * time.Second}, Seconds: 10, Seed: 1,
	}
}

func TestKnownCostsAreThoseOfTheReport(t *testing.T) {
	text, err := os.ReadFile("../../../../bench/results.json")
	require.NoError(t, err)
	var results map[string]struct {
		Rows []struct {
			Name    []string
			Figures map[string]float64
		}
	}
	require.NoError(t, json.Unmarshal(text, &results))
	found := map[string]map[string]float64{}
	for _, row := range results["commands"].Rows {
		name := map[byte]string{'R': "redis", 'V': "valkey"}[row.Name[0][0]]
		if row.Name[1] == "in batches" {
			name += " batches"
		}
		if found[name] == nil {
			found[name] = map[string]float64{}
		}
		found[name][row.Name[2]] = row.Figures["plain_server_us"]
	}
	assert.Len(t, found, len(KnownCosts))
	for name, known := range KnownCosts {
		us := found[name]
		assert.InDelta(t, us["claim"], known.Claim, 0.051, name)
		assert.InDelta(t, us["outcome"], known.Outcome, 0.051, name)
		assert.InDelta(t, us["claim and replay"]-us["claim"], known.Replay, 0.051, name)
	}
}

// master is what a test reads of a master.
type master struct {
	*redis.Client
	slots, keys     int
	memory, in, out int
	set, get        int
	expiry, scripts int
}

var calls = regexp.MustCompile(`cmdstat_(set|get|pexpiretime|evalsha):calls=([0-9]+)`)

// read reads what the master has done so far, and the memory of its records.
func (m *master) read(t *testing.T) (now master) {
	now = master{Client: m.Client, slots: m.slots, keys: int(m.DBSize(t.Context()).Val())}
	now.in, now.out = number(t, m.Client, "total_net_input_bytes"), number(t, m.Client, "total_net_output_bytes")
	now.memory = number(t, m.Client, "used_memory")
	for _, other := range []string{"mem_clients_normal", "mem_cluster_links", "mem_total_replication_buffers"} {
		now.memory -= number(t, m.Client, other)
	}
	for _, found := range calls.FindAllStringSubmatch(m.Client.Info(t.Context(), "commandstats").Val(), -1) {
		n, err := strconv.Atoi(found[2])
		require.NoError(t, err)
		switch found[1] {
		case "set":
			now.set = n
		case "get":
			now.get = n
		case "pexpiretime":
			now.expiry = n
		case "evalsha":
			now.scripts = n
		}
	}
	return now
}

// load makes n records with an outcome by some goroutines at once, and replays some of them.
func load(t *testing.T, store *redisstore.Store, outcome []byte, n, replays int) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				c := storetest.NewClaim(time.Minute, time.Hour)
				entry, err := store.Begin(t.Context(), c)
				if !assert.NoError(t, err) || !assert.Equal(t, driver.Claimed, entry.State) {
					return
				}
				c.Fence, c.Attempt = entry.Fence, entry.Attempt
				assert.NoError(t, store.Complete(t.Context(), c, outcome))
				if i > int64(replays) {
					continue
				}
				c.Owner[0]++
				entry, err = store.Begin(t.Context(), c)
				assert.NoError(t, err)
				assert.Equal(t, driver.Completed, entry.State)
			}
		})
	}
	workers.Wait()
}

// TestTheSimulationIsWhatARealClusterDoes puts keys on three masters with a replica each, and compares calls, bytes and memory of each
// master with what the simulation says. The names of records are hashes of scope and key, so those of one caller are spread like these.
// SOAK=1 makes ten times as many.
func TestTheSimulationIsWhatARealClusterDoes(t *testing.T) {
	t.Parallel()
	n := 15_000
	if os.Getenv("SOAK") != "" {
		n = 150_000
	}
	cluster := redistest.StartCluster(t)
	var masters []*master
	quantum := quantumOf(t, redistest.Shared(t).Client(t))
	for _, node := range cluster.Nodes[:3] {
		client := node.Client(t, func(o *redis.Options) { o.PoolSize = 1 })
		mustBePlannedFor(t, client)
		masters = append(masters, &master{Client: client, slots: len(cluster.SlotsOf(t, node))})
	}
	c, outcome, store := planned(n), made(t, 512), redisstore.New(cluster.Client(t))
	c.Load.Quantum = quantum
	c.Load.Retention = time.Second // the simulated second has all keys
	c.Load.Handler = time.Nanosecond
	load(t, store, outcome, n/2, 300)                                // connections, scripts, backlogs and what the store finds out are there before
	counted := number(t, masters[0].Client, "uptime_in_seconds") + 2 // a server counts the buffers of each client once a second
	redistest.Eventually(t, "the buffers of all connections are counted", func() bool {
		return number(t, masters[0].Client, "uptime_in_seconds") >= counted
	})
	for _, m := range masters {
		finishTables(t, m.Client, int(m.DBSize(t.Context()).Val()))
		*m = m.read(t)
	}
	replays := int(c.Replays * float64(n))
	load(t, store, outcome, n, replays)
	simulated, _ := c.Simulate()
	var set, get, expiry, scripts int
	for i, before := range masters {
		now := before.read(t)
		keys, want := now.keys-before.keys, simulated[i]
		share := float64(before.slots) / slots
		assert.InDelta(t, want.Slots, before.slots, 1)
		assert.InDelta(t, want.New, keys, 6*math.Sqrt(float64(n)*share*(1-share)), "new keys of node %d; both numbers are random", i)
		finishTables(t, now.Client, now.keys)
		now.memory = now.read(t).memory
		bytes := c.memory(0, now.keys) - c.memory(0, before.keys)
		assert.InEpsilon(t, bytes, now.memory-before.memory, 0.03, "memory of node %d", i)
		perKey := float64(keys) / want.New / 8 // of the keys that this node has got; the simulation counts bits
		assert.InEpsilon(t, want.In*perKey, now.in-before.in, 0.03, "bytes into node %d", i)
		assert.InEpsilon(t, want.Out*perKey, now.out-before.out, 0.03, "bytes out of node %d, those to its replica included", i)
		t.Logf("node %d: %d keys, simulated %.0f; %d bytes of memory, %d; %d bytes in, %.0f; %d bytes out, %.0f", i, keys, want.New,
			now.memory-before.memory, bytes, now.in-before.in, want.In*perKey, now.out-before.out, want.Out*perKey)
		set, get = set+now.set-before.set, get+now.get-before.get
		expiry, scripts = expiry+now.expiry-before.expiry, scripts+now.scripts-before.scripts
	}
	bursts := get - n // calls that ask with GET first, because replays came before them: the script of each outcome has one, too
	assert.LessOrEqual(t, expiry, n+replays, "one for each claim and replay")
	assert.GreaterOrEqual(t, expiry+bursts, n+replays, "or a GET")
	assert.Equal(t, n, scripts, "one for each outcome")
	assert.Equal(t, expiry+n, set, "those of the scripts, too")
}

// TestAFailoverLosesWhatTheReplicasHaveNot lets replicas be behind by a time, and kills the primary under load. What is lost is what
// came in that time.
func TestAFailoverLosesWhatTheReplicasHaveNot(t *testing.T) {
	t.Parallel()
	const lag = 300 * time.Millisecond
	group := redistest.StartGroup(t)
	client := group.Client(t)
	store, primary := redisstore.New(client), group.Primary(t)
	cut := group.Lag(t, lag)
	ctx, cancel := context.WithCancel(t.Context())
	acknowledged := map[string]time.Time{} // by the name of the record
	var killed time.Time
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for begin := time.Now(); ; <-pace.C {
		c := storetest.NewClaim(time.Minute, time.Hour)
		entry, err := store.Begin(ctx, c)
		if err != nil {
			break
		}
		c.Fence, c.Attempt = entry.Fence, entry.Attempt
		if store.Complete(ctx, c, []byte("outcome")) != nil {
			break
		}
		acknowledged["idem:{"+string(driver.AppendRecordName(nil, c.Key))+"}"] = time.Now()
		if time.Since(begin) > 4*lag && killed.IsZero() {
			killed = time.Now()
			primary.Kill()
			cut()
			time.AfterFunc(time.Second, cancel) // the calls that hang
		}
	}
	cancel()
	within := func(d time.Duration) (n int) {
		for _, at := range acknowledged {
			if at.After(killed.Add(-d)) {
				n++
			}
		}
		return n
	}
	c := planned(1000)
	c.Nodes, c.Lag, c.Load.Rate = 1, lag, float64(within(lag))/lag.Seconds()
	_, predicted := c.Simulate()
	var promoted *redistest.Server
	redistest.Eventually(t, "a replica has taken over", func() bool {
		promoted = group.Agreed() // nil while the sentinels do not agree
		return promoted != nil && promoted != primary
	})
	lost := 0
	after := promoted.Client(t)
	for name := range acknowledged {
		if after.Exists(t.Context(), name).Val() == 0 {
			lost++
		}
	}
	t.Logf("%d records, of which %d in the last %v; simulated loss %d, lost %d", len(acknowledged), within(lag), lag, predicted.Outcomes, lost)
	assert.Positive(t, lost)
	assert.GreaterOrEqual(t, lost, within(lag/2))
	assert.LessOrEqual(t, lost, within(2*lag), "the processes of a busy machine are late")
}

func TestOneSeedGivesOneResult(t *testing.T) {
	c := planned(10_000)
	nodes, loss := c.Simulate()
	again, lossAgain := c.Simulate()
	assert.Equal(t, nodes, again)
	assert.Equal(t, loss, lossAgain)
	c.Seed = 2
	other, _ := c.Simulate()
	assert.NotEqual(t, nodes, other)
}

func TestTheSizeIsThatOfTheTightestLimit(t *testing.T) {
	c := planned(100_000)
	c.Nodes, c.Memory, c.Network, c.Costs = 0, 1<<50, 1e12, Costs{6, 8, 4}
	assert.Equal(t, Size{CPU: 3, Memory: 1, Network: 1}, c.Size())
	assert.Equal(t, 3, c.masters())
	c.Memory = c.Bytes()/9 - 1
	assert.Equal(t, 10, c.masters())
	c.Network = 1e7
	assert.Equal(t, c.Size().Network, c.masters())
	assert.Greater(t, c.masters(), 50)
}

func TestAHotKeyIsOfOneNode(t *testing.T) {
	c := planned(100_000)
	c.Hottest = 0.2
	nodes, loss := c.Simulate()
	hot := 0
	for _, n := range nodes {
		if n.Replays > 20_000 {
			hot++
		}
	}
	assert.Equal(t, 1, hot)
	assert.Greater(t, nodes[loss.Node].Replays, 20_000.0, "it is the busiest")
}

func TestWaitReplicasLosesNothing(t *testing.T) {
	c := planned(100_000)
	_, loss := c.Simulate()
	assert.InEpsilon(t, 333, loss.Outcomes, 0.25)
	assert.InEpsilon(t, 560_000, loss.Refused, 0.02)
	c.Wait = true
	_, loss = c.Simulate()
	assert.Zero(t, loss.Claims+loss.Outcomes)
}

// A server rounds its own tables up, and not a part of those that one server for all would have.
func TestTheMemoryOfAMasterIsThatOfItsOwnKeys(t *testing.T) {
	c := planned(100_000)
	c.Load.Body, c.Load.Headers, c.Nodes = 0, 0, 11
	record := c.Load.Quantum.completed(c.Load.outcome()).sum() + c.Load.Quantum.alloc(slotIndexLength)
	nodes, _ := c.Simulate()
	for _, n := range nodes {
		own := c.Load.keys() * n.Slots / slots
		assert.InEpsilon(t, own*record+tables(own), n.Memory, 0.0001)
	}
}

// A master has a whole number of slots, so some masters have more than others.
func TestNoMasterHasMoreThanTheLimits(t *testing.T) {
	for _, hottest := range []float64{0, 0.3} {
		c := planned(100_000)
		c.Hottest, c.Memory, c.Nodes = hottest, 300<<20, 0
		nodes, _ := c.Simulate()
		for _, n := range nodes {
			assert.LessOrEqual(t, n.Memory, c.Memory, "of %d masters", len(nodes))
		}
		c.Memory = 1 << 50
		nodes, _ = c.Simulate()
		for _, n := range nodes {
			assert.LessOrEqual(t, n.CPU, c.Busy*1.03, "of %d masters", len(nodes))
		}
		c.Busy, c.Network = 1, 400e6
		nodes, _ = c.Simulate()
		for _, n := range nodes {
			assert.LessOrEqual(t, max(n.In, n.Out), c.Network*1.03, "of %d masters", len(nodes))
		}
	}
}

// A handler that is quicker than the replicas has its outcome in the part that is lost, too, and its run does not go on.
func TestALostClaimIsThatOfARunThatGoesOn(t *testing.T) {
	c := planned(100_000)
	c.Load.Handler = time.Millisecond
	_, loss := c.Simulate()
	assert.InEpsilon(t, 33, loss.Claims, 0.6)
	c.Load.Handler = time.Second
	_, loss = c.Simulate()
	assert.InEpsilon(t, 333, loss.Claims, 0.25)
}
