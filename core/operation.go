package core

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/deadline"
	"github.com/go-idem/idem/core/internal/digest"
	"github.com/go-idem/idem/core/internal/waiting"
)

// handler is what an operation is given to run.
type handler = func(context.Context) (*Response, error)

// operation is one keyed request on its way through the engine and the store, up to its answer.
type operation struct {
	engine      *Engine
	ctx         context.Context // ends when the client leaves
	req         Request
	body        []byte
	identity    identity
	root        [32]byte // what child keys derive from; zero before the handler is about to run
	claim       driver.Claim
	handler     handler
	begun       time.Time       // when Begin was last sent
	left        time.Duration   // of the lease, when the key was last found in progress
	waiter      *waiting.Waiter // nil until the key was found in progress
	cached      *Response       // a replay that the engine has made before
	found       *Response       // what OnUnknown has told
	isEnded     bool            // nothing more is to be done for the claim
	isStreaming bool            // the run ends later than Do: see Response.Later
	isHeld      bool            // the handler has answered, and the run ends when what is under way in it does
	endSession  func()          // tells the store, and the run around this one, the end

	hasher    digest.Hasher // that names the record
	isRenamed bool          // the record has the name of a previous secret,
	ownKey    [32]byte      // and not this one

	comparison comparison // of the record that Begin found a mismatch
	task       *taskRun   // nil for a request
	blobErr    error      // why a replay lacks its body, which is in a blob

	beginContext  deadline.Context // of the first Begin
	run           run              // from the moment the handler runs
	commitContext deadline.Context // of the first final verb
	commit        commit
}

// admit fills in the claim of a request and reads its body. It returns the code of what is wrong with the request, or bypassed
// when the request is part of a run of the same record: a middleware on a route, inside one on all routes. Nothing is stored yet.
func (op *operation) admit(key string) (problem string, bypassed bool) {
	e, ctx, req := op.engine, op.ctx, &op.req
	if problem := e.cfg.Key.checkAge(req, key); problem != "" {
		return problem, false
	}
	scope := e.scope(ctx, req)
	if scope == "" {
		return codeScopeMissing, false
	}
	op.claim.Key = e.namings[0].record(scope, key, req, false)
	if k := e.enclosing(ctx, scope, key, req, false); k != nil {
		if err := e.checkNesting(k.op.engine); err != nil {
			op.emit(e.cfg.Hooks.StoreError, 0, err)
			return codeNestedEngine, false
		}
		return "", true
	}
	op.identity = identity{scope, key}
	if quota := e.cfg.Limits.Quota; quota != nil && !quota(ctx, strings.Clone(scope), req) {
		return codeQuotaExceeded, false
	}
	return op.readBody(), false
}

// readBody reads the body and makes the fingerprint of the request, or returns the code of what is wrong with the body.
func (op *operation) readBody() (problem string) {
	limit := op.engine.cfg.Limits.RequestBody
	body, err := op.req.Body(limit)
	switch {
	case isTooLarge(err) || int64(len(body)) > limit:
		return codeBodyTooLarge
	case err != nil:
		return codeBodyUnreadable
	}
	op.body = body
	op.claim.Fingerprint = op.engine.cfg.Fingerprint.of(op.engine.hasher, op.engine.algorithm, &op.req, body)
	return ""
}

// identity is what a client calls an operation.
type identity struct{ scope, key string }

// identify fills in what child keys derive from: nothing that a config, a store or time changes. It is called when the handler is
// about to run, because adapters may use the memory of scope and key again when it has returned.
func (op *operation) identify() {
	op.root = plainHasher.Sum(nil, "idem child root 1", op.identity.scope, op.identity.key, op.req.Method, op.req.Path)
}

// isTooLarge tells whether err says that a body is longer than it may be.
func isTooLarge(err error) bool {
	tooLarge := (*http.MaxBytesError)(nil)
	return errors.As(err, &tooLarge)
}

// newClaim makes ready to ask the store: it fills in what a claim asks for, whatever it is of.
func (op *operation) newClaim() {
	cfg := &op.engine.cfg
	op.claim.Lease, op.claim.Retention, op.claim.LateRetry = cfg.Lease.Duration, cfg.Keep.Retention, cfg.Keep.LateRetry
	op.claim.NoTakeover, op.claim.WantRemaining = cfg.Lease.OnUnknown != nil, op.engine.replays != nil
	rand.Read(op.claim.Owner[:])
}

// begin asks the store for the claim, again as often as there is something new to ask, and acts on its answer.
func (op *operation) begin() (Result, error) {
	entry, err := op.acquire()
	if err != nil {
		return op.beginFailed(err)
	}
	e, hooks := op.engine, &op.engine.cfg.Hooks
	switch entry.State {
	case driver.Claimed:
		if time.Since(op.begun) >= op.claim.Lease { // the answer came so late that another run may have the key
			op.releaseAsync()
			return op.beginFailed(errLateBegin)
		}
		return op.execute()
	case driver.Completed:
		return op.replay(entry.Outcome), nil
	case driver.InProgress:
		op.emit(hooks.Conflict, 0, nil)
		return e.refusals.refuse(codeInProgress, retryAfter(entry.Remaining)), nil
	case driver.Mismatch:
		if op.comparison == cannotTell {
			return op.unreadable(errUnknownAlgorithm), nil
		}
		op.emit(hooks.Mismatch, 0, nil)
		return e.refusals.refuse(codeMismatch, 0), nil
	case driver.Expired:
		return e.refusals.refuse(codeRetentionOver, 0), nil
	}
	return e.refusals.refuse(codeOutcomeUnknown, 0), nil
}

// acquire returns the store's answer when it is not worth asking again: after a wait, by the algorithm of the record, or
// once OnUnknown has told what became of a run.
func (op *operation) acquire() (driver.Entry, error) {
	defer op.stopWaiting()
	op.hasher = op.engine.hasher
	entry, err := op.acquireRecord()
	for tries := 0; err == nil && entry.State == driver.Claimed && len(op.engine.namings) > 1; tries++ {
		var isSettled bool
		if entry, isSettled, err = op.lookBack(entry); isSettled || err != nil {
			break
		}
		if tries == 2 { // others are at it all the time
			return driver.Entry{State: driver.InProgress}, nil
		}
		op.startOver()
		entry, err = op.acquireRecord()
	}
	return entry, err
}

// acquireRecord is settled for one name of the record.
func (op *operation) acquireRecord() (driver.Entry, error) {
	for {
		entry, err := op.sendBegin()
		again := false
		switch {
		case err != nil:
		case entry.State == driver.Claimed:
			op.claim.Fence, op.claim.Attempt, op.claim.Operation, op.claim.Takeover = entry.Fence, entry.Attempt, entry.Operation, entry.Takeover
		case entry.State == driver.InProgress:
			op.left = entry.Remaining
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
	if entry, pending := op.awaitCommit(); pending {
		return entry, nil
	}
	op.begun = time.Now()
	ctx.Init(&e.timers, op.ctx, op.begun.Add(e.cfg.Limits.StoreTimeout), deadline.CancelLazily)
	defer ctx.Cancel()
	entry, err := e.cfg.Store.Begin(ctx, op.claim)
	e.reportCall(err)
	if entry.State == driver.Completed {
		e.replays.Put(op.claim.Key, op.claim.Fingerprint, entry.Outcome, op.begun, entry.Remaining)
	}
	return entry, err
}

// refingerprint puts the record's fingerprint into the claim when the record belongs to this request, although its fingerprint
// was made by another algorithm, and tells whether it does.
func (op *operation) refingerprint(record [32]byte) bool {
	e := op.engine
	op.comparison = e.cfg.Fingerprint.compare(op.hasher, op.claim.Fingerprint, record, &op.req, op.body)
	if op.comparison != sameRequest {
		return false
	}
	op.claim.Fingerprint = record
	return true
}

// beginFailed answers a request whose Begin has no answer. The claim may have been given, or may be given later; a Fail
// by owner frees it in the first case, and the end of the lease does in the second.
func (op *operation) beginFailed(err error) (Result, error) {
	e := op.engine
	if errors.Is(err, ErrLost) {
		op.emit(e.cfg.Hooks.Lost, 0, err)
		return e.refusals.refuse(codeClaimLost, 0), nil
	}
	if errors.Is(err, driver.ErrUnreadable) {
		return op.unreadable(err), nil
	}
	op.releaseAsync()
	if op.ctx.Err() == nil || !errors.Is(err, context.Canceled) { // else it is the client that left
		op.emit(e.cfg.Hooks.StoreError, 0, err)
	}
	if e.cfg.DangerouslyFailOpen && op.ctx.Err() == nil && op.waiter == nil { // who waited knows of a run
		return op.runUnprotected()
	}
	if errors.Is(err, driver.ErrNotDurable) {
		return e.refusals.refuse(codeNotDurable, 0), nil
	}
	return e.refusals.refuse(codeStoreUnavailable, 0), nil
}

// runUnprotected runs the handler without a claim, and says so in its answer.
func (op *operation) runUnprotected() (Result, error) {
	op.emit(op.engine.cfg.Hooks.Unprotected, 0, nil)
	op.identify()
	response, err := op.handler(in(op.ctx, place{op: op, isUnprotected: true}))
	if err != nil || response == nil || response.Sent {
		return Result{}, err
	}
	response.Header = append(response.Header, Field{unprotectedHeader, "true"})
	return op.engine.decorateFirst(response), nil
}

// unreadable refuses a request whose record can not be read.
func (op *operation) unreadable(err error) Result {
	op.emit(op.engine.cfg.Hooks.StoreError, 0, err)
	result := op.engine.refusals.refuse(codeRecordUnreadable, 0)
	result.Err = err
	return result
}

// replay answers with a kept outcome.
func (op *operation) replay(outcome []byte) Result {
	response := op.cached
	if response == nil {
		var err error
		response, err = op.prepareReplay(outcome)
		switch {
		case errors.Is(err, errBlobUnavailable):
			op.emit(op.engine.cfg.Hooks.StoreError, 0, err)
			return op.engine.refusals.refuse(codeStoreUnavailable, 0)
		case err != nil:
			return op.unreadable(err)
		}
	}
	op.emit(op.engine.cfg.Hooks.Replay, response.Status, nil)
	return Result{Replayed: true, Response: response, Err: op.blobErr}
}

// prepareReplay makes a kept outcome ready to be sent. What is in a blob is not remembered: it is long, and may be lost for a
// moment only.
func (op *operation) prepareReplay(outcome []byte) (*Response, error) {
	response, blob, err := op.engine.codecs.decode(op.claim.Key, outcome)
	if err != nil {
		return nil, err
	}
	if blob != "" {
		if response, err = op.fetchBody(response, blob); err != nil {
			return nil, err
		}
	}
	op.engine.rules.restrict(response)
	op.engine.decorateReplay(response)
	if blob == "" {
		op.cacheReplay(outcome, response)
	}
	return response, nil
}

// execute runs the handler under the claim, and settles the claim whichever way the handler ends.
func (op *operation) execute() (Result, error) {
	op.endSession = op.openSession()
	op.identify()
	ctx := op.startRun()
	started := false
	defer func() {
		if op.isStreaming {
			return
		}
		defer op.endSessionUnlessHeld()
		switch {
		case op.isEnded:
		case started: // a panic, or runtime.Goexit: nothing is recovered, so the stack reaches the recovery outside
			op.endIncomplete("handler panicked")
		default: // in a hook
			_ = op.fail(driver.Failure{Cause: "a hook panicked", NoEffects: true, NotRun: true}, 0)
		}
	}()
	if op.claim.Takeover {
		op.emit(op.engine.cfg.Hooks.Takeover, 0, nil)
	}
	op.emit(op.engine.cfg.Hooks.Begin, 0, nil)
	started = true
	response, err := op.handler(ctx)
	if err == nil && response != nil && response.Later != nil {
		op.endLater(response.Later)
		return Result{}, nil
	}
	result, err := op.settle(response, err)
	op.isEnded = true
	return result, err
}

// attend tells the store that the run begins, if it wants to know, and the run around this one, and returns what tells them the
// end.
func (op *operation) openSession() (leaves func()) {
	outer := func() {}
	if around := runOf(op.ctx); around != nil && around.enter() {
		outer = around.leave
	}
	attendant, ok := op.engine.cfg.Store.(driver.SessionOpener)
	if !ok {
		return outer
	}
	ctx, leave := attendant.OpenSession(op.ctx, op.claim)
	op.ctx = ctx
	return func() {
		leave()
		outer()
	}
}

// leaveUnlessHeld is for the end of the handler.
func (op *operation) endSessionUnlessHeld() {
	if op.isHeld {
		return
	}
	op.endSession()
}

// whenIdle ends the run, once nothing is under way in it any more. Until then the claim is held, behind the client's back, who
// need not wait for a run that keeps no outcome: end's error is that of the store then, and not returned.
func (op *operation) whenIdle(end func() error) error {
	op.isEnded = true // also when a hook panics now
	busy := op.run.closeIfIdle()
	if busy == nil {
		return end()
	}
	op.isHeld = true
	op.engine.inflight.Go(func() {
		defer op.endSession()
		op.run.awaitIdle(busy)
		_ = end()
	})
	return nil
}

// goOn leaves the end of the run to whom later gives it to: the claim is kept alive until then. When later panics, nobody is there
// to end it, and the run has broken off.
func (op *operation) endLater(later func(func(*Response, error))) {
	var isTaken atomic.Bool
	op.engine.inflight.Add()
	op.isStreaming = true
	isGiven := false
	defer func() {
		if !isGiven && isTaken.CompareAndSwap(false, true) {
			op.isStreaming = false
			op.engine.inflight.Done()
		}
	}()
	later(func(r *Response, err error) {
		if !isTaken.CompareAndSwap(false, true) {
			return
		}
		defer op.engine.inflight.Done()
		defer op.endSessionUnlessHeld()
		defer op.endUnlessEnded()
		if err != nil || op.isBrokenOff(r) {
			op.endIncomplete("the answer broke off")
			return
		}
		_, _ = op.settle(r, nil)
	})
	isGiven = true
}

// endAnyway ends a run whose end has panicked on its way, in a policy or a codec, before the store was told.
func (op *operation) endUnlessEnded() {
	if !op.isEnded {
		op.endIncomplete("the end of the answer panicked")
	}
}

// isCut tells of an answer whose client left before its end whether that is all there is to say of it: nothing else does where
// its handler has decided, and an event stream has no other end.
func (op *operation) isBrokenOff(r *Response) bool {
	_, decided := op.run.ownDecision()
	return r.Unfinished && !decided && !isEventStream(r)
}

// emit calls a hook, if there is one.
func (op *operation) emit(h Hook, status int, err error) {
	h.call(op.ctx, &op.req, &op.claim, status, err)
}
