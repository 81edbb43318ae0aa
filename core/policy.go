package core

import (
	"context"
	"slices"
	"strings"
)

// Disposition is what becomes of a key when its handler has answered.
type Disposition int

const (
	// Keep stores the answer; every retry gets it.
	Keep Disposition = iota
	// Retry stores no answer; the next request runs again, but only if it is the same request: the handler may have
	// had effects before it failed.
	Retry
	// Release frees the key as if it had not been used: the request was turned away before it had effects, and the
	// next one under the key may be another.
	Release
	// LeaveUnknown stores nothing and leaves the claim to the end of its lease, as if the process had died: for a handler
	// that can not tell whether its effect has happened. Then LeaseConfig.OnUnknown decides.
	LeaveUnknown
)

// DefaultPolicy keeps every answer but three kinds. A 5xx is retried: a server that failed can not vouch for its own
// answer, and the handler may run twice (ERR-03). 401, 403, 407, 408, 425 and 429 release the key: they speak of the
// caller and the moment, not of the operation (ERR-02). So do 307 and 308, which ask for the same request, with its key, at
// another place (RPL-32).
func DefaultPolicy(r *Response) Disposition {
	switch {
	case r.Status >= 500:
		return Retry
	case slices.Contains([]int{307, 308, 401, 403, 407, 408, 425, 429}, r.Status):
		return Release
	}
	return Keep
}

// KeepAll keeps every answer, 5xx included, as Stripe does (ERR-04).
func KeepAll(*Response) Disposition { return Keep }

// KeepOnly2xx keeps what succeeded and releases the key after a 3xx or 4xx (ERR-11).
func KeepOnly2xx(r *Response) Disposition {
	switch {
	case r.Status >= 500:
		return Retry
	case r.Status >= 300:
		return Release
	}
	return Keep
}

// ReleaseOn is DefaultPolicy, but the given statuses release the key: for answers that are given before the operation
// begins, so that a client may mend its request under the same key (ERR-10).
func ReleaseOn(statuses ...int) func(*Response) Disposition {
	statuses = slices.Clone(statuses)
	return func(r *Response) Disposition {
		if slices.Contains(statuses, r.Status) {
			return Release
		}
		return DefaultPolicy(r)
	}
}

// OmitNoStore is a KeepConfig.OmitBody for answers that say Cache-Control: no-store, such as one-time secrets (RPL-28).
func OmitNoStore(r *Response) bool {
	return slices.ContainsFunc(r.Header, func(f Field) bool {
		return strings.EqualFold(f.Name, "Cache-Control") && strings.Contains(strings.ToLower(f.Value), "no-store")
	})
}

// Decide says, from inside a run, what becomes of its key, whatever the answer will be and the policy says of it (ERR-05).
// A panic and a returned error are retried all the same; but a message whose handler decides on Release and returns an error,
// such as that its database is away, has not used up an attempt. Outside of a run it does nothing.
func Decide(ctx context.Context, d Disposition) {
	if k := keeperOf(ctx); k != nil {
		k.decide(d)
	}
}

// isEventStream tells by the Content-Type of r.
func isEventStream(r *Response) bool {
	return slices.ContainsFunc(r.Header, func(f Field) bool {
		return strings.EqualFold(f.Name, "Content-Type") && strings.HasPrefix(strings.ToLower(f.Value), "text/event-stream")
	})
}

// disposition puts what can not be kept first, and the handler's own decision before the policy. A hijacked connection has
// no answer (MTH-07), an event stream that its client left is a subscription, not an outcome, and what no handler has seen did
// not use its key.
func (op *operation) disposition(r *Response) Disposition {
	decision, decided := op.keeper.decidedOn()
	endless := r.Unfinished && isEventStream(r)
	switch {
	case r.Hijacked && (!decided || decision == Keep), (endless || r.Unrouted) && !decided:
		return Release
	case decided:
		return decision
	}
	return op.engine.cfg.Keep.Policy(r)
}
