package faults_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
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
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
)

// traffic is clients that send each key twice, one key after the other, until they are stopped.
type traffic struct {
	s       *service
	stop    func()
	wasBack int64 // unix ns at which the service answered again
	clients sync.WaitGroup
	acked   sync.Map
	refused atomic.Int64
	slowest atomic.Int64 // ns that a request took
	lost    []string     // at the end
	unkept  int          // how many of them were answered when the store was away, and never kept
	lastAck atomic.Int64 // unix ns at which the latest request that was answered 201 was sent
}

func (s *service) traffic(clients int) *traffic {
	stopped := make(chan struct{})
	l := &traffic{s: s, stop: sync.OnceFunc(func() { close(stopped) })}
	s.tb.Cleanup(func() { l.stop(); l.clients.Wait() }) // also when the test ends early
	for i := range clients {
		l.clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stopped:
					return
				case <-time.After(10 * time.Millisecond):
					l.pay(fmt.Sprintf("%d-%d", i, n))
				}
			}
		})
	}
	return l
}

// pay sends a key twice: one after the other, or at once where requests wait.
func (l *traffic) pay(key string) {
	if l.s.engine.Config().Wait.Timeout <= 0 {
		l.send(key)
		l.send(key)
		return
	}
	var twins sync.WaitGroup
	twins.Go(func() { l.send(key) })
	twins.Go(func() { l.send(key) })
	twins.Wait()
}

func (l *traffic) send(key string) {
	sent := time.Now()
	a := l.s.post(key)
	l.slowest.Store(max(l.slowest.Load(), int64(time.Since(sent)))) // or nearly so, with many clients
	switch a.status {
	case http.StatusCreated:
		l.acked.LoadOrStore(key, a.at)
		l.lastAck.Store(sent.UnixNano())
	case http.StatusConflict, http.StatusServiceUnavailable:
		l.refused.Add(1)
	default:
		assert.Fail(l.s.tb, "unexpected answer", "%d %s", a.status, a.body)
	}
}

// back waits until a request that was sent after a fault was noticed is answered 201, and lets the clients go on for a while.
// One that was under way is answered as well, when its store timeout is over: its outcome is kept later.
func (l *traffic) back(fault time.Time, within time.Duration) {
	l.s.tb.Helper()
	before := l.refused.Load()
	require.Eventually(l.s.tb, func() bool { return l.refused.Load() > before }, within, time.Millisecond, "nobody has noticed the fault")
	l.answers(within)
	l.s.tb.Logf("back %v after the fault", time.Duration(l.wasBack-fault.UnixNano()))
	time.Sleep(300 * time.Millisecond)
}

// answers waits until a request that is sent from now on is answered 201.
func (l *traffic) answers(within time.Duration) {
	l.s.tb.Helper()
	now := time.Now().UnixNano()
	require.Eventually(l.s.tb, func() bool { return l.lastAck.Load() > now }, within, 10*time.Millisecond, "the service is not back")
	l.wasBack = time.Now().UnixNano()
}

// end stops the clients and reads everything back: what was acknowledged is replayed, or was lost with the writes that had
// not been replicated, and then it runs anew. It returns how many were lost, and how many of them late: when the service was back.
func (l *traffic) end() (lost, late int) {
	l.s.tb.Helper()
	l.stop()
	l.clients.Wait()
	acked := 0
	l.acked.Range(func(key, at any) bool {
		acked++
		a := l.s.soon(key.(string), 30*time.Second)
		if a.replayed {
			return true
		}
		l.lost = append(l.lost, key.(string))
		if !l.s.wasKept(key.(string)) {
			l.unkept++
		}
		if at.(time.Time).UnixNano() > l.wasBack {
			late++
		}
		return true
	})
	lost = len(l.lost)
	l.s.tb.Logf("%d keys acknowledged, %d lost, %d of them unkept, %d late, %d requests refused", acked, lost, l.unkept, late, l.refused.Load())
	require.NotZero(l.s.tb, acked)
	l.s.promises(true)
	return lost, late
}

// durabilities are how safe writes may be made, and what a failover may lose then.
var durabilities = []struct {
	name    string
	opts    []redisstore.Option
	mayLose int
}{
	{"asynchronous", nil, math.MaxInt}, // what was not replicated: nothing is promised, the count is logged
	{"on a replica", []redisstore.Option{redisstore.WaitReplicas(1, 500*time.Millisecond)}, 0},
}

// failsOver runs traffic through a fault of a group's primary, once for each durability.
func failsOver(t *testing.T, fault, repair func(*testing.T, *redistest.Server)) {
	for _, d := range durabilities {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for range trials() {
				assert.LessOrEqual(t, failover(t, fault, repair, d.opts...), d.mayLose)
			}
		})
	}
}

// failover runs traffic through a fault of a new group's primary and returns how many outcomes that were acknowledged are lost.
func failover(t *testing.T, fault, repair func(*testing.T, *redistest.Server), opts ...redisstore.Option) (lost int) {
	t.Helper()
	g := redistest.StartGroup(t)
	s := newService(t, redisstore.New(g.Client(t), opts...), func(c *core.Config) { c.Lease.Duration = 5 * time.Second })
	s.created(s.post("warm"))
	old := g.Primary(t)
	l := s.traffic(4)
	time.Sleep(200 * time.Millisecond)
	return l.through(g, func() { fault(t, old) }, func() { repair(t, old) })
}

// through goes on through a fault of a group's primary until another has taken its place, and ends. If the old one is
// repaired, it is a replica by then. It returns how many outcomes are lost.
func (l *traffic) through(g *redistest.Group, fault, repair func()) (lost int) {
	t := l.s.tb
	t.Helper()
	old := g.Nodes[0]
	began := time.Now()
	fault()
	l.back(began, 30*time.Second)
	redistest.Eventually(t, "the sentinels agree on another primary", func() bool { return g.Agreed() != nil && g.Agreed() != old })
	if repair != nil {
		repair()
		redistest.Eventually(t, "the old primary is a replica", func() bool { return old.Info(t, "role") == "slave" })
	}
	lost, late := l.end()
	switch failovers := g.Failovers(t); failovers {
	case 0:
		assert.Fail(t, "no sentinel has heard of a failover")
	case 1:
		assert.Zero(t, late, "acknowledged by the new primary, and lost")
	default: // more than one fault: a replica that is still being filled can be promoted
		t.Logf("%d failovers: the machine is starved", failovers)
	}
	return lost
}

func trials() int {
	if os.Getenv("SOAK") != "" {
		return 10
	}
	return 1
}

func TestAPrimaryBehindSentinelIsKilled(t *testing.T) {
	t.Parallel()
	failsOver(t, func(_ *testing.T, s *redistest.Server) { s.Kill() }, func(t *testing.T, s *redistest.Server) { s.Restart(t) })
}

// The primary and the way to its replicas are gone at once, and the replicas have not got the last moments.
func TestAPrimaryBehindSentinelIsLostWhileItsReplicasLag(t *testing.T) {
	t.Parallel()
	for _, d := range durabilities {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for range trials() {
				assert.LessOrEqual(t, loseLagging(t, d.opts...), d.mayLose)
			}
		})
	}
}

// loseLagging returns how many outcomes are lost. All were acknowledged after the replicas were last seen to have everything.
func loseLagging(t *testing.T, opts ...redisstore.Option) (lost int) {
	t.Helper()
	g := redistest.StartGroup(t)
	const delay = 50 * time.Millisecond
	cut := g.Lag(t, delay)
	s := newService(t, redisstore.New(g.Client(t), opts...), func(c *core.Config) { c.Lease.Duration = 5 * time.Second })
	l := s.traffic(4)
	l.answers(20 * time.Second)
	var safe []string
	l.acked.Range(func(key, _ any) bool { safe = append(safe, key.(string)); return true })
	primary := g.Nodes[0].Client(t, func(o *redis.Options) { o.PoolSize, o.ReadTimeout = 1, time.Minute })
	began := time.Now()
	require.NoError(t, primary.Set(ctx, "marker", "", 0).Err())
	require.EqualValues(t, 2, primary.Wait(ctx, 2, 30*time.Second).Val())
	assert.GreaterOrEqual(t, time.Since(began), 2*delay, "the way is not long")
	time.Sleep(300 * time.Millisecond)
	lost = l.through(g, func() {
		cut()
		require.NoError(t, primary.Set(ctx, "the last moment", "", 0).Err())
		g.Nodes[0].Kill()
	}, nil)
	assert.Zero(t, g.Client(t).Exists(ctx, "the last moment").Val(), "nothing was lost on the way")
	assert.NotEmpty(t, safe)
	for _, key := range safe {
		assert.NotContains(t, l.lost, key, "both replicas had it")
	}
	return lost
}

// A run is in progress and another is kept while the primary, whose clock is right, gives way to a replica whose clock is not.
func TestAReplicaWithAnotherClockIsPromoted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ahead, lease time.Duration
		check        func(t *testing.T, store driver.Store, vanished, next *driver.Claim, age time.Duration)
	}{
		"ahead": {20 * time.Second, 15 * time.Second, func(t *testing.T, store driver.Store, vanished, next *driver.Claim, _ time.Duration) {
			assert.True(t, begin(t, store, next).Takeover, "its lease ends early")
		}},
		"behind": {-20 * time.Second, 2 * time.Minute, func(t *testing.T, store driver.Store, vanished, next *driver.Claim, age time.Duration) {
			entry, err := store.Begin(ctx, *next)
			require.NoError(t, err)
			assert.Equal(t, driver.InProgress, entry.State)
			assert.Greater(t, entry.Remaining+age, vanished.Lease+15*time.Second, "its lease ends late")
			require.NoError(t, store.Fail(ctx, *vanished, driver.Failure{}))
			begin(t, store, next)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := redistest.StartGroupWithClocks(t, c.ahead)
			findings, err := redisstore.Check(ctx, g.Nodes[0].Client(t))
			require.NoError(t, err)
			assert.True(t, slices.ContainsFunc(findings, func(f driver.Finding) bool { return strings.HasPrefix(f.Setting, "clock of a replica") }))
			client := g.Client(t)
			store := redisstore.New(client, redisstore.WaitReplicas(2, 20*time.Second))
			vanished, kept := storetest.NewClaim(c.lease, time.Hour), storetest.NewClaim(c.lease, time.Hour)
			began := time.Now()
			begin(t, store, &vanished)
			begin(t, store, &kept)
			require.NoError(t, store.Complete(ctx, kept, []byte("kept")))

			confirmed := redisstore.New(client, redisstore.WaitReplicas(1, 500*time.Millisecond))
			s := newService(t, confirmed, func(c *core.Config) { c.Lease.Duration = 5 * time.Second })
			l := s.traffic(2)
			l.answers(20 * time.Second)
			lost := l.through(g, g.Nodes[0].Kill, nil)
			if c.ahead > 0 { // what was to be kept later may be taken over before: its lease ends early as well
				lost = len(l.lost) - l.unkept
			}
			assert.Zero(t, lost)

			store = redisstore.New(g.Client(t)) // client may still answer for the old primary, which it dialled in vain
			next := rival(vanished)
			c.check(t, store, &vanished, &next, time.Since(began))
			assert.Greater(t, next.Fence, vanished.Fence)
			assert.ErrorIs(t, store.Extend(ctx, vanished), core.ErrLost)
			assert.ErrorIs(t, store.Complete(ctx, vanished, []byte("stale")), core.ErrLost)
			require.NoError(t, store.Complete(ctx, next, []byte("next")))
			for outcome, claim := range map[string]driver.Claim{"kept": kept, "next": next} {
				entry, err := store.Begin(ctx, rival(claim))
				require.NoError(t, err)
				assert.Equal(t, driver.Completed, entry.State)
				assert.Equal(t, outcome, string(entry.Outcome))
			}
		})
	}
}

// begin claims c, which must succeed, and fills in what the store answered.
func begin(t *testing.T, store driver.Store, c *driver.Claim) driver.Entry {
	t.Helper()
	entry, err := store.Begin(ctx, *c)
	require.NoError(t, err)
	require.Equal(t, driver.Claimed, entry.State)
	c.Fence, c.Attempt, c.Takeover = entry.Fence, entry.Attempt, entry.Takeover
	return entry
}

// rival returns the claim of another run of the same request.
func rival(c driver.Claim) driver.Claim {
	c.Owner[0] ^= 1
	c.Fence, c.Attempt, c.Takeover = 0, 0, false
	return c
}

// It wakes up as a second primary, and no sentinel client writes to it.
func TestAPrimaryBehindSentinelIsPausedAndWakesUp(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("takes the ten seconds that a sentinel leaves an old primary alone: SOAK=1")
	}
	t.Parallel()
	failsOver(t, func(_ *testing.T, s *redistest.Server) { s.Pause() }, func(_ *testing.T, s *redistest.Server) { s.Resume() })
}

// A primary without its replicas, as one that was cut off with some of its clients. If min-replicas-to-write does not hold for
// scripts, the store must wait for a replica.
func TestAPrimaryThatIsCutOffFromItsReplicasRunsNothing(t *testing.T) {
	t.Parallel()
	g := redistest.StartGroup(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
	var opts []redisstore.Option
	refusal, code := "NOREPLICAS", "store-unavailable"
	if !scriptsNeedReplicas(t) {
		opts = append(opts, redisstore.WaitReplicas(1, 200*time.Millisecond))
		refusal, code = driver.ErrNotDurable.Error(), "not-durable"
	}
	s := newService(t, redisstore.New(g.Nodes[0].Client(t), opts...))
	s.created(s.post("before"))
	for _, replica := range g.Nodes[1:] {
		replica.Pause()
	}
	require.Eventually(t, func() bool {
		a := s.post(fmt.Sprint("K", time.Now().UnixNano()))
		return a.status == http.StatusServiceUnavailable && s.heard(refusal)
	}, 20*time.Second, 50*time.Millisecond)
	s.refused(s.post("cut-off"), code)
	s.ran("cut-off", 0)
	s.replays("before")
	for _, replica := range g.Nodes[1:] {
		replica.Resume()
	}
	s.soon("cut-off", 20*time.Second)
	s.promises(false)
}

func TestAReplicaRunsNothing(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	s := newService(t, redisstore.New(primary.Client(t)))
	s.created(s.post("before"))
	other := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	finish := s.begun("during")
	require.NoError(t, other.Client(t).ReplicaOf(ctx, "127.0.0.1", primary.Addr[len("127.0.0.1:"):]).Err())
	redistest.Eventually(t, "the other has everything", func() bool { return other.Info(t, "master_link_status") == "up" })
	require.NoError(t, other.Client(t).ReplicaOf(ctx, "no", "one").Err())
	require.NoError(t, primary.Client(t).ReplicaOf(ctx, "127.0.0.1", other.Addr[len("127.0.0.1:"):]).Err())
	s.away(s.post("new"))
	require.True(t, s.heard("READONLY"), "%v", s.errors)
	s.ran("new", 0)
	s.created(finish()) // inside its lease, and the outcome is sent again for another
	require.NoError(t, primary.Client(t).ReplicaOf(ctx, "no", "one").Err())
	s.soon("new", 20*time.Second)
	s.promises(true)
}

func TestAClusterLosesAMasterAndThenItsMajority(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	s := newService(t, redisstore.New(c.Client(t)), func(c *core.Config) { c.Lease.Duration = 5 * time.Second })
	hit := s.keysOn(c.Nodes[0].Client(t), 3)
	l := s.traffic(6)
	time.Sleep(200 * time.Millisecond)
	began := time.Now()
	c.Nodes[0].Kill()
	s.away(s.post(hit[0]))
	for _, key := range hit { // the other masters' keys are refused for about a second, until the replica is elected
		s.soon(key, 30*time.Second)
	}
	took := time.Since(began)
	t.Logf("its keys are back %v after the fault", took)
	assert.Less(t, took, 20*time.Second, "5 s on a machine with time: 2 s until it is missed, an election, 1 s until the client looks again")
	l.answers(30 * time.Second)
	redistest.Eventually(t, "its replica serves", func() bool { return c.Nodes[3].Info(t, "role") == "master" })
	lost, _ := l.end()
	assert.LessOrEqual(t, lost, 200, "writes that were not replicated; 0 on most runs")

	c.Nodes[1].Kill()
	c.Nodes[2].Kill() // nobody is left who could promote their replicas
	redistest.Eventually(t, "the minority stops", func() bool {
		return strings.Contains(c.Nodes[3].Client(t).ClusterInfo(ctx).Val(), "cluster_state:fail")
	})
	s.away(s.post("down"))
	s.ran("down", 0)
}

// keysOn returns keys that ran, and whose records are on one node.
func (s *service) keysOn(node *redis.Client, n int) (keys []string) {
	s.tb.Helper()
	for i := 0; len(keys) < n; i++ {
		key, before := fmt.Sprint("on", i), node.DBSize(ctx).Val()
		s.created(s.post(key))
		if node.DBSize(ctx).Val() > before {
			keys = append(keys, key)
		}
	}
	return keys
}

// LSE-19: whatever a request makes use of, alone and together.
func TestSlotsThatMoveUnderLoadCostNoRequest(t *testing.T) {
	t.Parallel()
	late := func(c *core.Config) { c.Keep.LateRetry = time.Hour }
	waits := func(c *core.Config) { c.Wait.Timeout = 5 * time.Second }
	confirmed := redisstore.WaitReplicas(1, 2*time.Second)
	for name, c := range map[string]struct {
		options []redisstore.Option
		change  []func(*core.Config)
		do      work
	}{
		"alone":             {nil, nil, quick},
		"in batches":        {[]redisstore.Option{redisstore.Batch()}, nil, quick},
		"with late retries": {nil, []func(*core.Config){late}, quick},
		"with steps":        {nil, nil, inSteps},
		"that wait":         {nil, []func(*core.Config){waits}, quick},
		"confirmed":         {[]redisstore.Option{confirmed}, nil, quick},
		"in batches, with late retries and steps, that wait": {[]redisstore.Option{redisstore.Batch()}, []func(*core.Config){late, waits}, inSteps},
		"confirmed, with late retries and steps, that wait":  {[]redisstore.Option{confirmed}, []func(*core.Config){late, waits}, inSteps},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slotsMoveUnderLoad(t, c.options, c.do, c.change...)
		})
	}
}

// inSteps keeps the result of a step. The step is long enough for an extension, and for others to come meanwhile.
func inSteps(ctx context.Context, _ core.Run) int {
	for _, name := range []string{"charge", "ship"} {
		if _, err := core.Step(ctx, name, func(context.Context) (int, error) { return 1, nil }); err != nil {
			return http.StatusInternalServerError
		}
	}
	time.Sleep(50 * time.Millisecond)
	return http.StatusCreated
}

func slotsMoveUnderLoad(t *testing.T, options []redisstore.Option, do work, change ...func(*core.Config)) {
	c := redistest.StartCluster(t)
	s := newService(t, redisstore.New(c.Client(t), options...), append(change, func(c *core.Config) {
		c.Lease.Duration, c.Limits.StoreTimeout = 10*time.Second, 5*time.Second
	})...)
	s.works(do)
	l := s.traffic(8)
	redistest.Eventually(t, "there are records to move", func() bool { return c.Nodes[0].Client(t).DBSize(ctx).Val() > 50 })
	moved := 0
	for i := range 2 { // there and back
		from, to := c.Nodes[i], c.Nodes[1-i]
		reshard := c.Reshard(t, from, to, c.SlotsOf(t, from)[:500]...)
		time.Sleep(300 * time.Millisecond) // what is new is on the one node, what was there on the other
		moved += reshard.Keys(1)
		time.Sleep(300 * time.Millisecond)
		moved += reshard.End()
	}
	time.Sleep(200 * time.Millisecond)
	lost, _ := l.end()
	assert.Zero(t, lost, "a move loses nothing")
	assert.Zero(t, l.refused.Load())
	assert.Less(t, time.Duration(l.slowest.Load()), 2*time.Second, "the longest, a second of which is for the machine, that a request took")
	assert.NotZero(t, moved, "no record has moved")
	s.promises(false)
}
