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

// DefaultPolicy keeps every answer but two kinds. A 5xx is retried: a server that failed can not vouch for its own
// answer, and the handler may run twice (ERR-03). 401, 403, 407, 408, 425 and 429 release the key: they speak of the
// caller and the moment, not of the operation (ERR-02).
func DefaultPolicy(r *Response) Disposition {
	switch {
	case r.Status >= 500:
		return Retry
	case slices.Contains([]int{401, 403, 407, 408, 425, 429}, r.Status):
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
// A panic and a returned error are retried all the same. Outside of a run it does nothing.
func Decide(ctx context.Context, d Disposition) {
	if k, ok := ctx.Value(runKey{}).(*keeper); ok {
		k.decision.Store(&d)
	}
}

// disposition puts what can not be kept first, and the handler's own decision before the policy. A hijacked connection has
// no answer (MTH-07), and an event stream that its client left is a subscription, not an outcome.
func (e *Engine) disposition(r *Response, decision *Disposition) Disposition {
	endless := r.Unfinished && strings.HasPrefix(strings.ToLower(r.Get("Content-Type")), "text/event-stream")
	if r.Hijacked || endless && decision == nil {
		return Release
	}
	if decision != nil {
		return *decision
	}
	return e.cfg.Keep.Policy(r)
}

// notKept are the header lines of an answer that belong to one exchange: hop-by-hop (RPL-12), framing and time (RPL-11,
// RPL-13), credentials (RPL-14, RPL-15), and the connection's own bookkeeping (RPL-16).
var notKept = map[string]bool{
	"connection": true, "keep-alive": true, "te": true, "trailer": true, "transfer-encoding": true, "upgrade": true,
	"proxy-connection": true, "content-length": true, "date": true, "age": true, "alt-svc": true,
	"set-cookie": true, "authorization": true, "www-authenticate": true, "authentication-info": true,
	"proxy-authenticate": true, "proxy-authentication-info": true, "proxy-authorization": true,
	"x-request-id": true, "traceparent": true, "tracestate": true, "server-timing": true,
}

// notKeptFamilies are the beginnings of more such names.
var notKeptFamilies = []string{"ratelimit", "x-ratelimit"}

// keptHeader returns the lines that a replay sends again: all but notKept, the marker, and what Connection names. Like
// net/http when it sends them, it drops names that are none and puts spaces for line breaks.
func keptHeader(r *Response, marker string) []Field {
	hops := []string{strings.ToLower(marker)}
	for _, f := range r.Header {
		if strings.EqualFold(f.Name, "Connection") {
			hops = append(hops, strings.FieldsFunc(strings.ToLower(f.Value), isListSeparator)...)
		}
	}
	kept := make([]Field, 0, len(r.Header))
	for _, f := range r.Header {
		name := strings.ToLower(f.Name)
		isFamily := slices.ContainsFunc(notKeptFamilies, func(family string) bool { return strings.HasPrefix(name, family) })
		if isFamily || notKept[name] || slices.Contains(hops, name) || !isToken(f.Name) {
			continue
		}
		kept = append(kept, Field{f.Name, lineBreaks.Replace(f.Value)})
	}
	return kept
}

// keptRemovals returns the names whose lines a replay takes away again.
func keptRemovals(r *Response) (kept []string) {
	for _, name := range r.Removed {
		if isToken(name) && !notKept[strings.ToLower(name)] {
			kept = append(kept, name)
		}
	}
	return kept
}

func isListSeparator(c rune) bool { return c == ',' || c == ' ' || c == '\t' }

var lineBreaks = strings.NewReplacer("\r", " ", "\n", " ", "\x00", " ")
