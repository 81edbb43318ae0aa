package driver

import "context"

// Reopener is an ability that a Store may have: to let an operator revive a task that is dead, by core.Engine.Resolve.
type Reopener interface {
	// Reopen turns the COMPLETED record of c, if its outcome is this one, into FAILED under c.Owner. Only the same request can claim
	// it then, as after an owner that vanished (Takeover), with no attempt counted. The tombstone is deleted, and the retention
	// starts anew. The next claim begins another operation. In any other state Reopen changes nothing and returns ErrLost.
	Reopen(ctx context.Context, c Claim, outcome []byte) error
}
