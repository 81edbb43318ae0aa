package dynamostore

import (
	"sync"
	"time"

	"github.com/go-idem/idem/internal/record"
)

// maxSightings is how many running claims a Store watches. If there are more, some are watched from the beginning when they are
// seen again.
const maxSightings = 10_000

// sighting is a lease that this process has seen, and since when, by its monotonic clock. The lease is over when nothing has
// changed for its whole length.
type sighting struct {
	fence, beat int64
	since       time.Time
}

// sightings has the leases that a Store watches, by the keys of their records.
type sightings struct {
	mu    sync.Mutex
	byKey map[[32]byte]sighting
}

// note notes a lease that this process sees for the first time, or has just granted or extended, and returns what is known of it.
func (s *sightings) note(key [32]byte, seen sighting) sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.byKey[key]
	if ok && known.fence == seen.fence && known.beat == seen.beat {
		return known
	}
	if !ok && len(s.byKey) >= maxSightings {
		for other := range s.byKey {
			delete(s.byKey, other)
			break
		}
	}
	s.byKey[key] = seen
	return seen
}

// find returns what is known of a lease. It returns the argument if that is nothing.
func (s *sightings) find(key [32]byte, seen sighting) sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.byKey[key]; known.fence == seen.fence && known.beat == seen.beat {
		return known
	}
	return seen
}

// remove forgets the lease of a record that has ended.
func (s *sightings) remove(key [32]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byKey, key)
}

// judge sets the end of the item's lease as this process sees it at a time of DynamoDB's clock. watch is note or find of the
// store's sightings: note begins to watch the lease.
func (s *Store) judge(it *item, now int64, watch func([32]byte, sighting) sighting) {
	if it.State != record.Started {
		if it.isStored { // and not only assumed to be absent
			s.sightings.remove(it.name())
		}
		return
	}
	seen := watch(it.name(), sighting{fence: it.Fence, beat: it.beat, since: it.received})
	watched := min(it.lease, it.lease-it.sent.Sub(seen.since).Microseconds())
	it.LeaseEnd = min(now+watched, it.leaseEnd)
}
