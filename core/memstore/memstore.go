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

	"github.com/go-idem/idem/core/driver"
)

// ErrFull is what Begin returns when the store has no room for another record. Nothing is evicted to make room, because
// whatever is dropped can run twice: a full store refuses new keys until old ones expire.
var ErrFull = errors.New("idem: memory store is full")

// Option changes a Store.
type Option func(*Store)

// MaxRecords bounds the number of records, and of the tombstones that Keep.LateRetry leaves of them. Default 100,000.
func MaxRecords(n int) Option { return func(s *Store) { s.maxRecords = n } }

// MaxBytes bounds the memory of records, counted as their outcomes and steps plus a fixed 320 bytes for each of them and
// of the records, and 16 for each owner that a record notes. Finished runs and steps are always recorded, so what is in progress can exceed it. Default 64 MiB.
func MaxBytes(n int) Option { return func(s *Store) { s.maxBytes = n } }

// Clock replaces the clock, for tests. It must not go back.
func Clock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// recordBytes is about what a record takes besides its outcome: the struct, its place in map and heap, and its key.
const recordBytes = 320

// Store is a driver.Store in memory. It starts no goroutine: expired records leave as later ones arrive.
type Store struct {
	now                  func() time.Time
	maxRecords, maxBytes int

	mu         sync.Mutex
	records    map[[32]byte]*record
	tombstones map[[32]byte]*record // tombstones
	expiry     expiryHeap
	bytes      int
	fence      int64 // of the latest claim of any key: no fence goes back, also after its record is gone
	waiters    map[[32]byte][]*waiter
}

type state int

const (
	started state = iota
	completed
	failed
)

// record is one key. The fields of claim that Begin answers with are those of the last claim.
type record struct {
	claim       driver.Claim
	state       state
	free        bool // failed, and open to another fingerprint
	effects     bool // an earlier run of the same request may have had effects
	leaseEnd    time.Time
	expires     time.Time
	outcome     []byte
	steps       map[string][]byte
	noted       [][16]byte // earlier owners that have failed or withdrawn, the last ones last
	isTombstone bool       // it is a tombstone
	index       int        // in the heap
}

// maxNoted is how many owners a record notes.
const maxNoted = 16

// size is what r takes, counted as MaxBytes says.
func (r *record) size() int {
	n := recordBytes + len(r.outcome) + len(r.noted)*len(driver.Claim{}.Owner)
	for step, result := range r.steps {
		n += recordBytes + len(step) + len(result)
	}
	return n
}

// New returns an empty store.
func New(opts ...Option) *Store {
	s := &Store{now: time.Now, maxRecords: 100_000, maxBytes: 64 << 20, records: map[[32]byte]*record{}, tombstones: map[[32]byte]*record{}, waiters: map[[32]byte][]*waiter{}}
	for _, opt := range opts {
		opt(s)
	}
	if s.maxRecords <= 0 || s.maxBytes <= 0 || s.now == nil {
		panic("memstore: New: MaxRecords and MaxBytes must be positive, Clock must not be nil")
	}
	return s
}

// Begin implements driver.Store. It returns ErrFull for a new key when there is no room.
func (s *Store) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	if err := ctx.Err(); err != nil {
		return driver.Entry{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.expire(now)
	r := s.records[c.Key]
	switch {
	case r != nil && r.hasEnded(c.Owner):
		return driver.Entry{}, driver.ErrLost
	case c.LateRetry > 0 && s.tombstones[c.Key] != nil && (r == nil || r.free && r.claim.Attempt == 0):
		return driver.Entry{State: driver.Expired}, nil
	case r != nil:
		return s.begin(r, c, now)
	case s.isFull():
		return driver.Entry{}, ErrFull
	}
	return s.claim(s.addRecord(c.Key), c, now, false), nil
}

// isFull: is there no room for another record?
func (s *Store) isFull() bool {
	return len(s.records)+len(s.tombstones) >= s.maxRecords || s.bytes+recordBytes > s.maxBytes
}

// addRecord makes the record of a key that has none.
func (s *Store) addRecord(key [32]byte) *record {
	r := &record{index: -1}
	r.claim.Key = key
	s.records[key] = r
	s.bytes += recordBytes
	return r
}

// hasEnded tells whether owner has failed or withdrawn, so that its begin comes too late.
func (r *record) hasEnded(owner [16]byte) bool {
	return r.state == failed && r.claim.Owner == owner || slices.Contains(r.noted, owner)
}

// note adds an owner that has failed or withdrawn.
func (s *Store) note(r *record, owner [16]byte) {
	if slices.Contains(r.noted, owner) {
		return
	}
	s.bytes -= r.size()
	r.noted = append(r.noted[max(0, len(r.noted)-maxNoted+1):], owner)
	s.bytes += r.size()
}

// begin is Begin on a record that is there.
func (s *Store) begin(r *record, c driver.Claim, now time.Time) (driver.Entry, error) {
	left := r.leaseEnd.Sub(now)
	switch {
	case r.claim.Owner == c.Owner && r.state == started:
		return r.claimedEntry(left), nil
	case r.claim.Fingerprint != c.Fingerprint && !r.free:
		return driver.Entry{State: driver.Mismatch, Fingerprint: r.claim.Fingerprint}, nil
	case r.state == completed:
		entry := driver.Entry{State: driver.Completed, Outcome: r.outcome}
		if c.WantRemaining {
			entry.Remaining = r.expires.Sub(now)
		}
		return entry, nil
	case r.state == failed:
		r.effects = !r.free
		s.note(r, r.claim.Owner)
		return s.claim(r, c, now, r.claim.Takeover && !r.free), nil
	case left > 0:
		return driver.Entry{State: driver.InProgress, Remaining: left}, nil
	case c.NoTakeover && c.TakeoverFence != r.claim.Fence:
		return driver.Entry{State: driver.Unknown, Fence: r.claim.Fence}, nil
	}
	r.effects = true
	return s.claim(r, c, now, true), nil
}

// claim gives r, which is new, FAILED or left by its owner, to c.
func (s *Store) claim(r *record, c driver.Claim, now time.Time, takeover bool) driver.Entry {
	c.Fence, c.Attempt, c.Operation, c.Takeover = s.nextFence(now), r.claim.Attempt+1, r.claim.Operation, takeover
	if r.claim.Operation == 0 || r.free {
		c.Operation = c.Fence
		s.bytes -= r.size()
		r.steps = nil // of an earlier operation
		s.bytes += r.size()
	}
	r.claim, r.state, r.free = c, started, false
	r.leaseEnd = now.Add(c.Lease)
	s.setExpiry(r, now.Add(c.Retention))
	return r.claimedEntry(c.Lease)
}

func (s *Store) nextFence(now time.Time) int64 {
	s.fence = max(s.fence+1, now.UnixMicro())
	return s.fence
}

func (r *record) claimedEntry(left time.Duration) driver.Entry {
	c := &r.claim
	return driver.Entry{State: driver.Claimed, Fence: c.Fence, Attempt: c.Attempt, Operation: c.Operation, Takeover: c.Takeover, Remaining: left}
}

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, c driver.Claim) error {
	return s.updateStarted(ctx, c, func(r *record, now time.Time) { r.leaseEnd = now.Add(c.Lease) })
}

// Complete implements driver.Store. It keeps outcome itself: the caller must not change it.
func (s *Store) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	return s.locked(ctx, func(now time.Time) error {
		r := s.withClaim(&c)
		switch {
		case r == nil:
			return driver.ErrLost
		case r.state == completed && bytes.Equal(r.outcome, outcome):
			return nil
		case r.state != started:
			return driver.ErrLost
		}
		s.bytes -= r.size()
		r.state, r.outcome, r.steps, r.noted, r.claim.LateRetry = completed, outcome, nil, nil, c.LateRetry
		s.bytes += r.size()
		s.setExpiry(r, now.Add(c.Retention))
		s.notify(c.Key)
		return nil
	})
}

// Fail implements driver.Store. The cause is not kept: nothing reads it here.
func (s *Store) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	return s.locked(ctx, func(now time.Time) error {
		r := s.withClaim(&c)
		switch {
		case r == nil && c.Fence == 0:
			return s.withdraw(&c, now)
		case r == nil || r.state == completed:
			return driver.ErrLost
		case r.state == failed:
			return nil
		}
		r.state, r.free = failed, (f.NoEffects || f.NotRun) && !r.effects
		if f.NotRun {
			r.claim.Attempt--
		}
		s.setExpiry(r, now.Add(c.Retention))
		s.notify(c.Key)
		return nil
	})
}

// withdraw sees to it that a begin of c that comes later gets nothing. A full store refuses that begin anyway.
func (s *Store) withdraw(c *driver.Claim, now time.Time) error {
	r := s.records[c.Key]
	switch {
	case r == nil && s.isFull():
		return driver.ErrLost
	case r == nil:
		r = s.addRecord(c.Key)
		r.claim.Owner, r.claim.Fence, r.state, r.free = c.Owner, s.nextFence(now), failed, true
		s.setExpiry(r, now.Add(c.Lease))
		return nil
	case r.state != completed:
		s.note(r, c.Owner)
	}
	return driver.ErrLost
}

// Reopen lets a message that is dead, which is what its outcome says, be handled again: see core.Engine.Resolve. It returns
// driver.ErrLost when the key has another outcome, or none.
func (s *Store) Reopen(ctx context.Context, c driver.Claim, outcome []byte) error {
	return s.locked(ctx, func(now time.Time) error {
		r := s.records[c.Key]
		switch {
		case r != nil && r.state == failed && r.claim.Owner == c.Owner: // sent again
			return nil
		case r == nil || r.state != completed || !bytes.Equal(r.outcome, outcome):
			return driver.ErrLost
		}
		s.bytes -= r.size()
		r.claim.Owner, r.claim.Attempt, r.claim.Operation, r.claim.Takeover, r.claim.LateRetry = c.Owner, 0, 0, true, 0
		r.state, r.outcome = failed, nil
		s.bytes += r.size()
		s.setExpiry(r, now.Add(c.Retention))
		if tombstone := s.tombstones[c.Key]; tombstone != nil {
			s.remove(tombstone)
		}
		return nil
	})
}

// Checkpoint implements driver.Checkpointer.
func (s *Store) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	return s.updateStarted(ctx, c, func(r *record, _ time.Time) {
		s.bytes -= r.size()
		if r.steps == nil {
			r.steps = map[string][]byte{}
		}
		r.steps[step] = bytes.Clone(result)
		s.bytes += r.size()
	})
}

// Checkpoints implements driver.Checkpointer.
func (s *Store) Checkpoints(ctx context.Context, c driver.Claim) (steps map[string][]byte, err error) {
	err = s.updateStarted(ctx, c, func(r *record, _ time.Time) { steps = maps.Clone(r.steps) })
	return steps, err
}

// updateStarted runs verb on the STARTED record of c, and starts its retention anew.
func (s *Store) updateStarted(ctx context.Context, c driver.Claim, verb func(*record, time.Time)) error {
	return s.locked(ctx, func(now time.Time) error {
		r := s.withClaim(&c)
		if r == nil || r.state != started {
			return driver.ErrLost
		}
		verb(r, now)
		s.setExpiry(r, now.Add(c.Retention))
		return nil
	})
}

// waiter is one Watch.
type waiter struct{ wake func() }

// Watch implements driver.Notifier.
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

// notify tells the waiters of key, in goroutines of their own since they may call back.
func (s *Store) notify(key [32]byte) {
	for _, w := range s.waiters[key] {
		go w.wake()
	}
}

// locked runs verb while no other runs.
func (s *Store) locked(ctx context.Context, verb func(time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.expire(now)
	return verb(now)
}

// withClaim is the record that c is the last claim of; nil if there is none.
func (s *Store) withClaim(c *driver.Claim) *record {
	r := s.records[c.Key]
	if r == nil || r.claim.Owner != c.Owner || c.Fence != 0 && r.claim.Fence != c.Fence {
		return nil
	}
	return r
}

// setExpiry sets when r expires.
func (s *Store) setExpiry(r *record, expires time.Time) {
	r.expires = expires
	if r.index < 0 {
		heap.Push(&s.expiry, r)
		return
	}
	heap.Fix(&s.expiry, r.index)
}

// expire removes what has expired. An outcome may leave a tombstone, in place of an earlier one.
func (s *Store) expire(now time.Time) {
	for len(s.expiry) > 0 && !s.expiry[0].expires.After(now) {
		r := s.expiry[0]
		s.remove(r)
		if r.isTombstone || r.state != completed || r.claim.LateRetry <= 0 {
			continue
		}
		if earlier := s.tombstones[r.claim.Key]; earlier != nil {
			s.remove(earlier)
		}
		tombstone := &record{isTombstone: true, index: -1}
		tombstone.claim.Key = r.claim.Key
		s.tombstones[r.claim.Key] = tombstone
		s.bytes += recordBytes
		s.setExpiry(tombstone, r.expires.Add(r.claim.LateRetry))
	}
}

// remove forgets r.
func (s *Store) remove(r *record) {
	heap.Remove(&s.expiry, r.index)
	s.bytes -= r.size()
	if r.isTombstone {
		delete(s.tombstones, r.claim.Key)
	} else {
		delete(s.records, r.claim.Key)
	}
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
