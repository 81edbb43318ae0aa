package core

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	errNoAttempt = errors.New("idem: no attempt is left after runs that did not end")
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

// messageKind is the Task.Kind of messages.
const messageKind = "MESSAGE"

// consume is Consume with the OnWait of the message's task.
func consume[T any](ctx context.Context, e *Engine, m Message, onWait func() func(), handle func(context.Context) (T, error)) (d Delivery[T]) {
	if m.Group == "" || m.ID == "" {
		return Delivery[T]{Verdict: Dead, Err: errMissing}
	}
	task := Task{Kind: messageKind, Scope: m.Group, Key: m.ID, Input: m.Payload, OnWait: onWait}
	result, err := e.DoTask(ctx, task, func(ctx context.Context) (*Response, error) {
		Decide(ctx, Keep)
		if e.isExhausted(ctx, 1) {
			d.Err = errNoAttempt
			return dead(d.Err), nil
		}
		d.Result, d.Err = handle(ctx)
		return e.outcome(ctx, d.Result, d.Err)
	})
	d.Attempt = result.Attempt
	switch {
	case result.Bypassed:
		d.Result, d.Err = handle(ctx)
		return d.nested()
	case err != nil:
		d.Verdict, d.Err, d.RedeliverAfter = Failed, err, time.Second
	case result.Problem != "":
		return rejected[T](e, m, &result)
	case result.Replayed:
		return duplicate[T](e, &result)
	default:
		d.handled(e, &result)
	}
	return d
}

// outcome is what the engine keeps of the handler's result, or the error with which the run fails.
func (e *Engine) outcome(ctx context.Context, result any, err error) (*Response, error) {
	if err == nil {
		return e.result(result)
	}
	if errors.Is(err, errNotHandled) {
		Decide(ctx, Release)
	}
	if run, _ := FromContext(ctx); run.Decision != Release && e.isExhausted(ctx, 0) {
		return dead(err), nil
	}
	return nil, err
}

// isExhausted reports whether the attempt of the run is the last one, or with over 1 is one after the last.
func (e *Engine) isExhausted(ctx context.Context, over int) bool {
	run, _ := FromContext(ctx)
	limit := e.cfg.Messages.MaxAttempts
	return limit > 0 && run.Attempt >= limit+over
}

// statusDone is the status of what is kept of a message that is done.
const statusDone = 200

// dead is what is kept of a message that is not to be handled again.
func dead(cause error) *Response {
	return &Response{Status: statusDead, Body: []byte(truncate(cause.Error()))}
}

// result is what is kept of a message that is done.
func (e *Engine) result(v any) (*Response, error) {
	body, err := e.marshal(v)
	if err != nil { // the effects have happened, and another run would not mend the result
		return dead(fmt.Errorf("idem: handled, but the result can not be marshalled: %w", err)), nil
	}
	return &Response{Status: statusDone, Body: body}, nil
}

// nested is the delivery of a message inside a run of the same message, for example when two middlewares guard one handler.
func (d Delivery[T]) nested() Delivery[T] {
	d.Verdict = Done
	if d.Err != nil {
		d.Verdict, d.RedeliverAfter = Failed, time.Second
	}
	return d
}

// handled sets the verdict on a message that was handled now.
func (d *Delivery[T]) handled(e *Engine, result *Result) {
	switch {
	case result.Response != nil && result.Response.Status == statusDead:
		*d = Delivery[T]{Verdict: Dead, Err: errors.New(string(result.Response.Body)), Attempt: d.Attempt}
	case result.Decision == Keep:
		d.Verdict = Done
	case result.Decision == LeaveUnknown:
		d.Verdict, d.Err, d.RedeliverAfter = Busy, ErrOutcomeUnknown, e.cfg.Lease.Duration
	default:
		d.Verdict, d.Err, d.RedeliverAfter = Failed, cmp.Or(d.Err, errDecided), time.Second
	}
}

// duplicate is the delivery of a message that was handled before.
func duplicate[T any](e *Engine, result *Result) Delivery[T] {
	r := result.Response
	if r.Status == statusDead {
		return Delivery[T]{Verdict: Dead, Err: errors.New(string(r.Body))}
	}
	d := Delivery[T]{Verdict: Duplicate, Omitted: r.Omitted, Err: result.Err}
	if !r.Omitted {
		d.Err = e.unmarshal(r.Body, &d.Result)
	}
	return d
}

// rejected is the delivery of a message that was not handled.
func rejected[T any](e *Engine, m Message, result *Result) Delivery[T] {
	d := Delivery[T]{Verdict: Busy, RedeliverAfter: max(result.RetryAfter, time.Second), Err: fmt.Errorf("idem: %s", result.Problem)}
	switch result.Problem {
	case codeInProgress:
		d.Err = nil
	case codeNestedEngine:
		d.Verdict, d.Err = Failed, result.Err
	case codeOutcomeUnknown:
		d.Verdict, d.Err, d.RedeliverAfter = Dead, ErrOutcomeUnknown, 0
	case codeRetentionOver:
		return Delivery[T]{Verdict: Duplicate, Omitted: true}
	case codeRecordUnreadable:
		d.Err = result.Err
		if e.unreadable.since([2]string{m.Group, m.ID}, e.cfg.Keep.Retention) >= e.cfg.Messages.MaxUnreadable {
			d.Verdict, d.RedeliverAfter = Dead, 0
		}
	case codeMismatch:
		if e.cfg.Messages.SkipMismatch {
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
