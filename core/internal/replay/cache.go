// Package replay remembers outcomes that a store has confirmed, so that a process can replay them without asking the store.
package replay

import (
	"bytes"
	"container/list"
	"sync"
	"sync/atomic"
	"time"
)

// Cache holds outcomes by the name of their record, and beside each what its user has made of it, a V. A completed record never
// changes, so a hit is correct unless an operator deletes the record. Cache is bounded by bytes and evicts records that nobody has
// asked for first. It is safe for concurrent use. A nil Cache holds nothing.
type Cache[V any] struct {
	limit int // bytes

	mu      sync.RWMutex
	bytes   int
	records map[[32]byte]*Record[V]
	recent  *list.List // of *Record[V]: in front the newest, and those that got a second chance
}

// Record is one outcome. Its exported fields never change.
type Record[V any] struct {
	Fingerprint [32]byte // of the request
	Outcome     []byte   // as the store holds it
	Prepared    V        // the zero value until Prepare

	key        [32]byte
	expires    time.Time
	size       int
	element    *list.Element // in Cache.recent
	referenced atomic.Bool   // somebody has asked for the record since it was put in front
}

// RecordBytes is about what a record takes besides its outcome and the texts of what is prepared: the two structs, and their places
// in the map and in the list.
const RecordBytes = 450

// maxAge is for how long a record is believed to be there without asking the store, so that a record which an operator deletes is
// gone from all processes after a minute.
const maxAge = time.Minute

// New returns a cache for so many bytes, nil for none or less.
func New[V any](limit int) *Cache[V] {
	if limit <= 0 {
		return nil
	}
	return &Cache[V]{limit: limit, records: map[[32]byte]*Record[V]{}, recent: list.New()}
}

// Get returns the record of a key, nil without one.
func (c *Cache[V]) Get(key *[32]byte) *Record[V] {
	if c == nil {
		return nil
	}
	c.mu.RLock()
	r := c.records[*key]
	c.mu.RUnlock()
	if r == nil {
		return nil
	}
	if time.Until(r.expires) <= 0 {
		c.evictExpired(r)
		return nil
	}
	if !r.referenced.Load() { // a write for each request would make the cores wait for each other
		r.referenced.Store(true)
	}
	return r
}

// evictExpired drops r, unless the key has another record by now.
func (c *Cache[V]) evictExpired(r *Record[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.records[r.key] == r {
		c.evict(r)
	}
}

// Put holds the outcome of a record that was completed when the store was asked, at asked, and lives for ttl from then on.
func (c *Cache[V]) Put(key, fingerprint [32]byte, outcome []byte, asked time.Time, ttl time.Duration) {
	if c == nil || ttl <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.records[key]; r != nil {
		c.evict(r)
	}
	c.add(&Record[V]{
		key: key, Fingerprint: fingerprint, Outcome: outcome, expires: asked.Add(min(ttl, maxAge)), size: RecordBytes + len(outcome),
	})
}

// Prepare keeps v, which takes so many bytes and was made of outcome, beside that outcome. It does nothing when the cache has no
// room for both, or holds another outcome by now.
func (c *Cache[V]) Prepare(key *[32]byte, outcome []byte, v V, size int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[*key]
	size += RecordBytes + len(outcome)
	if r == nil || size > c.limit || !bytes.Equal(r.Outcome, outcome) {
		return
	}
	c.evict(r)
	c.add(&Record[V]{key: r.key, Fingerprint: r.Fingerprint, Outcome: r.Outcome, Prepared: v, expires: r.expires, size: size})
}

// Evict drops the record of a key.
func (c *Cache[V]) Evict(key *[32]byte) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.records[*key]; r != nil {
		c.evict(r)
	}
}

// add adds r if it fits; the caller holds mu.
func (c *Cache[V]) add(r *Record[V]) {
	if r.size > c.limit {
		return
	}
	c.evictFor(r.size)
	c.records[r.key], r.element = r, c.recent.PushFront(r)
	c.bytes += r.size
}

// secondChances is how many referenced records one eviction moves to the front at most, so that it does not walk the whole list
// while every other request waits for the lock.
const secondChances = 16

// evictFor drops records until size bytes are free: the oldest first, but a referenced one gets a second chance. The caller holds
// mu.
func (c *Cache[V]) evictFor(size int) {
	now, chances := time.Now(), secondChances
	for c.bytes+size > c.limit {
		r := c.recent.Back().Value.(*Record[V])
		if !r.referenced.Load() || chances == 0 || !now.Before(r.expires) {
			c.evict(r)
			continue
		}
		r.referenced.Store(false)
		chances--
		c.recent.MoveToFront(r.element)
	}
}

// evict drops r; the caller holds mu.
func (c *Cache[V]) evict(r *Record[V]) {
	c.recent.Remove(r.element)
	delete(c.records, r.key)
	c.bytes -= r.size
}
