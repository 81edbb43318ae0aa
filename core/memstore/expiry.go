package memstore

import (
	"container/heap"
	"time"
)

// setExpiry sets the time at which r expires, and puts r at its place in the heap. It takes logarithmic time.
func (s *Store) setExpiry(r *record, expires time.Time) {
	r.expires = expires
	if r.index < 0 {
		heap.Push(&s.expiry, r)
		return
	}
	heap.Fix(&s.expiry, r.index)
}

// expire removes the records and tombstones that have expired. A COMPLETED record whose claim has LateRetry leaves a tombstone,
// which replaces an earlier one of the key. Its life counts from the time at which the record has expired, not from now: a store
// that nobody called for long has tombstones that expire in the same loop.
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

// remove removes a record or tombstone.
func (s *Store) remove(r *record) {
	heap.Remove(&s.expiry, r.index)
	s.bytes -= r.size()
	if r.isTombstone {
		delete(s.tombstones, r.claim.Key)
	} else {
		delete(s.records, r.claim.Key)
	}
}

// expiryHeap is a heap.Interface with the record that expires next at index 0. Each record knows its index.
type expiryHeap []*record

// The methods of heap.Interface. Swap, Push and the removal keep the index of each record current, which setExpiry and remove
// need.
func (h expiryHeap) Len() int { return len(h) }

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
