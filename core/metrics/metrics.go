// Package metrics counts what engines do, with the standard library only: as an expvar, or for any other system to read.
//
//	counters := metrics.New()
//	cfg.Hooks = counters.Hooks(cfg.Hooks)
//	expvar.Publish("idem", counters)
package metrics

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/go-idem/idem/core"
)

// Counters counts calls of hooks since New. It is safe for concurrent use, and may count for many engines.
type Counters struct {
	names  []string
	counts []atomic.Int64
}

// New returns counters at 0.
func New() *Counters {
	c := &Counters{}
	for _, h := range hooks(&core.Hooks{}) {
		c.names = append(c.names, h.name)
	}
	c.counts = make([]atomic.Int64, len(c.names))
	return c
}

type named struct {
	name string
	hook *core.Hook
}

// hooks returns the fields of h with the names that they count under.
func hooks(h *core.Hooks) []named {
	return []named{
		{"runs", &h.Begin}, {"takeovers", &h.Takeover}, {"replays", &h.Replay}, {"conflicts", &h.Conflict},
		{"mismatches", &h.Mismatch}, {"kept", &h.Kept}, {"failed", &h.Failed}, {"unknown", &h.Unknown}, {"lost", &h.Lost},
		{"store_errors", &h.StoreError}, {"unprotected", &h.Unprotected},
	}
}

// Hooks returns hooks that count and then call those of next.
func (c *Counters) Hooks(next core.Hooks) core.Hooks {
	for i, h := range hooks(&next) {
		count, inner := &c.counts[i], *h.hook
		*h.hook = func(ctx context.Context, e core.Event) {
			count.Add(1)
			if inner != nil {
				inner(ctx, e)
			}
		}
	}
	return next
}

// Counts returns each count under its name: runs, takeovers, replays, conflicts, mismatches, kept, failed, unknown, lost,
// store_errors and unprotected, in the words of core.Hooks.
func (c *Counters) Counts() map[string]int64 {
	counts := make(map[string]int64, len(c.names))
	for i, name := range c.names {
		counts[name] = c.counts[i].Load()
	}
	return counts
}

// String is Counts as JSON, which makes Counters an expvar.Var.
func (c *Counters) String() string {
	text, _ := json.Marshal(c.Counts()) // strings and numbers: can not fail
	return string(text)
}
