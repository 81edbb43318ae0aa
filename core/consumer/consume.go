package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

var (
	errPayload = errors.New("idem: another payload came under this message ID before")
	errMissing = errors.New("idem: Message.Group and Message.ID are required")
	errDecided = errors.New("idem: the handler decided so")

	errNoCause    = errors.New("idem: the message is dead, and its record does not say why")
	errNoAttempt  = errors.New("idem: no attempt is left after runs that did not end")
	errRecordLost = fmt.Errorf("%w: %w", core.ErrOutcomeUnknown, driver.ErrGone)
	errNested     = errors.New("idem: this consumer is inside another one of the same message, and their MaxAttempts, " +
		"SkipMismatch or MaxUnreadable differ: remove one of the two")
)

// The codes of refusals that docs/problems.md lists and that a consumer knows.
const (
	codeInProgress       = "in-progress"
	codeMismatch         = "fingerprint-mismatch"
	codeNestedEngine     = "nested-engine"
	codeOutcomeUnknown   = "outcome-unknown"
	codeRecordLost       = "record-lost"
	codeRecordUnreadable = "record-unreadable"
	codeRetentionOver    = "retention-over"
)

// The statuses of what is kept of messages: they are in records, so they never change.
const (
	statusDone = 200
	statusDead = 500
)

// maxCause is how much is kept of the error that a message is dead of, in bytes.
const maxCause = 200

// Consume handles a message at most once at a time in its group, keeps the result, and hands it to later deliveries: claim,
// run, keep; then the caller acknowledges (EVT-01 to EVT-06). An error of handle counts an attempt, and the first 200 bytes of
// its text are kept as the cause; so does a panic, which passes on. A crash between the effects of handle and the kept result
// runs handle again (EVT-04); use [core.Step], [core.ChildKey] and the fence for what must not happen twice.
//
// A handler that could do nothing, because its database is unavailable, calls [core.Decide] with [core.Release] and returns
// its error. The message is then Failed, and no attempt is used up, unless a step was kept, which is an effect. A delivery
// that does not reach handle uses up no attempt either: it is Busy (EVT-08). If LeaseConfig.OnUnknown finds the outcome of a
// run that vanished, the message is a Duplicate, with the body of that response as its Result; with Status 500 it is Dead, and
// the body says why (EVT-10).
//
// The context of handle is that of a run: see [core.Engine.Do]. Inside a run of the same message, Consume only calls handle,
// and the outer run keeps the result. If the consumer or its engine differs from the outer one in its rules for runs, the
// message is Failed and handle is not called: remove one of the two.
func Consume[T any](ctx context.Context, c *Consumer, m Message, handle func(context.Context) (T, error)) Delivery[T] {
	return consume(ctx, c, m, nil, handle)
}

// handler is the function that handles one message.
type handler[T any] = func(context.Context) (T, error)

// consume is Consume with the OnWait of the message's task.
func consume[T any](ctx context.Context, c *Consumer, m Message, onWait func() func(), handle handler[T]) (d Delivery[T]) {
	if m.Group == "" || m.ID == "" {
		return Delivery[T]{Verdict: Dead, Err: errMissing}
	}
	task := core.Task{Kind: Kind, Scope: m.Group, Route: m.Group, Key: m.ID, Input: m.Payload, OnWait: onWait}
	result, err := c.engine.DoTask(ctx, task, func(ctx context.Context) (*core.Response, error) {
		core.Decide(ctx, core.Keep)
		if c.isExhausted(ctx, 1) {
			d.Err = errNoAttempt
			return dead(d.Err), nil
		}
		d.Result, d.Err = handle(context.WithValue(ctx, m.name(), c))
		return c.outcome(ctx, d.Result, d.Err)
	})
	d.Attempt = result.Attempt
	switch {
	case result.Bypassed:
		return nested(ctx, c, m, result.Attempt, handle)
	case err != nil:
		d.Verdict, d.Err, d.RedeliverAfter = Failed, err, time.Second
	case result.Problem != "":
		return rejected[T](c, m, &result)
	case result.Replayed:
		return duplicate[T](c, &result)
	default:
		d.handled(c, &result)
	}
	return d
}

// outcome is what the engine keeps of the handler's result, or the error with which the run fails. The error of the last attempt is
// kept even if the handler has decided to keep nothing, because a dead message is one that is kept as such.
func (c *Consumer) outcome(ctx context.Context, result any, err error) (*core.Response, error) {
	if _, isUnhandled := err.(notHandled); isUnhandled { // and not by errors.As, since another batch may be inside the handler
		core.Decide(ctx, core.Release)
	}
	run, _ := core.FromContext(ctx)
	switch {
	case err == nil && run.Decision != core.Keep: // nothing is kept
		return &core.Response{Status: statusDone}, nil
	case err == nil:
		return c.result(result)
	case run.Decision != core.Release && c.isExhausted(ctx, 0):
		core.Decide(ctx, core.Keep)
		return dead(err), nil
	}
	return nil, err
}

// isExhausted reports whether the attempt of the run is the last one, or with over 1 is one after the last.
func (c *Consumer) isExhausted(ctx context.Context, over int) bool {
	run, _ := core.FromContext(ctx)
	limit := c.cfg.MaxAttempts
	return limit > 0 && run.Attempt >= limit+over
}

// dead is what is kept of a message that is not to be handled again.
func dead(cause error) *core.Response {
	text := cause.Error()
	return &core.Response{Status: statusDead, Body: []byte(strings.ToValidUTF8(text[:min(len(text), maxCause)], ""))}
}

// result is what is kept of a message that is done.
func (c *Consumer) result(v any) (*core.Response, error) {
	body, err := c.engines.Marshal(v)
	if err != nil { // the effects have happened, and another run would not mend the result
		return dead(fmt.Errorf("idem: handled, but the result can not be marshalled: %w", err)), nil
	}
	return &core.Response{Status: statusDone, Body: body}, nil
}

// nested handles a message inside a run of the same message, for example when two middlewares guard one handler. The context
// of that run has its consumer, under the name of the message.
func nested[T any](ctx context.Context, c *Consumer, m Message, attempt int, handle handler[T]) Delivery[T] {
	if outer, ok := ctx.Value(m.name()).(*Consumer); ok && outer.cfg != c.cfg {
		return Delivery[T]{Verdict: Failed, Err: errNested, RedeliverAfter: time.Second}
	}
	d := Delivery[T]{Verdict: Done, Attempt: attempt}
	if d.Result, d.Err = handle(ctx); d.Err != nil {
		d.Verdict, d.RedeliverAfter = Failed, time.Second
	}
	return d
}

// handled sets the verdict on a message that was handled now.
func (d *Delivery[T]) handled(c *Consumer, result *core.Result) {
	switch {
	case result.Response != nil && result.Response.Status == statusDead:
		*d = Delivery[T]{Verdict: Dead, Err: causeOf(result), Attempt: d.Attempt}
	case result.Decision == core.Keep:
		d.Verdict = Done
	case result.Decision == core.LeaveUnknown:
		d.Verdict, d.Err, d.RedeliverAfter = Busy, core.ErrOutcomeUnknown, c.engines.Lease.Duration
	default:
		d.Verdict, d.Err, d.RedeliverAfter = Failed, cmp.Or(d.Err, errDecided), time.Second
	}
}

// causeOf returns why a message is dead, whose outcome is the response of result.
func causeOf(result *core.Result) error {
	if text := string(result.Response.Body); text != "" {
		return errors.New(text)
	}
	return cmp.Or(result.Err, errNoCause)
}

// duplicate is the delivery of a message that was handled before.
func duplicate[T any](c *Consumer, result *core.Result) Delivery[T] {
	r := result.Response
	if r.Status == statusDead {
		return Delivery[T]{Verdict: Dead, Err: causeOf(result)}
	}
	d := Delivery[T]{Verdict: Duplicate, Omitted: r.Omitted, Err: result.Err}
	if !r.Omitted {
		d.Err = c.unmarshal(r.Body, &d.Result)
	}
	return d
}

// rejected is the delivery of a message that was not handled.
func rejected[T any](c *Consumer, m Message, result *core.Result) Delivery[T] {
	d := Delivery[T]{Verdict: Busy, RedeliverAfter: max(result.RetryAfter, time.Second), Err: fmt.Errorf("idem: %s", result.Problem)}
	switch result.Problem {
	case codeInProgress:
		d.Err = nil
	case codeNestedEngine:
		d.Verdict, d.Err = Failed, result.Err
	case codeOutcomeUnknown:
		d.Verdict, d.Err, d.RedeliverAfter = Dead, core.ErrOutcomeUnknown, 0
	case codeRecordLost:
		d.Err = driver.ErrGone
		if c.engines.Lease.OnUnknown != nil { // nothing is stored that it could be asked about, and another delivery would run again
			d.Verdict, d.Err, d.RedeliverAfter = Dead, errRecordLost, 0
		}
	case codeRetentionOver:
		return Delivery[T]{Verdict: Duplicate, Omitted: true}
	case codeRecordUnreadable:
		d.Err = result.Err
		if c.unreadable.since(m.name(), c.engines.Keep.Retention, c.cfg.MaxUnreadable) >= c.cfg.MaxUnreadable {
			d.Verdict, d.RedeliverAfter = Dead, 0
		}
	case codeMismatch:
		if c.cfg.SkipMismatch {
			return Delivery[T]{Verdict: Duplicate, Omitted: true, Mismatch: true}
		}
		d.Verdict, d.Err, d.RedeliverAfter = Dead, errPayload, 0
	}
	return d
}

// unmarshal reads a kept result.
func (c *Consumer) unmarshal(b []byte, v any) error {
	if err := c.engines.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: a result is not of the type asked for: %w", driver.ErrUnreadable, err)
	}
	return nil
}
