package core

import (
	"context"
	"encoding/hex"
)

// Run is what a handler can learn about the run that it is in. A handler that takes over (Takeover) should find out whether the
// effect of the earlier run has happened.
type Run struct {
	Fence       int64 // grows with each claim of the key; give it to systems that can reject an older one
	Operation   int64 // the Fence of the first claim since the key was last absent or released; identifies the operation
	Attempt     int   // 1 for the first run of the operation
	Takeover    bool  // an earlier run vanished without an outcome, so its effects may have happened
	Unprotected bool  // the run has no claim: the store is unavailable, and Config.DangerouslyFailOpen is set

	Decision Disposition // of the handler's last call of Decide; Keep before that
}

// FromContext returns the innermost run that ctx belongs to. It returns false outside of a run, and in the handler of a batch,
// which is in many runs. Like FromContext, [ChildKey], [Step], [Decide] and [CancelOnDisconnect] see only the innermost run, and
// nothing of the runs around it. An unprotected run hides the run around it like any other.
func FromContext(ctx context.Context) (Run, bool) {
	p := placeOf(ctx)
	switch {
	case p == nil:
		return Run{}, false
	case p.run != nil:
		c := &p.run.claim
		decision, _ := p.run.ownDecision()
		return Run{Fence: c.Fence, Operation: c.Operation, Attempt: c.Attempt, Takeover: c.Takeover, Decision: decision}, true
	}
	return Run{Unprotected: p.isUnprotected}, p.isUnprotected
}

// ChildKey derives an idempotency key for a call that a run makes to another service, such as a payment provider. The key
// depends on the scope, key, method and path of the request and on step, and on nothing else. It stays the same if the operation
// runs again, even after its key was released, after the retention, after Redis has lost its data, or under another Config, so
// that two runs never make two charges.
//
// A provider that stores declines returns a declined charge to the next run too, even after a release. To make a new charge
// then, add [Run.Operation] to the name of the step: it stays the same until the key is released or forgotten.
//
// The key has 64 hex digits. It is a hash without a secret, so a caller that guesses scope and key can compute it. Outside of a
// run, and in the handler of a batch, which is in many runs, ChildKey returns "". It is safe for concurrent use.
func ChildKey(ctx context.Context, step string) string {
	p := placeOf(ctx)
	if p == nil || p.keyed == nil {
		return ""
	}
	key := plainHasher.Sum(nil, "idem child key 2", string(p.keyed.root[:]), step)
	return hex.EncodeToString(key[:])
}

// CancelOnDisconnect makes the context of the run that ctx belongs to end when the client leaves. By default a run outlives its
// client, so that its outcome is stored. Adapters call CancelOnDisconnect when a handler begins an event stream; the handler of
// another endless stream calls it itself. Outside of a run it does nothing.
func CancelOnDisconnect(ctx context.Context) {
	if r := runOf(ctx); r != nil {
		r.watchClient()
	}
}

// Decide sets, from inside a run, what becomes of its key, whatever the response is and whatever the policy says (ERR-05). A run
// that panics or returns an error is retried nevertheless. A task that decides on Release and returns an error, for example
// because its database is unavailable, uses up no attempt unless it has stored a step. The last call counts. Outside of a run
// Decide does nothing. It is safe for concurrent use.
func Decide(ctx context.Context, d Disposition) {
	if r := runOf(ctx); r != nil {
		r.decide(d)
	}
}
