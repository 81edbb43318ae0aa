package simulation

import (
	"context"
	"strings"
	"time"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
)

// process is one process of the service. After its death its handlers go on, and nobody sees what they do.
type process struct {
	name          string
	slot          int
	isReplacement bool
	hasMoved      bool // it is in the other step of a move than the first process of the slot
	engine        *core.Engine
	config        core.Config
	consumer      *consumer.Consumer
	death         chan struct{}

	// The history's lock guards these.
	dead  bool
	calls int // to the store

	troubleUntil time.Duration // until then calls that hold or end a claim went wrong

	h *history
}

// newProcess starts a process in a slot. The caller holds h.mu, or nobody else uses h yet.
func (h *history) newProcess(slot int, option int, name string) *process {
	p := &process{name: name, slot: slot, death: make(chan struct{}), h: h, hasMoved: h.hasMoved[slot]}
	cfg := core.Config{Store: h.storeOf(p), Scope: core.SingleTenant, Hooks: h.hooks()}
	cfg.Lease.Duration, cfg.Keep.Blobs = lease, &blobLink{link{history: h, process: p}}
	if h.plan.rotates {
		step := rotation[h.plan.slots[slot].step]
		cfg.Secret, cfg.PreviousSecrets = step.secret, step.previous
	}
	options[option].change(&cfg)
	var err error
	if p.engine, err = core.New(cfg); err != nil {
		panic(err)
	}
	p.config = p.engine.Config()
	if p.consumer, err = consumer.New(p.engine, consumer.Config{MaxAttempts: h.plan.maxAttempts}); err != nil {
		panic(err)
	}
	h.all = append(h.all, p)
	return p
}

// kill ends a process and starts another one in its place. The caller holds mu.
func (h *history) kill(p *process) {
	h.tell("%s dies", p.name)
	p.dead = true
	close(p.death)
	replacement := h.newProcess(p.slot, h.plan.slots[p.slot].option, p.name+"'")
	replacement.isReplacement = true
	h.processes[p.slot] = replacement
}

// isDead reports whether the process has died.
func (p *process) isDead() bool {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	return p.dead
}

// hooks returns hooks that count events by the Do that caused them.
func (h *history) hooks() core.Hooks {
	count := func(name string) core.Hook {
		return func(ctx context.Context, e core.Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			d := doOfRecord(ctx, e.Record)
			d.counts[name]++
			if name == "begin" {
				d.fence, d.attempt = e.Fence, e.Attempt
			}
			h.tell("%s: %s of %s: %v", d.process.name, strings.ToUpper(name), d, e.Err)
		}
	}
	return core.Hooks{
		Begin: count("begin"), Takeover: count("takeover"), Replay: count("replay"), Conflict: count("conflict"),
		Mismatch: count("mismatch"), Kept: count("kept"), Failed: count("failed"), Unknown: count("unknown"), Lost: count("lost"),
		Unprotected: count("unprotected"), StoreError: count("store error"), Done: count("done"),
	}
}
