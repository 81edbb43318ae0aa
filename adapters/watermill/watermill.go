// Package idem puts an engine in front of the message handlers of Watermill, whatever broker their messages come from.
//
//	billing := router.AddHandler("bill", "orders", subscriber, "invoices", publisher, bill)
//	billing.AddMiddleware(idem.Watermill(engine, "billing"))
//
// # What becomes of a delivery
//
//	done       the messages that the handler produced are kept, then published, then the delivery is acknowledged
//	duplicate  the kept messages are published again, with the same UUIDs, and the delivery is acknowledged
//	busy       after RedeliverAfter of core.Delivery, or once its context ends, ErrBusy, so not acknowledged
//	failed     the handler's error, so not acknowledged
//	dead       what [Dead] says; by default ErrDead, so not acknowledged. When the message was dead lately, and is still not
//	           put aside, that takes a second, or until its context ends
//
// Because messages are kept before they are published, a crash in between loses none: the next delivery publishes them. One
// that falls between publishing and acknowledging publishes them twice. Their UUIDs are the same, so a consumer
// behind this middleware handles them once. A crash before they are kept runs the handler again, after the lease: use
// [core.Step] and [core.ChildKey] on the message's context for what must not happen twice, UUIDs of produced messages included.
//
// No delivery is acknowledged whose messages may not have been published. Messages that are together longer than
// Config.Keep.MaxBody are published, but not kept; others are lost with a blob, or with the retention, of which a tombstone is left
// (Config.Keep.LateRetry). A duplicate is dead then, with the cause [ErrNotKept], unless the router's handler has no publisher.
// When the blobs are only away, the message is busy. Another payload that is skipped (Config.Messages.SkipMismatch) publishes
// nothing. What Config.Lease.OnUnknown finds is published if it is a result as Config.Messages marshals it, and else dead; to
// revive what is dead is [core.Engine.Resolve]'s.
//
// # Order
//
// Watermill's middlewares work on both sides of this one, and do something else there:
//
//   - Retry inside: its tries are one attempt, under one claim. Outside, each is an attempt that Config.Messages.MaxAttempts
//     counts, and a busy message uses them up. It tries again with the message as it was delivered: unless a run was done,
//     what its handler changed of UUID, metadata and payload is undone.
//   - Recoverer inside: a panic is an error of the handler. Outside, Config.Lease.OnUnknown, if set, is asked about it. Either
//     way it counts an attempt.
//   - PoisonQueue outside, as middleware.PoisonQueueWithFilter with errors.Is(err, idem.ErrDead): it takes the dead. Without
//     the filter it also takes, and acknowledges, what is busy. Inside, it takes what fails once, which is then done.
//   - Timeout inside or outside: the handler's context has its deadline.
//   - Deduplicator and InstantAck on neither side: they acknowledge what failed or crashed, which is then never handled.
//
// The handler's context does not end when the subscriber closes or gives up waiting; RouterConfig.CloseTimeout says how long the
// router waits for it. A broker that delivers again meanwhile finds the message busy. For NATS put nats.ManualAck into the
// SubscribeOptions: without it the client acknowledges what takes longer than AckWaitTimeout.
package idem

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/go-idem/idem/core"
)

var (
	// ErrBusy says that the message is in progress elsewhere, or the store away. It is to be delivered again.
	ErrBusy = errors.New("idem: the message is in progress, or the store is away")

	// ErrDead says that the message is not to be handled again, and wraps the reason: it is out of attempts, its ID came with
	// another payload before, it has no ID, its outcome is unknown, or its kept messages or its record cannot be read.
	ErrDead = errors.New("idem: the message is dead")

	// ErrNotKept is the cause of a message that is dead because an earlier delivery was handled, and what it produced is not
	// kept: whether it was published nobody knows. A [Dead] that returns nil for it takes it for published.
	ErrNotKept = errors.New("idem: the message was handled before, and the messages that it produced then are not kept")
)

// Option changes how Watermill takes a message.
type Option func(*options)

type options struct {
	id   func(*message.Message) string
	skip func(*message.Message) bool
	dead func(*message.Message, error) error

	recent recentDead
}

// ID says which deliveries are of one message. Default: its UUID, which tells redeliveries, but not a producer that publishes
// twice with a new one; take an ID of the payload or metadata for that. A message with the ID "" is dead.
func ID(f func(*message.Message) string) Option { return func(o *options) { o.id = f } }

// Skip lets messages for which f is true pass by the engine.
func Skip(f func(*message.Message) bool) Option { return func(o *options) { o.skip = f } }

// Dead puts a dead message aside; cause says why it is. It is acknowledged when f returns nil, and else delivered again
// with f's error, so f may be called more than once. Default: [ErrDead].
func Dead(f func(msg *message.Message, cause error) error) Option {
	return func(o *options) { o.dead = f }
}

// Watermill returns a middleware that runs handlers under e. Group is who consumes, the same in all its processes; with "" it
// is the name of the router's handler. Two handlers of one group share their messages: one handles, the other finds a
// duplicate. The context of the message is that of the run while the handler has it; that of
// a produced message which is made of it ends with the delivery's, as without the engine.
//
// Results go through Config.Messages.Marshal, if set: as a slice of a struct of strings, bytes and maps of them.
func Watermill(e *core.Engine, group string, opts ...Option) message.HandlerMiddleware {
	o := options{
		id:   func(msg *message.Message) string { return msg.UUID },
		skip: func(*message.Message) bool { return false },
		dead: func(_ *message.Message, cause error) error { return fmt.Errorf("%w: %w", ErrDead, cause) },
	}
	for _, opt := range opts {
		opt(&o)
	}
	o.recent = recentDead{seed: maphash.MakeSeed(), at: map[uint64]time.Time{}}
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if o.skip(msg) {
				return next(msg)
			}
			m := core.Message{Group: cmp.Or(group, message.HandlerNameFromCtx(msg.Context())), ID: o.id(msg), Payload: msg.Payload}
			return o.handle(e, m, msg, next)
		}
	}
}

func (o *options) handle(e *core.Engine, m core.Message, msg *message.Message, next message.HandlerFunc) ([]*message.Message, error) {
	d, produced := consume(e, m, msg, next)
	switch {
	case d.Verdict == core.Done: // the handler's own: they may have contexts
		return produced, nil
	case d.Verdict == core.Duplicate && d.Omitted && !d.Mismatch && hasPublisher(msg.Context()):
		return nil, o.handleDead(m, msg, errors.Join(ErrNotKept, d.Err))
	case d.Verdict == core.Duplicate && (d.Omitted || d.Err == nil):
		return restore(d.Result), nil
	case d.Verdict == core.Failed:
		return produced, d.Err
	case d.Verdict == core.Busy:
		return nil, waitBusy(msg.Context(), d.RedeliverAfter, d.Err)
	}
	return nil, o.handleDead(m, msg, d.Err)
}

// consume handles a message. Unless that is done, the message is then as it was delivered.
func consume(e *core.Engine, m core.Message, msg *message.Message, next message.HandlerFunc) (d core.Delivery[[]storedMessage], produced []*message.Message) {
	undo := func() {}
	defer func() {
		if d.Verdict != core.Done { // also when the handler panics
			undo()
		}
	}()
	outer := msg.Context()
	d = core.Consume(outer, e, m, func(ctx context.Context) (_ []storedMessage, err error) {
		undo = snapshot(msg)
		msg.SetContext(ctx)
		defer msg.SetContext(outer)
		produced, err = next(msg)
		result := store(produced)
		for _, p := range produced {
			moveToOuter(p, ctx, outer)
		}
		return result, err
	})
	return d, produced
}

// snapshot returns a function that makes msg what it is now.
func snapshot(msg *message.Message) (undo func()) {
	uuid, metadata, payload := msg.UUID, maps.Clone(msg.Metadata), bytes.Clone(msg.Payload)
	return func() { msg.UUID, msg.Metadata, msg.Payload = uuid, metadata, payload }
}

// hasPublisher tells whether what a handler produces goes anywhere, as far as the router tells: handlers of consumers produce
// nothing.
func hasPublisher(ctx context.Context) bool {
	return message.PublisherNameFromCtx(ctx) != "message.disabledPublisher"
}

// waitBusy waits, so that a broker which delivers again at once does not ask all the time.
func waitBusy(ctx context.Context, pause time.Duration, cause error) error {
	sleep(ctx, pause)
	if cause == nil {
		return ErrBusy
	}
	return fmt.Errorf("%w: %w", ErrBusy, cause)
}

func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
