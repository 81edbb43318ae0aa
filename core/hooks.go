package core

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// Hook observes what the engine does, for logs, metrics and traces. It is called in the goroutine of the request, or in one that
// renews a lease or retries a commit, so it must return quickly and be safe for concurrent use. The context has the values of the
// request and is not cancelled with it. In the goroutine of the request, a hook that panics ends that request as a panic of the
// handler does; in any other, it ends the process.
type Hook func(context.Context, Event)

// Hooks has one function per kind of event. A nil function is not called, and costs nothing: the engine reads no clock for it. A
// request can cause several events. Done is called last in the goroutine of the request, but an outcome that the store has not
// accepted by then has its Kept, StoreError or Lost later (TEL-01).
type Hooks struct {
	Begin       Hook // a claim was granted, and the handler is about to run
	Takeover    Hook // as Begin, and an earlier run had vanished; called before Begin
	Replay      Hook // a stored outcome is about to be sent
	Conflict    Hook // the request is refused because another run is in progress
	Mismatch    Hook // the request is refused because the key belongs to another request
	Kept        Hook // the outcome was stored
	Failed      Hook // the run ended without an outcome to store; Err is the cause
	Unknown     Hook // a run ended, or was found ended, with an unknown outcome; Err says what is known about it
	Lost        Hook // another run has the claim, the record is gone, or no call was confirmed; Err says which; once for a run
	Unprotected Hook // the handler is about to run without a claim: see Config.DangerouslyFailOpen
	StoreError  Hook // the store is unavailable, or its record is unreadable; Err is the store's error

	Wait      Hook // the request begins to wait for a run in progress; the wait has ended by the next Begin or Done of the request
	Refused   Hook // the request gets a problem; Code is its code, whatever the reason; called before Done
	StoreCall Hook // a call to the store has returned, of those of Resolve only one that stores an outcome; Call, Took and Err tell of it
	Done      Hook // the engine is done with a request or task, once for each Do and DoTask; Result says what became of it
}

// Event describes what happened to a request or a task. It contains no key or body, no address of a client, and no scope of a request. Fields
// that an event does not have are zero.
type Event struct {
	Engine       string // Config.Name
	Method, Path string // of the request; Kind and Scope of a task
	Route        string // the router's pattern of the path, where it is known (see Request.Route), or Task.Route
	Record       string // the record's name as driver.AppendRecordName writes it, which Redis has too; it reveals no key
	Fence        int64  // 0 before a claim was granted
	Attempt      int    // 0 before a claim was granted
	Takeover     bool   // an earlier run had vanished
	Status       int    // of the response, 0 if there is none
	Err          error  // nil unless the hook says what it is

	// Result says, in Done, what became of the operation: "run", "replay", "local_replay" (from the memory of Keep.LocalReplays),
	// "conflict", "mismatch", "unknown" (refused, because the outcome of an earlier run is), "refused" for every other reason,
	// "unprotected", or "bypass". The count of all is the number of operations. A panic outside of a handler is "refused" without
	// a Code.
	Result string

	// End says, in the Done of a run, how it ended: "kept", "released", "failed", "lost", "unknown", or "pending" while the outcome
	// is not stored yet, because the store is unavailable or a step is in progress.
	End string

	Code   string        // of the problem that the client gets, in Refused and Done
	Call   string        // in StoreCall, the name of the method of driver.Store or of an ability of the store
	Took   time.Duration // of the call in StoreCall; otherwise how long the handler has run, once it has begun
	Waited time.Duration // how long the request has waited for runs in progress, once that is over
	Size   int           // of the stored outcome in bytes, in Kept, Replay and Done
	Origin string        // in Replay, and in the Done of a replay: what Keep.Origin returned for the run that made the outcome
}

// timesRuns reports whether a hook is told how long the handler has run.
func (h *Hooks) timesRuns() bool {
	return h.Done != nil || h.Kept != nil || h.Failed != nil || h.Unknown != nil || h.Lost != nil
}

// epoch is the time from which times of events are counted, so that one takes 8 bytes of an operation.
var epoch = time.Now()

// event returns the event of k that has neither run nor ended.
func (k *keyed) event(status int, err error) Event {
	e := Event{
		Engine: k.engine.cfg.Name, Method: k.req.Method, Path: k.req.Path, Route: k.req.Route,
		Fence: k.claim.Fence, Attempt: k.claim.Attempt, Takeover: k.claim.Takeover, Status: status, Err: err, Waited: k.waited,
	}
	if k.claim.Key != [32]byte{} {
		e.Record = nameText(k.claim.Key)
	}
	if k.started != 0 {
		e.Took = time.Since(epoch) - k.started
	}
	return e
}

// nameText returns a name as driver.AppendRecordName writes it.
func nameText(name [32]byte) string {
	var text [driver.RecordNameLength]byte
	return string(driver.AppendRecordName(text[:0], name))
}

// emit calls a hook, if there is one.
func (k *keyed) emit(h Hook, status int, err error) {
	if h != nil {
		h(k.detached(), k.event(status, err))
	}
}

// emitBegin calls a hook before the handler runs.
func (k *keyed) emitBegin(h Hook) {
	if h != nil {
		e := k.event(0, nil)
		e.Took = 0
		h(k.detached(), e)
	}
}

// emitReplay calls Hooks.Replay.
func (k *keyed) emitReplay(response *Response, size int, origin string) {
	if h := k.engine.cfg.Hooks.Replay; h != nil {
		e := k.event(response.Status, nil)
		e.Size, e.Origin = size, origin
		h(k.detached(), e)
	}
}

// done calls the hooks for an operation that ends without a run. size and origin are those of an outcome that is replayed.
func (k *keyed) done(result *Result, isLocal bool, size int, origin string) {
	if !k.tellsDone(result) {
		return
	}
	what := ""
	switch {
	case result.Bypassed:
		what = "bypass"
	case result.Replayed && isLocal:
		what = "local_replay"
	case result.Replayed:
		what = "replay"
	default:
		what = resultOf(result.Problem)
	}
	e := k.doneEvent(what, result)
	e.Size, e.Origin = size, origin
	k.emitDone(&e)
}

// doneAs calls the hooks for an operation whose handler has run. route is what Response.Route says.
func (k *keyed) doneAs(what string, result *Result, route string) {
	if k.tellsDone(result) {
		e := k.doneEvent(what, result)
		e.Route = cmp.Or(route, e.Route)
		k.emitDone(&e)
	}
}

// ended is done for a result that is returned next.
func (k *keyed) ended(result Result) Result {
	k.done(&result, false, 0, "")
	return result
}

// ended is keyed.ended for a request without a key, or a task that is no operation.
func (e *Engine) ended(ctx context.Context, req *Request, result Result) Result {
	if e.cfg.Hooks.Done != nil || e.cfg.Hooks.Refused != nil {
		return (&keyed{engine: e, ctx: ctx, req: *req}).ended(result)
	}
	return result
}

// startTime notes when the handler begins, if a hook is told how long it runs.
func (k *keyed) startTime() {
	if k.engine.cfg.Hooks.timesRuns() {
		k.started = time.Since(epoch)
	}
}

// resultOf returns the Event.Result of an operation that is refused.
func resultOf(problem string) string {
	switch problem {
	case codeInProgress:
		return "conflict"
	case codeMismatch:
		return "mismatch"
	case codeOutcomeUnknown:
		return "unknown"
	}
	return "refused"
}

// tellsDone reports whether emitDone calls a hook for a result.
func (k *keyed) tellsDone(result *Result) bool {
	hooks := &k.engine.cfg.Hooks
	return hooks.Done != nil || hooks.Refused != nil && result.Problem != ""
}

// doneEvent returns the event of an operation with a result, as far as it is the same for all.
func (k *keyed) doneEvent(what string, result *Result) Event {
	status := 0
	if result.Response != nil {
		status = result.Response.Status
	}
	e := k.event(status, result.Err)
	e.Result, e.Code = what, result.Problem
	return e
}

// emitDone calls Hooks.Refused, if the operation was refused, and Hooks.Done, also if Refused panics.
func (k *keyed) emitDone(e *Event) {
	k.isDone = true // even if a hook panics
	hooks := &k.engine.cfg.Hooks
	if hooks.Done != nil {
		defer hooks.Done(k.detached(), *e)
	}
	if hooks.Refused != nil && e.Code != "" {
		hooks.Refused(k.detached(), *e)
	}
}

// done calls the hooks at the end of a run, which has the result for its client. route is what Response.Route says.
func (r *run) done(result *Result, route string) {
	if !r.tellsDone(result) {
		return
	}
	e := r.doneEvent("run", result)
	e.Route, e.End = cmp.Or(route, e.Route), "pending"
	if !r.isHeld { // otherwise the commit belongs to another goroutine
		r.addCommit(&e)
	}
	r.emitDone(&e)
}

// addCommit adds to an event what became of the outcome.
func (r *run) addCommit(e *Event) {
	f := &r.commit
	e.Status, e.Size = cmp.Or(e.Status, f.status), len(f.outcome)
	if !f.firstSent.IsZero() {
		e.Took = f.firstSent.Sub(epoch) - r.started
	}
	if !f.isPending {
		e.End = endings[r.ending]
	}
}

// ending says how a run ended. It takes one byte of an operation.
type ending uint8

const (
	endPending ending = iota // not yet
	endKept
	endReleased
	endFailed
	endLost
	endUnknown
)

// endings has the Event.End of each ending.
var endings = [...]string{"pending", "kept", "released", "failed", "lost", "unknown"}

// endingOf returns how a run ended whose commit for a disposition returned err.
func endingOf(d Disposition, err error) ending {
	switch {
	case errors.Is(err, ErrLost) && !errors.Is(err, ErrOutcomeUnknown):
		return endLost
	case err != nil, d == LeaveUnknown:
		return endUnknown
	case d == Keep:
		return endKept
	case d == Release:
		return endReleased
	}
	return endFailed
}

// callBegins returns the time, if Hooks.StoreCall is to be called at the end of the call to the store that begins now.
func (e *Engine) callBegins() (began time.Time) {
	if e.cfg.Hooks.StoreCall != nil {
		began = time.Now()
	}
	return began
}

// callEnded calls Hooks.StoreCall, if there is one, for a call that began at began.
func (e *Engine) callEnded(ctx context.Context, call string, began time.Time, err error) {
	if h := e.cfg.Hooks.StoreCall; h != nil {
		h(context.WithoutCancel(ctx), Event{Engine: e.cfg.Name, Call: call, Took: time.Since(began), Err: err})
	}
}
