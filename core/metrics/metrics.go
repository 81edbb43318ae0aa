// Package metrics counts calls of the hooks of engines. Publish the counters as an expvar, or read them for another metrics
// system. The package needs only the standard library.
//
//	counters := metrics.New()
//	cfg.Hooks = counters.Hooks(cfg.Hooks)
//	expvar.Publish("idem", counters)
package metrics

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"

	"github.com/go-idem/idem/core"
)

// Counters counts calls of hooks since New. It is safe for concurrent use. Several engines may share one.
type Counters struct {
	names  []string
	counts []atomic.Int64 // by the index of the name
}

// New returns counters that are all 0.
func New() *Counters {
	c := &Counters{}
	for _, h := range hooks(&core.Hooks{}) {
		c.names = append(c.names, h.name)
	}
	c.counts = make([]atomic.Int64, len(c.names))
	return c
}

// named is a hook and the name of its counter.
type named struct {
	name string
	hook *core.Hook
}

// hooks returns the fields of h with the names of their counters.
func hooks(h *core.Hooks) []named {
	return []named{
		{"runs", &h.Begin}, {"takeovers", &h.Takeover}, {"replays", &h.Replay}, {"conflicts", &h.Conflict},
		{"mismatches", &h.Mismatch}, {"kept", &h.Kept}, {"failed", &h.Failed}, {"unknown", &h.Unknown}, {"lost", &h.Lost},
		{"store_errors", &h.StoreError}, {"unprotected", &h.Unprotected}, {"waits", &h.Wait}, {"refused", &h.Refused},
		{"store_calls", &h.StoreCall}, {"operations", &h.Done},
	}
}

// Hooks returns hooks that count a call and then call the same hook of next, if it is not nil.
func (c *Counters) Hooks(next core.Hooks) core.Hooks {
	return Observe(next, func(_ context.Context, name string, _ core.Event) { c.counts[slices.Index(c.names, name)].Add(1) })
}

// Observe returns hooks that call observe with the name of the hook, as Counts has it, and then the same hook of next, if it is not
// nil. observe must be safe for concurrent use.
func Observe(next core.Hooks, observe func(ctx context.Context, name string, e core.Event)) core.Hooks {
	for _, h := range hooks(&next) {
		inner := *h.hook
		*h.hook = func(ctx context.Context, e core.Event) {
			observe(ctx, h.name, e)
			if inner != nil {
				inner(ctx, e)
			}
		}
	}
	return next
}

// Counts returns the counts by name: runs, takeovers, replays, conflicts, mismatches, kept, failed, unknown, lost, store_errors,
// unprotected, waits, refused, store_calls and operations. core.Hooks says when each of these hooks is called; runs counts calls of
// Begin, and operations those of Done.
func (c *Counters) Counts() map[string]int64 {
	counts := make(map[string]int64, len(c.names))
	for i, name := range c.names {
		counts[name] = c.counts[i].Load()
	}
	return counts
}

// String implements expvar.Var. It returns the counts as a JSON object.
func (c *Counters) String() string {
	text, _ := json.Marshal(c.Counts()) // a map of strings and numbers cannot fail
	return string(text)
}
