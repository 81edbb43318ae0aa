package redisstore

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Batch lets concurrent calls share round trips. At most 2 round trips to one server are in flight; calls that come meanwhile
// are queued, and are sent together, up to 128 at once, when one of the two ends. A call that finds fewer in flight is sent
// at once, as without Batch. Under load this saves client and server about half of their work; without load it costs nothing.
// docs/PERFORMANCE.md compares it with the client's own AutoPipeline.
//
// The calls of one batch share a connection: if that breaks, each of them fails or is repeated as if it had been alone. Batch
// has no effect with WaitReplicas and WaitAOF. Default: off.
func Batch() Option {
	return func(s *Store) { s.batches = &batches{byNode: map[redis.UniversalClient]*batcher{}} }
}

// batches has one batcher for each server. It is safe for concurrent use. In a Cluster a batch must go to one server, since a
// pipeline over several would wait for the slowest.
type batches struct {
	mu     sync.Mutex
	byNode map[redis.UniversalClient]*batcher
}

// forNode returns the batcher of a server, and makes it at the first call.
func (b *batches) forNode(node redis.UniversalClient) *batcher {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.byNode[node]
	if found == nil {
		if len(b.byNode) == maxBatchers { // most of them have left the Cluster; those still needed are made again
			clear(b.byNode)
		}
		found = &batcher{node: node}
		b.byNode[node] = found
	}
	return found
}

const (
	maxInFlight = 2    // concurrent round trips to one server
	maxBatch    = 128  // queries in one round trip
	maxBatchers = 1024 // more than a Cluster has masters
)

// batcher queues queries for one server while maxInFlight round trips are in flight. It is safe for concurrent use. It has no
// goroutine while nobody calls: a goroutine sends what is pending, and ends when nothing is.
type batcher struct {
	node redis.UniversalClient

	mu       sync.Mutex
	inFlight int
	pending  []*query
}

// send returns when q has its reply or ctx ends. If ctx ends first, the batch may still send q, so the caller must not use q
// again.
func (b *batcher) send(ctx context.Context, q *query) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if b.waitTurn(ctx, q) {
		select {
		case <-q.done:
			return q.reply.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() {
		if !b.release() {
			go b.sendPending()
		}
	}()
	return q.roundTrip(ctx, b.node, durability{}) // in this goroutine, since another one would start later
}

// waitTurn queues q if maxInFlight round trips are in flight. Otherwise it counts one more and reports false: the caller
// sends q.
func (b *batcher) waitTurn(ctx context.Context, q *query) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inFlight < maxInFlight {
		b.inFlight++
		return false
	}
	q.done = make(chan struct{})
	q.deadline, _ = ctx.Deadline()
	b.pending = append(b.pending, q)
	return true
}

// sendPending makes round trips until no query is pending.
func (b *batcher) sendPending() {
	for batch := b.nextBatch(); len(batch) > 0; batch = b.nextBatch() {
		b.roundTrip(batch)
		runtime.Gosched() // callers that just got a reply may send their next call with this batch
	}
}

// nextBatch takes up to maxBatch pending queries. If there are none, it counts one round trip less.
func (b *batcher) nextBatch() []*query {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.pending), maxBatch)
	batch := b.pending[:n:n]
	b.pending = b.pending[n:]
	if n == 0 {
		b.inFlight--
		b.pending = nil
	}
	return batch
}

// release counts one round trip less if no query is pending. Otherwise it reports false, and the caller starts sendPending.
func (b *batcher) release() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) > 0 {
		return false
	}
	b.inFlight--
	return true
}

// roundTrip sends a batch as one pipeline. It has the latest of the queries' deadlines. A query whose caller has given up is
// sent all the same, so a deadline of one caller must not end the calls of the others. The errors are those of single
// commands: one that fails, or is redirected, fails alone.
func (b *batcher) roundTrip(batch []*query) {
	ctx := context.Background()
	if latest := latestDeadline(batch); !latest.IsZero() {
		bounded, cancel := context.WithDeadline(ctx, latest)
		defer cancel()
		ctx = bounded
	}
	p := b.node.Pipeline()
	for _, q := range batch {
		q.enqueue(ctx, p, durability{})
	}
	_, _ = p.Exec(ctx) // each command keeps its own error
	for _, q := range batch {
		close(q.done)
	}
}

// latestDeadline returns the latest deadline of the queries, or zero if one of them has none.
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
