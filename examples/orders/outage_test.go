package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/internal/redistest"
)

// deliver delivers an event once.
func (s *service) deliver(t *testing.T, c *eventConsumer, e event) consumer.Delivery[shipped] {
	t.Helper()
	return consumer.Consume(t.Context(), s.messages, consumer.Message{Group: group, ID: e.ID, Payload: e.Payload},
		func(ctx context.Context) (shipped, error) { return c.handle(ctx, e) })
}

// EVT-08.
func TestAnOutageOfTheDatabaseUsesUpNoAttempt(t *testing.T) {
	s := start(t, "MAX_ATTEMPTS=2")
	away, err := pgxpool.New(t.Context(), "postgres://nobody@"+redistest.FreeAddr()+"/orders")
	require.NoError(t, err)
	defer away.Close()
	c := newConsumer(s)
	e := event{ID: "1", OrderID: 7, Version: 1, Type: orderPlaced, Payload: []byte("{}")}
	handle := c.handle
	c.handle = (&shipping{away}).handle
	for range 5 {
		d := s.deliver(t, c, e)
		assert.Equal(t, consumer.Failed, d.Verdict)
		assert.Equal(t, 1, d.Attempt)
		assert.Error(t, d.Err)
	}
	c.handle = handle
	assert.Equal(t, consumer.Delivery[shipped]{Verdict: consumer.Done, Result: shipped{"reserved"}, Attempt: 1}, s.deliver(t, c, e))
}

func TestAConsumerWithoutADatabaseLeavesItsMessageToTheOthers(t *testing.T) {
	t.Parallel()
	s := start(t)
	away, err := pgxpool.New(t.Context(), "postgres://nobody@"+redistest.FreeAddr()+"/orders")
	require.NoError(t, err)
	defer away.Close()
	s.publish(t, event{ID: "1", OrderID: 7, Version: 1, Type: orderPlaced, Payload: []byte("{}")})
	c := newConsumer(s)
	c.handle = (&shipping{away}).handle
	joined, cursor := false, "0-0"
	require.NoError(t, c.round(t.Context(), &joined, &cursor))
	left, err := s.redis.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: stream, Group: group, Start: "-", End: "+", Count: 1}).Result()
	require.NoError(t, err)
	require.Len(t, left, 1)
	assert.GreaterOrEqual(t, left[0].Idle, c.abandoned()+block, "another process had the time to take it")
}

func TestAnOutageIsNoFaultOfTheEvent(t *testing.T) {
	for code, outage := range map[string]bool{
		"08006": true, "25006": true, "40001": true, "53300": true, "53100": true, "57P01": true, "57P03": true, "58030": true,
		"22003": false, "23505": false, "42P01": false,
	} {
		assert.Equal(t, outage, isOutage(fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code})), code)
	}
	assert.True(t, isOutage(io.ErrUnexpectedEOF))
	assert.True(t, isOutage(context.DeadlineExceeded))
	assert.False(t, isOutage(errEarly))
}

// EVT-11.
func TestDeadEventsAreRevived(t *testing.T) {
	s := start(t, "MAX_ATTEMPTS=1", "CONSUMERS=1", "POLL=20ms")
	c, broken := newConsumer(s), atomic.Bool{}
	handle := c.handle
	c.handle = func(ctx context.Context, e event) (shipped, error) {
		if broken.Load() {
			return shipped{}, errors.New("broken")
		}
		return handle(ctx, e)
	}
	broken.Store(true)
	background(t, c.run)
	background(t, newRelay(s).run)
	s.publish(t, event{OrderID: 8, Version: 1, Type: orderPlaced})
	first, second := s.ordered(t, true), s.ordered(t, false)
	require.Eventually(t, func() bool { return s.length(t, deadStream) == 4 }, patience, patience/1000)
	broken.Store(false)

	shippedTo := func(order int64) int64 {
		return s.count(t, "SELECT coalesce(max(version), 0) FROM shipments WHERE order_id = $1", order)
	}
	n, err := s.revive(t.Context(), fmt.Sprint(s.count(t, "SELECT id FROM outbox WHERE order_id = $1", second)))
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Eventually(t, func() bool { return shippedTo(second) == 1 }, patience, patience/1000)
	assert.Zero(t, shippedTo(first))
	n, err = s.revive(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, n, "an event without an id cannot be")
	assert.Eventually(t, func() bool { return shippedTo(first) == 2 }, patience, patience/1000)
	assert.EqualValues(t, 1, s.length(t, deadStream))
}

func TestTheCommandKnowsItsArgument(t *testing.T) {
	err := command(t.Context(), slog.New(slog.DiscardHandler), []string{"revvie"})
	assert.ErrorContains(t, err, "revive")
}
