// Package memstore keeps records in the memory of one process: for development, for tests, and for services that run
// as one process and can afford to forget on a restart. It is the state machine of the Lua scripts, in Go.
package memstore

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-idem/idem/core"
)

// ErrFull is what Begin returns when the store has no room for another record. Nothing is evicted to make room, because
// whatever is dropped can run twice: a full store refuses new keys until old ones expire.
var ErrFull = errors.New("idem: memory store is full")

// Option changes a Store.
type Option func(*Store)

// MaxRecords bounds the number of records. Default 100,000.
func MaxRecords(n int) Option { return func(s *Store) { s.maxRecords = n } }

// MaxBytes bounds the memory of records, counted as their outcomes and steps plus a fixed 320 bytes for each of them and
// of the records. Finished runs and steps are always recorded, so what is in progress can exceed it. Default 64 MiB.
func MaxBytes(n int) Option { return func(s *Store) { s.maxBytes = n } }

// Clock replaces the clock, for tests. It must not go back.
func Clock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// recordBytes is about what a record takes besides its outcome: the struct, its place in map and heap, and its key.
const recordBytes = 320

// Store is a core.Store in memory. It starts no goroutine: expired records leave as later ones arrive.
type Store struct {
	now                  func() time.Time
	maxRecords, maxBytes int

	mu      sync.Mutex
	records map[[32]byte]*record
	expiry  expiryHeap
	bytes   int
	fence   int64 // of the latest claim of any key: no fence goes back, also after its record is gone
	waiters map[[32]byte][]*waiter
}

type state int

const (
	started state = iota
	completed
	failed
)

// record is one key. The fields of claim that Begin answers with are those of the last claim.
type record struct {
	claim    core.Claim
	state    state
	free     bool // failed, and open to another fingerprint
	effects  bool // an earlier run of the same request may have had effects
	leaseEnd time.Time
	expires  time.Time
	outcome  []byte
	steps    map[string][]byte
	late     bool // only a tombstone is left
	index    int  // in the heap
}

// size is what r takes, counted as MaxBytes says.
func (r *record) size() int {
	n := recordBytes + len(r.outcome)
	for step, result := range r.steps {
		n += recordBytes + len(step) + len(result)
	}
	return n
}

// New returns an empty store.
func New(opts ...Option) *Store {
	s := &Store{now: time.Now, maxRecords: 100_000, maxBytes: 64 << 20, records: map[[32]byte]*record{}, waiters: map[[32]byte][]*waiter{}}
	for _, opt := range opts {
		opt(s)
	}
	if s.maxRecords <= 0 || s.maxBytes <= 0 || s.now == nil {
		panic("memstore: New: MaxRecords and MaxBytes must be positive, Clock must not be nil")
	}
	return s
}

// Begin implements core.Store. It returns ErrFull for a new key when there is no room.
func (s *Store) Begin(ctx context.Context, c core.Claim) (core.Entry, error) {
	if err := ctx.Err(); err != nil {
		return core.Entry{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.expire(now)
	r := s.records[c.Key]
	if r != nil && r.late {
		if c.LateRetry > 0 {
			return core.Entry{State: core.Expired}, nil
		}
		s.drop(r)
		r = nil
	}
	if r == nil {
		if len(s.records) >= s.maxRecords || s.bytes+recordBytes > s.maxBytes {
			return core.Entry{}, ErrFull
		}
		r = &record{index: -1}
		s.records[c.Key] = r
		s.bytes += recordBytes
		return s.claim(r, c, now, false), nil
	}
	return s.begin(r, c, now)
}

// begin is Begin on a record that is there.
func (s *Store) begin(r *record, c core.Claim, now time.Time) (core.Entry, error) {
	left := r.leaseEnd.Sub(now)
	if r.claim.Owner == c.Owner {
		switch r.state {
		case failed:
			return core.Entry{}, core.ErrLost
		case started:
			return r.claimed(left), nil
		}
	}
	switch {
	case r.claim.Fingerprint != c.Fingerprint && !r.free:
		return core.Entry{State: core.Mismatch, Fingerprint: r.claim.Fingerprint}, nil
	case r.state == completed:
		entry := core.Entry{State: core.Completed, Outcome: r.outcome}
		if c.TellLeft {
			entry.Left = r.expires.Sub(now)
		}
		return entry, nil
	case r.state == failed:
		r.effects = !r.free
		return s.claim(r, c, now, r.claim.Takeover && !r.free), nil
	case left > 0:
		return core.Entry{State: core.InProgress, Left: left}, nil
	case c.NoTakeover && c.Over != r.claim.Fence:
		return core.Entry{State: core.Unknown, Fence: r.claim.Fence}, nil
	}
	r.effects = true
	return s.claim(r, c, now, true), nil
}

// claim gives r to c.
func (s *Store) claim(r *record, c core.Claim, now time.Time, takeover bool) core.Entry {
	s.fence = max(s.fence+1, now.UnixMicro())
	c.Fence, c.Attempt, c.Takeover = s.fence, r.claim.Attempt+1, takeover
	if r.claim.Fingerprint != c.Fingerprint { // the steps were another request's
		s.bytes -= r.size()
		r.steps = nil
		s.bytes += r.size()
	}
	r.claim, r.state, r.free = c, started, false
	r.leaseEnd = now.Add(c.Lease)
	s.retain(r, now.Add(c.Retention))
	return r.claimed(c.Lease)
}

func (r *record) claimed(left time.Duration) core.Entry {
	return core.Entry{State: core.Claimed, Fence: r.claim.Fence, Attempt: r.claim.Attempt, Takeover: r.claim.Takeover, Left: left}
}

// Extend implements core.Store.
func (s *Store) Extend(ctx context.Context, c core.Claim) error {
	return s.held(ctx, c, func(r *record, now time.Time) error {
		if r.state != started {
			return core.ErrLost
		}
		r.leaseEnd = now.Add(c.Lease)
		s.retain(r, now.Add(c.Retention))
		return nil
	})
}

// Complete implements core.Store. It keeps outcome itself: the caller must not change it.
func (s *Store) Complete(ctx context.Context, c core.Claim, outcome []byte) error {
	return s.held(ctx, c, func(r *record, now time.Time) error {
		switch {
		case r.state == completed && bytes.Equal(r.outcome, outcome):
			return nil
		case r.state != started:
			return core.ErrLost
		}
		s.bytes -= r.size()
		r.state, r.outcome, r.steps, r.claim.LateRetry = completed, outcome, nil, c.LateRetry
		s.bytes += r.size()
		s.retain(r, now.Add(c.Retention))
		s.wake(c.Key)
		return nil
	})
}

// Fail implements core.Store. The cause is not kept: nothing reads it here.
func (s *Store) Fail(ctx context.Context, c core.Claim, f core.Failure) error {
	return s.held(ctx, c, func(r *record, now time.Time) error {
		switch r.state {
		case failed:
			return nil
		case completed:
			return core.ErrLost
		}
		r.state, r.free = failed, f.Free && !r.effects
		s.retain(r, now.Add(c.Retention))
		s.wake(c.Key)
		return nil
	})
}

// Checkpoint implements core.Checkpointer.
func (s *Store) Checkpoint(ctx context.Context, c core.Claim, step string, result []byte) error {
	return s.started(ctx, c, func(r *record) {
		s.bytes -= r.size()
		if r.steps == nil {
			r.steps = map[string][]byte{}
		}
		r.steps[step] = bytes.Clone(result)
		s.bytes += r.size()
	})
}

// Checkpoints implements core.Checkpointer.
func (s *Store) Checkpoints(ctx context.Context, c core.Claim) (steps map[string][]byte, err error) {
	err = s.started(ctx, c, func(r *record) { steps = maps.Clone(r.steps) })
	return steps, err
}

// started runs verb on the STARTED record of c, and starts its retention anew.
func (s *Store) started(ctx context.Context, c core.Claim, verb func(*record)) error {
	return s.held(ctx, c, func(r *record, now time.Time) error {
		if r.state != started {
			return core.ErrLost
		}
		verb(r)
		s.retain(r, now.Add(c.Retention))
		return nil
	})
}

// waiter is one Watch.
type waiter struct{ wake func() }

// Watch implements core.Notifier.
func (s *Store) Watch(_ context.Context, key [32]byte, wake func()) (stop func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &waiter{wake}
	s.waiters[key] = append(s.waiters[key], w)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		rest := slices.DeleteFunc(s.waiters[key], func(other *waiter) bool { return other == w })
		if s.waiters[key] = rest; len(rest) == 0 {
			delete(s.waiters, key)
		}
	}, nil
}

// wake tells the waiters of key, in goroutines of their own since they may call back.
func (s *Store) wake(key [32]byte) {
	for _, w := range s.waiters[key] {
		go w.wake()
	}
}

// held runs verb on the record that c is the last claim of.
func (s *Store) held(ctx context.Context, c core.Claim, verb func(*record, time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.expire(now)
	r := s.records[c.Key]
	if r == nil || r.late || r.claim.Owner != c.Owner || c.Fence != 0 && r.claim.Fence != c.Fence {
		return core.ErrLost
	}
	return verb(r, now)
}

// retain sets when r expires.
func (s *Store) retain(r *record, expires time.Time) {
	r.expires = expires
	if r.index < 0 {
		heap.Push(&s.expiry, r)
		return
	}
	heap.Fix(&s.expiry, r.index)
}

// expire removes what has expired. An outcome may leave a tombstone.
func (s *Store) expire(now time.Time) {
	for len(s.expiry) > 0 && !s.expiry[0].expires.After(now) {
		r := s.expiry[0]
		if r.late || r.state != completed || r.claim.LateRetry <= 0 {
			s.drop(r)
			continue
		}
		s.bytes -= len(r.outcome)
		r.late, r.outcome = true, nil
		s.retain(r, r.expires.Add(r.claim.LateRetry))
	}
}

// drop forgets r.
func (s *Store) drop(r *record) {
	heap.Remove(&s.expiry, r.index)
	s.bytes -= r.size()
	delete(s.records, r.claim.Key)
}

// expiryHeap has the record that expires next in front.
type expiryHeap []*record

func (h expiryHeap) Len() int           { return len(h) }
func (h expiryHeap) Less(i, j int) bool { return h[i].expires.Before(h[j].expires) }
func (h expiryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *expiryHeap) Push(x any) {
	r := x.(*record)
	r.index = len(*h)
	*h = append(*h, r)
}

func (h *expiryHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return r
}
