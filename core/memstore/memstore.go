// Package memstore keeps records in the memory of one process. It is for development, for tests, and for services that run as
// one process and may lose all records in a restart. It has the same state machine as the Lua scripts of package redisstore.
package memstore

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// ErrFull is the error of Begin for a new key when the store has no room. The store evicts nothing, because the request of an
// evicted record could run twice. It refuses new keys until old records expire.
var ErrFull = errors.New("idem: memory store is full")

// Option changes a Store. Pass options to New.
type Option func(*Store)

// MaxRecords bounds the number of records and tombstones. A tombstone is what Keep.LateRetry leaves of an expired record.
// Default 100,000.
func MaxRecords(n int) Option { return func(s *Store) { s.maxRecords = n } }

// MaxBytes bounds the memory of records. The store counts 320 bytes for each record, tombstone and step, 16 for each noted
// owner, and the lengths of outcomes, causes, step names and step results. A full store still accepts the outcomes and steps of
// running claims, so it can exceed the bound by these. Default 64 MiB.
func MaxBytes(n int) Option { return func(s *Store) { s.maxBytes = n } }

// Clock replaces the clock, for tests. The clock must not go back. Default time.Now.
func Clock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// Store is a driver.Store in memory. It has all optional abilities of package driver but sessions. It starts no goroutine; each
// call first removes the records that have expired. A Store is safe for concurrent use.
//
// One mutex guards all records, and every call holds it from its first look at a record to its last change. So a call is one
// atomic step, as driver.Store demands. Methods with lower-case names expect that their caller holds the mutex; only locked and
// updateStarted lock it themselves.
type Store struct {
	now                  func() time.Time
	maxRecords, maxBytes int

	mu         sync.Mutex
	records    map[[32]byte]*record
	tombstones map[[32]byte]*record
	expiry     expiryHeap // of records and tombstones
	bytes      int        // memory in use, counted as MaxBytes says
	fence      int64      // of the latest claim of any key, so that the fences of a key grow even after its record has expired
	waiters    map[[32]byte][]*waiter
}

// New returns an empty store. It panics if an option is not valid.
func New(opts ...Option) *Store {
	s := &Store{
		now: time.Now, maxRecords: 100_000, maxBytes: 64 << 20,
		records: map[[32]byte]*record{}, tombstones: map[[32]byte]*record{}, waiters: map[[32]byte][]*waiter{},
	}
	for _, opt := range opts {
		opt(s)
	}
	if s.maxRecords <= 0 || s.maxBytes <= 0 || s.now == nil {
		panic("memstore: New: MaxRecords and MaxBytes must be positive, Clock must not be nil")
	}
	return s
}

// Begin implements driver.Store. It returns ErrFull for a new key if there is no room.
//
// The cases stand in the order that driver.Store.Begin prescribes. The owner of a STARTED record whose Begin is repeated is never
// among the ended owners, so begin finds it although hasEnded is asked first. A tombstone counts if the record is absent, or if
// it is only what remains of claims under which nothing ran: free, and without a counted attempt.
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

// isFull reports whether there is no room for another record.
func (s *Store) isFull() bool {
	return len(s.records)+len(s.tombstones) >= s.maxRecords || s.bytes+recordBytes > s.maxBytes
}

// addRecord makes the record of a key that has none. It gets its state and expiry from the caller, which must call setExpiry in
// the same step: until then the record is not in the heap and would never expire.
func (s *Store) addRecord(key [32]byte) *record {
	r := &record{index: -1}
	r.claim.Key = key
	s.records[key] = r
	s.bytes += recordBytes
	return r
}

// note notes an owner that has failed or withdrawn. If there is no room, the oldest one is dropped. An owner is noted once, so
// that a repeated Fail does not push others out.
func (s *Store) note(r *record, owner [16]byte) {
	if slices.Contains(r.noted, owner) {
		return
	}
	s.bytes -= r.size()
	r.noted = append(r.noted[max(0, len(r.noted)-maxNoted+1):], owner)
	s.bytes += r.size()
}

// begin is Begin for a key that has a record. The owner comes before the fingerprint, because a repeated call must return what
// the first one did. An outcome is returned without a copy: nothing changes the bytes of a COMPLETED record.
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

// claim gives r to c. r is new, FAILED, or STARTED with its lease over. takeover says that an earlier run of this request
// vanished. A new or free record begins another operation: its number is the fence of this claim, and steps of the last operation
// are deleted.
func (s *Store) claim(r *record, c driver.Claim, now time.Time, takeover bool) driver.Entry {
	c.Fence, c.Attempt, c.Operation, c.Takeover = s.nextFence(now), r.claim.Attempt+1, r.claim.Operation, takeover
	if r.claim.Operation == 0 || r.free {
		c.Operation = c.Fence
		s.bytes -= r.size()
		r.steps = nil // of an earlier operation
		s.bytes += r.size()
	}
	r.claim, r.state, r.free = c, started, false
	s.setCause(r, "")
	r.leaseEnd = now.Add(c.Lease)
	s.setExpiry(r, now.Add(c.Retention))
	return r.claimedEntry(c.Lease)
}

// nextFence returns a fence above all earlier ones: the time in µs, or one more than the last fence. An operator reads the time
// of a claim from its fence, which is why it is not a plain counter.
func (s *Store) nextFence(now time.Time) int64 {
	s.fence = max(s.fence+1, now.UnixMicro())
	return s.fence
}

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, c driver.Claim) error {
	return s.updateStarted(ctx, c, func(r *record, now time.Time) { r.leaseEnd = now.Add(c.Lease) })
}

// Complete implements driver.Store. It accepts an outcome of any length in a full store, because the run has happened. The
// operation ends here, and with it its steps and the noted owners.
func (s *Store) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	return s.locked(ctx, func(now time.Time) error {
		r := s.withClaim(&c)
		switch {
		case r == nil || c.Fence == 0:
			return s.lostError(&c)
		case r.state == completed && bytes.Equal(r.outcome, outcome):
			return nil
		case r.state != started:
			return driver.ErrLost
		}
		s.bytes -= r.size()
		r.state, r.outcome, r.steps, r.noted, r.claim.LateRetry = completed, bytes.Clone(outcome), nil, nil, c.LateRetry
		s.bytes += r.size()
		s.setExpiry(r, now.Add(c.Retention))
		s.notify(c.Key)
		return nil
	})
}

// Fail implements driver.Store. A record becomes free for other requests only if no earlier run of the same request may have had
// effects, whatever the last run reports. A Fail that is repeated changes nothing.
func (s *Store) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	return s.locked(ctx, func(now time.Time) error {
		r := s.withClaim(&c)
		switch {
		case r == nil && c.Fence == 0:
			return s.withdraw(&c, f.Cause, now)
		case r == nil || r.state == completed:
			return s.lostError(&c)
		case r.state == failed:
			return nil
		}
		r.state, r.free = failed, (f.NoEffects || f.NotRun) && !r.effects
		s.setCause(r, f.Cause)
		if f.NotRun {
			r.claim.Attempt--
		}
		s.setExpiry(r, now.Add(c.Retention))
		s.notify(c.Key)
		return nil
	})
}

// withdraw makes a later Begin of c return ErrLost for at least one lease, if the record is absent or free. In a full store it
// does nothing for an absent record, because the store refuses that Begin anyway.
func (s *Store) withdraw(c *driver.Claim, cause string, now time.Time) error {
	r := s.records[c.Key]
	switch {
	case r == nil && s.isFull():
		return driver.ErrLost
	case r == nil:
		r = s.addRecord(c.Key)
		r.claim.Owner, r.claim.Fence, r.state, r.free = c.Owner, s.nextFence(now), failed, true
		s.setCause(r, cause)
		s.setExpiry(r, now.Add(c.Lease))
		return nil
	case r.state == completed || slices.Contains(r.noted, c.Owner):
		return driver.ErrLost
	}
	s.note(r, c.Owner)
	if expires := now.Add(c.Lease); r.free && expires.After(r.expires) {
		s.setExpiry(r, expires)
	}
	return driver.ErrLost
}

// Reopen turns the COMPLETED record of a dead message into a FAILED one, so that the message can run again. core.Engine.Resolve
// calls it. Reopen returns driver.ErrLost if the record does not hold exactly this outcome.
//
// The attempts count from 1 again, and the next claim is a takeover, because the dead runs may have had effects. The tombstone of
// the key is deleted, so that the next Begin does not return Expired.
func (s *Store) Reopen(ctx context.Context, c driver.Claim, outcome []byte) error {
	return s.locked(ctx, func(now time.Time) error {
		r := s.records[c.Key]
		switch {
		case r != nil && r.state == failed && r.claim.Owner == c.Owner: // a repeated call
			return nil
		case r == nil || r.state != completed || !bytes.Equal(r.outcome, outcome):
			return driver.ErrLost
		}
		s.bytes -= r.size()
		r.claim.Owner, r.claim.Attempt, r.claim.Operation = c.Owner, 0, 0
		r.claim.Takeover, r.claim.LateRetry = true, 0
		r.claim.Fence = s.nextFence(now)
		r.state, r.outcome, r.cause = failed, nil, "an operator revived it"
		s.bytes += r.size()
		s.setExpiry(r, now.Add(c.Retention))
		if tombstone := s.tombstones[c.Key]; tombstone != nil {
			s.remove(tombstone)
		}
		return nil
	})
}

// Checkpoint implements driver.Checkpointer. It accepts any result, also in a full store, so the Store needs no MayCheckpoint.
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

// Checkpoints implements driver.Checkpointer. The map is a copy; the results in it are shared, and must not be changed.
func (s *Store) Checkpoints(ctx context.Context, c driver.Claim) (steps map[string][]byte, err error) {
	err = s.updateStarted(ctx, c, func(r *record, _ time.Time) { steps = maps.Clone(r.steps) })
	return steps, err
}

// updateStarted calls update with the STARTED record of c, and starts its retention anew. It does not look at the lease: a claim
// ends when another one replaces it. If c does not hold the record, update is not called.
func (s *Store) updateStarted(ctx context.Context, c driver.Claim, update func(*record, time.Time)) error {
	return s.locked(ctx, func(now time.Time) error {
		r := s.withClaim(&c)
		if r == nil || c.Fence == 0 || r.state != started {
			return s.lostError(&c)
		}
		update(r, now)
		s.setExpiry(r, now.Add(c.Retention))
		return nil
	})
}

// locked calls f with the mutex locked and expired records removed. f gets the current time, which is the only one that the call
// uses. If ctx has ended before, locked changes nothing and returns the error of ctx.
func (s *Store) locked(ctx context.Context, f func(time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.expire(now)
	return f(now)
}

// lostError returns the error of a claim that does not hold its key: ErrGone if there is no record, else ErrLost. A claim with
// the Fence 0 is nobody's, so nothing of it can be gone.
func (s *Store) lostError(c *driver.Claim) error {
	if c.Fence != 0 && s.records[c.Key] == nil {
		return driver.ErrGone
	}
	return driver.ErrLost
}

// withClaim returns the record whose last claim is c, or nil. A Fence of 0 in c matches any fence, which only Fail
// accepts.
func (s *Store) withClaim(c *driver.Claim) *record {
	r := s.records[c.Key]
	if r == nil || r.claim.Owner != c.Owner || c.Fence != 0 && r.claim.Fence != c.Fence {
		return nil
	}
	return r
}
