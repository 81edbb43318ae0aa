package core

import (
	"context"
	"encoding/hex"
)

// Run is what a handler may know about the run it is in.
type Run struct {
	Fence       int64 // grows from one claim of a key to the next: hand it to resources that can refuse an older one
	Operation   int64 // the Fence of the first claim since the key was last absent or released: tells operations under a key apart
	Attempt     int   // 1 for the first run of the key
	Takeover    bool  // an earlier run vanished without an outcome: its effects may have happened
	Unprotected bool  // there is no claim: the store could not answer, and Config.DangerouslyFailOpen is set

	Decision Disposition // what the handler has said last by Decide; Keep before
}

// FromContext returns the run that ctx belongs to, which is the innermost one; false outside of a run.
func FromContext(ctx context.Context) (Run, bool) {
	p := placeOf(ctx)
	switch {
	case p == nil:
		return Run{}, false
	case p.keeper != nil:
		c := &p.keeper.op.claim
		decision, _ := p.keeper.decidedOn()
		return Run{Fence: c.Fence, Operation: c.Operation, Attempt: c.Attempt, Takeover: c.Takeover, Decision: decision}, true
	}
	return Run{Unprotected: p.isUnprotected}, p.isUnprotected
}

// ChildKey derives a key for a call that a run makes to another service, such as a payment provider. It is the same for the
// same step of the same scope and key, and for ever: also when the operation is run again, after its key was released, after
// the retention, when Redis has lost its data, and under another Config. So a charge cannot become two because something
// between the two runs has changed. It is another one for every other step, scope, key, method and path.
//
// A provider that keeps declines returns a declined charge to the next run as well, even if that one came after a release.
// To ask anew then, put [Run.Operation] into the name of the step: it is the same until the key is released or forgotten.
//
// The key is a hash without a secret: who can guess scope and key can guess it. It is 64 hex digits; "" outside of a run, and
// in the handler of a batch, which is in many.
func ChildKey(ctx context.Context, step string) string {
	p := placeOf(ctx)
	if p == nil || p.op == nil {
		return ""
	}
	key := plainHashing.Sum(nil, "idem child key 2", string(p.op.root[:]), step)
	return hex.EncodeToString(key[:])
}

// CancelOnDisconnect ends the protection of a run's context from its client: when the client leaves, ctx is cancelled.
// Adapters call it when an event stream begins; a handler of another endless stream calls it itself. Outside of a run it
// does nothing.
func CancelOnDisconnect(ctx context.Context) {
	if k := keeperOf(ctx); k != nil {
		k.watchClient()
	}
}
