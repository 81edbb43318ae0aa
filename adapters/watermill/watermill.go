// Package idem makes Watermill's message handlers idempotent: [Watermill] is a middleware that runs them under a core.Engine, for
// every broker that Watermill supports.
//
//	billing := router.AddHandler("bill", "orders", subscriber, "invoices", publisher, bill)
//	billing.AddMiddleware(idem.Watermill(messages, "billing"))
//
// # What becomes of a delivery
//
//	done       The messages that the handler produced are stored, then published. Then the delivery is acknowledged.
//	duplicate  The stored messages are published again, with the same UUIDs, and the delivery is acknowledged.
//	busy       The middleware waits for consumer.Delivery.RedeliverAfter, or until the context ends, and returns ErrBusy. The
//	           delivery is not acknowledged.
//	failed     The middleware returns the handler's error. The delivery is not acknowledged.
//	dead       The function of Dead decides. By default the middleware returns ErrDead, and the delivery is not acknowledged.
//	           If the same message was dead a short time ago, the middleware waits a second before it returns.
//
// # What a crash does
//
//   - Before the produced messages are stored: the handler runs again, after the lease. Use [core.Step] and [core.ChildKey] with
//     the message's context for effects that must not happen twice, and for the UUIDs of produced messages.
//   - Between storing and publishing: the next delivery publishes the messages. None is lost.
//   - Between publishing and acknowledging: the next delivery publishes them a second time. Their UUIDs are the same, so a
//     consumer behind this middleware handles each once.
//
// # Messages that are not stored
//
// No delivery is acknowledged if its messages may not have been published. Produced messages that together exceed
// Config.Keep.MaxBody are published, but not stored. Stored messages can be lost later: with their blob, or with the retention if
// a tombstone is left (Config.Keep.LateRetry). In these cases a duplicate is dead, with the cause [ErrNotKept], unless the
// router's handler has no publisher. If the blob store is only unavailable, the message is busy.
//
// A delivery with another payload under a known ID publishes nothing if consumer.Config.SkipMismatch is set. A result that
// Config.Lease.OnUnknown returns is published if it has the form in which Config.Marshal stores results; otherwise the message
// is dead. [core.Engine.Resolve] revives a dead message.
//
// # Where to put the middleware
//
// Watermill's own middlewares do different things inside and outside of this one:
//
//   - Retry inside: all its tries are one attempt, under one claim. Outside: each try is an attempt that
//     consumer.Config.MaxAttempts counts, and a busy message uses up the tries. Before each try outside, this middleware undoes
//     what the handler changed of UUID, metadata and payload.
//   - Recoverer inside: a panic is an error of the handler. Outside: Config.Lease.OnUnknown is asked about the panic, if it is
//     set. Both count an attempt.
//   - PoisonQueue outside, as middleware.PoisonQueueWithFilter with errors.Is(err, idem.ErrDead): it takes the dead messages.
//     Without the filter it also takes, and acknowledges, busy ones. Inside, it takes each message that fails once, which then
//     counts as done.
//   - Timeout inside or outside: the handler's context has its deadline.
//   - Deduplicator and InstantAck: on neither side. They acknowledge messages that failed or crashed, which are then never
//     handled.
//
// # Options
//
//	ID    which deliveries are one message  default: those with the same UUID
//	Skip  what is not guarded               default: nothing
//	Dead  what becomes of a dead message    default: the middleware returns ErrDead
//
// # Closing
//
// The handler's context does not end when the subscriber closes or gives up waiting. RouterConfig.CloseTimeout sets how long the
// router waits for the handler. If the broker delivers the message again meanwhile, it is busy. For NATS, add nats.ManualAck to
// the SubscribeOptions: without it the client acknowledges each message that takes longer than AckWaitTimeout.
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

	"github.com/go-idem/idem/core/consumer"
)

var (
	// ErrBusy means that the message is in progress elsewhere, or that the store is unavailable. It must be delivered again.
	ErrBusy = errors.New("idem: the message is in progress, or the store is away")

	// ErrDead means that the message will not be handled again. It wraps the reason: the message is out of attempts, its ID came
	// with another payload before, it has no ID, its outcome is unknown, or its record or stored messages cannot be read.
	ErrDead = errors.New("idem: the message is dead")

	// ErrNotKept is the cause of a dead message that an earlier delivery handled, when the messages that it produced are not
	// stored. Nobody knows whether they were published. A function of [Dead] that returns nil for it takes them for published.
	ErrNotKept = errors.New("idem: the message was handled before, and the messages that it produced then are not kept")
)

// Option changes how [Watermill] treats a message.
type Option func(*options)

// options are what the options of Watermill set, and what the middleware remembers.
type options struct {
	id   func(*message.Message) string
	skip func(*message.Message) bool
	dead func(*message.Message, error) error

	recent recentDead
}

// ID takes the ID of a message: deliveries with the same ID are one message. f must be safe for concurrent use. A message with
// the ID "" is dead. Default: the message's UUID. It is the same in redeliveries, but not if a producer publishes twice with a
// new UUID; return an ID from the payload or the metadata then.
func ID(f func(*message.Message) string) Option { return func(o *options) { o.id = f } }

// Skip runs the handler without the engine for messages for which f returns true. f must be safe for concurrent use. Default: no
// message is skipped.
func Skip(f func(*message.Message) bool) Option { return func(o *options) { o.skip = f } }

// Dead sets the function that puts dead messages aside. cause is why the message is dead. If f returns nil, the delivery is
// acknowledged; otherwise the middleware returns f's error, and the broker delivers the message again. So f may be called more
// than once for a message, and must be safe for concurrent use. Default: f returns an error that wraps [ErrDead] and cause.
func Dead(f func(msg *message.Message, cause error) error) Option {
	return func(o *options) { o.dead = f }
}

// Watermill returns a middleware that runs handlers by c. group names the consumers of the message and must be the same in all its
// processes; "" stands for the name of the router's handler. Two handlers of one group share their messages: one of them
// handles a message, and for the other it is a duplicate. The middleware is safe for concurrent use.
//
// While the handler runs, the message's context is that of the run. A produced message may have a context that is made of it;
// that context ends with the delivery's, as it does without the engine.
//
// Config.Marshal of the engine gets the produced messages as a slice of a struct of strings, bytes and maps of them.
func Watermill(c *consumer.Consumer, group string, opts ...Option) message.HandlerMiddleware {
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
			m := consumer.Message{Group: cmp.Or(group, message.HandlerNameFromCtx(msg.Context())), ID: o.id(msg), Payload: msg.Payload}
			return o.handle(c, m, msg, next)
		}
	}
}

// handle runs next for msg by c and turns the verdict into what the router gets: messages to publish, or an error.
func (o *options) handle(
	c *consumer.Consumer, m consumer.Message, msg *message.Message, next message.HandlerFunc,
) ([]*message.Message, error) {
	d, produced := consume(c, m, msg, next)
	switch {
	case d.Verdict == consumer.Done: // The handler's own messages may have contexts.
		return produced, nil
	case d.Verdict == consumer.Duplicate && d.Omitted && !d.Mismatch && hasPublisher(msg.Context()):
		return nil, o.handleDead(m, msg, errors.Join(ErrNotKept, d.Err))
	case d.Verdict == consumer.Duplicate && (d.Omitted || d.Err == nil):
		return restore(d.Result), nil
	case d.Verdict == consumer.Failed:
		return produced, d.Err
	case d.Verdict == consumer.Busy:
		return nil, waitBusy(msg.Context(), d.RedeliverAfter, d.Err)
	}
	return nil, o.handleDead(m, msg, d.Err)
}

// consume runs next for msg by c and returns the delivery's verdict and the produced messages. Unless the verdict is done, msg
// is then as it was delivered, so that the next try gets the original.
func consume(
	c *consumer.Consumer, m consumer.Message, msg *message.Message, next message.HandlerFunc,
) (d consumer.Delivery[[]storedMessage], produced []*message.Message) {
	undo := func() {}
	defer func() {
		if d.Verdict != consumer.Done { // This includes a panic of the handler.
			undo()
		}
	}()
	outer := msg.Context()
	d = consumer.Consume(outer, c, m, func(ctx context.Context) (_ []storedMessage, err error) {
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

// snapshot returns a function that gives msg back the UUID, metadata and payload that it has now.
func snapshot(msg *message.Message) (undo func()) {
	uuid, metadata, payload := msg.UUID, maps.Clone(msg.Metadata), bytes.Clone(msg.Payload)
	return func() { msg.UUID, msg.Metadata, msg.Payload = uuid, metadata, payload }
}

// hasPublisher reports whether the router publishes what the handler of ctx produces. It does not for the handlers of
// AddConsumerHandler.
func hasPublisher(ctx context.Context) bool {
	return message.PublisherNameFromCtx(ctx) != "message.disabledPublisher"
}

// waitBusy waits for pause and returns ErrBusy. The pause is for brokers that deliver again at once.
func waitBusy(ctx context.Context, pause time.Duration, cause error) error {
	sleep(ctx, pause)
	if cause == nil {
		return ErrBusy
	}
	return fmt.Errorf("%w: %w", ErrBusy, cause)
}

// sleep returns after pause, or when ctx ends.
func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
