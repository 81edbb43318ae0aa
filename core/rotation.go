package core

import (
	"context"
	"crypto/rand"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/digest"
)

// Names of records are hashes under Config.Secret. While Config.PreviousSecrets lists others, or Key.PerRouteChanged is set, a
// record may lie under another name. An engine claims its own name first, and looks at the others then. Of two processes that
// know each other's names, at least one sees the other's claim: each has made its own before it looked.

// naming is one way to name records.
type naming struct {
	hasher   digest.Hasher
	perRoute bool
}

// namings returns the ways to name records that a config knows, its own first.
func namings(cfg *Config) (all []naming) {
	routes := []bool{cfg.Key.PerRoute}
	if cfg.Key.PerRouteChanged {
		routes = append(routes, !cfg.Key.PerRoute)
	}
	for _, secret := range append([][]byte{cfg.Secret}, cfg.PreviousSecrets...) {
		hasher := digest.New(secret)
		for _, perRoute := range routes {
			all = append(all, naming{hasher, perRoute})
		}
	}
	return all
}

// record names the record of a request, or of a message, whose name has no route.
func (n naming) record(scope, key string, req *Request, isMessage bool) [32]byte {
	switch {
	case isMessage:
		return recordName(n.hasher, scope, key, messageMethod)
	case n.perRoute:
		return recordName(n.hasher, scope, key, req.Method, req.Path)
	}
	return recordName(n.hasher, scope, key)
}

// enclosing returns the keeper of a run around ctx that is one of the record of a request or a message, under whatever name;
// nil without one. To look for a previous name in the store would be to meet the run's own claim.
func (e *Engine) enclosing(ctx context.Context, scope, key string, req *Request, isMessage bool) (k *keeper) {
	if placeOf(ctx) == nil {
		return nil
	}
	for i := 0; k == nil && i < len(e.namings); i++ {
		k = enclosing(ctx, e.namings[i].record(scope, key, req, isMessage))
	}
	return k
}

// rename makes op's claim one of the record that n names, as if it had not been asked for.
func (op *operation) rename(n naming) {
	e := op.engine
	if !op.renamed {
		op.home, op.renamed = op.claim.Key, true
	}
	config, a := &e.cfg.Fingerprint, e.algorithm
	if op.isMessage {
		config, a = &FingerprintConfig{}, algorithm{algorithmBase}
	}
	op.hashing = n.hasher
	op.claim.Key = n.record(op.who.scope, op.who.key, &op.req, op.isMessage)
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
		if op.rename(n); op.claim.Key == claim.Key { // of a message, whose name has no route
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
