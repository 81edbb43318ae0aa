package core

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/go-idem/idem/core/driver"
)

// reopener is an ability that a Store may have: to let an operator revive a dead task.
type reopener interface {
	// Reopen turns the COMPLETED record of c, if its outcome is this one, into FAILED under c.Owner: open to the same request
	// only, as after an owner that vanished (Takeover), with no attempt counted, and without its tombstone. The next claim
	// begins another operation. The retention starts anew. Else it changes nothing and returns ErrLost.
	Reopen(ctx context.Context, c driver.Claim, outcome []byte) error
}

// revive reopens the record of a task that is dead; outcome is what the store keeps of it.
func (op *operation) revive(outcome []byte) error {
	kept, _, err := op.engine.codecs.decode(op.claim.Key, outcome)
	if err != nil {
		return err
	}
	if kept.Status != statusDead {
		return fmt.Errorf("%w: %s", ErrNotUnknown, driver.Completed)
	}
	store, ok := op.engine.cfg.Store.(reopener)
	if !ok {
		return fmt.Errorf("idem: store %T has no method Reopen, which revives a dead task: %w", op.engine.cfg.Store, errors.ErrUnsupported)
	}
	err = store.Reopen(op.ctx, op.claim, outcome)
	op.engine.replays.Evict(&op.claim.Key) // whatever err is: it may have taken effect
	if errors.Is(err, ErrLost) {
		return fmt.Errorf("%w: another has settled it at this moment", ErrNotUnknown)
	}
	return err
}

// claimRevived claims a task that was just revived. A delivery of a message may be there first.
func (op *operation) claimRevived() error {
	rand.Read(op.claim.Owner[:]) // the other has reopened it: for a store that is a run which failed
	entry, err := op.engine.cfg.Store.Begin(op.ctx, op.claim)
	if err != nil {
		return err
	}
	if entry.State != driver.Claimed {
		return fmt.Errorf("%w: it is revived, and %s", ErrNotUnknown, entry.State)
	}
	op.claim.Fence, op.claim.Attempt, op.claim.Operation, op.claim.Takeover = entry.Fence, entry.Attempt, entry.Operation, entry.Takeover
	return nil
}
