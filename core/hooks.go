package core

import (
	"context"
	"encoding/hex"

	"github.com/go-idem/idem/core/driver"
)

// Hook observes. It runs in the request's own goroutine, or in one that renews a lease or sends an outcome again, so it must be
// quick and safe for concurrent use. The context carries the request's values but is not cancelled with it.
type Hook func(context.Context, Event)

// Hooks are called as things happen; nil fields are not.
type Hooks struct {
	Begin       Hook // a claim was given; the handler is about to run
	Takeover    Hook // as Begin, and an earlier run had vanished; called before Begin
	Replay      Hook // a kept outcome is about to be sent
	Conflict    Hook // refused: another run is in progress
	Mismatch    Hook // refused: the key belongs to another request
	Kept        Hook // the outcome is stored
	Failed      Hook // the run ended without an outcome to keep; Err is its cause
	Unknown     Hook // a run ended, or was found ended, without telling its outcome; Err is what is known of it
	Lost        Hook // the claim went to another run, or its lease ran out unconfirmed; Err says which
	Unprotected Hook // the handler is about to run without a claim: Config.DangerouslyFailOpen
	StoreError  Hook // the store could not answer, or holds something unreadable; Err is what it said
}

// Event is what a hook is told. It carries no key, scope, body or address.
type Event struct {
	Method, Path string
	Record       string // the first 8 hex digits of the record's name: tells keys apart in a log without telling them
	Fence        int64  // 0 before a claim was given
	Attempt      int    // 0 before a claim was given
	Status       int    // of the answer, where there is one
	Err          error
}

// call runs the hook, if there is one, for a request and the claim it has made.
func (h Hook) call(ctx context.Context, req *Request, c *driver.Claim, status int, err error) {
	if h == nil {
		return
	}
	h(context.WithoutCancel(ctx), Event{
		Method: req.Method, Path: req.Path, Record: hex.EncodeToString(c.Key[:4]),
		Fence: c.Fence, Attempt: c.Attempt, Status: status, Err: err,
	})
}
