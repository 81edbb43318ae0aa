package storetest

import (
	"context"
	"errors"
	"sync"

	"github.com/go-idem/idem/core/driver"
)

// ErrInjected is what a Faulty store fails with.
var ErrInjected = errors.New("storetest: injected fault")

// Fault is a way for a call of a store to go wrong.
type Fault int

const (
	// Before: the request is lost; nothing happens.
	Before Fault = iota + 1
	// After: the verb takes effect, and its answer is lost.
	After
	// Hang: nothing happens until the context ends.
	Hang
	// Late: a begin is on its way for so long that it is given up, and takes effect after the fail that follows it. Another
	// verb is lost, as with Before.
	Late
)

// Faulty wraps a store and fails calls as it is told. It counts calls per verb, once they
// are over: "begin", "extend", "complete", "fail", and of the abilities "watch", "checkpoint", "checkpoints", "reopen".
type Faulty struct {
	driver.Store

	mu     sync.Mutex
	faults map[string][]Fault
	calls  map[string]int
	late   map[[16]byte]driver.Claim // by owner
}

// NewFaulty returns a wrapper that fails nothing yet.
func NewFaulty(s driver.Store) *Faulty {
	return &Faulty{Store: s, faults: map[string][]Fault{}, calls: map[string]int{}, late: map[[16]byte]driver.Claim{}}
}

// Inject makes the next n calls of verb fail.
func (f *Faulty) Inject(verb string, fault Fault, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.faults[verb] = append(f.faults[verb], fault)
	}
}

// Calls returns how many calls of verb are over.
func (f *Faulty) Calls(verb string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[verb]
}

// nextFault takes the fault planned for a call.
func (f *Faulty) nextFault(verb string) (fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if planned := f.faults[verb]; len(planned) > 0 {
		fault, f.faults[verb] = planned[0], planned[1:]
	}
	return fault
}

// count counts a call that is over.
func (f *Faulty) count(verb string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[verb]++
}

func (f *Faulty) call(ctx context.Context, verb string, do func() error) error {
	return f.callWith(ctx, verb, f.nextFault(verb), do)
}

func (f *Faulty) callWith(ctx context.Context, verb string, fault Fault, do func() error) error {
	defer f.count(verb)
	switch fault {
	case Before, Late:
		return ErrInjected
	case Hang:
		<-ctx.Done()
		return ctx.Err()
	case After:
		_ = do()
		return ErrInjected
	}
	return do()
}

// Begin implements driver.Store.
func (f *Faulty) Begin(ctx context.Context, c driver.Claim) (entry driver.Entry, err error) {
	fault := f.nextFault("begin")
	if fault == Late {
		f.mu.Lock()
		f.late[c.Owner] = c
		f.mu.Unlock()
	}
	err = f.callWith(ctx, "begin", fault, func() error {
		entry, err = f.Store.Begin(ctx, c)
		return err
	})
	if err != nil {
		entry = driver.Entry{}
	}
	return entry, err
}

// Extend implements driver.Store.
func (f *Faulty) Extend(ctx context.Context, c driver.Claim) error {
	return f.call(ctx, "extend", func() error { return f.Store.Extend(ctx, c) })
}

// Complete implements driver.Store.
func (f *Faulty) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	return f.call(ctx, "complete", func() error { return f.Store.Complete(ctx, c, outcome) })
}

// Fail implements driver.Store.
func (f *Faulty) Fail(ctx context.Context, c driver.Claim, failure driver.Failure) error {
	return f.call(ctx, "fail", func() error {
		err := f.Store.Fail(ctx, c, failure)
		f.executeLate(ctx, c.Owner)
		return err
	})
}

// executeLate lets a begin take effect that was late.
func (f *Faulty) executeLate(ctx context.Context, owner [16]byte) {
	f.mu.Lock()
	c, ok := f.late[owner]
	delete(f.late, owner)
	f.mu.Unlock()
	if ok {
		_, _ = f.Store.Begin(ctx, c)
	}
}

// Reopen is the store's, if the store below has it: see core.Engine.Resolve.
func (f *Faulty) Reopen(ctx context.Context, c driver.Claim, outcome []byte) error {
	store, ok := f.Store.(reopener)
	if !ok {
		return errNoAbility
	}
	return f.call(ctx, "reopen", func() error { return store.Reopen(ctx, c, outcome) })
}

// errNoAbility says that the store below has not got an ability.
var errNoAbility = errors.New("storetest: the store has not got this ability")

// Watch implements driver.Notifier, if the store below does.
func (f *Faulty) Watch(ctx context.Context, key [32]byte, wake func()) (stop func(), err error) {
	store, ok := f.Store.(driver.Notifier)
	if !ok {
		return nil, errNoAbility
	}
	err = f.call(ctx, "watch", func() error {
		stop, err = store.Watch(ctx, key, wake)
		return err
	})
	if err != nil && stop != nil {
		stop()
	}
	return stop, err
}

// Checkpoint implements driver.Checkpointer, if the store below does.
func (f *Faulty) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	store, ok := f.Store.(driver.Checkpointer)
	if !ok {
		return errNoAbility
	}
	return f.call(ctx, "checkpoint", func() error { return store.Checkpoint(ctx, c, step, result) })
}

// Checkpoints implements driver.Checkpointer, if the store below does.
func (f *Faulty) Checkpoints(ctx context.Context, c driver.Claim) (steps map[string][]byte, err error) {
	store, ok := f.Store.(driver.Checkpointer)
	if !ok {
		return nil, errNoAbility
	}
	err = f.call(ctx, "checkpoints", func() error {
		steps, err = store.Checkpoints(ctx, c)
		return err
	})
	return steps, err
}
