package redisstore

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Batch sends what many goroutines ask for at once in few round trips: while some are under way, up to 2 for each server,
// further requests gather, and go together when one of those comes back. A request that finds room for one more goes at
// once, as without Batch. It saves client and server about a third of their work under load, and costs nothing without;
// requests of one batch share a connection, so also its failure: each is told, or sent again, as if it had been alone. Not
// used with WaitReplicas and WaitAOF. Default: off.
func Batch() Option {
	return func(s *Store) { s.batches = &batches{by: map[redis.UniversalClient]*batcher{}} }
}

// batches has a batcher for each server.
type batches struct {
	mu sync.Mutex
	by map[redis.UniversalClient]*batcher
}

func (b *batches) of(node redis.UniversalClient) *batcher {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.by[node]
	if found == nil {
		if len(b.by) == manyNodes { // some have left their Cluster; who is missed is made again
			clear(b.by)
		}
		found = &batcher{node: node}
		b.by[node] = found
	}
	return found
}

const (
	maxUnderWay = 2    // round trips to one server at once
	maxBatch    = 128  // queries in one
	manyNodes   = 1024 // more than a Cluster has
)

// batcher gathers queries for one server.
type batcher struct {
	node redis.UniversalClient

	mu       sync.Mutex
	underWay int
	gathered []*query
}

// send returns when q has its answer, or ctx ends. In that case q may still be sent, and is the batch's for good.
func (b *batcher) send(ctx context.Context, q *query) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if b.join(ctx, q) {
		select {
		case <-q.done:
			return q.eval.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer func() {
		if !b.rest() {
			go b.work()
		}
	}()
	return q.sendAlone(ctx, b.node, durability{}) // here and now, since another goroutine would come later
}

// join adds q to those that wait for a round trip to end; false when there is room for one more, which is then under way.
func (b *batcher) join(ctx context.Context, q *query) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.underWay < maxUnderWay {
		b.underWay++
		return false
	}
	q.done = make(chan struct{})
	q.deadline, _ = ctx.Deadline()
	b.gathered = append(b.gathered, q)
	return true
}

// work makes round trips as long as there is something to send.
func (b *batcher) work() {
	for batch := b.take(); len(batch) > 0; batch = b.take() {
		b.exchange(batch)
		runtime.Gosched() // who has an answer may ask again at once, and goes along
	}
}

// take returns what is to go next; with nothing, one round trip less is under way.
func (b *batcher) take() []*query {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.gathered), maxBatch)
	batch := b.gathered[:n:n]
	b.gathered = b.gathered[n:]
	if n == 0 {
		b.underWay--
		b.gathered = nil
	}
	return batch
}

// rest ends the round trips of one goroutine, if there is nothing to send.
func (b *batcher) rest() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.gathered) > 0 {
		return false
	}
	b.underWay--
	return true
}

// exchange makes one round trip. It may take as long as the most patient of its queries.
func (b *batcher) exchange(batch []*query) {
	ctx := context.Background()
	if latest := latestDeadline(batch); !latest.IsZero() {
		bounded, cancel := context.WithDeadline(ctx, latest)
		defer cancel()
		ctx = bounded
	}
	p := b.node.Pipeline()
	for _, q := range batch {
		q.put(ctx, p, durability{})
	}
	_, _ = p.Exec(ctx) // each command has its own error
	for _, q := range batch {
		close(q.done)
	}
}

// latestDeadline is zero when a query has none.
func latestDeadline(batch []*query) (latest time.Time) {
	for _, q := range batch {
		if q.deadline.IsZero() {
			return time.Time{}
		}
		if q.deadline.After(latest) {
			latest = q.deadline
		}
	}
	return latest
}
