package pgstore_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/pgstore"
)

// messaging is an engine and a consumer of its messages.
type messaging struct {
	*core.Engine
	consumer *consumer.Consumer
}

func newMessaging(t *testing.T, store driver.Store, changes ...func(*core.Config)) messaging {
	t.Helper()
	cfg := core.Config{Store: store, Scope: core.SingleTenant}
	for _, change := range changes {
		change(&cfg)
	}
	engine, err := core.New(cfg)
	require.NoError(t, err)
	messages, err := consumer.New(engine, consumer.Config{MaxAttempts: 2})
	require.NoError(t, err)
	return messaging{engine, messages}
}

// EVT-11.
func TestADeadMessageIsRevived(t *testing.T) {
	store, _, _ := ownStore(t)
	e := newMessaging(t, store, func(c *core.Config) { c.Keep.LateRetry = time.Hour })
	order, which := consumer.Message{Group: "billing", ID: "order-1"}, core.Task{Kind: consumer.Kind, Scope: "billing", Key: "order-1"}
	for range 2 {
		var d consumer.Delivery[int]
		for range 2 {
			d = consumer.Consume(ctx, e.consumer, order, func(ctx context.Context) (int, error) {
				_, err := core.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil })
				return 0, errors.Join(err, errors.New("test"))
			})
		}
		require.Equal(t, consumer.Dead, d.Verdict)
		require.NoError(t, e.Resolve(ctx, which, nil))
	}
	d := consumer.Consume(ctx, e.consumer, order, func(ctx context.Context) (int, error) {
		run, _ := core.FromContext(ctx)
		assert.True(t, run.Takeover)
		return core.Step(ctx, "charge", func(context.Context) (int, error) { return 7, nil })
	})
	assert.Equal(t, consumer.Delivery[int]{Verdict: consumer.Done, Result: 7, Attempt: 1}, d)
	assert.ErrorIs(t, e.Resolve(ctx, which, nil), core.ErrNotUnknown)
}

// 8,384 of 10,000 messages were busy, because their begins waited for each other's connections. The bounds of the engine leave
// time for a server that answers ten times as slowly; TestABatchOfThousandsDoesNotStandInItsOwnWay counts the calls themselves.
func TestABatchOfThousandsIsHandledOnAPoolOfFourConnections(t *testing.T) {
	_, pool, schema := ownStore(t)
	cfg := pool.Config()
	cfg.MaxConns = 4
	small, err := pgxpool.NewWithConfig(ctx, cfg)
	require.NoError(t, err)
	defer small.Close()
	e := newMessaging(t, pgstore.New(small, pgstore.Schema(schema)), func(c *core.Config) {
		c.Lease.Duration, c.Limits.StoreTimeout = 10*time.Minute, 15*time.Second
	})
	messages := make([]consumer.Message, 10_000)
	for i := range messages {
		messages[i] = consumer.Message{Group: "billing", ID: strconv.Itoa(i)}
	}
	handle := func(_ context.Context, m []consumer.Message) ([]int, error) { return make([]int, len(m)), nil }
	verdicts := map[consumer.Verdict]int{}
	for _, d := range consumer.Batch(ctx, e.consumer, messages, handle) {
		verdicts[d.Verdict]++
	}
	assert.Equal(t, map[consumer.Verdict]int{consumer.Done: len(messages)}, verdicts)
	require.NoError(t, e.Close(ctx))
}
