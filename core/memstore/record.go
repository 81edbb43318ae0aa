package memstore

import (
	"slices"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// state is the state of a record. A key without a record is absent.
type state int

const (
	started state = iota
	completed
	failed
)

// record is the record of one key, or its tombstone.
type record struct {
	claim       driver.Claim // the last one, with the fields that Begin fills in
	state       state
	free        bool // FAILED, and open to a request with another fingerprint
	effects     bool // an earlier run of the same request may have had effects
	leaseEnd    time.Time
	expires     time.Time
	outcome     []byte            // only if COMPLETED
	cause       string            // of the failure; only if FAILED
	steps       map[string][]byte // results by step, of the current operation
	noted       [][16]byte        // earlier owners that have failed or withdrawn, the latest last
	isTombstone bool
	index       int // in the heap; -1 before its first setExpiry
}

// maxNoted is how many owners a record notes. driver.Store.Fail demands at least 16.
const maxNoted = 16

// recordBytes is about what a record takes besides its outcome: the struct, its entries in map and heap, and its key.
const recordBytes = 320

// size returns the memory of r, counted as MaxBytes says.
func (r *record) size() int {
	n := recordBytes + len(r.outcome) + len(r.cause) + len(r.noted)*len(driver.Claim{}.Owner)
	for step, result := range r.steps {
		n += recordBytes + len(step) + len(result)
	}
	return n
}

// hasEnded reports whether owner has failed or withdrawn. A Begin of this owner comes too late: the engine has given the claim up
// by a Fail.
func (r *record) hasEnded(owner [16]byte) bool {
	return r.state == failed && r.claim.Owner == owner || slices.Contains(r.noted, owner)
}

// claimedEntry returns the entry for the owner of r.
func (r *record) claimedEntry(left time.Duration) driver.Entry {
	c := &r.claim
	return driver.Entry{
		State: driver.Claimed, Fence: c.Fence, Attempt: c.Attempt, Operation: c.Operation, Takeover: c.Takeover, Remaining: left,
	}
}
