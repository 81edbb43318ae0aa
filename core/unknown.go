package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-idem/idem/core/driver"
)

// ErrOutcomeUnknown is what a LeaseConfig.OnUnknown returns when it can not tell what became of a run.
var ErrOutcomeUnknown = driver.ErrOutcomeUnknown

// RefuseUnknown is a LeaseConfig.OnUnknown for operations that must rather stay open than happen twice: no run follows one
// that vanished, and requests are refused with 409 outcome-unknown until the retention ends (LSE-02), or until
// [Engine.Resolve] tells the outcome.
func RefuseUnknown(context.Context, *Request) (*Response, error) { return nil, ErrOutcomeUnknown }

// resolve asks what became of a run that vanished; true when Begin is to be sent again. What OnUnknown finds out is
// settled like the outcome of a run, under a claim that takes over, so that of many who ask one settles it.
func (op *operation) resolve(vanished int64) (again bool) {
	if !op.claim.NoTakeover || op.claim.TakeoverFence != 0 || vanished == 0 {
		return false
	}
	op.identify()
	body := op.body
	op.req.Body = func(int64) ([]byte, error) { return body, nil }
	found, err := op.engine.cfg.Lease.OnUnknown(in(op.ctx, place{op: op}), &op.req)
	if err == nil && found != nil && !isValidResponse(found) {
		err = errNoResponse
	}
	op.emit(op.engine.cfg.Hooks.Unknown, 0, err)
	if err != nil {
		return false
	}
	if found != nil {
		op.found = found
		own := *found // that one may be returned for every request
		own.Header = slices.Clone(found.Header)
		op.handler = func(ctx context.Context) (*Response, error) {
			Decide(ctx, Keep)
			return &own, nil
		}
	}
	op.claim.TakeoverFence = vanished // what was found is about that run, and no later one
	return true
}

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
// a minute more. The store must have a method
//
//	Reopen(ctx context.Context, c driver.Claim, outcome []byte) error
//
// as memstore, redisstore and pgstore have, or the error wraps [errors.ErrUnsupported]. A task that came with another Input,
// or whose record cannot be read, is not revived.
//
// Its error wraps [ErrNotUnknown] when there is nothing to settle: no record, a run in progress, or an outcome that is
// kept. Other errors are the store's; it may be called again then.
func (e *Engine) Resolve(ctx context.Context, which Task, outcome *Response) error {
	if outcome != nil && !isValidResponse(outcome) {
		return errNoResponse
	}
	op := e.named(ctx, &which)
	revived, err := op.takeOverAny(which)
	switch {
	case err != nil, revived && outcome == nil:
		return err
	case revived:
		err = op.claimRevived()
	}
	if err != nil {
		return err
	}
	if outcome == nil {
		return e.cfg.Store.Fail(ctx, op.claim, driver.Failure{Cause: "an operator says that it did not happen"})
	}
	keep := &e.cfg.Keep
	omitted := outcome.Omitted || len(outcome.Body) > keep.MaxBody || keep.OmitBody != nil && keep.OmitBody(outcome)
	op.run.op = op
	op.commit.outcome, op.commit.blob = op.encodeOutcome(&Response{
		Status: outcome.Status, Header: e.rules.appendKept(nil, outcome), Body: outcome.Body, Omitted: omitted,
	})
	return op.sendCommit(ctx)
}

// named returns the operation that an operator names.
func (e *Engine) named(ctx context.Context, which *Task) *operation {
	method, path, isRoute := strings.Cut(which.Kind, " ")
	if isRoute || which.Kind == "" {
		return &operation{engine: e, ctx: ctx, req: Request{Method: method, Path: path}}
	}
	return e.newTask(ctx, which)
}

// takeOverAny is takeOver under the first of the record's possible names where something is unknown.
func (op *operation) takeOverAny(which Task) (revived bool, err error) {
	e := op.engine
	for _, n := range e.namings {
		op.claim = driver.Claim{Key: n.record(which.Scope, which.Key, &op.req, op.task != nil)}
		op.newClaim()
		if revived, err = op.takeOver(); !errors.Is(err, ErrNotUnknown) {
			return revived, err
		}
	}
	return false, err
}

// ErrNotUnknown says that an operation has no unknown outcome.
var ErrNotUnknown = errors.New("idem: the outcome is not unknown")

// takeOver claims a record whose run vanished, whatever its request. Its first Begin, with a fingerprint that no request
// has, only asks for the record's; where there is none, what it leaves behind is gone before its lease ends. A task that is
// dead it revives, and does not claim.
func (op *operation) takeOver() (revived bool, err error) {
	store := op.engine.cfg.Store
	op.claim.NoTakeover = true
	ask := op.claim
	ask.Fingerprint[31], ask.Retention = 1, op.engine.cfg.Limits.StoreTimeout
	entry, err := store.Begin(op.ctx, ask)
	if err == nil && entry.State == driver.Mismatch {
		op.claim.Fingerprint = entry.Fingerprint
		entry, err = store.Begin(op.ctx, op.claim)
	}
	if err == nil && entry.State == driver.Unknown {
		op.claim.TakeoverFence = entry.Fence
		entry, err = store.Begin(op.ctx, op.claim)
	}
	if err == nil && entry.State == driver.Completed && op.task != nil {
		err = op.revive(entry.Outcome)
		return err == nil, err
	}
	if err != nil {
		return false, err
	}
	op.claim.Fence, op.claim.Attempt, op.claim.Operation, op.claim.Takeover = entry.Fence, entry.Attempt, entry.Operation, entry.Takeover
	if entry.State == driver.Claimed && op.claim.TakeoverFence == 0 { // absent or failed: nothing is unknown, and nothing was done
		if op.claim.Fingerprint == [32]byte{} {
			op.claim.Retention = ask.Retention
		}
		if err := store.Fail(op.ctx, op.claim, driver.Failure{Cause: "nothing to resolve", NoEffects: true, NotRun: true}); err != nil {
			return false, err
		}
		return false, fmt.Errorf("%w: there is no record of a run", ErrNotUnknown)
	}
	if entry.State != driver.Claimed {
		return false, fmt.Errorf("%w: %s", ErrNotUnknown, entry.State)
	}
	return false, nil
}
