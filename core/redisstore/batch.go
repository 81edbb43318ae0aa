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
	return func(s *Store) { s.batches = &batches{byNode: map[redis.UniversalClient]*batcher{}} }
}

// batches has a batcher for each server.
type batches struct {
	mu     sync.Mutex
	byNode map[redis.UniversalClient]*batcher
}

func (b *batches) forNode(node redis.UniversalClient) *batcher {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.byNode[node]
	if found == nil {
		if len(b.byNode) == maxBatchers { // some have left their Cluster; who is missed is made again
			clear(b.byNode)
		}
		found = &batcher{node: node}
		b.byNode[node] = found
	}
	return found
}

const (
	maxInFlight = 2    // round trips to one server at once
	maxBatch    = 128  // queries in one
	maxBatchers = 1024 // more than a Cluster has
)

// batcher gathers queries for one server.
type batcher struct {
	node redis.UniversalClient

	mu       sync.Mutex
	inFlight int
	pending  []*query
}

// send returns when q has its answer, or ctx ends. In that case q may still be sent, and is the batch's for good.
func (b *batcher) send(ctx context.Context, q *query) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if b.waitTurn(ctx, q) {
		select {
		case <-q.done:
			return q.reply.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer func() {
		if !b.release() {
			go b.sendPending()
		}
	}()
	return q.roundTrip(ctx, b.node, durability{}) // here and now, since another goroutine would come later
}

// waitTurn adds q to those that wait for a round trip to end; false when there is room for one more, which is then under way.
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

// sendPending makes round trips as long as there is something to send.
func (b *batcher) sendPending() {
	for batch := b.nextBatch(); len(batch) > 0; batch = b.nextBatch() {
		b.roundTrip(batch)
		runtime.Gosched() // who has an answer may ask again at once, and goes along
	}
}

// nextBatch returns what is to go next; with nothing, one round trip less is under way.
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

// release ends the round trips of one goroutine, if there is nothing to send.
func (b *batcher) release() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) > 0 {
		return false
	}
	b.inFlight--
	return true
}

// roundTrip makes one round trip. It may take as long as the most patient of its queries.
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
