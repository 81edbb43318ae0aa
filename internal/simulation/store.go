package simulation

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
)

// backend is a store with all abilities that the engine uses.
type backend interface {
	driver.Store
	driver.Notifier
	driver.Checkpointer
	driver.Inspector
}

var (
	errBroken  = errors.New("connection reset")
	errRefused = errors.New("READONLY the server accepts no writes")
)

var _ backend = (*memstore.Store)(nil)

// link is the connection of one process to the store. Calls go through it one way, are executed, and their replies come back.
// Faults change that. After the death of the process no call reaches the store, and no reply reaches the process.
type link struct {
	history *history
	process *process
	isNew   bool // it leads to the store to which a move goes
}

// store returns the store to which the link leads.
func (l *link) store() backend {
	if l.isNew {
		return l.history.newStore
	}
	return l.history.store
}

// recorded returns a claim as the history knows it: the record of a name in the new store has another name there.
func (l *link) recorded(c driver.Claim) *driver.Claim {
	if l.isNew {
		c.Key[len(c.Key)-1]++
	}
	return &c
}

// journey is what happens to one call on its way.
type journey struct {
	there, back time.Duration
	fault       faultKind
}

// reply is what a call returns.
type reply[T any] struct {
	value T
	err   error
}

// send makes one call to the store. name is that of the method. The store executes f, and then note gets the result. Both happen
// under the lock of the history, so that the history knows the order in which the store has executed all calls.
func send[T any](
	ctx context.Context, l *link, d *do, name string, f func(context.Context) (T, error), note func(T, error),
) (T, error) {
	h, none := l.history, *new(T)
	j := l.depart(d, name)
	execute := func() reply[T] {
		h.mu.Lock()
		defer h.mu.Unlock()
		value, err := f(context.WithoutCancel(ctx))
		note(value, err)
		h.tell("%s %s of %s is executed: %v %v", l.process.name, name, d, brief(value), err)
		return reply[T]{value, err}
	}
	received := make(chan reply[T], 1)
	go travel(l.process, j, execute, received)
	if j.fault == deaf {
		r := <-received
		return r.value, r.err
	}
	select {
	case r := <-received:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// travel takes one call to the store and its reply back, as far as they come.
func travel[T any](p *process, j journey, execute func() reply[T], received chan<- reply[T]) {
	time.Sleep(j.there)
	switch j.fault {
	case loseRequest:
		return
	case breakRequest:
		received <- reply[T]{err: errBroken}
		return
	case refuse:
		received <- reply[T]{err: errRefused}
		return
	}
	r := execute()
	if j.fault == repeat {
		time.Sleep(j.back)
		r = execute()
	}
	time.Sleep(j.back)
	switch {
	case j.fault == loseReply || p.isDead() && j.fault != deaf:
	case j.fault == breakReply:
		received <- reply[T]{err: errBroken}
	default:
		received <- r
	}
}

// brief returns what a story shows of a result.
func brief(value any) any {
	if e, ok := value.(driver.Entry); ok {
		return string(e.State) + " " + strconv.FormatInt(e.Fence, 10)
	}
	return ""
}

// watchHangs is how long a subscription hangs that does not end with its context. It is longer than most requests may wait.
const watchHangs = 8 * lease

// depart finds out what happens to a call that the process is about to send. A process that is dead, or dies now, sends nothing.
func (l *link) depart(d *do, name string) journey {
	h, p := l.history, l.process
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.dead {
		return journey{fault: loseRequest}
	}
	p.calls++
	d.sent[name]++
	random := h.random(p.name, d.String(), name, strconv.Itoa(d.sent[name]))
	j := h.plan.journey(p.slot, name, h.now(), random)
	h.tell("%s sends %s of %s %s", p.name, name, d, faultNames[j.fault])
	if j.fault == deaf && name == "Watch" { // no request waits for a subscription that hangs
		j.there += watchHangs
	} else if j.fault == deaf {
		d.isDeaf = true
	}
	if !p.isReplacement && p.calls == h.plan.slots[p.slot].diesAt {
		h.kill(p)
		if !h.plan.slots[p.slot].diesAfter {
			j.fault = loseRequest
		}
	}
	return j
}

// journey returns what happens to a call, by a random number of its own.
func (p *plan) journey(slot int, call string, now time.Duration, random uint64) journey {
	j := journey{there: time.Duration(1 + random%1_000_000), back: time.Duration(1 + random>>20%1_000_000)}
	for _, f := range p.faults {
		if !f.hits(slot, call, now) || int(random>>40%100) >= f.percent {
			continue
		}
		j.fault = f.kind
		if f.kind == slow || f.kind == deaf {
			j.there += time.Duration(random >> 8 % uint64(lease))
			j.back += time.Duration(random >> 16 % uint64(lease))
		}
		return j
	}
	return j
}

// random returns a number that depends on the seed and on what.
func (h *history) random(what ...string) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write(strconv.AppendUint(nil, h.plan.seed, 10))
	for _, w := range what {
		_, _ = sum.Write([]byte{0})
		_, _ = sum.Write([]byte(w))
	}
	x := sum.Sum64() // the high bits of FNV are not random enough
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	return x
}

// Begin implements driver.Store.
func (l *link) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	h, d, recorded := l.history, doOf(ctx, c.Key), l.recorded(c)
	begin := func(ctx context.Context) (driver.Entry, error) { return l.store().Begin(ctx, c) }
	return send(ctx, l, d, "Begin", begin, func(e driver.Entry, err error) {
		switch {
		case err != nil:
		case e.State == driver.Claimed:
			h.claimed(d, l.process, recorded, e.Fence)
		case e.State == driver.InProgress:
			h.foundInProgress(d, recorded.Key)
		}
	})
}

// Extend implements driver.Store.
func (l *link) Extend(ctx context.Context, c driver.Claim) error {
	h, d, sent, key := l.history, doOf(ctx, c.Key), l.history.now(), l.recorded(c).Key
	var executed time.Duration
	err := l.change(ctx, "Extend", &c, func(ctx context.Context) error { return l.store().Extend(ctx, c) }, func(err error) {
		if executed = h.now(); err == nil {
			h.extends(d, key, c.Fence)
		}
	})
	if err == nil {
		h.extended(d, key, c.Fence, sent, executed)
	}
	return err
}

// Complete implements driver.Store.
func (l *link) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	h := l.history
	complete := func(ctx context.Context) error {
		if h.plan.refusesLong && len(outcome) > longOutcome {
			return errRefused
		}
		return l.store().Complete(ctx, c, outcome)
	}
	err := l.change(ctx, "Complete", &c, complete, func(err error) {
		if err == nil {
			h.completed(doOf(ctx, c.Key), l.recorded(c).Key, c.Fence)
		}
	})
	if err != nil {
		l.mayOmitBody(doOf(ctx, c.Key))
	}
	return err
}

// mayOmitBody notes that the outcome of the run may be stored without its body.
func (l *link) mayOmitBody(d *do) {
	l.history.mu.Lock()
	defer l.history.mu.Unlock()
	d.mayOmitBody = true
}

// Fail implements driver.Store.
func (l *link) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	h := l.history
	return l.change(ctx, "Fail", &c, func(ctx context.Context) error { return l.store().Fail(ctx, c, f) }, func(err error) {
		h.failed(doOf(ctx, c.Key), l.recorded(c), f, err)
	})
}

// Checkpoint implements driver.Checkpointer.
func (l *link) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	_, err := send(ctx, l, doOf(ctx, c.Key), "Checkpoint", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.store().Checkpoint(ctx, c, step, result)
	}, func(struct{}, error) {})
	return err
}

// Checkpoints implements driver.Checkpointer.
func (l *link) Checkpoints(ctx context.Context, c driver.Claim) (map[string][]byte, error) {
	return send(ctx, l, doOf(ctx, c.Key), "Checkpoints", func(ctx context.Context) (map[string][]byte, error) {
		return l.store().Checkpoints(ctx, c)
	}, func(map[string][]byte, error) {})
}

// Watch implements driver.Notifier. All notifications of one subscription in four are lost.
func (l *link) Watch(ctx context.Context, key [32]byte, wake func()) (stop func(), err error) {
	d := doOf(ctx, key)
	notify := wake
	if l.history.random("notify", d.String())%4 == 0 {
		notify = func() {}
	}
	return send(ctx, l, d, "Watch", func(ctx context.Context) (func(), error) {
		return l.store().Watch(ctx, key, notify)
	}, func(func(), error) {})
}

// Look is the part of driver.Inspector that engines use.
func (l *link) Look(ctx context.Context, key [32]byte) (driver.Record, error) {
	return send(ctx, l, doOf(ctx, key), "Look", func(ctx context.Context) (driver.Record, error) {
		return l.store().Look(ctx, key)
	}, func(driver.Record, error) {})
}

// change sends a call that changes the record of a claim. It notes whether the call went wrong, because then its owner may be
// unable to hold the claim.
func (l *link) change(ctx context.Context, name string, c *driver.Claim, f func(context.Context) error, note func(error)) error {
	h, d, key := l.history, doOf(ctx, c.Key), l.recorded(*c).Key
	sent := h.callBegins(d, key, c.Fence)
	_, err := send(ctx, l, d, name, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) },
		func(_ struct{}, err error) { note(err) })
	h.callEnds(d, key, c.Fence, name, sent, err)
	return err
}
