package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/go-idem/idem/core/consumer"
)

const (
	group      = "shipping" // of the stream, and of the messages
	readAtOnce = 10
)

// block is how long a read waits for messages, so also how long a shutdown waits for a read. Tests shorten it.
var block = time.Second

// eventConsumer reads the stream in a group and hands each event to handle.
type eventConsumer struct {
	*service
	name   string
	handle func(context.Context, event) (shipped, error)
}

func newConsumer(s *service) *eventConsumer {
	name, _ := os.Hostname() // The name must not change, because the group remembers every name.
	return &eventConsumer{s, name, (&shipping{s.db}).handle}
}

func (c *eventConsumer) run(ctx context.Context) error {
	var workers errgroup.Group
	for range c.cfg.Consumers {
		workers.Go(func() error { c.work(ctx); return nil })
	}
	return workers.Wait()
}

// work handles messages until ctx ends, and finishes those that it has read.
func (c *eventConsumer) work(ctx context.Context) {
	cursor := "0-0" // the cursor of XAUTOCLAIM
	for joined := false; ctx.Err() == nil; {
		err := c.round(context.WithoutCancel(ctx), &joined, &cursor)
		if err != nil && !errors.Is(err, redis.Nil) {
			c.log.Warn("consumer", "err", err)
			joined = false
			pause(ctx, 100*time.Millisecond)
		}
	}
}

// round handles messages that another consumer has not acknowledged in time, or else new ones.
func (c *eventConsumer) round(ctx context.Context, joined *bool, cursor *string) error {
	if !*joined {
		err := c.redis.XGroupCreateMkStream(ctx, stream, group, "0").Err()
		if err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
			return err
		}
		*joined = true
	}
	left, next, err := c.redis.XAutoClaim(ctx, &redis.XAutoClaimArgs{
		Stream: stream, Group: group, Consumer: c.name, MinIdle: c.abandoned(), Start: *cursor, Count: readAtOnce,
	}).Result()
	if err != nil {
		return err
	}
	*cursor = next
	if len(left) > 0 {
		return c.handleAll(ctx, left)
	}
	read, err := c.redis.XReadGroup(ctx, &redis.XReadGroupArgs{
		Streams: []string{stream, ">"}, Group: group, Consumer: c.name, Count: readAtOnce, Block: block,
	}).Result()
	if err != nil {
		return err
	}
	return c.handleAll(ctx, read[0].Messages)
}

// abandoned is how long a delivered message stays with its consumer before another one takes it over. A run that died holds its
// message for the lease, so a shorter time would not help.
func (c *eventConsumer) abandoned() time.Duration { return c.cfg.Lease + c.cfg.Lease/2 }

// handleAll handles messages one after another, until one fails.
func (c *eventConsumer) handleAll(ctx context.Context, messages []redis.XMessage) error {
	for _, m := range messages {
		if err := c.handleOne(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// handleOne handles one delivery and does what the verdict says. If that fails, the message is delivered again. After an outage
// the worker pauses until each other process has looked for messages. Otherwise a process that alone has no connection to the
// database could take its message again and again, while the others have one.
func (c *eventConsumer) handleOne(ctx context.Context, m redis.XMessage) error {
	e := eventOf(m)
	message := consumer.Message{Group: group, ID: e.ID, Payload: e.Payload}
	d := consumer.Consume(ctx, c.messages, message, func(ctx context.Context) (shipped, error) { return c.handle(ctx, e) })
	gap("the outcome of the event is kept, the stream's entry is not acknowledged")
	switch d.Verdict {
	case consumer.Done, consumer.Duplicate:
		return c.redis.XAck(ctx, stream, group, m.ID).Err()
	case consumer.Dead:
		c.log.Error("dead", "event", e.ID, "entry", m.ID, "err", d.Err)
		return c.moveToDead(ctx, m, d.Err)
	default:
		c.log.Info("later", "event", e.ID, "verdict", d.Verdict, "attempt", d.Attempt, "err", d.Err)
		err := c.redeliver(ctx, m, d.RedeliverAfter*time.Duration(max(d.Attempt, 1)))
		if errors.Is(d.Err, errOutage) {
			pause(ctx, d.RedeliverAfter+block)
		}
		return err
	}
}

// redeliver leaves a message pending. It sets the message's idle time so that XAUTOCLAIM takes the message after the given time,
// or after abandoned if that is sooner. Any process may take it then, because this one may be gone.
func (c *eventConsumer) redeliver(ctx context.Context, m redis.XMessage, after time.Duration) error {
	idle := max(c.abandoned()-after, 0)
	return c.redis.Do(ctx, "XCLAIM", stream, group, c.name, 0, m.ID, "IDLE", idle.Milliseconds(), "JUSTID").Err()
}

// moveToDead moves a message to the stream of the dead, for an operator. If Redis's reply is lost, the message is there twice.
func (c *eventConsumer) moveToDead(ctx context.Context, m redis.XMessage, cause error) error {
	_, err := c.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		values := []any{"entry", m.ID, "cause", cause.Error()}
		for name, value := range m.Values {
			values = append(values, name, value)
		}
		p.XAdd(ctx, &redis.XAddArgs{Stream: deadStream, Values: values})
		p.XAck(ctx, stream, group, m.ID)
		return nil
	})
	return err
}

// eventOf returns the event of an entry of the stream. A missing field is zero; an event without an ID is dead.
func eventOf(m redis.XMessage) event {
	text := func(name string) string { s, _ := m.Values[name].(string); return s }
	e := event{ID: text("id"), Type: text("type"), Payload: []byte(text("payload"))}
	e.OrderID, _ = strconv.ParseInt(text("order"), 10, 64)
	e.Version, _ = strconv.Atoi(text("version"))
	return e
}
