package core

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/recordname"
)

// rename changes op's claim to one of the record that n names, and removes what Begin returned for the previous name.
func (op *operation) rename(n recordname.Naming) {
	e := op.engine
	if !op.isRenamed() {
		own := op.claim.Key
		op.ownKey = &own
	}
	config, a := &e.cfg.Fingerprint, e.algorithm
	if op.isTask {
		config, a = &FingerprintConfig{}, algorithm{algorithmBase}
	}
	op.hasher = n.Hasher
	op.claim.Key = recordName(n, op.identity.scope, op.identity.key, &op.req, op.isTask)
	op.claim.Fingerprint = config.of(n.Hasher, a, &op.req, op.body)
	op.claim.Fence, op.claim.Attempt, op.claim.Operation, op.claim.Takeover, op.claim.TakeoverFence = 0, 0, 0, false, 0
}

// startOver prepares op for another Begin under the engine's own naming. The claim gets a new owner, since the first one has
// failed.
func (op *operation) startOver() {
	op.rename(op.engine.namings[0])
	op.ownKey = nil
	rand.Read(op.claim.Owner[:])
}

// lookBack looks for a record of the operation under the other namings. It is called with a claim under the engine's own naming,
// so that of two processes that know each other's namings, at least one sees the other's claim: each has claimed before it looks.
//
// If there is an earlier record, op continues with that and releases its own claim, and found is what Begin returned for that
// record. If that record turns out to have no run, because the run ended without one, isSettled is false: the record under the
// own name may have changed meanwhile, so the caller starts over.
func (op *operation) lookBack(own driver.Entry) (found driver.Entry, isSettled bool, err error) {
	claim, began, hashing := op.claim, op.begun, op.hasher
	for _, n := range op.engine.namings[1:] {
		if op.rename(n); op.claim.Key == claim.Key { // the name of a task has no path, so PerRoute does not change it
			continue
		}
		hasRecord, err := op.look()
		if err == nil && !hasRecord {
			continue
		}
		op.release(claim, causeOtherName)
		if !hasRecord { // no Begin was sent under the other name, so there is nothing to withdraw
			op.claim = claim
		}
		if err != nil {
			return found, false, err
		}
		return op.acquireEarlier(claim.Fence)
	}
	op.claim, op.begun, op.hasher, op.ownKey = claim, began, hashing, nil
	return own, true, nil
}

// acquireEarlier acquires the record under the name that op's claim has now, after the own claim, with the fence own, was released.
// A claim for that record holds only if no other process has claimed the operation under another name meanwhile: of two processes
// that move from one name to the other in opposite directions, at least one sees the other's claim.
func (op *operation) acquireEarlier(own int64) (found driver.Entry, isSettled bool, err error) {
	found, err = op.acquireRecord()
	if err != nil || found.State != driver.Claimed {
		return found, true, err
	}
	hasRival, err := op.hasRival(own)
	if hasRival || err != nil || isFresh(found) {
		op.release(op.claim, causeOtherName)
		return found, false, err
	}
	return found, true, nil
}

// hasRival reports whether the operation is claimed or completed under another name than that of op's claim. The claim with the
// fence own is not counted: op had it, and its release may be on the way.
func (op *operation) hasRival(own int64) (bool, error) {
	for _, n := range op.engine.namings {
		name := recordName(n, op.identity.scope, op.identity.key, &op.req, op.isTask)
		if name == op.claim.Key {
			continue
		}
		seen, err := op.inspect(name)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return false, nil
		case err != nil:
			return false, err
		}
		switch seen.State {
		case driver.InProgress, driver.Unknown, driver.Completed:
			if seen.Fence != own {
				return true, nil
			}
		}
	}
	return false, nil
}

// findOutcome looks for an outcome under the other namings when the record under the own name is another request's, or has an
// unknown outcome. A process that died between its claim and its look leaves such a record, and no handler has run under it. If
// there is an outcome, op continues with it.
func (op *operation) findOutcome(own driver.Entry) (driver.Entry, error) {
	claim, began, hashing, comparison := op.claim, op.begun, op.hasher, op.comparison
	for _, n := range op.engine.namings[1:] {
		if op.rename(n); op.claim.Key == claim.Key {
			continue
		}
		if seen, err := op.inspect(op.claim.Key); err == nil && seen.State == driver.Completed {
			return op.acquireRecord()
		}
	}
	op.claim, op.begun, op.hasher, op.comparison, op.ownKey = claim, began, hashing, comparison, nil
	return own, nil
}

// look reports whether there is a record under the name that op's claim has now. It asks a [driver.Inspector], because a claim
// would stay there if the process died before it has released it. A later request would then go on under that name, which a
// process in another step of a rotation may not know. Begin decides what an Inspector cannot tell: whether there is a tombstone
// behind a released claim, which only a claim with a LateRetry finds. hasRecord is true if that Begin failed.
func (op *operation) look() (hasRecord bool, err error) {
	seen, err := op.inspect(op.claim.Key)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		return false, err
	case seen.State == driver.Absent:
		return false, nil
	case op.claim.LateRetry == 0 && (seen.State == driver.Expired || seen.IsReleased()):
		return false, nil
	case seen.State != driver.Failed || seen.Attempt > 0:
		return true, nil
	}
	found, err := op.sendBegin()
	if err != nil || !isFresh(found) {
		return true, err
	}
	op.claim.Fence = found.Fence
	op.release(op.claim, causeOtherName)
	return false, nil
}

// looker is the part of [driver.Inspector] that engines use.
type looker interface {
	Look(ctx context.Context, name [32]byte) (driver.Record, error)
}

// inspect returns what the store knows of the record with this name. It returns an error that is errors.ErrUnsupported if
// the store is no looker.
func (op *operation) inspect(name [32]byte) (seen driver.Record, err error) {
	store, ok := op.engine.cfg.Store.(looker)
	if !ok {
		return seen, errors.ErrUnsupported
	}
	err = op.engine.call(op.ctx, "Look", func(ctx context.Context) error {
		seen, err = store.Look(ctx, name)
		return err
	})
	return seen, err
}

// isFresh reports whether Begin granted a claim and found no earlier run.
func isFresh(e driver.Entry) bool { return e.State == driver.Claimed && e.Attempt <= 1 && !e.Takeover }
