package redisstore_test

import (
	"context"
	"fmt"
	"runtime"
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

// tripCounter counts the round trips that a client makes for scripts.
type tripCounter struct{ n, queries atomic.Int64 }

func (r *tripCounter) DialHook(next redis.DialHook) redis.DialHook { return next }
func (r *tripCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.count(cmd)
		return next(ctx, cmd)
	}
}
func (r *tripCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		r.count(cmds...)
		return next(ctx, cmds)
	}
}

func (r *tripCounter) count(cmds ...redis.Cmder) {
	scripts := int64(0)
	for _, cmd := range cmds {
		if cmd.Name() == "evalsha" || cmd.Name() == "set" {
			scripts++
		}
	}
	r.queries.Add(scripts)
	r.n.Add(min(scripts, 1))
}

func TestRequestsThatComeTogetherShareRoundTrips(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	store := redisstore.New(client, redisstore.Batch())
	claimed(t, store, time.Minute) // the scripts are there
	sent := &tripCounter{}
	client.AddHook(sent)

	server.Pause()
	const many = 100
	var wg sync.WaitGroup
	for range many {
		wg.Go(func() {
			entry, err := store.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
			assert.NoError(t, err)
			assert.Equal(t, driver.Claimed, entry.State)
		})
	}
	require.Eventually(t, func() bool { return sent.n.Load() == 2 }, 20*time.Second, time.Millisecond, "two are under way at once")
	time.Sleep(50 * time.Millisecond) // the rest gathers
	server.Resume()
	wg.Wait()
	assert.EqualValues(t, many, sent.queries.Load())
	assert.LessOrEqual(t, sent.n.Load(), int64(2+many/10))
}

// tripGauge knows how many round trips of a client are under way. It answers none of them.
type tripGauge struct{ underWay, most atomic.Int64 }

func (g *tripGauge) DialHook(next redis.DialHook) redis.DialHook { return next }
func (g *tripGauge) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return g.trip() }
}
func (g *tripGauge) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return g.trip() }
}

func (g *tripGauge) trip() error {
	now := g.underWay.Add(1)
	defer g.underWay.Add(-1)
	for most := g.most.Load(); now > most && !g.most.CompareAndSwap(most, now); most = g.most.Load() {
	}
	runtime.Gosched() // others come
	return nil
}

func TestNoLoadMakesMoreThanTwoRoundTripsAtOnce(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	gauge := &tripGauge{}
	client.AddHook(gauge)
	store := redisstore.New(client, redisstore.Batch())
	c := storetest.NewClaim(time.Minute, time.Hour)
	c.Fence = 1 // a claim without a fence asks no server
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20_000 {
				_ = store.Extend(ctx, c)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 2, gauge.most.Load())
}

func TestOneRequestOfABatchDoesNotWaitForTheOthers(t *testing.T) {
	server := redistest.Start(t)
	store := redisstore.New(server.Client(t), redisstore.Batch())
	claimed(t, store, time.Minute)
	server.Pause()
	defer server.Resume()
	patient, cancel := context.WithTimeout(ctx, time.Minute)
	for range 5 {
		go func() { _, _ = store.Begin(patient, storetest.NewClaim(time.Minute, time.Hour)) }()
	}
	defer cancel()
	hurried, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	began := time.Now()
	_, err := store.Begin(hurried, storetest.NewClaim(time.Minute, time.Hour))
	var timeout interface{ Timeout() bool }
	require.ErrorAs(t, err, &timeout, "its own deadline, or its connection's")
	assert.True(t, timeout.Timeout())
	assert.Less(t, time.Since(began), 10*time.Second)
}

func TestABatchLearnsTheScriptsAndSurvivesBadRecords(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store := redisstore.New(client, redisstore.Batch(), redisstore.Prefix("batch:"))
	bad := claimed(t, store, time.Minute)
	require.NoError(t, client.Set(ctx, onlyKey(t, client, "batch:"), "no record", time.Hour).Err())
	require.NoError(t, client.ScriptFlush(ctx).Err())
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if i == 25 {
				assert.ErrorIs(t, store.Complete(ctx, bad, nil), driver.ErrUnreadable)
				return
			}
			c := storetest.NewClaim(time.Minute, time.Hour)
			entry, err := store.Begin(ctx, c)
			assert.NoError(t, err)
			c.Fence, c.Attempt = entry.Fence, entry.Attempt
			outcome := fmt.Append(nil, "outcome ", i)
			assert.NoError(t, store.Complete(ctx, c, outcome))
			c.Owner[0] ^= 1
			entry, err = store.Begin(ctx, c)
			assert.NoError(t, err)
			assert.Equal(t, string(outcome), string(entry.Outcome), "each gets its own answer")
		})
	}
	wg.Wait()
}

// Each master has batches of its own, or one that hangs would hold the calls for all.
func TestABatchDoesNotWaitForAnotherMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartMasters(t, 2)
	client, underWay, letGo := cluster.Client(t), make(chan struct{}), make(chan struct{})
	client.OnNewNode(func(node *redis.Client) {
		if node.Options().Addr == cluster.Nodes[1].Addr {
			node.AddHook(givenReplies(func(cmd redis.Cmder) any {
				if cmd.Name() == "evalsha" {
					underWay <- struct{}{}
					<-letGo
				}
				return nil
			}))
		}
	})
	store := redisstore.New(client, redisstore.Batch(), redisstore.Scripts())
	var hanging sync.WaitGroup
	begin := func(ctx context.Context, node *redistest.Server) {
		c := storetest.NewClaim(time.Minute, time.Hour)
		for cluster.MasterOf(t, nameOf(c)) != node {
			c = storetest.NewClaim(time.Minute, time.Hour)
		}
		_, err := store.Begin(ctx, c)
		assert.NoError(t, err)
	}
	for range 2 {
		hanging.Go(func() { begin(ctx, cluster.Nodes[1]) })
		<-underWay
	}
	bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	begin(bounded, cluster.Nodes[0])
	close(letGo)
	hanging.Wait()
}

// BenchmarkPairs is a Begin and a Complete of a new key, by so many goroutines at once.
//
//	go test ./core/redisstore -run '^$' -bench Pairs -benchtime 20000x
func BenchmarkPairs(b *testing.B) {
	client := redistest.Start(b).Client(b)
	outcome := make([]byte, 600)
	for _, goroutines := range []int{1, 16, 64, 256} {
		for name, store := range map[string]*redisstore.Store{
			"plain": redisstore.New(client), "batch": redisstore.New(client, redisstore.Batch()),
		} {
			b.Run(fmt.Sprint(name, "/", goroutines), func(b *testing.B) {
				var wg sync.WaitGroup
				var next atomic.Int64
				for range goroutines {
					wg.Go(func() {
						for next.Add(1) <= int64(b.N) {
							c := storetest.NewClaim(time.Minute, time.Hour)
							entry, err := store.Begin(ctx, c)
							assert.NoError(b, err)
							c.Fence, c.Attempt = entry.Fence, entry.Attempt
							assert.NoError(b, store.Complete(ctx, c, outcome))
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// held is a hook that holds round trips until the test lets them go, and notes what they have.
type held struct {
	underWay chan []redis.Cmder
	release  chan struct{}
	deadline chan time.Time
}

func (h *held) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *held) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *held) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "set" { // a connection introduces itself with a pipeline
			return next(ctx, cmds)
		}
		h.underWay <- cmds
		<-h.release
		deadline, _ := ctx.Deadline()
		h.deadline <- deadline
		return next(ctx, cmds)
	}
}

// queued returns a store of which two round trips are under way, so that the next calls are a batch, and the hook that holds both.
func queued(t *testing.T) (*redisstore.Store, *redis.Client, *held) {
	client := redistest.Start(t).Client(t)
	store := redisstore.New(client, redisstore.Batch())
	claimed(t, store, time.Minute)
	if client.Do(ctx, "PEXPIRETIME", "no key").Err() != nil {
		t.Skip("this server has no PEXPIRETIME, so a claim is no pipeline")
	}
	h := &held{make(chan []redis.Cmder), make(chan struct{}), make(chan time.Time, 10)}
	client.AddHook(h)
	for range 2 {
		go func() { _, _ = store.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour)) }()
		<-h.underWay
	}
	return store, client, h
}

// letGo lets the two held round trips go on, and returns the commands of the batch behind them, and its deadline.
func (h *held) letGo() (batch []redis.Cmder, deadline time.Time) {
	for range 2 {
		h.release <- struct{}{}
		<-h.deadline
	}
	batch = <-h.underWay
	h.release <- struct{}{}
	return batch, <-h.deadline
}

func TestABatchHasTheLatestDeadlineOfItsCalls(t *testing.T) {
	late := time.Now().Add(time.Hour)
	for name, test := range map[string]struct{ second, want time.Time }{
		"of three deadlines":                 {late, late},
		"none, if one of the calls has none": {time.Time{}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			store, client, h := queued(t)
			var ended sync.WaitGroup
			for _, deadline := range []time.Time{late.Add(-time.Minute), test.second, late.Add(-2 * time.Minute)} {
				c, cancel := withDeadline(deadline)
				defer cancel()
				started := make(chan struct{})
				ended.Go(func() {
					close(started)
					_, err := store.Begin(c, storetest.NewClaim(time.Minute, time.Hour))
					assert.NoError(t, err)
				})
				<-started
				time.Sleep(20 * time.Millisecond) // it joins the batch; nothing tells when
			}
			batch, deadline := h.letGo()
			ended.Wait()
			require.Len(t, batch, 6, "three claims and their expiries were no batch")
			assert.True(t, deadline.Equal(test.want), "deadline %v, want %v", deadline, test.want)
			require.Eventually(t, func() bool { return client.DBSize(ctx).Val() == 6 }, 20*time.Second, time.Millisecond)
		})
	}
}

// withDeadline returns a context with a deadline, or one without for the zero time.
func withDeadline(deadline time.Time) (context.Context, context.CancelFunc) {
	if deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline)
}

// CON-11: two calls are under way, and the third waits for one of them until its context ends. It has no reply at all.
func TestAnOutcomeThatWaitsForABatchOnAServerThatHangsEndsWithItsContext(t *testing.T) {
	server := redistest.Start(t)
	store := redisstore.New(server.Client(t), redisstore.Batch())
	claims := []driver.Claim{claimed(t, store, time.Minute), claimed(t, store, time.Minute), claimed(t, store, time.Minute)}
	server.Pause()
	defer server.Resume()
	long, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	for _, c := range claims[1:] {
		ended.Go(func() { assert.Error(t, store.Complete(long, c, []byte("kept"))) })
	}
	time.Sleep(20 * time.Millisecond) // they are under way; nothing tells when
	short, end := context.WithTimeout(ctx, 50*time.Millisecond)
	defer end()
	assert.ErrorIs(t, store.Complete(short, claims[0], []byte("kept")), context.DeadlineExceeded)
	cancel()
	ended.Wait()
}

func TestACallWhoseContextIsOverIsNotQueued(t *testing.T) {
	store, client, h := queued(t)
	over, cancel := context.WithTimeout(ctx, 0)
	defer cancel()
	_, err := store.Begin(over, storetest.NewClaim(time.Minute, time.Hour))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, err := store.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
		assert.NoError(t, err)
	}()
	time.Sleep(20 * time.Millisecond) // it joins the batch; nothing tells when
	batch, _ := h.letGo()
	<-ended
	assert.Len(t, batch, 2, "the call that is over was sent")
	require.Eventually(t, func() bool { return client.DBSize(ctx).Val() == 4 }, 20*time.Second, time.Millisecond)
}
