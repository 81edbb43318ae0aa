package consumer_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/memstore"
)

func newEngine(t *testing.T) *core.Engine {
	t.Helper()
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	require.NoError(t, err)
	return engine
}

func TestNewNamesEachBadField(t *testing.T) {
	engine := newEngine(t)
	for name, c := range map[string]struct {
		field string
		cfg   consumer.Config
	}{
		"more attempts than are counted": {"MaxAttempts", consumer.Config{MaxAttempts: 1_000_000}},
		"fewer attempts than none":       {"MaxAttempts", consumer.Config{MaxAttempts: -1}},
		"a time before now":              {"MaxUnreadable", consumer.Config{MaxUnreadable: -time.Second}},
		"a time without an end":          {"MaxUnreadable", consumer.Config{MaxUnreadable: 101 * 365 * 24 * time.Hour}},
	} {
		_, err := consumer.New(engine, c.cfg)
		var bad *core.ConfigError
		require.ErrorAs(t, err, &bad, name)
		assert.Equal(t, c.field, bad.Field, name)
	}
	_, err := consumer.New(engine, consumer.Config{MaxAttempts: -1, MaxUnreadable: -1})
	assert.ErrorContains(t, err, "MaxAttempts")
	assert.ErrorContains(t, err, "MaxUnreadable")
	_, err = consumer.New(nil, consumer.Config{})
	assert.ErrorContains(t, err, "engine")
	for _, cfg := range []consumer.Config{{MaxAttempts: 999_999}, {MaxUnreadable: time.Millisecond}, {MaxUnreadable: 100 * 365 * 24 * time.Hour}} {
		_, err = consumer.New(engine, cfg)
		assert.NoError(t, err)
	}
}

// Rules of the inner consumer are never dropped in silence (FRM-06).
func TestAConsumerInsideAnotherWithOtherSettingsFails(t *testing.T) {
	engine, message := newEngine(t), consumer.Message{Group: "g", ID: "1"}
	outer, err := consumer.New(engine, consumer.Config{})
	require.NoError(t, err)
	inner, err := consumer.New(engine, consumer.Config{MaxAttempts: 3})
	require.NoError(t, err)
	same, err := consumer.New(engine, consumer.Config{})
	require.NoError(t, err)
	one := func(context.Context) (int, error) { return 1, nil }
	handle := func(ctx context.Context) error {
		d := consumer.Consume(ctx, inner, message, func(context.Context) (int, error) { return 0, errors.New("it is handled") })
		assert.Equal(t, consumer.Failed, d.Verdict)
		assert.ErrorContains(t, d.Err, "MaxAttempts")
		assert.Equal(t, consumer.Delivery[int]{Verdict: consumer.Done, Result: 1, Attempt: 1}, consumer.Consume(ctx, same, message, one))
		return d.Err
	}
	d := consumer.Consume(t.Context(), outer, message, func(ctx context.Context) (int, error) { return 0, handle(ctx) })
	assert.Equal(t, consumer.Failed, d.Verdict)
	message.ID = "2"
	batch := consumer.Batch(t.Context(), outer, []consumer.Message{message}, func(ctx context.Context, _ []consumer.Message) ([]int, error) {
		return nil, handle(ctx)
	})
	assert.Equal(t, consumer.Failed, batch[0].Verdict)

	two := []consumer.Message{{Group: "g", ID: "3"}, {Group: "g", ID: "4"}}
	message.ID = "4" // the second of its batch
	batch = consumer.Batch(t.Context(), outer, two, func(ctx context.Context, _ []consumer.Message) ([]int, error) {
		return nil, handle(ctx)
	})
	assert.Equal(t, consumer.Failed, batch[1].Verdict)
}

func TestTheContextOfABatchEndsWithItsCall(t *testing.T) {
	c, err := consumer.New(newEngine(t), consumer.Config{})
	require.NoError(t, err)
	var inside context.Context
	consumer.Batch(t.Context(), c, []consumer.Message{{Group: "g", ID: "1"}}, func(ctx context.Context, _ []consumer.Message) ([]int, error) {
		inside = ctx
		assert.NoError(t, ctx.Err())
		return []int{1}, nil
	})
	assert.ErrorIs(t, inside.Err(), context.Canceled)
}

// The panic of one message reaches the caller, also if the goroutine of another ends after it.
func TestAPanicInABatchIsNotLostBehindAGoroutineThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := core.Hooks{Begin: func(_ context.Context, e core.Event) {
			if e.Route == "second" {
				time.Sleep(time.Second) // until the first has ended
				runtime.Goexit()
			}
			panic("a hook of the first")
		}}
		engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant, Hooks: hooks})
		require.NoError(t, err)
		c, err := consumer.New(engine, consumer.Config{})
		require.NoError(t, err)
		messages := []consumer.Message{{Group: "first", ID: "1"}, {Group: "second", ID: "1"}}
		assert.PanicsWithValue(t, "a hook of the first", func() {
			consumer.Batch(t.Context(), c, messages, func(context.Context, []consumer.Message) ([]int, error) { return nil, nil })
		})
	})
}
