package core

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/deadline"
	"github.com/go-idem/idem/core/internal/waiting"
)

// operation is a request or a task on its way through the engine: it is admitted, acquires its record, and is replayed, refused,
// or executed and committed. It makes at most one run. It is the largest allocation of a request, and is as large as a size class
// of the allocator permits: 8 bytes more would cost 128.
type operation struct {
	keyed
	handler handler
	onWait  func() (done func()) // of a task; may be nil

	waiter       *waiting.Waiter  // nil until the operation waits for a run elsewhere
	comparison   comparison       // of the request with the record for which Begin returned Mismatch
	cached       *Response        // a replay that the engine has made before
	found        *Response        // what OnUnknown has returned
	beginContext deadline.Context // of the first Begin

	run run // from the moment when the claim is granted
}

// handler is what the caller of Do or DoTask gives to the engine to run.
type handler = func(context.Context) (*Response, error)

// Do takes one request through its whole life: admit, acquire, execute, commit. run calls the handler. It is called at most once,
// and not at all if a stored outcome is replayed or the request is refused. Its context is not cancelled when the client leaves;
// it is cancelled, with a cause that wraps [ErrLost], when the claim is lost.
//
// Do returns only the errors of run, and one of its own if run returns neither an error nor a valid response. An error, or a panic,
// which Do passes on, fails the claim, so that a retry runs again. A store that is unavailable is a refusal: see Result.Problem. Do
// is safe for concurrent use.
//
// Do returns a response when its outcome is stored, so that no client has seen a response that a retry could contradict. There
// are two exceptions. The first is a handler that streams (see package capture). The second is a store that becomes unavailable
// while the handler runs: the client gets the response while the lease is known to hold, and the outcome is pending:
//
//   - The engine retries the commit with pauses of at most half a second, and at once when the store responds to any call. It
//     extends the lease as soon as the store accepts that.
//   - Meanwhile the process that ran the handler holds the claim, however many leases pass: a request with the key gets the
//     outcome, or 409.
//   - An outcome that the store refuses for a whole lease, while it accepts extensions, is stored without its body.
//   - After ten leases the engine gives the outcome up, and calls Hooks.Lost, unless it has called that for this run before.
//
// If a run of the same record encloses a request, however many other runs are between them, Do lets the request pass
// (Result.Bypassed), and only the outer engine stores the outcome.
func (e *Engine) Do(ctx context.Context, req Request, run func(context.Context) (*Response, error)) (Result, error) {
	if !slices.Contains(e.cfg.Key.Methods, req.Method) {
		return e.ended(ctx, &req, Result{Bypassed: true}), nil
	}
	req.Path = originForm(req.Path)
	key, problem := e.readKey(ctx, &req)
	if problem == codeKeyMissing && !e.cfg.Key.Required {
		return e.ended(ctx, &req, Result{Bypassed: true}), nil
	}
	if problem != "" {
		return e.ended(ctx, &req, e.refusals.refuseKey(problem, &e.cfg.Key)), nil
	}
	op := &operation{keyed: keyed{engine: e, ctx: ctx, req: req}, handler: run}
	read := req.Body // so that the function below does not hold a copy of req
	op.req.Body = func(int64) ([]byte, error) { return op.readOnce(read) }
	panicked := true
	defer op.endPanicking(&panicked)
	result, err := op.do(key)
	panicked = false
	return result, err
}

// readKey reads the key of a request. Hooks.Done is called even if Key.Accept panics.
func (e *Engine) readKey(ctx context.Context, req *Request) (key, problem string) {
	panicked := true
	defer func() {
		if panicked {
			e.ended(ctx, req, Result{})
		}
	}()
	key, problem = e.cfg.Key.read(req)
	panicked = false
	return key, problem
}

// endPanicking calls Hooks.Done for an operation that ends in a panic, unless it was called already, as for a handler that panics.
func (op *operation) endPanicking(panicked *bool) {
	if *panicked && !op.isDone {
		op.ended(Result{})
	}
}

// do takes a request with this key through its life.
func (op *operation) do(key string) (Result, error) {
	problem, bypassed, err := op.admit(key)
	switch {
	case problem != "":
		result := op.refuseEarly(problem)
		result.Err = err
		return op.ended(result), nil
	case bypassed:
		return op.ended(Result{Bypassed: true}), nil
	}
	return op.claimAndRun()
}

// refuseEarly refuses a request before the store was called. The record has a name once the scope is known.
func (op *operation) refuseEarly(problem string) Result {
	if op.claim.Key != [32]byte{} {
		return op.refuse(problem, 0)
	}
	result := op.engine.refusals.refuse(problem, 0)
	op.echoIn(result.Response)
	return result
}

// originForm returns the path of a request target without the scheme and authority that clients send to proxies (FRM-07).
func originForm(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	_, rest, isAbsolute := strings.Cut(path, "://")
	if !isAbsolute {
		return path
	}
	_, path, _ = strings.Cut(rest, "/")
	return "/" + path
}

// admit checks a request before the store is called: its age, scope, quota and body. It fills in the name of the record and the
// fingerprint. It returns the code of the problem, or bypassed if a run of the same record encloses the request, as when one
// middleware guards a route and another guards all routes. err says more about a problem with the body.
func (op *operation) admit(key string) (problem string, bypassed bool, err error) {
	e, ctx, req := op.engine, op.ctx, &op.req
	op.identity.key = key
	if problem := e.cfg.Key.checkAge(req, key); problem != "" {
		return problem, false, nil
	}
	scope := e.scopeOf(ctx, req)
	if scope == "" {
		return codeScopeMissing, false, nil
	}
	op.claim.Key = recordName(e.namings[0], scope, key, req, false)
	if around := e.enclosing(ctx, scope, key, req, false); around != nil {
		if err := e.checkNesting(around.engine); err != nil {
			op.emit(e.cfg.Hooks.StoreError, 0, err)
			return codeNestedEngine, false, nil
		}
		return "", true, nil
	}
	op.identity.scope = scope
	if quota := e.cfg.Limits.Quota; quota != nil && !quota(ctx, strings.Clone(scope), req) {
		return codeQuotaExceeded, false, nil
	}
	problem, err = op.readBody()
	return problem, false, err
}

// scopeOf returns the scope of a request.
func (e *Engine) scopeOf(ctx context.Context, req *Request) string {
	if req.Scope != nil {
		return req.Scope()
	}
	return e.cfg.Scope(ctx, req)
}

// claimAndRun acquires the record and then acts on what Begin has found: it executes the handler, replays the outcome, or
// refuses.
func (op *operation) claimAndRun() (Result, error) {
	entry, err := op.acquire()
	if err != nil {
		return op.beginFailed(err)
	}
	switch entry.State {
	case driver.Claimed:
		if time.Since(op.begun) >= op.claim.Lease { // the claim was granted so long ago that another run may have the key
			op.releaseAsync(causeNoResponse, false)
			return op.beginFailed(errLateBegin)
		}
		return op.execute()
	case driver.Completed:
		return op.replay(entry.Outcome), nil
	}
	return op.ended(op.refuseEntry(entry)), nil
}

// refuseEntry refuses a request by what Begin has found, which is neither a claim nor an outcome.
func (op *operation) refuseEntry(entry driver.Entry) Result {
	hooks := &op.engine.cfg.Hooks
	switch entry.State {
	case driver.InProgress:
		op.emit(hooks.Conflict, 0, nil)
		return op.refuse(codeInProgress, retryAfter(entry.Remaining))
	case driver.Mismatch:
		if op.comparison == cannotTell {
			return op.unreadable(errUnknownAlgorithm)
		}
		op.emit(hooks.Mismatch, 0, nil)
		return op.refuse(codeMismatch, 0)
	case driver.Expired:
		return op.refuse(codeRetentionOver, 0)
	}
	return op.refuse(codeOutcomeUnknown, 0) // driver.Unknown, or a state of a newer store
}

// acquire calls Begin until the result is final: it waits for a run in progress, makes the fingerprint anew with the record's
// algorithm, resolves unknown outcomes, and looks for the record under earlier names. If the store, a hook or Lease.OnUnknown
// panics, nothing has run, so a claim that was granted is released.
func (op *operation) acquire() (driver.Entry, error) {
	panicked := true
	defer func() {
		op.stopWaiting()
		if panicked {
			op.withdraw()
		}
	}()
	entry, err := op.acquireUnderAnyName()
	panicked = false
	return entry, err
}

// acquireUnderAnyName is acquire without its end.
func (op *operation) acquireUnderAnyName() (driver.Entry, error) {
	op.hasher = op.engine.hasher
	entry, err := op.acquireRecord()
	for tries := 0; err == nil && entry.State == driver.Claimed && len(op.engine.namings) > 1; tries++ {
		var isSettled bool
		if entry, isSettled, err = op.lookBack(entry); isSettled || err != nil {
			break
		}
		if tries == 2 { // other requests change the record all the time
			return driver.Entry{State: driver.InProgress}, nil
		}
		op.startOver()
		entry, err = op.acquireRecord()
	}
	if err == nil && !op.isRenamed() && (entry.State == driver.Mismatch || entry.State == driver.Unknown) {
		return op.findOutcome(entry)
	}
	return entry, err
}

// acquireRecord calls Begin until the result is final for one name of the record.
func (op *operation) acquireRecord() (driver.Entry, error) {
	for {
		entry, err := op.sendBegin()
		again := false
		switch {
		case err != nil:
		case entry.State == driver.Claimed:
			op.granted(entry)
		case entry.State == driver.InProgress:
			again = op.waitOutside(entry.Remaining)
		case entry.State == driver.Mismatch:
			again = op.refingerprint(entry.Fingerprint)
		case entry.State == driver.Unknown:
			again = op.resolve(entry.Fence)
		}
		if !again {
			return entry, err
		}
	}
}

// sendBegin calls Store.Begin once, unless the cache has the outcome.
func (op *operation) sendBegin() (driver.Entry, error) {
	e := op.engine
	if r := e.replays.Get(&op.claim.Key); r != nil {
		return op.cachedEntry(r), nil
	}
	ctx := &op.beginContext
	if op.begun.IsZero() {
		op.newClaim()
	} else {
		ctx = &deadline.Context{}
	}
	op.begun = time.Now()
	bound := e.cfg.Limits.StoreTimeout
	if op.waiter != nil {
		bound = min(bound, time.Until(op.waiter.Deadline()))
	}
	if entry, isPending := op.awaitCommit(bound); isPending {
		return entry, nil
	}
	op.begun = time.Now()
	ctx.Init(&e.timers, op.ctx, op.begun.Add(e.cfg.Limits.StoreTimeout), deadline.CancelLazily)
	defer ctx.Cancel()
	entry, err := e.cfg.Store.Begin(ctx, op.claim)
	err = callError(ctx, err)
	e.callEnded(op.ctx, "Begin", op.begun, err)
	e.reportCall(err)
	if entry.State == driver.Completed {
		e.replays.Put(op.claim.Key, op.claim.Fingerprint, entry.Outcome, op.begun, entry.Remaining)
	}
	return entry, err
}

// refingerprint reports whether the record belongs to this request although another algorithm made its fingerprint. The claim
// then carries the record's fingerprint.
func (op *operation) refingerprint(record [32]byte) bool {
	op.comparison = op.engine.cfg.Fingerprint.compare(op.hasher, record, &op.req, op.body)
	if op.comparison != sameRequest || op.claim.Fingerprint == record { // the second if the store contradicts itself
		return false
	}
	op.claim.Fingerprint = record
	return true
}

// beginFailed refuses a request after Begin returned an error. The store may have granted the claim, or may grant it later, so
// the claim is released in the background.
func (op *operation) beginFailed(err error) (Result, error) {
	e := op.engine
	if errors.Is(err, ErrLost) {
		op.emit(e.cfg.Hooks.Lost, 0, err)
		return op.ended(op.refuse(codeClaimLost, 0)), nil
	}
	if errors.Is(err, driver.ErrUnreadable) {
		return op.ended(op.unreadable(err)), nil
	}
	hasWaited := op.waiter != nil // then the request knows of a run
	runsUnprotected := e.cfg.DangerouslyFailOpen && op.ctx.Err() == nil && !hasWaited
	op.releaseAsync(causeNoResponse, runsUnprotected)
	if !op.hasLeft(err) {
		op.emit(e.cfg.Hooks.StoreError, 0, err)
	}
	if runsUnprotected {
		return op.runUnprotected()
	}
	code := codeStoreUnavailable
	if errors.Is(err, driver.ErrNotDurable) {
		code = codeNotDurable
	}
	if hasWaited {
		return op.ended(op.refuseAfterRun(code)), nil
	}
	return op.ended(op.refuse(code, 0)), nil
}

// runUnprotected runs the handler without a claim, and says so in a header field of the response (LSE-08).
func (op *operation) runUnprotected() (result Result, err error) {
	op.emit(op.engine.cfg.Hooks.Unprotected, 0, nil)
	op.identify()
	op.startTime()
	route := ""
	defer func() { op.doneAs("unprotected", &result, route) }()
	response, err := op.handler(in(op.ctx, place{keyed: &op.keyed, isUnprotected: true}))
	if response != nil {
		route = response.Route
	}
	if err = errorOf(response, err); err != nil || response.Sent {
		return Result{}, err
	}
	markUnprotected(response)
	return op.decorateFirst(response), nil
}

// unreadable refuses a request whose record cannot be read.
func (op *operation) unreadable(err error) Result {
	op.emit(op.engine.cfg.Hooks.StoreError, 0, err)
	result := op.refuse(codeRecordUnreadable, 0)
	result.Err = err
	return result
}

// execute runs the handler under the claim, and ends the run however the handler ends.
func (op *operation) execute() (result Result, err error) {
	op.identify()
	op.startTime()
	r, hooks, route := &op.run, &op.engine.cfg.Hooks, ""
	ctx, hasBegun := r.start(&op.keyed), false
	defer func() {
		if r.handlerEnded(hasBegun); !r.isStreaming {
			r.done(&result, route)
		}
	}()
	if op.claim.Takeover {
		op.emitBegin(hooks.Takeover)
	}
	op.emitBegin(hooks.Begin)
	hasBegun = true
	response, err := op.handler(ctx)
	if err == nil && response != nil && response.Later != nil {
		r.endLater(response)
		return Result{}, nil
	}
	if response != nil {
		route = response.Route
	}
	return r.settle(response, err)
}
