package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-idem/idem/core/driver"
)

// ErrInjected is what a Faulty store fails with. It wraps no error of package driver, so code that is under test must treat
// it as an error that says nothing about the record.
var ErrInjected = errors.New("storetest: injected fault")

// Fault is a way in which a call of a store can fail. With each of them the caller knows as little as with a broken
// connection; they differ in what has become of the call.
type Fault int

const (
	// Before: the request is lost; nothing happens. The call returns ErrInjected. A caller that repeats the call must succeed.
	Before Fault = iota + 1
	// After: the call takes effect, and its result is lost. The call returns ErrInjected. It finds code that takes an error
	// for a call without effect.
	After
	// Hang: nothing happens until the context ends; then the call returns the error of the context. It finds calls without a
	// timeout.
	Hang
	// Late: a Begin returns ErrInjected, and takes effect after the Fail of the same owner, as if the network had delayed it. It
	// finds stores in which that Begin claims the key for a run that is over. Other calls fail as with Before.
	Late
)

// Faulty wraps a store, and fails calls as Inject plans. It counts the calls that have returned, by name: "begin", "extend",
// "complete", "fail", and for optional abilities "watch", "checkpoint", "checkpoints", "reopen", "look", "scan", "forget",
// "inspect-steps" and "outcome". It is safe for concurrent use.
//
// A Faulty has the methods of every ability but driver.SessionOpener, so an engine takes it for a store that has them. A call
// of an ability that the wrapped store does not have returns an error that wraps errors.ErrUnsupported, and is not counted.
type Faulty struct {
	driver.Store

	mu     sync.Mutex
	faults map[string][]Fault
	calls  map[string]int
	late   map[[16]byte]driver.Claim // claims of calls with fault Late, by owner
}

// NewFaulty returns a wrapper of s that fails no call yet.
func NewFaulty(s driver.Store) *Faulty {
	return &Faulty{Store: s, faults: map[string][]Fault{}, calls: map[string]int{}, late: map[[16]byte]driver.Claim{}}
}

// Inject makes the next n calls with this name fail, after those that earlier calls of Inject have planned. The names are
// those that Faulty documents; a fault for any other name never happens.
func (f *Faulty) Inject(name string, fault Fault, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.faults[name] = append(f.faults[name], fault)
	}
}

// Calls returns how many calls with this name have returned, those with a fault included. A call that hangs counts when it
// returns.
func (f *Faulty) Calls(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[name]
}

// nextFault takes the fault that is planned for a call, or 0 for none.
func (f *Faulty) nextFault(name string) (fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if planned := f.faults[name]; len(planned) > 0 {
		fault, f.faults[name] = planned[0], planned[1:]
	}
	return fault
}

// count counts a call that returns.
func (f *Faulty) count(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[name]++
}

// call makes a call with the fault that is planned for it.
func (f *Faulty) call(ctx context.Context, name string, do func() error) error {
	return f.callWith(ctx, name, f.nextFault(name), do)
}

// callWith makes a call with this fault.
func (f *Faulty) callWith(ctx context.Context, name string, fault Fault, do func() error) error {
	defer f.count(name)
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
	err = f.callWith(ctx, "begin", fault, func() error { // not call, because a Late Begin must be noted first
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

// executeLate sends the Begin of an owner whose call had the fault Late. Nobody gets its result. Only a Fail that reaches the
// store calls executeLate, since the point of the fault is a Begin that comes after its Fail.
func (f *Faulty) executeLate(ctx context.Context, owner [16]byte) {
	f.mu.Lock()
	c, ok := f.late[owner]
	delete(f.late, owner)
	f.mu.Unlock()
	if ok {
		_, _ = f.Store.Begin(ctx, c)
	}
}

// Reopen calls the wrapped store's Reopen, if it has one: see core.Engine.Resolve.
func (f *Faulty) Reopen(ctx context.Context, c driver.Claim, outcome []byte) error {
	store, ok := f.Store.(driver.Reopener)
	if !ok {
		return errNoAbility
	}
	return f.call(ctx, "reopen", func() error { return store.Reopen(ctx, c, outcome) })
}

// errNoAbility says that the wrapped store does not have an ability.
var errNoAbility = fmt.Errorf("storetest: the store has not got this ability: %w", errors.ErrUnsupported)

// Watch implements driver.Notifier, if the wrapped store does.
func (f *Faulty) Watch(ctx context.Context, key [32]byte, wake func()) (stop func(), err error) {
	store, ok := f.Store.(driver.Notifier)
	if !ok {
		return nil, errNoAbility
	}
	err = f.call(ctx, "watch", func() error {
		stop, err = store.Watch(ctx, key, wake)
		return err
	})
	if err != nil && stop != nil { // fault After: the caller gets no stop, so the watch must end here
		stop()
	}
	return stop, err
}

// Checkpoint implements driver.Checkpointer, if the wrapped store does.
func (f *Faulty) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	store, ok := f.Store.(driver.Checkpointer)
	if !ok {
		return errNoAbility
	}
	return f.call(ctx, "checkpoint", func() error { return store.Checkpoint(ctx, c, step, result) })
}

// Checkpoints implements driver.Checkpointer, if the wrapped store does.
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

// Look implements driver.Inspector, if the wrapped store does.
func (f *Faulty) Look(ctx context.Context, name [32]byte) (seen driver.Record, err error) {
	store, ok := f.Store.(driver.Inspector)
	if !ok {
		return driver.Record{}, errNoAbility
	}
	err = f.call(ctx, "look", func() error {
		seen, err = store.Look(ctx, name)
		return err
	})
	return seen, err
}

// Scan implements driver.Inspector, if the wrapped store does.
func (f *Faulty) Scan(ctx context.Context, filter driver.Filter, found func(driver.Record) bool) error {
	store, ok := f.Store.(driver.Inspector)
	if !ok {
		return errNoAbility
	}
	return f.call(ctx, "scan", func() error { return store.Scan(ctx, filter, found) })
}

// Steps implements driver.Inspector, if the wrapped store does.
func (f *Faulty) Steps(ctx context.Context, name [32]byte) (steps map[string][]byte, err error) {
	store, ok := f.Store.(driver.Inspector)
	if !ok {
		return nil, errNoAbility
	}
	err = f.call(ctx, "inspect-steps", func() error {
		steps, err = store.Steps(ctx, name)
		return err
	})
	return steps, err
}

// Outcome implements driver.OutcomeReader, if the wrapped store does.
func (f *Faulty) Outcome(ctx context.Context, name [32]byte) (outcome []byte, err error) {
	store, ok := f.Store.(driver.OutcomeReader)
	if !ok {
		return nil, errNoAbility
	}
	err = f.call(ctx, "outcome", func() error {
		outcome, err = store.Outcome(ctx, name)
		return err
	})
	return outcome, err
}

// Forget implements driver.Inspector, if the wrapped store does.
func (f *Faulty) Forget(ctx context.Context, seen driver.Record) error {
	store, ok := f.Store.(driver.Inspector)
	if !ok {
		return errNoAbility
	}
	return f.call(ctx, "forget", func() error { return store.Forget(ctx, seen) })
}
