package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/retry"
)

// Step does one step of a run and keeps its result, so that a later run of the same operation, after a crash or a failure,
// gets the result instead of doing the step again. Names are unique within the operation; a name that is used twice does its
// step once: the second of two at a time waits for the first. An error of do is passed on and nothing is kept. Results are marshalled by Config.Marshal, JSON by
// default; one that can not be read as T any more is an error that wraps [driver.ErrUnreadable]. Steps may run concurrently.
//
// A crash between the effect of a step and its checkpoint does the step again: give [ChildKey] to services that take a key.
// So does a store that is away at that moment, if a crash follows: the run goes on without the checkpoint.
//
// A handler that answers while a step is under way, in a goroutine of its own or behind a timeout, ends its run with the step: the
// claim is held until then, a failure reaches its client at once and an outcome when it is kept.
//
// Outside of a run, and in an unprotected one, Step only calls do. It returns [ErrLost], before anything is done, when the claim is
// known to be lost or the run has ended, and an error that
// wraps [errors.ErrUnsupported], before anything is done, when the store is no Checkpointer, or keeps no steps of this run from
// now on: that of package pgstore keeps none while the run has a transaction.
func Step[T any](ctx context.Context, name string, do func(context.Context) (T, error)) (result T, err error) {
	k := runOf(ctx)
	if k == nil {
		return do(ctx)
	}
	end, err := k.enterStep(ctx, name)
	if err != nil {
		return result, err
	}
	defer end()
	kept, found, err := k.recall(name)
	if err != nil {
		return result, err
	}
	if found {
		return result, k.op.engine.unmarshal(kept, &result)
	}
	if err = k.mayCheckpoint(); err != nil {
		return result, err
	}
	if result, err = do(context.WithValue(ctx, stepKey{k, name}, true)); err != nil {
		return result, err
	}
	b, err := k.op.engine.cfg.Marshal(result)
	if err != nil {
		return result, fmt.Errorf("idem: step %q is done, but its result can not be marshalled: %w", name, err)
	}
	return result, k.checkpoint(name, b)
}

// stepping is what a run knows of its steps.
type stepResults struct {
	mu         sync.Mutex
	loaded     bool
	kept       map[string][]byte
	inProgress map[string]chan struct{} // closed at the end of the step
}

// stepKey tells that a context is that of a step.
type stepKey struct {
	run  *run
	name string
}

var (
	errNoName  = errors.New("idem: a step needs a name")
	errStepped = errors.New("idem: a step of this name is around this one, which can not wait for it")
)

// enterStep begins a step, behind another of the same name, and returns what ends it.
func (k *run) enterStep(ctx context.Context, name string) (end func(), err error) {
	if ctx.Value(stepKey{k, name}) != nil {
		return nil, errStepped
	}
	if !k.enter() {
		return nil, ErrLost
	}
	for {
		done, other := k.stepping.begin(name)
		if other == nil {
			return func() {
				k.stepping.end(name, done)
				k.leave()
			}, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			k.leave()
			return nil, context.Cause(ctx)
		}
	}
}

// begin notes that a step is done now; if it is already, it returns what is closed at its end.
func (s *stepResults) begin(name string) (done, other chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other = s.inProgress[name]; other != nil {
		return nil, other
	}
	if s.inProgress == nil {
		s.inProgress = map[string]chan struct{}{}
	}
	done = make(chan struct{})
	s.inProgress[name] = done
	return done, nil
}

func (s *stepResults) end(name string, done chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inProgress, name)
	close(done)
}

// recall returns the kept result of a step. The first call of a run that is not the first one reads them all.
func (k *run) recall(name string) (result []byte, found bool, err error) {
	store, ok := k.op.engine.cfg.Store.(driver.Checkpointer)
	switch {
	case !ok:
		return nil, false, fmt.Errorf("idem: store %T keeps no steps: %w", k.op.engine.cfg.Store, errors.ErrUnsupported)
	case name == "":
		return nil, false, errNoName
	}
	s := &k.stepping
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loaded && k.op.claim.Attempt > 1 {
		err = k.op.engine.call(k.detached(), func(ctx context.Context) (err error) {
			s.kept, err = store.Checkpoints(ctx, k.op.claim)
			return err
		})
		if err != nil {
			return nil, false, err
		}
		k.steps.Store(len(s.kept) > 0)
	}
	s.loaded = true
	packed, found := s.kept[name]
	if !found {
		return nil, false, nil
	}
	r, _, err := k.op.engine.codecs.decode(stepName(k.op.claim.Key, name), packed)
	if err != nil {
		return nil, false, err
	}
	return r.Body, true, nil
}

// mayCheckpoint asks a store that knows when it would refuse a checkpoint, before there is an effect whose result it refuses.
func (k *run) mayCheckpoint() error {
	store, ok := k.op.engine.cfg.Store.(interface {
		MayCheckpoint(context.Context, driver.Claim) error
	})
	if !ok {
		return nil
	}
	return store.MayCheckpoint(k.detached(), k.op.claim)
}

// checkpoint keeps the result of a step. What the store does not take in a few attempts the run can do without; what it will
// never take is the handler's to know.
func (k *run) checkpoint(name string, result []byte) error {
	packed := k.op.engine.codecs.encode(stepName(k.op.claim.Key, name), &Response{Status: statusStep, Body: result}, "")
	k.steps.Store(true)
	store := k.op.engine.cfg.Store.(driver.Checkpointer)
	var err error
	retry.Until(time.Now().Add(k.op.engine.cfg.Limits.StoreTimeout), func() bool {
		err = k.op.engine.call(k.detached(), func(ctx context.Context) error { return store.Checkpoint(ctx, k.op.claim, name, packed) })
		return err == nil || errors.Is(err, ErrLost) || errors.Is(err, driver.ErrUnreadable) || errors.Is(err, errors.ErrUnsupported)
	})
	switch {
	case errors.Is(err, ErrLost):
		return err
	case errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("idem: step %q is done, but its result is not kept: %w", name, err)
	}
	if err != nil {
		k.op.emit(k.op.engine.cfg.Hooks.StoreError, 0, fmt.Errorf("idem: step %q has no checkpoint: %w", name, err))
	}
	k.stepping.mu.Lock()
	defer k.stepping.mu.Unlock()
	if k.stepping.kept == nil {
		k.stepping.kept = map[string][]byte{}
	}
	k.stepping.kept[name] = packed
	return nil
}

// unmarshal reads a kept result.
func (e *Engine) unmarshal(b []byte, v any) error {
	if err := e.cfg.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: a result is not of the type asked for: %w", driver.ErrUnreadable, err)
	}
	return nil
}
