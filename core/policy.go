package core

import (
	"slices"
	"strings"
)

// Disposition says what becomes of a key once its handler has responded. A value that is none of the four below counts as Keep: a
// response that is kept runs nothing twice.
type Disposition int

const (
	// Keep stores the response. Every retry gets it.
	Keep Disposition = iota
	// Retry stores no response. The same request runs again, and a different one is still refused with 422, because the
	// handler may have had effects before it failed.
	Retry
	// Release frees the key as if it had not been used, even for a different request. It is for requests that were rejected
	// before they had effects.
	Release
	// LeaveUnknown stores nothing and lets the lease run out, as if the process had died. Then LeaseConfig.OnUnknown decides. It
	// is for handlers that cannot tell whether their effect has happened.
	LeaveUnknown
)

// known returns d, or Keep if d is none of the constants.
func (d Disposition) known() Disposition {
	if d < Keep || d > LeaveUnknown {
		return Keep
	}
	return d
}

// DefaultPolicy keeps every response, with three exceptions. A 5xx is retried, since a server that failed cannot vouch for its
// own response; the handler may then run twice (ERR-03). 401, 403, 407, 408, 425 and 429 release the key, since they are about
// the caller and the moment, and not about the operation (ERR-02). 307 and 308 release it too, since they ask for the same
// request, with its key, at another place (RPL-32).
func DefaultPolicy(r *Response) Disposition {
	switch {
	case r.Status >= 500:
		return Retry
	case slices.Contains([]int{307, 308, 401, 403, 407, 408, 425, 429}, r.Status):
		return Release
	}
	return Keep
}

// KeepAll is a KeepConfig.Policy that keeps every response, 5xx included (ERR-04).
func KeepAll(*Response) Disposition { return Keep }

// KeepOnly2xx is a KeepConfig.Policy that keeps every 2xx, retries a 5xx, and releases the key after a 3xx or 4xx (ERR-11).
func KeepOnly2xx(r *Response) Disposition {
	switch {
	case r.Status >= 500:
		return Retry
	case r.Status >= 300:
		return Release
	}
	return Keep
}

// ReleaseOn returns a KeepConfig.Policy that releases the key after the given statuses, and is DefaultPolicy for the others. Use
// it for responses that are sent before the operation begins, so that a client can correct its request under the same key
// (ERR-10).
func ReleaseOn(statuses ...int) func(*Response) Disposition {
	statuses = slices.Clone(statuses)
	return func(r *Response) Disposition {
		if slices.Contains(statuses, r.Status) {
			return Release
		}
		return DefaultPolicy(r)
	}
}

// OmitNoStore is a KeepConfig.OmitBody for responses with Cache-Control: no-store, such as one-time secrets (RPL-28).
func OmitNoStore(r *Response) bool {
	return slices.ContainsFunc(r.Header, func(f Field) bool {
		return strings.EqualFold(f.Name, "Cache-Control") && strings.Contains(strings.ToLower(f.Value), "no-store")
	})
}

// isEventStream reports whether the Content-Type of r is that of server-sent events.
func isEventStream(r *Response) bool {
	return slices.ContainsFunc(r.Header, func(f Field) bool {
		return strings.EqualFold(f.Name, "Content-Type") && strings.HasPrefix(strings.ToLower(f.Value), "text/event-stream")
	})
}
