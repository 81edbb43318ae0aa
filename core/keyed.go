package core

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/digest"
)

// keyed is a request or a task with its key, and the claim for the record of both.
type keyed struct {
	engine   *Engine
	ctx      context.Context // ends when the client leaves
	req      Request
	body     []byte
	identity identity
	root     [32]byte     // from which child keys are derived; zero until the handler is about to run
	claim    driver.Claim // as the next call to the store sends it
	begun    time.Time    // when Begin was last sent

	hasher    digest.Hasher // of the naming that the claim's record has
	isTask    bool          // req stands for a task
	isLocal   bool          // the outcome is that of the local cache
	isDone    bool          // Hooks.Done was called
	bodyState bodyState     // of body, for a request
	ownKey    *[32]byte     // the record's name under the engine's own naming, if the claim is under another; else nil

	started time.Duration // when the handler began, from epoch on; 0 before that, or if no hook is told
	waited  time.Duration // for runs in progress, once that is over
}

// newClaim makes ready to ask the store: it fills in what a claim asks for, whatever it is of.
func (k *keyed) newClaim() {
	cfg := &k.engine.cfg
	k.claim.Lease, k.claim.Retention, k.claim.LateRetry = cfg.Lease.Duration, cfg.Keep.Retention, cfg.Keep.LateRetry
	k.claim.NoTakeover, k.claim.WantRemaining = cfg.Lease.OnUnknown != nil, k.engine.replays != nil
	rand.Read(k.claim.Owner[:])
}

// identity is what a client calls an operation.
type identity struct{ scope, key string }

// identify fills in what child keys derive from: nothing that a config, a store or time changes. It is called when the handler is
// about to run, because adapters may use the memory of scope and key again when it has returned.
func (k *keyed) identify() {
	k.root = plainHasher.Sum(nil, "idem child root 1", k.identity.scope, k.identity.key, k.req.Method, k.req.Path)
}

// isRenamed reports whether the claim is not under the engine's own naming.
func (k *keyed) isRenamed() bool { return k.ownKey != nil }

// granted fills in what Begin returned for a claim that it granted.
func (k *keyed) granted(entry driver.Entry) {
	c := &k.claim
	c.Fence, c.Attempt, c.Operation, c.Takeover = entry.Fence, entry.Attempt, entry.Operation, entry.Takeover
}

// detached returns a context that has the values of the client's, and does not end when the client leaves.
func (k *keyed) detached() context.Context { return context.WithoutCancel(k.ctx) }

// hasLeft reports whether err is the error of a call that ended because the client has left, which is no failure of the store.
func (k *keyed) hasLeft(err error) bool {
	return k.ctx.Err() != nil && errors.Is(err, context.Canceled)
}
