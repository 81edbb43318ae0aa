package core

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// Message is one delivery of a broker.
type Message struct {
	Group   string // who consumes; groups do not meet (EVT-05)
	ID      string // the message's own, the same at each delivery
	Payload []byte // what makes two messages with one ID the same
}

// MessagesConfig is for Consume, and for what Step keeps.
type MessagesConfig struct {
	// MaxAttempts is how often a message is handled at most, runs whose process died included; then it is Dead, until
	// Engine.Resolve revives it. A delivery that was not handled does not count, whatever the reason. Default 0: as often as
	// it is delivered.
	MaxAttempts int

	// SkipMismatch takes a message whose ID came with another payload before for a Duplicate of that one. By default it is
	// Dead (EVT-06).
	SkipMismatch bool

	// MaxUnreadable is how long a message whose record cannot be read is Busy, counted from when this process first found it
	// so; then it is Dead, with an error that wraps ErrUnreadable. It should outlast a rolling deploy, in which a newer process
	// may have written the record. At least 1 ms. Default 15 minutes.
	MaxUnreadable time.Duration

	// Marshal and Unmarshal turn results into bytes and back. They must be safe for concurrent use, and Unmarshal must not keep
	// or change the bytes, which others may be given, too. Default: JSON.
	Marshal   func(any) ([]byte, error)
	Unmarshal func([]byte, any) error
}

// Verdict is what became of a delivery, and what to do with it.
type Verdict string

const (
	Done      Verdict = "done"      // handled now, and its result is kept, or sent again to a store that is away: acknowledge
	Duplicate Verdict = "duplicate" // handled by an earlier delivery: acknowledge
	Busy      Verdict = "busy"      // in progress elsewhere, or the store or a blob is away: do not acknowledge, deliver again after RedeliverAfter
	Failed    Verdict = "failed"    // handled without success: do not acknowledge, deliver again
	Dead      Verdict = "dead"      // not to be handled again: put it aside, then acknowledge
)

// Delivery is what Consume says of a message.
type Delivery[T any] struct {
	Verdict        Verdict
	Result         T             // Done, Duplicate: the handler's
	Omitted        bool          // Duplicate: Result is not kept: too long, taken away, lost, forgotten, or another payload's
	Mismatch       bool          // Duplicate: of a message with another payload, see MessagesConfig.SkipMismatch
	Attempt        int           // Done, Failed: how many runs of the message there have been, this one included
	RedeliverAfter time.Duration // Busy, Failed: when it is worth delivering again
	Err            error         // Failed, Dead: why; Busy: why, unless it is in progress elsewhere; Duplicate: why Result is lost or cannot be read
}

var (
	errPayload = errors.New("idem: another payload came under this message ID before")
	errMissing = errors.New("idem: Message.Group and Message.ID are required")
	errDecided = errors.New("idem: the handler decided so")
)

// Consume handles a message at most once at a time in its group, keeps the result, and hands it to later deliveries: claim,
// run, keep; then the caller acknowledges (EVT-01 to EVT-06). The group is the scope: Config.Scope and Config.Key are not
// asked. An error of handle counts an attempt and keeps its text, of at most 200 bytes, as the cause; so does a panic, which
// passes on. A crash between handle's effects and the kept result runs it again (EVT-04); [Step], [ChildKey] and the fence are
// there for that.
//
// A handler that could do nothing, because its database is away, calls [Decide] with [Release] and returns its error: the message
// is Failed, and no attempt is used up, unless a [Step] was kept, which is something. Nor is one by a delivery that does not reach handle, because the store or a blob is away
// or the claim is lost: that is Busy (EVT-08). What LeaseConfig.OnUnknown finds out of a run that vanished is a Duplicate, whose
// Result is read from the body of the response; with Status 500 it is Dead, and the body says why (EVT-10).
//
// The context of handle is that of a run: see [Engine.Do]. Inside of a run of the same message Consume only calls handle: what
// is kept is the outer one's. If e differs from the outer engine in its rules for runs, the message is Failed, and handle is not
// called: let one of them go.
func Consume[T any](ctx context.Context, e *Engine, m Message, handle func(context.Context) (T, error)) Delivery[T] {
	return consume(ctx, e, m, nil, handle)
}

// consume is Consume for who holds a place at the store, which others may have while it waits for a run elsewhere.
func consume[T any](ctx context.Context, e *Engine, m Message, place chan struct{}, handle func(context.Context) (T, error)) Delivery[T] {
	if m.Group == "" || m.ID == "" {
		return Delivery[T]{Verdict: Dead, Err: errMissing}
	}
	op := e.message(ctx, m)
	op.place = place
	var d Delivery[T]
	if k := e.enclosing(ctx, m.Group, m.ID, &op.req, true); k != nil {
		if err := e.standsAside(k.op.engine); err != nil {
			op.emit(e.cfg.Hooks.StoreError, 0, err)
			return Delivery[T]{Verdict: Failed, Err: err, RedeliverAfter: time.Second}
		}
		d.Result, d.Err = handle(ctx)
		return d.within(k)
	}
	op.run = func(ctx context.Context) (*Response, error) {
		Decide(ctx, Keep)
		if op.exhausted(1) {
			d.Err = errors.New("idem: no attempt is left after runs that did not end")
			return dead(d.Err), nil
		}
		d.Result, d.Err = handle(ctx)
		return op.handled(d.Result, d.Err)
	}
	result, err := op.begin()
	d.Attempt = op.claim.Attempt
	switch {
	case err != nil:
		d.Verdict, d.Err, d.RedeliverAfter = Failed, err, time.Second
	case result.Problem != "":
		return refused[T](op, result.Problem)
	case result.Replayed:
		return repeated[T](op, result.Response)
	case op.found != nil: // an earlier run's, as OnUnknown tells
		return repeated[T](op, op.found)
	default:
		d.judge(op, result.Response)
	}
	return d
}

// handled is what the engine is to settle of a handler's result.
func (op *operation) handled(result any, err error) (*Response, error) {
	if errors.Is(err, errNotHandled) {
		op.keeper.decide(Release)
	}
	decision, _ := op.keeper.decidedOn()
	switch {
	case err == nil:
		return op.engine.result(result)
	case decision == Release:
		return &Response{Status: statusReleased, Body: []byte(short(err.Error()))}, nil
	case op.exhausted(0):
		return dead(err), nil
	}
	return nil, err
}

// messageMethod stands for a method where messages are told like requests: to hooks, and to Resolve.
const messageMethod = "MESSAGE"

// within is the delivery of a message whose run goes on around it: a middleware on a handler, behind one on all.
func (d Delivery[T]) within(k *keeper) Delivery[T] {
	d.Verdict, d.Attempt = Done, k.op.claim.Attempt
	if d.Err != nil {
		d.Verdict, d.RedeliverAfter = Failed, time.Second
	}
	return d
}

// message is the operation of a delivery.
func (e *Engine) message(ctx context.Context, m Message) *operation {
	req := Request{Method: messageMethod, Path: m.Group, Header: func(string) []string { return nil }}
	op := &operation{engine: e, ctx: ctx, req: req, who: identity{m.Group, m.ID}, body: m.Payload, isMessage: true}
	op.claim.Key = e.namings[0].record(m.Group, m.ID, &op.req, true)
	op.claim.Fingerprint = (&FingerprintConfig{}).of(e.hashing, algorithm{algorithmBase}, &op.req, m.Payload)
	return op
}

// exhausted tells whether the run's attempt is the last, or with over 1 later than that.
func (op *operation) exhausted(over int) bool {
	limit := op.engine.cfg.Messages.MaxAttempts
	return limit > 0 && op.claim.Attempt >= limit+over
}

// The statuses of outcomes of messages.
const (
	statusDone     = 200
	statusDead     = 500
	statusReleased = 503 // not kept
)

// released is how the claim of r ends when its handler had no effects. The attempt of a message is given back: it was not
// handled, as when a database is away.
func (op *operation) released(r *Response) driver.Failure {
	if op.isMessage && r.Status == statusReleased {
		return driver.Failure{Cause: string(r.Body), NoEffects: true, NotRun: true}
	}
	return driver.Failure{Cause: "status " + strconv.Itoa(r.Status), NoEffects: true, NotRun: op.isMessage}
}

func dead(cause error) *Response {
	return &Response{Status: statusDead, Body: []byte(short(cause.Error()))}
}

func (e *Engine) result(v any) (*Response, error) {
	body, err := e.marshal(v)
	if err != nil { // its effects have happened: another run would not mend it
		return dead(fmt.Errorf("idem: handled, but the result can not be marshalled: %w", err)), nil
	}
	return &Response{Status: statusDone, Body: body}, nil
}

// judge says what became of a message that was handled now.
func (d *Delivery[T]) judge(op *operation, r *Response) {
	decision, decided := op.keeper.decidedOn()
	switch {
	case r != nil && r.Status == statusDead:
		*d = Delivery[T]{Verdict: Dead, Err: errors.New(string(r.Body)), Attempt: d.Attempt}
	case !decided || decision == Keep:
		d.Verdict = Done
	case decision == LeaveUnknown:
		d.Verdict, d.Err, d.RedeliverAfter = Busy, ErrOutcomeUnknown, op.claim.Lease
	default:
		d.Verdict, d.Err, d.RedeliverAfter = Failed, cmp.Or(d.Err, errDecided), time.Second
	}
}

// repeated is the delivery of a message that was handled before.
func repeated[T any](op *operation, r *Response) Delivery[T] {
	if r.Status == statusDead {
		return Delivery[T]{Verdict: Dead, Err: errors.New(string(r.Body))}
	}
	d := Delivery[T]{Verdict: Duplicate, Omitted: r.Omitted, Err: op.blobErr}
	if !r.Omitted {
		d.Err = op.engine.unmarshal(r.Body, &d.Result)
	}
	return d
}

// refused is the delivery of a message that was not handled.
func refused[T any](op *operation, problem string) Delivery[T] {
	d := Delivery[T]{Verdict: Busy, RedeliverAfter: retryAfter(op.left), Err: fmt.Errorf("idem: %s", problem)}
	switch problem {
	case codeInProgress:
		d.Err = nil
	case codeOutcomeUnknown:
		d.Verdict, d.Err, d.RedeliverAfter = Dead, ErrOutcomeUnknown, 0
	case codeRetentionOver:
		return Delivery[T]{Verdict: Duplicate, Omitted: true}
	case codeRecordUnreadable:
		d.Err = op.unreadableErr
		if op.engine.unreadable.since(op.claim.Key, op.engine.cfg.Keep.Retention) >= op.engine.cfg.Messages.MaxUnreadable {
			d.Verdict, d.RedeliverAfter = Dead, 0
		}
	case codeMismatch:
		if op.engine.cfg.Messages.SkipMismatch {
			return Delivery[T]{Verdict: Duplicate, Omitted: true, Mismatch: true}
		}
		d.Verdict, d.Err, d.RedeliverAfter = Dead, errPayload, 0
	}
	return d
}

func (e *Engine) marshal(v any) ([]byte, error) {
	if own := e.cfg.Messages.Marshal; own != nil {
		return own(v)
	}
	return json.Marshal(v)
}

func (e *Engine) unmarshal(b []byte, v any) error {
	unmarshal := json.Unmarshal
	if own := e.cfg.Messages.Unmarshal; own != nil {
		unmarshal = own
	}
	if err := unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: a result is not of the type asked for: %w", driver.ErrUnreadable, err)
	}
	return nil
}
