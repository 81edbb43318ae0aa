// Package operator is for the people who run a service: they look at the records of an engine, settle what is stuck, and forget
// what must go. Each act takes who does it and why, and can be audited before it happens.
//
// An operator names a request as [core.Engine.Resolve] does, by a [core.Task] with its Scope and Key, and under Key.PerRoute with
// its Kind, such as "POST /refunds". A message has the Kind of package consumer.
package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/recordname"
)

// ErrChanged says that an act was not done, because the record is no longer as the operator has seen it, or its run is in progress.
// Look again.
var ErrChanged = errors.New("idem: the record has changed since it was seen, or its run is in progress")

// ErrNotStuck says that a key needs no Release: it has no record of a run that failed or vanished.
var ErrNotStuck = errors.New("idem: the record is neither failed nor unknown")

// Config says who learns of acts. Its zero value audits nothing.
type Config struct {
	// Audit is called before each act, and before the store is touched. If it returns an error, the act is not done. So an audit
	// log has each act that was done, and may have acts that then failed. It must be safe for concurrent use.
	Audit func(context.Context, Act) error

	// Done is called after each act, with its error or nil. It must be safe for concurrent use.
	Done func(context.Context, Act, error)
}

// Action is what an act does with records.
type Action string

// The actions, each of the method of the same name.
const (
	Resolve     Action = "resolve"
	Release     Action = "release"
	Forget      Action = "forget"
	ForgetScope Action = "forget-scope"
)

// Act is what an operator is about to do, or has done.
type Act struct {
	Action   Action
	Who, Why string         // see [By]
	Task     core.Task      // Scope, Key and Kind as the operator has named them; of ForgetScope only the Scope
	Seen     driver.Record  // the record as the operator has seen it; not of ForgetScope
	Outcome  *core.Response // of a Resolve: what happened; nil if it did not happen
}

// By says who acts and why. Both are required, in any form.
type By struct{ Who, Why string }

// Operator acts on the records of one engine. It is safe for concurrent use.
type Operator struct {
	cfg     Config
	engine  *core.Engine
	store   driver.Inspector
	namings []recordname.Naming
}

// New returns an operator of the records of engine. Its error wraps [errors.ErrUnsupported] if the store of the engine is no
// [driver.Inspector].
func New(engine *core.Engine, cfg Config) (*Operator, error) {
	if engine == nil {
		return nil, errors.New("idem: operator.New needs an engine")
	}
	of := engine.Config()
	store, ok := of.Store.(driver.Inspector)
	if !ok {
		return nil, fmt.Errorf("idem: operator.New: store %T is no driver.Inspector: %w", of.Store, errors.ErrUnsupported)
	}
	namings := recordname.All(of.Secret, of.PreviousSecrets, of.Key.PerRoute, of.Key.PerRouteChanged)
	return &Operator{cfg: cfg, engine: engine, store: store, namings: namings}, nil
}

// act audits an act, does it, and reports it.
func (o *Operator) act(ctx context.Context, by By, act Act, do func() error) error {
	if by.Who == "" || by.Why == "" {
		return fmt.Errorf("idem: operator: %s: By.Who and By.Why must say who does it and why", act.Action)
	}
	act.Who, act.Why = by.Who, by.Why
	if o.cfg.Audit != nil {
		if err := o.cfg.Audit(ctx, act); err != nil {
			return fmt.Errorf("idem: operator: %s is not done, because it was not audited: %w", act.Action, err)
		}
	}
	err := do()
	if o.cfg.Done != nil {
		o.cfg.Done(ctx, act, err)
	}
	return err
}

// reviveOnly is the Task.Fence with which Engine.Resolve settles no run.
const reviveOnly = -1

// Resolve settles an unknown outcome, or revives a dead task, as [core.Engine.Resolve] does: outcome says what happened, and nil that
// it did not happen. seen is the result of Look for this task. If another run was seen to vanish since then, or the key was settled
// or revived, Resolve changes nothing and returns an error that wraps [core.ErrNotUnknown]. After an error of the store look again,
// since Resolve may have claimed the record.
func (o *Operator) Resolve(ctx context.Context, by By, task core.Task, seen driver.Record, outcome *core.Response) error {
	if seen.State != driver.Unknown && seen.State != driver.Completed {
		return fmt.Errorf("%w: it was seen %s", core.ErrNotUnknown, seen.State)
	}
	if err := o.checkName(task, seen); err != nil {
		return err
	}
	if task.Fence = seen.Fence; seen.State == driver.Completed {
		task.Fence = reviveOnly
	}
	return o.act(ctx, by, Act{Action: Resolve, Task: task, Seen: seen, Outcome: outcome}, func() error {
		if seen.State == driver.Completed {
			if err := o.checkVersion(ctx, seen); err != nil {
				return err
			}
		}
		return o.engine.Resolve(ctx, task, outcome)
	})
}

// checkName returns an error if the record that was seen is not one of this task.
func (o *Operator) checkName(task core.Task, seen driver.Record) error {
	if names, _ := o.names(task); slices.Contains(names, seen.Name) {
		return nil
	}
	return errors.New("idem: operator: the record that was seen is not that of the task: its scope, key or kind is another one")
}

// checkVersion returns an error if the record has changed since it was seen. It is for dead tasks, which may have been revived, and
// have died again. A vanished run needs no such check, since the engine recognises it by its fence.
func (o *Operator) checkVersion(ctx context.Context, seen driver.Record) error {
	now, err := o.store.Look(ctx, seen.Name)
	if err == nil && now.Version != seen.Version {
		return fmt.Errorf("%w: the record has changed since it was seen, and is %s", core.ErrNotUnknown, now.State)
	}
	return err
}

// Forget deletes the record of a request or task, so that the next request under its key is new, whatever has happened before. seen
// is the result of Look or Scan; task says in the audit what it is, and may be empty. Forget returns [ErrChanged] if the record
// has changed since then or its run is in progress, and an error that wraps driver.ErrUnreadable if it cannot be read. Forget
// deletes no body in a blob store: that stays until its time to live is over. Processes with Keep.LocalReplays may replay the
// outcome for up to a minute more.
func (o *Operator) Forget(ctx context.Context, by By, task core.Task, seen driver.Record) error {
	switch seen.State {
	case "":
		return errors.New("idem: operator: forget: no record was seen")
	case driver.InProgress: // and if its run has vanished since, its outcome is unknown, which nobody has seen
		return ErrChanged
	case driver.Unreadable:
		return fmt.Errorf("idem: operator: forget: the record is left, since a later version may have written it: %w", driver.ErrUnreadable)
	}
	if task.Key != "" {
		if err := o.checkName(task, seen); err != nil {
			return err
		}
	}
	return o.act(ctx, by, Act{Action: Forget, Task: task, Seen: seen}, func() error { return o.forget(ctx, seen) })
}

// Release frees the key of a run that failed, or whose outcome is unknown: the next request under the key is new and runs, also one
// with another body. Use it if the operation has not happened, since Release forgets the record with the results of its steps.
// seen is the result of Look for this task. Release returns [ErrChanged] if the record has changed since then or its run is in
// progress, and an error that wraps [ErrNotStuck] if the record was seen in another state.
func (o *Operator) Release(ctx context.Context, by By, task core.Task, seen driver.Record) error {
	switch seen.State {
	case driver.Failed, driver.Unknown:
	case driver.InProgress:
		return ErrChanged
	default:
		return fmt.Errorf("%w: it was seen %s", ErrNotStuck, seen.State)
	}
	if err := o.checkName(task, seen); err != nil {
		return err
	}
	return o.act(ctx, by, Act{Action: Release, Task: task, Seen: seen}, func() error { return o.forget(ctx, seen) })
}

// forget calls the store.
func (o *Operator) forget(ctx context.Context, seen driver.Record) error {
	err := o.store.Forget(ctx, seen)
	if errors.Is(err, driver.ErrLost) {
		return ErrChanged
	}
	return err
}

// Forgotten says what ForgetScope has done so far.
type Forgotten struct {
	Records    int // were deleted
	InProgress int // were left, because their runs are in progress
	Changed    int // were left, because they changed at that moment, or cannot be read
}

// ForgetScope deletes all records of a scope but those in progress, as to erase a caller. It is one act for the audit. After each
// record it calls progress, if that is not nil. Requests of the scope that come meanwhile make new records. If ForgetScope
// returns an error, it has stopped halfway and may be called again.
func (o *Operator) ForgetScope(ctx context.Context, by By, scope string, progress func(Forgotten)) (done Forgotten, err error) {
	act := Act{Action: ForgetScope, Task: core.Task{Scope: scope}}
	if scope == "" {
		return done, errors.New("idem: operator: forget-scope: the scope is empty")
	}
	err = o.act(ctx, by, act, func() error {
		var stopped error
		err := o.Scan(ctx, Filter{Scope: scope}, func(seen driver.Record) bool {
			stopped = o.forgetOne(ctx, seen, &done)
			if progress != nil && stopped == nil {
				progress(done)
			}
			return stopped == nil
		})
		return errors.Join(stopped, err)
	})
	return done, err
}

// forgetOne forgets one record of a scope, and counts it.
func (o *Operator) forgetOne(ctx context.Context, seen driver.Record, done *Forgotten) error {
	if seen.State == driver.InProgress {
		done.InProgress++
		return nil
	}
	switch err := o.forget(ctx, seen); {
	case errors.Is(err, ErrChanged):
		done.Changed++
	case err != nil:
		return err
	default:
		done.Records++
	}
	return nil
}
