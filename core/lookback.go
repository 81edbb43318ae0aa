package core

import (
	"crypto/rand"

	"github.com/go-idem/idem/core/driver"
)

// rename makes op's claim one of the record that n names, as if it had not been asked for.
func (op *operation) rename(n naming) {
	e := op.engine
	if !op.renamed {
		op.home, op.renamed = op.claim.Key, true
	}
	config, a := &e.cfg.Fingerprint, e.algorithm
	if op.task != nil {
		config, a = &FingerprintConfig{}, algorithm{algorithmBase}
	}
	op.hashing = n.hasher
	op.claim.Key = n.record(op.who.scope, op.who.key, &op.req, op.task != nil)
	op.claim.Fingerprint = config.of(n.hasher, a, &op.req, op.body)
	op.claim.Fence, op.claim.Attempt, op.claim.Operation, op.claim.Takeover, op.claim.TakeoverFence = 0, 0, 0, false, 0
}

// startOver makes ready to ask for the record under the engine's own name again, as another owner: the first has failed.
func (op *operation) startOver() {
	op.rename(op.engine.namings[0])
	op.renamed = false
	rand.Read(op.claim.Owner[:])
}

// lookBack is called with a claim under the engine's own name. If there is a record of the operation under a previous one, op
// goes on with that and gives its own claim back; the entry is what that record says. It is not settled when that record's run
// was none, and has ended without one: what was true of the own name may be true no more.
func (op *operation) lookBack(own driver.Entry) (found driver.Entry, isSettled bool, err error) {
	claim, began, hashing := op.claim, op.began, op.hashing
	for _, n := range op.engine.namings[1:] {
		if op.rename(n); op.claim.Key == claim.Key { // of a task, whose name has no route
			continue
		}
		found, err = op.look()
		if err == nil && isFresh(found) {
			op.claim.Fence = found.Fence
			op.release(op.claim)
			continue
		}
		op.release(claim)
		if err != nil {
			return found, false, err
		}
		if found, err = op.acquireRecord(); err == nil && isFresh(found) {
			op.release(op.claim)
			return found, false, nil
		}
		return found, true, err
	}
	op.claim, op.began, op.hashing, op.renamed = claim, began, hashing, false
	return own, true, nil
}

// isFresh tells of a Begin that it found nothing of an earlier run.
func isFresh(e driver.Entry) bool { return e.State == driver.Claimed && e.Attempt <= 1 && !e.Takeover }

// look sends Begin, and again by the record's algorithm if that is another.
func (op *operation) look() (driver.Entry, error) {
	entry, err := op.sendBegin()
	if err == nil && entry.State == driver.Mismatch && op.refingerprint(entry.Fingerprint) {
		return op.sendBegin()
	}
	return entry, err
}
