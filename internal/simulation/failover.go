package simulation

import (
	"context"
	"maps"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// replicated is a primary with a replica that gets no write after a certain time, and then takes the primary's place. Both execute
// a call at the same time of the same clock, so they agree on all writes that both get.
type replicated struct {
	backend // the primary
	replica backend
	isAlone bool // the primary: the replica gets no writes
}

// Begin implements driver.Store.
func (s *replicated) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	if !s.isAlone {
		_, _ = s.replica.Begin(ctx, c)
	}
	return s.backend.Begin(ctx, c)
}

// Extend implements driver.Store.
func (s *replicated) Extend(ctx context.Context, c driver.Claim) error {
	if !s.isAlone {
		_ = s.replica.Extend(ctx, c)
	}
	return s.backend.Extend(ctx, c)
}

// Complete implements driver.Store.
func (s *replicated) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	if !s.isAlone {
		_ = s.replica.Complete(ctx, c, outcome)
	}
	return s.backend.Complete(ctx, c, outcome)
}

// Fail implements driver.Store.
func (s *replicated) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	if !s.isAlone {
		_ = s.replica.Fail(ctx, c, f)
	}
	return s.backend.Fail(ctx, c, f)
}

// Checkpoint implements driver.Checkpointer.
func (s *replicated) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	if !s.isAlone {
		_ = s.replica.Checkpoint(ctx, c, step, result)
	}
	return s.backend.Checkpoint(ctx, c, step, result)
}

// failOver lets the replica miss the last writes, and then take the primary's place. Subscriptions end with the primary.
func (h *history) failOver(s *replicated) {
	time.Sleep(h.plan.failover.lastWrite)
	h.mu.Lock()
	s.isAlone = true
	forget := h.remember()
	h.mu.Unlock()
	time.Sleep(h.plan.failover.promoted - h.plan.failover.lastWrite)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tell("FAILOVER")
	s.backend = s.replica
	forget()
}

// remember notes what the store has executed so far. The function that it returns makes that all that the store has executed:
// claims that were granted in the meantime, and everything else, are lost. No owner has to be able to hold a claim for a lease
// after that. The caller holds mu, also when it calls the function.
func (h *history) remember() (forget func()) {
	records, claims := map[*record]record{}, map[*claim]claim{}
	for _, r := range h.records {
		copied := *r
		copied.withdrawn = maps.Clone(r.withdrawn)
		records[r] = copied
		for _, c := range r.claims {
			claims[c] = *c
		}
	}
	return func() {
		h.failedOver = h.now()
		for _, r := range h.records {
			before := records[r] // nothing, if the record is new
			r.hasLost = r.hasLost || r.completed != before.completed
			r.last, r.completed, r.withdrawn = before.last, before.completed, before.withdrawn
			if r.withdrawn == nil {
				r.withdrawn = map[[16]byte]time.Duration{}
			}
			for _, c := range r.claims {
				h.revert(c, claims)
			}
		}
	}
}

// revert takes what happened to a claim back, as far as the store has lost it.
func (h *history) revert(c *claim, claims map[*claim]claim) {
	c.troubleUntil, c.process.troubleUntil, c.confirmed = h.now(), h.now(), 0
	before, isKnown := claims[c]
	if !isKnown {
		c.isLost = true
		return
	}
	c.hasLostEnd = c.hasLostEnd || c.hasEnded && !before.hasEnded
	c.hasEnded, c.hasWithdrawn = before.hasEnded, before.hasWithdrawn
	c.believedEnd = max(c.believedEnd, c.leaseEnd)
	c.leaseEnd, c.taken, c.next = before.leaseEnd, before.taken, before.next
}
