package core

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"time"
)

// handler is what Do is given to run.
type handler = func(context.Context) (*Response, error)

// Engine runs each keyed request at most once at a time and replays its kept outcome to every retry. It is immutable
// and safe for concurrent use.
type Engine struct {
	cfg      Config
	refusals refusals
	late     *background

	defaultTimeout bool // Limits.StoreTimeout was left to depend on Lease.Duration
}

// New returns an engine, or every bad field of cfg in one error of joined [*ConfigError]s.
func New(cfg Config) (*Engine, error) {
	defaultTimeout := cfg.Limits.StoreTimeout == 0
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Engine{cfg: cfg, refusals: newRefusals(cfg.Problems), late: newBackground(), defaultTimeout: defaultTimeout}, nil
}

// With returns an engine for one route: e's configuration after change, on the same store unless change says otherwise.
// It panics with the error of [New] when the result is not valid, because it is written where routes are set up.
func (e *Engine) With(change func(*Config)) *Engine {
	cfg := e.Config()
	if e.defaultTimeout {
		cfg.Limits.StoreTimeout = 0
	}
	change(&cfg)
	derived, err := New(cfg)
	if err != nil {
		panic(err)
	}
	derived.late = e.late
	return derived
}

// Config returns a copy of e's configuration with its defaults filled in. New of it gives an engine like e.
func (e *Engine) Config() Config { return e.cfg.withDefaults() }

// Close waits until nothing is written to the store any more: outcomes that the store did not take when their handlers
// returned are sent again until their leases end. Call it when the server has stopped, on the first engine or on any
// that came out of With. It returns ctx's cause if that comes first.
func (e *Engine) Close(ctx context.Context) error { return e.late.wait(ctx) }

// Do takes one request through its whole life. run runs the handler, under a context that is not cancelled when the
// client leaves but is, with cause [ErrLost], when the claim is lost; it is called at most once, and not at all when a
// kept outcome or a refusal is the answer. An error of run, and a panic, fail the claim, so that a retry runs again; Do
// passes them on. It returns no other errors: a store that can not answer is a refusal, in Result.
func (e *Engine) Do(ctx context.Context, req Request, run func(context.Context) (*Response, error)) (Result, error) {
	if !slices.Contains(e.cfg.Key.Methods, req.Method) {
		return Result{Bypassed: true}, nil
	}
	key, problem := e.cfg.Key.read(&req)
	if problem == codeKeyMissing && !e.cfg.Key.Required {
		return Result{Bypassed: true}, nil
	}
	if problem != "" {
		return e.refusals.result(problem, 0), nil
	}
	claim, problem := e.claim(ctx, &req, key)
	switch {
	case problem != "":
		return e.refusals.result(problem, 0), nil
	case claim == nil:
		return Result{Bypassed: true}, nil
	}
	return e.begin(ctx, &req, claim, run)
}

// claim makes the claim of a request, or returns the code of what is wrong with it, or neither when ctx belongs to a run
// of the same record: a middleware on a route, behind one on all. Nothing is stored yet.
func (e *Engine) claim(ctx context.Context, req *Request, key string) (*Claim, string) {
	scope := e.scope(ctx, req)
	if scope == "" {
		return nil, codeScopeMissing
	}
	var route []string
	if e.cfg.Key.PerRoute {
		route = []string{req.Method, req.Path}
	}
	record := recordKey(scope, key, route...)
	if k, ok := ctx.Value(runKey{}).(*keeper); ok && k.runs(record) {
		return nil, ""
	}
	body, err := req.Body(e.cfg.Limits.RequestBody)
	switch {
	case errors.Is(err, ErrBodyTooLarge) || int64(len(body)) > e.cfg.Limits.RequestBody:
		return nil, codeBodyTooLarge
	case err != nil:
		return nil, codeBodyUnreadable
	}
	claim := &Claim{
		Key:         record,
		Fingerprint: fingerprint(req, body),
		Lease:       e.cfg.Lease.Duration,
		Retention:   e.cfg.Keep.Retention,
		NoTakeover:  e.cfg.Lease.OnUnknown != nil,
	}
	if claim.NoTakeover {
		req.Body = func(int64) ([]byte, error) { return body, nil }
	}
	rand.Read(claim.Owner[:])
	return claim, ""
}

func (e *Engine) scope(ctx context.Context, req *Request) string {
	if req.Scope != nil {
		return req.Scope()
	}
	return e.cfg.Scope(ctx, req)
}

// begin asks the store for the claim and acts on its answer.
func (e *Engine) begin(ctx context.Context, req *Request, claim *Claim, run handler) (Result, error) {
	began := time.Now()
	var entry Entry
	err := e.call(ctx, func(ctx context.Context) (err error) {
		entry, err = e.cfg.Store.Begin(ctx, *claim)
		return err
	})
	if err != nil {
		return e.beginFailed(ctx, req, claim, err, run)
	}
	hooks := &e.cfg.Hooks
	switch entry.State {
	case Claimed:
		claim.Fence, claim.Attempt, claim.Takeover = entry.Fence, entry.Attempt, entry.Takeover
		if time.Since(began) >= claim.Lease { // the answer came so late that another run may have the key
			e.giveBack(ctx, claim)
			return e.beginFailed(ctx, req, claim, errLate, run)
		}
		return e.execute(ctx, req, claim, began, run)
	case Completed:
		return e.replay(ctx, req, claim, entry.Outcome), nil
	case InProgress:
		hooks.Conflict.call(ctx, req, claim, 0, nil)
		return e.refusals.result(codeInProgress, retryAfter(entry.Left)), nil
	case Mismatch:
		hooks.Mismatch.call(ctx, req, claim, 0, nil)
		return e.refusals.result(codeMismatch, 0), nil
	case Unknown:
		if claim.NoTakeover && claim.Over == 0 && entry.Fence != 0 {
			return e.resolve(ctx, req, claim, entry.Fence, run)
		}
	}
	return e.refusals.result(codeOutcomeUnknown, 0), nil
}

// beginFailed answers a request whose Begin has no answer. The claim may have been given, or may be given later; a Fail
// by owner frees it in the first case, and the end of the lease does in the second.
func (e *Engine) beginFailed(ctx context.Context, req *Request, claim *Claim, err error, run handler) (Result, error) {
	if errors.Is(err, ErrLost) {
		e.cfg.Hooks.Lost.call(ctx, req, claim, 0, err)
		return e.refusals.result(codeClaimLost, 0), nil
	}
	if errors.Is(err, ErrUnreadable) {
		return e.unreadable(ctx, req, claim, err), nil
	}
	e.giveBack(ctx, claim)
	if ctx.Err() == nil { // else it is the client that left
		e.cfg.Hooks.StoreError.call(ctx, req, claim, 0, err)
		if e.cfg.DangerouslyFailOpen {
			return e.runUnprotected(context.WithValue(ctx, claimKey{}, claim), run)
		}
	}
	return e.refusals.result(codeStoreUnavailable, 0), nil
}

// giveBack sends a Fail for a claim that nobody will use, until the store has answered or a lease has passed.
func (e *Engine) giveBack(ctx context.Context, claim *Claim) {
	detached := context.WithoutCancel(ctx)
	e.late.run(func() {
		e.again(time.Now().Add(claim.Lease), func() bool {
			err := e.call(detached, func(ctx context.Context) error {
				return e.cfg.Store.Fail(ctx, *claim, Failure{Cause: "begin had no answer"})
			})
			return err == nil || errors.Is(err, ErrLost)
		})
	})
}

const firstPause = 20 * time.Millisecond

// again calls send until it is done or the time is up, with growing pauses between, and tells which.
func (e *Engine) again(until time.Time, send func() (done bool)) bool {
	for pause := firstPause; ; pause = min(2*pause, time.Second) {
		if send() {
			return true
		}
		left := time.Until(until)
		if left <= 0 {
			return false
		}
		time.Sleep(min(pause, left))
	}
}

// runUnprotected runs the handler without a claim, and says so in its answer.
func (e *Engine) runUnprotected(ctx context.Context, run handler) (Result, error) {
	response, err := run(ctx)
	if err != nil || response == nil || response.Sent {
		return Result{}, err
	}
	response.Header = append(response.Header, Field{"Idempotent-Unprotected", "true"})
	return e.unmarked(response), nil
}

// unreadable refuses a request whose record can not be read.
func (e *Engine) unreadable(ctx context.Context, req *Request, claim *Claim, err error) Result {
	e.cfg.Hooks.StoreError.call(ctx, req, claim, 0, err)
	return e.refusals.result(codeRecordUnreadable, 0)
}

// replay answers with a kept outcome.
func (e *Engine) replay(ctx context.Context, req *Request, claim *Claim, outcome []byte) Result {
	response, err := decodeOutcome(outcome)
	if err != nil {
		return e.unreadable(ctx, req, claim, err)
	}
	response.Header = append(response.Header, Field{e.cfg.Keep.Marker, "true"})
	if response.Omitted {
		response.Header = append(response.Header, Field{"Idempotent-Body", "omitted"})
	}
	if hasBody(response.Status) {
		response.Header = append(response.Header, Field{"Content-Length", strconv.Itoa(len(response.Body))})
	}
	e.cfg.Hooks.Replay.call(ctx, req, claim, response.Status, nil)
	return Result{Replayed: true, Response: response}
}

// execute runs the handler under the claim, and settles the claim whichever way the handler ends.
func (e *Engine) execute(ctx context.Context, req *Request, claim *Claim, began time.Time, run handler) (Result, error) {
	keeper, runCtx := e.keep(ctx, req, claim, began)
	s := settlement{engine: e, keeper: keeper, ctx: keeper.ctx, req: req, claim: claim}
	settled := false
	defer func() {
		if !settled { // a panic, or runtime.Goexit: nothing is recovered, so the stack reaches the recovery outside
			s.panicked()
		}
	}()
	if claim.Takeover {
		e.cfg.Hooks.Takeover.call(ctx, req, claim, 0, nil)
	}
	e.cfg.Hooks.Begin.call(ctx, req, claim, 0, nil)
	result, err := s.settle(run(runCtx))
	settled = true
	return result, err
}

// call bounds one call of the store.
func (e *Engine) call(ctx context.Context, verb func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Limits.StoreTimeout)
	defer cancel()
	return verb(ctx)
}
