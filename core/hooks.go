package core

import (
	"context"

	"github.com/go-idem/idem/core/driver"
)

// Hook observes what the engine does, for logs and metrics. It is called in the goroutine of the request, or in one that renews
// a lease or retries a commit, so it must return quickly and be safe for concurrent use. The context has the values of the
// request and is not cancelled with it.
type Hook func(context.Context, Event)

// Hooks has one function per kind of event. A nil function is not called. A request can cause several events.
type Hooks struct {
	Begin       Hook // a claim was granted, and the handler is about to run
	Takeover    Hook // as Begin, and an earlier run had vanished; called before Begin
	Replay      Hook // a stored outcome is about to be sent
	Conflict    Hook // the request is refused because another run is in progress
	Mismatch    Hook // the request is refused because the key belongs to another request
	Kept        Hook // the outcome was stored
	Failed      Hook // the run ended without an outcome to store; Err is the cause
	Unknown     Hook // a run ended, or was found ended, with an unknown outcome; Err says what is known about it
	Lost        Hook // another run has the claim, or the store confirmed no call for too long; Err says which; once for a run
	Unprotected Hook // the handler is about to run without a claim: see Config.DangerouslyFailOpen
	StoreError  Hook // the store is unavailable, or its record is unreadable; Err is the store's error
}

// Event describes what happened to a request or a task. It contains no key, body or address, and no scope of a request.
type Event struct {
	Method, Path string // of the request; Kind and Scope of a task
	Record       string // the record's name as driver.AppendRecordName writes it, which Redis has too; it reveals no key
	Fence        int64  // 0 before a claim was granted
	Attempt      int    // 0 before a claim was granted
	Status       int    // of the response, 0 if there is none
	Err          error  // nil unless the hook says what it is
}

// call calls the hook, unless it is nil, for a request and its claim.
func (h Hook) call(ctx context.Context, req *Request, c *driver.Claim, status int, err error) {
	if h == nil {
		return
	}
	h(context.WithoutCancel(ctx), Event{
		Method: req.Method, Path: req.Path, Record: string(driver.AppendRecordName(nil, c.Key)),
		Fence: c.Fence, Attempt: c.Attempt, Status: status, Err: err,
	})
}
