package core

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/recordname"
)

// Resolve settles an operation whose outcome is unknown: outcome is kept and replayed from now on, nil says that it did
// not happen, so that the next request runs. It is for operators, and does what LeaseConfig.OnUnknown cannot do by itself.
//
// The operation is named by which.Scope, which.Key and which.Kind. The Kind of a request is "", or with Key.PerRoute or
// Key.PerRouteChanged its method and path, such as "POST /refunds"; its Key has no quotes, as Key.Accept returns it. For a message,
// see package consumer: there the body of outcome is the result as Config.Marshal makes it. With Omitted there is no result, and
// with Status 500 the task is dead and the body says why.
//
// Resolve also revives a task that is dead (EVT-11). With a nil outcome the next task of this name is run, as a first attempt of
// the same Input only, that takes over ([Run].Takeover), since earlier runs may have had effects; their steps are
// forgotten. The caller has it sent again. Where Config.Keep.LocalReplays is set, other processes treat it as dead for up to
// a minute more. The store must be a [driver.Reopener], as those of this module
// are, or the error wraps [errors.ErrUnsupported]. A task that came with another Input,
// or whose record cannot be read, is not revived.
//
// Its error wraps [ErrNotUnknown] when there is nothing to settle: no record, a run in progress, or an outcome that is
// kept. Other errors are the store's; it may be called again then.
func (e *Engine) Resolve(ctx context.Context, which Task, outcome *Response) error {
	if outcome != nil && !isFinalResponse(outcome) {
		return errNotFinal
	}
	k := e.named(ctx, &which)
	revived, err := k.takeOverAny(which)
	switch {
	case revived && outcome == nil:
		return nil
	case revived:
		err = k.claimRevived()
	}
	if err != nil {
		return err
	}
	if outcome == nil {
		return e.cfg.Store.Fail(ctx, k.claim, driver.Failure{Cause: "an operator says that it did not happen"})
	}
	keep := &e.cfg.Keep
	outcome = e.ownCopy(outcome, k.isTask)
	omitted := outcome.Omitted || len(outcome.Body) > keep.MaxBody || keep.OmitBody != nil && keep.OmitBody(outcome)
	r := &run{keyed: k}
	r.commit.outcome, r.commit.blob = k.storeBody(&Response{
		Status: outcome.Status, Header: e.rules.appendKept(nil, outcome), Body: outcome.Body, Omitted: omitted,
	})
	return r.sendCommit(ctx)
}

// named returns the request or task that an operator names.
func (e *Engine) named(ctx context.Context, which *Task) *keyed {
	method, path, isTask := recordname.ParseKind(which.Kind)
	if isTask {
		return &e.newTask(ctx, which).keyed
	}
	return &keyed{engine: e, ctx: ctx, req: Request{Method: method, Path: path}}
}

// takeOverAny calls takeOver under each name that the record may have, until something is unknown there.
func (k *keyed) takeOverAny(which Task) (revived bool, err error) {
	e := k.engine
	for _, n := range e.namings {
		k.claim = driver.Claim{Key: recordName(n, which.Scope, which.Key, &k.req, k.isTask)}
		k.newClaim()
		if revived, err = k.takeOver(which.Fence); !errors.Is(err, ErrNotUnknown) {
			return revived, err
		}
	}
	return false, err
}

// takeOver claims a record whose run vanished, whatever its request. A looker tells the fingerprint and the fence of the run, so that
// one Begin claims the record as it was seen, and a record that is not unknown is left as it is. A dead task is revived and not
// claimed. If fence is greater than 0, only a vanished run with that fence is claimed; if fence is less than 0, only a dead task is
// revived.
func (k *keyed) takeOver(fence int64) (revived bool, err error) {
	k.claim.NoTakeover = true
	store, ok := k.engine.cfg.Store.(looker)
	if !ok {
		return k.takeOverUnseen(fence)
	}
	seen, err := store.Look(k.ctx, k.claim.Key)
	if err != nil {
		return false, err
	}
	k.claim.Fingerprint = seen.Fingerprint
	switch seen.State {
	case driver.Absent, driver.Failed:
		return false, errNoVanishedRun
	case driver.InProgress, driver.Expired:
		return false, fmt.Errorf("%w: %s", ErrNotUnknown, seen.State)
	case driver.Unknown:
		if k.claim.TakeoverFence = seen.Fence; fence != 0 && seen.Fence != fence {
			return false, errOtherVanishedRun
		}
	}
	entry, err := k.engine.cfg.Store.Begin(k.ctx, k.claim)
	if err != nil {
		return false, err
	}
	return k.taken(entry, fence)
}

var (
	errNoVanishedRun    = fmt.Errorf("%w: there is no record of a run", ErrNotUnknown)
	errOtherVanishedRun = fmt.Errorf("%w: another run has vanished since then", ErrNotUnknown)
)

// taken says what a Begin of takeOver means, which has returned entry.
func (k *keyed) taken(entry driver.Entry, fence int64) (revived bool, err error) {
	if entry.State == driver.Completed && k.isTask && fence <= 0 {
		err = k.revive(entry.Outcome)
		return err == nil, err
	}
	if entry.State != driver.Claimed {
		return false, fmt.Errorf("%w: %s", ErrNotUnknown, entry.State)
	}
	k.granted(entry)
	if !entry.Takeover { // the record has ended since it was seen
		return false, k.resolvesNothing()
	}
	return false, nil
}

// resolvesNothing fails a claim that has found no run, and returns the error of takeOver.
func (k *keyed) resolvesNothing() error {
	failure := driver.Failure{Cause: "nothing to resolve", NoEffects: true, NotRun: true}
	if err := k.engine.cfg.Store.Fail(k.ctx, k.claim, failure); err != nil {
		return err
	}
	return errNoVanishedRun
}

// takeOverUnseen is takeOver for a store that is no looker. Its first Begin, with a fingerprint that no request has, only asks for the
// record's fingerprint; where there is no record, what that Begin leaves behind ends before its lease.
func (k *keyed) takeOverUnseen(fence int64) (revived bool, err error) {
	store := k.engine.cfg.Store
	ask := k.claim
	ask.Fingerprint[31], ask.Retention = 1, k.engine.cfg.Limits.StoreTimeout
	entry, err := store.Begin(k.ctx, ask)
	if err == nil && entry.State == driver.Mismatch {
		k.claim.Fingerprint = entry.Fingerprint
		entry, err = store.Begin(k.ctx, k.claim)
	}
	if err == nil && entry.State == driver.Unknown && fence != 0 && entry.Fence != fence {
		return false, errOtherVanishedRun
	}
	if err == nil && entry.State == driver.Unknown {
		k.claim.TakeoverFence = entry.Fence
		entry, err = store.Begin(k.ctx, k.claim)
	}
	if err != nil {
		return false, err
	}
	if entry.State == driver.Claimed && k.claim.TakeoverFence == 0 { // the record was absent or FAILED: nothing is unknown
		if k.claim.Fingerprint == [32]byte{} {
			k.claim.Retention = ask.Retention
		}
		k.granted(entry)
		return false, k.resolvesNothing()
	}
	return k.taken(entry, fence)
}

// revive reopens the record of a task that is dead; outcome is what the store keeps of it.
func (k *keyed) revive(outcome []byte) error {
	kept, _, err := k.engine.codecs.decode(k.claim.Key, outcome)
	if err != nil {
		return err
	}
	if kept.Status != statusDead {
		return fmt.Errorf("%w: %s", ErrNotUnknown, driver.Completed)
	}
	store, ok := k.engine.cfg.Store.(driver.Reopener)
	if !ok {
		return fmt.Errorf("idem: store %T has no method Reopen, which revives a dead task: %w", k.engine.cfg.Store, errors.ErrUnsupported)
	}
	err = store.Reopen(k.ctx, k.claim, outcome)
	k.engine.replays.Evict(&k.claim.Key) // whatever err is: it may have taken effect
	if errors.Is(err, ErrLost) {
		return fmt.Errorf("%w: another has settled it at this moment", ErrNotUnknown)
	}
	return err
}

// claimRevived claims a task that was just revived. A delivery of a message may be there first.
func (k *keyed) claimRevived() error {
	rand.Read(k.claim.Owner[:]) // the other has reopened it: for a store that is a run which failed
	entry, err := k.engine.cfg.Store.Begin(k.ctx, k.claim)
	if err != nil {
		return err
	}
	if entry.State != driver.Claimed {
		return fmt.Errorf("%w: it is revived, and %s", ErrNotUnknown, entry.State)
	}
	k.granted(entry)
	return nil
}
