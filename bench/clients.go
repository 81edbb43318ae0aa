package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
)

// clientSpeed is one way to reach the server, with so many goroutines that each begin and complete.
type clientSpeed struct {
	name       string
	goroutines int
	rounds     []pairs
}

// pairs is one round.
type pairs struct {
	perSecond float64
	cpu       float64 // µs of this process per pair
	serverCPU float64 // µs of the server
	p50, p99  time.Duration
}

// pairing runs a new claim to its outcome. It is safe for concurrent use.
type pairing func(ctx context.Context, key [32]byte, outcome []byte) error

var concurrencies = []int{1, 16, 64, 256}

// way is a client to measure. Each has 256 connections at most.
type way struct {
	name string
	size int // pairs that one call of the pairing makes; 0 for one
	open func(b *bench) (pair pairing, end func(), err error)
}

var ways = []way{
	{name: plainWay, open: func(b *bench) (pairing, func(), error) {
		c := b.dial(true)
		return throughStore(c), func() { _ = c.Close() }, nil
	}},
	{name: batchedWay, open: func(b *bench) (pairing, func(), error) {
		c := b.dial(true)
		return throughStore(c, redisstore.Batch()), func() { _ = c.Close() }, nil
	}},
	{name: "AutoPipeline under redisstore", open: func(b *bench) (pairing, func(), error) {
		return b.auto(b.dial(true), (*redis.Client).AutoPipeline, func(ap *redis.AutoPipeliner) pairing { return throughStore(ap) })
	}},
	{name: "AutoPipeline with FullDuplex under redisstore", open: func(b *bench) (pairing, func(), error) {
		return b.auto(b.dial(false), fullDuplex, func(ap *redis.AutoPipeliner) pairing { return throughStore(ap) })
	}},
	{name: rawWay, open: func(b *bench) (pairing, func(), error) {
		c := b.dial(true)
		return rawPair(c), func() { _ = c.Close() }, nil
	}},
	{name: gatheredWay, open: func(b *bench) (pairing, func(), error) {
		c := b.dial(true)
		return gatheredPair(&gatherer{client: c}), func() { _ = c.Close() }, nil
	}},
	{name: handWay, size: handful, open: func(b *bench) (pairing, func(), error) {
		c := b.dial(true)
		return handPairs(c), func() { _ = c.Close() }, nil
	}},
}

// The names of ways that are compared.
const (
	plainWay    = "redisstore"
	batchedWay  = "redisstore in batches"
	rawWay      = "two raw script calls"
	gatheredWay = "raw script calls gathered by hand"
	handWay     = "raw script calls in pipelines by hand"
)

// handful is how many pairs go into a pipeline by hand.
const handful = 32

func (b *bench) dial(watchDeadlines bool) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: b.server.Addr, PoolSize: 256, ContextTimeoutEnabled: watchDeadlines})
}

// fullDuplex opens an autopipeliner that reads while it writes. With ContextTimeoutEnabled its Pipeline would take a connection
// of its own.
func fullDuplex(c *redis.Client) (*redis.AutoPipeliner, error) {
	options := redis.DefaultBlockingAutoPipelineOptions()
	options.FullDuplex = true
	return c.AutoPipelineWithOptions(options)
}

type opener = func(*redis.Client) (*redis.AutoPipeliner, error)

// auto opens an autopipeliner on c.
func (b *bench) auto(c *redis.Client, open opener, pair func(*redis.AutoPipeliner) pairing) (pairing, func(), error) {
	ap, err := open(c)
	if err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	return pair(ap), func() { _ = ap.Close(); _ = c.Close() }, nil
}

// throughStore is a pair of calls of the store.
func throughStore(client redis.UniversalClient, opts ...redisstore.Option) pairing {
	store := redisstore.New(client, opts...)
	return func(ctx context.Context, key [32]byte, outcome []byte) error {
		c := driver.Claim{Key: key, Owner: [16]byte(key[:16]), Fingerprint: [32]byte{1}, Lease: 30 * time.Second, Retention: 24 * time.Hour}
		entry, err := store.Begin(ctx, c)
		if err == nil && entry.State != driver.Claimed {
			err = fmt.Errorf("begin: %s", entry.State)
		}
		if err != nil {
			return err
		}
		c.Fence, c.Attempt = entry.Fence, entry.Attempt
		return store.Complete(ctx, c, outcome)
	}
}

// claimed returns the fence that begin was given.
func claimed(begun *redis.Cmd) (int64, error) {
	word, fence, _, err := answer(begun)
	if err == nil && word != "claimed" {
		err = fmt.Errorf("begin: %s", word)
	}
	return fence, err
}

// rawPair is a pair without a store.
func rawPair(c *redis.Client) pairing {
	return func(ctx context.Context, key [32]byte, outcome []byte) error {
		w := newWire(ownKeys(string(key[:]))[0])
		fence, err := claimed(w.begin(ctx, c))
		if err != nil {
			return err
		}
		return w.complete(ctx, c, fence, outcome).Err()
	}
}

// handPairs is a handful of pairs in two pipelines.
func handPairs(c *redis.Client) pairing {
	return func(ctx context.Context, key [32]byte, outcome []byte) error {
		wires, begun := make([]*wire, handful), make([]*redis.Cmd, handful)
		p := c.Pipeline()
		for i := range wires {
			wires[i] = newWire(ownKeys(string(key[:]) + strconv.Itoa(i))[0])
			begun[i] = wires[i].begin(ctx, p)
		}
		if _, err := p.Exec(ctx); err != nil {
			return err
		}
		for i, w := range wires {
			fence, err := claimed(begun[i])
			if err != nil {
				return err
			}
			w.complete(ctx, p, fence, outcome)
		}
		_, err := p.Exec(ctx)
		return err
	}
}

// measureClients lets goroutines claim and complete new keys, each with one client.
func measureClients(b *bench) error {
	for _, n := range concurrencies {
		speeds := make([]clientSpeed, len(ways))
		for r := range b.plan.clientRounds(n) {
			for k := range ways {
				i := (k + r) % len(ways)
				if n < ways[i].size {
					continue
				}
				p, err := b.pairs(ways[i], n)
				if err != nil {
					return fmt.Errorf("%s, %d goroutines: %w", ways[i].name, n, err)
				}
				speeds[i].name, speeds[i].goroutines = ways[i].name, n
				speeds[i].rounds = append(speeds[i].rounds, p)
			}
		}
		b.results.clients = append(b.results.clients, slices.DeleteFunc(speeds, func(s clientSpeed) bool { return s.rounds == nil })...)
	}
	return nil
}

// clientRounds is how many rounds so many goroutines have. What one of them waits for is mostly that sleepers wake, which is
// as uneven as the rest of the machine.
func (p *plan) clientRounds(goroutines int) int {
	if goroutines == 1 {
		return 4 * p.clients
	}
	return p.clients
}

// pairs is one round of a client.
func (b *bench) pairs(w way, goroutines int) (pairs, error) {
	pair, end, err := w.open(b)
	if err != nil {
		return pairs{}, err
	}
	defer end()
	if err := b.client.FlushAll(context.Background()).Err(); err != nil {
		return pairs{}, err
	}
	slice := b.plan.pairs * time.Duration(b.plan.clients) / time.Duration(b.plan.clientRounds(goroutines))
	return timePairs(pair, goroutines/max(w.size, 1), max(w.size, 1), slice, b.used)
}

// timePairs lets goroutines run pairs for a while, so many in a call; used tells the CPU so far.
func timePairs(pair pairing, goroutines, size int, lasting time.Duration, used func() cpu) (pairs, error) {
	if _, err := pairUp(pair, goroutines, time.Now()); err != nil { // opens the connections
		return pairs{}, err
	}
	runtime.GC()
	before, began := used(), time.Now()
	latencies, err := pairUp(pair, goroutines, began.Add(lasting))
	took, after := time.Since(began), used()
	per := func(used time.Duration) float64 { return used.Seconds() * 1e6 / float64(len(latencies)*size) }
	return pairs{
		perSecond: float64(len(latencies)*size) / took.Seconds(), p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99),
		cpu: per(after.own - before.own), serverCPU: per(after.server - before.server),
	}, err
}

// pairUp lets goroutines run pairs until a time, each one at least.
func pairUp(pair pairing, goroutines int, until time.Time) (latencies []time.Duration, err error) {
	outcome := packed(jsonBody(512))
	var mu sync.Mutex
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour) // calls have deadlines, and few end by them
			defer cancel()
			var own []time.Duration
			var failed error
			for failed == nil && (len(own) == 0 || time.Now().Before(until)) {
				began := time.Now()
				failed = pair(ctx, pairKey(g, began), outcome)
				own = append(own, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			latencies, err = append(latencies, own...), errors.Join(err, failed)
		})
	}
	all.Wait()
	return latencies, err
}

// pairKey is a key that no other call has.
func pairKey(goroutine int, now time.Time) (key [32]byte) {
	copy(key[:], strconv.FormatInt(now.UnixNano(), 36)+"-"+strconv.Itoa(goroutine))
	return key
}
