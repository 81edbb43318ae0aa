package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/retry"
)

// Step does one step of a run and stores its result. A later run of the same operation, after a crash or a failure, gets the
// result instead of doing the step again. Names are unique within the operation; of two steps with one name, the second waits for
// the first and gets its result. If do returns an error, Step returns it and nothing is stored. Results are marshalled by
// Config.Marshal, as JSON by default, and are stored until the run has an outcome. Steps may run concurrently.
//
// A crash between the effect of a step and its checkpoint repeats the step: give [ChildKey] to services that take a key. The same
// holds for a store that is unavailable at that moment, if a crash follows: the run goes on without the checkpoint.
//
// If the handler returns while a step is in progress, in another goroutine or behind a timeout, the run ends with the step. The
// claim is held until then. The client gets a failure at once, and an outcome when it is stored.
//
// Step returns [ErrLost] before do is called if the claim is known to be lost or the run has ended. It returns an error that
// wraps [errors.ErrUnsupported], before do is called, if the store is no driver.Checkpointer or stores no more steps of this run,
// as pgstore does while the run has a transaction. It returns an error that wraps [driver.ErrUnreadable] if a stored result
// cannot be read as T. Outside of a run, and in an unprotected run, Step only calls do.
func Step[T any](ctx context.Context, name string, do func(context.Context) (T, error)) (result T, err error) {
	run := runOf(ctx)
	if run == nil {
		return do(ctx)
	}
	end, err := run.enterStep(ctx, name)
	if err != nil {
		return result, err
	}
	defer end()
	kept, found, err := run.recall(name)
	if err != nil {
		return result, err
	}
	if found {
		return result, run.engine.unmarshal(kept, &result)
	}
	if err = run.mayCheckpoint(); err != nil {
		return result, err
	}
	if result, err = do(context.WithValue(ctx, stepKey{run, name}, true)); err != nil {
		return result, err
	}
	b, err := run.engine.cfg.Marshal(result)
	if err != nil {
		return result, fmt.Errorf("idem: step %q is done, but its result can not be marshalled: %w", name, err)
	}
	return result, run.checkpoint(name, b)
}

// stepKey is the key under which the context of a step says so.
type stepKey struct {
	run  *run
	name string
}

var (
	errNoName     = errors.New("idem: a step needs a name")
	errNestedStep = errors.New("idem: a step of this name encloses this one, which cannot wait for it")
)

// enterStep begins a step, after another of the same name has ended. The caller calls end at the end of the step.
func (r *run) enterStep(ctx context.Context, name string) (end func(), err error) {
	if ctx.Value(stepKey{r, name}) != nil {
		return nil, errNestedStep
	}
	if !r.enter() {
		return nil, ErrLost
	}
	for {
		done, other := r.steps.begin(name)
		if other == nil {
			return func() {
				r.steps.end(name, done)
				r.leave()
			}, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			r.leave()
			return nil, context.Cause(ctx)
		}
	}
}

// recall returns the stored result of a step. The first call in a run that is not the first of its operation reads all results.
func (r *run) recall(name string) (result []byte, found bool, err error) {
	store, ok := r.engine.cfg.Store.(driver.Checkpointer)
	switch {
	case !ok:
		return nil, false, fmt.Errorf("idem: store %T keeps no steps: %w", r.engine.cfg.Store, errors.ErrUnsupported)
	case name == "":
		return nil, false, errNoName
	}
	s := &r.steps
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loaded && r.claim.Attempt > 1 {
		err = r.engine.call(r.detached(), "Checkpoints", func(ctx context.Context) (err error) {
			s.kept, err = store.Checkpoints(ctx, r.claim)
			return err
		})
		if err != nil {
			return nil, false, err
		}
		r.hasSteps.Store(len(s.kept) > 0)
	}
	s.loaded = true
	packed, found := s.kept[name]
	if !found {
		return nil, false, nil
	}
	result, err = r.engine.stepResult(r.claim.Key, name, packed)
	return result, err == nil, err
}

// stepResult returns what a step has stored, of the bytes that a driver.Inspector returns for it. record is the name of the record.
func (e *Engine) stepResult(record [32]byte, step string, stored []byte) ([]byte, error) {
	response, _, err := e.codecs.decode(stepName(record, step), stored)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// mayCheckpoint asks a store that knows beforehand whether it would refuse a checkpoint, before the step has an effect.
func (r *run) mayCheckpoint() error {
	store, ok := r.engine.cfg.Store.(interface {
		MayCheckpoint(context.Context, driver.Claim) error
	})
	if !ok {
		return nil
	}
	return store.MayCheckpoint(r.detached(), r.claim)
}

// checkpoint stores the result of a step. If the store does not respond for Limits.StoreTimeout, the run goes on without the
// checkpoint. If the store will never take it, that is an error.
func (r *run) checkpoint(name string, result []byte) error {
	packed := r.engine.codecs.encode(stepName(r.claim.Key, name), &Response{Status: statusStep, Body: result}, "")
	r.hasSteps.Store(true)
	store := r.engine.cfg.Store.(driver.Checkpointer)
	var err error
	retry.Until(time.Now().Add(r.engine.cfg.Limits.StoreTimeout), func() bool {
		err = r.engine.call(r.detached(), "Checkpoint", func(ctx context.Context) error {
			return store.Checkpoint(ctx, r.claim, name, packed)
		})
		return err == nil || errors.Is(err, ErrLost) || errors.Is(err, driver.ErrUnreadable) || errors.Is(err, errors.ErrUnsupported)
	})
	switch {
	case errors.Is(err, ErrLost):
		return err
	case errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("idem: step %q is done, but its result is not kept: %w", name, err)
	}
	if err != nil {
		r.emit(r.engine.cfg.Hooks.StoreError, 0, fmt.Errorf("idem: step %q has no checkpoint: %w", name, err))
	}
	r.steps.mu.Lock()
	defer r.steps.mu.Unlock()
	if r.steps.kept == nil {
		r.steps.kept = map[string][]byte{}
	}
	r.steps.kept[name] = packed
	return nil
}

// unmarshal reads the stored result of a step.
func (e *Engine) unmarshal(b []byte, v any) error {
	if err := e.cfg.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: a result is not of the type asked for: %w", driver.ErrUnreadable, err)
	}
	return nil
}
