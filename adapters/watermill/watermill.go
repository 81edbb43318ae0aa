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
//	dead       what [Dead] says; by default ErrDead, so not acknowledged
//
// Because messages are kept before they are published, a crash in between loses none: the next delivery publishes them. One
// that falls between publishing and acknowledging publishes them twice. Their UUIDs are the same, so a consumer
// behind this middleware handles them once. A crash before they are kept runs the handler again, after the lease: use
// [core.Step] and [core.ChildKey] on the message's context for what must not happen twice, UUIDs of produced messages included.
//
// Messages that are together longer than Config.Keep.MaxBody are published, but not kept: a duplicate publishes none, nor
// when only a tombstone is left (Config.Keep.LateRetry) or another payload is skipped (Config.Messages.SkipMismatch).
//
// # Order
//
// Watermill's middlewares work on both sides of this one, and do something else there:
//
//   - Retry inside: its tries are one attempt, under one claim. Outside, each is an attempt that Config.Messages.MaxAttempts
//     counts, and a busy message uses them up.
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
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/go-idem/idem/core"
)

var (
	// ErrBusy says that the message is in progress elsewhere, or the store away. It is to be delivered again.
	ErrBusy = errors.New("idem: the message is in progress, or the store is away")

	// ErrDead says that the message is not to be handled again, and wraps the reason: it is out of attempts, its ID came with
	// another payload before, it has no ID, its outcome is unknown, or its kept messages can not be read.
	ErrDead = errors.New("idem: the message is dead")
)

// Option changes how Watermill takes a message.
type Option func(*options)

type options struct {
	id   func(*message.Message) string
	skip func(*message.Message) bool
	dead func(*message.Message, error) error
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
// duplicate. The context of the message is that of the run while the handler has it.
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
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if o.skip(msg) {
				return next(msg)
			}
			return o.handle(e, cmp.Or(group, message.HandlerNameFromCtx(msg.Context())), msg, next)
		}
	}
}

func (o *options) handle(e *core.Engine, group string, msg *message.Message, next message.HandlerFunc) (produced []*message.Message, err error) {
	outer := msg.Context()
	d := core.Consume(outer, e, core.Message{Group: group, ID: o.id(msg), Payload: msg.Payload}, func(ctx context.Context) ([]kept, error) {
		msg.SetContext(ctx)
		defer msg.SetContext(outer)
		produced, err = next(msg)
		return keep(produced), err
	})
	switch {
	case d.Verdict == core.Done: // the handler's own: they may have contexts
		return produced, nil
	case d.Verdict == core.Duplicate && d.Err == nil:
		return restore(d.Result), nil
	case d.Verdict == core.Failed:
		return produced, d.Err
	case d.Verdict == core.Busy:
		return nil, busy(outer, d.RedeliverAfter, d.Err)
	}
	return nil, o.dead(msg, d.Err)
}

// busy waits, so that a broker which delivers again at once does not ask all the time.
func busy(ctx context.Context, pause time.Duration, cause error) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if cause == nil {
		return ErrBusy
	}
	return fmt.Errorf("%w: %w", ErrBusy, cause)
}

// kept is a produced message. Values of metadata need not be text.
type kept struct {
	UUID     string
	Metadata map[string][]byte
	Payload  []byte
}

func keep(produced []*message.Message) []kept {
	k := make([]kept, len(produced))
	for i, msg := range produced {
		k[i] = kept{msg.UUID, make(map[string][]byte, len(msg.Metadata)), msg.Payload}
		for name, value := range msg.Metadata {
			k[i].Metadata[name] = []byte(value)
		}
	}
	return k
}

func restore(k []kept) (produced []*message.Message) {
	for i := range k {
		msg := message.NewMessage(k[i].UUID, k[i].Payload)
		for name, value := range k[i].Metadata {
			msg.Metadata[name] = string(value)
		}
		produced = append(produced, msg)
	}
	return produced
}
