package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
)

// Messages and a real server: what counts as an attempt, and how the dead come back.

var order = consumer.Message{Group: "billing", ID: "order-1", Payload: []byte("tea")}

// messaging is an engine and a consumer of its messages.
type messaging struct {
	*core.Engine
	consumer *consumer.Consumer
}

func newMessaging(t *testing.T, store driver.Store, changes ...func(*core.Config)) messaging {
	t.Helper()
	cfg := core.Config{Store: store, Scope: core.SingleTenant}
	cfg.Lease.Duration, cfg.Limits.StoreTimeout = 2*time.Second, 300*time.Millisecond
	for _, change := range changes {
		change(&cfg)
	}
	engine, err := core.New(cfg)
	require.NoError(t, err)
	messages, err := consumer.New(engine, consumer.Config{MaxAttempts: 2})
	require.NoError(t, err)
	return messaging{engine, messages}
}

// bill is handled and returns the attempt.
func bill(ctx context.Context) (int, error) {
	run, _ := core.FromContext(ctx)
	return run.Attempt, nil
}

// refusals are the ways to take an unknown outcome.
var refusals = map[string]func(*core.Config){
	"by default":                       func(*core.Config) {},
	"for who refuses unknown outcomes": func(c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown },
}

// notHandled delivers order while the server is out of order, until that has refused it more often than it has attempts.
func notHandled(t *testing.T, e messaging) {
	t.Helper()
	for refused := 0; refused < 4 && !t.Failed(); {
		d := consumer.Consume(ctx, e.consumer, order, func(context.Context) (int, error) { t.Error("it is handled"); return 0, nil })
		assert.Equal(t, consumer.Busy, d.Verdict, "%v", d.Err)
		if d.Err != nil { // else a claim is being given back
			refused++
		}
	}
}

// handledAtLast delivers order until it is not busy: that is its first attempt.
func handledAtLast(t *testing.T, e messaging) {
	t.Helper()
	require.NoError(t, e.Close(ctx), "claims are given back")
	var d consumer.Delivery[int]
	require.Eventually(t, func() bool {
		d = consumer.Consume(ctx, e.consumer, order, bill)
		return d.Verdict != consumer.Busy
	}, 20*time.Second, 10*time.Millisecond)
	assert.Equal(t, consumer.Delivery[int]{Verdict: consumer.Done, Result: 1, Attempt: 1}, d)
}

// EVT-08.
func TestAMessageDoesNotDieOfWritesThatAreNotDurable(t *testing.T) {
	for name, refuse := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, replica := replicated(t)
			e := newMessaging(t, redisstore.New(client, redisstore.WaitReplicas(1, 100*time.Millisecond)), refuse)
			replica.Pause()
			notHandled(t, e)
			replica.Resume()
			handledAtLast(t, e)
		})
	}
}

// EVT-08: the server executes each begin when it wakes up, before or behind its fail.
func TestAMessageDoesNotDieOfAServerThatStalls(t *testing.T) {
	for name, refuse := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := server.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
			e := newMessaging(t, redisstore.New(client), refuse)
			assert.Equal(t, consumer.Done, consumer.Consume(ctx, e.consumer, consumer.Message{Group: "billing", ID: "before"}, bill).Verdict)
			server.Pause()
			notHandled(t, e)
			server.Resume()
			handledAtLast(t, e)
		})
	}
}

// EVT-11.
func TestADeadMessageIsRevived(t *testing.T) {
	errTest := errors.New("test")
	which := core.Task{Kind: consumer.Kind, Scope: order.Group, Key: order.ID}
	for name, client := range map[string]func(*testing.T) redis.UniversalClient{
		"on one server": func(t *testing.T) redis.UniversalClient { return redistest.Start(t).Client(t) },
		"on a cluster":  func(t *testing.T) redis.UniversalClient { return redistest.StartCluster(t).Client(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newMessaging(t, redisstore.New(client(t)), func(c *core.Config) {
				c.Keep.LateRetry = time.Hour
				c.Lease.Duration, c.Limits.StoreTimeout = time.Minute, 10*time.Second // for a machine with other work
			})
			var d consumer.Delivery[int]
			for range 2 {
				for range 2 {
					d = consumer.Consume(ctx, e.consumer, order, func(ctx context.Context) (int, error) {
						_, err := core.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil })
						return 0, errors.Join(err, errTest)
					})
				}
				require.Equal(t, consumer.Dead, d.Verdict)
				require.Equal(t, consumer.Dead, consumer.Consume(ctx, e.consumer, order, bill).Verdict)
				require.NoError(t, e.Resolve(ctx, which, nil))
			}
			d = consumer.Consume(ctx, e.consumer, order, func(ctx context.Context) (int, error) {
				run, _ := core.FromContext(ctx)
				assert.True(t, run.Takeover)
				return core.Step(ctx, "charge", func(context.Context) (int, error) { return 7, nil })
			})
			assert.Equal(t, consumer.Delivery[int]{Verdict: consumer.Done, Result: 7, Attempt: 1}, d)
			assert.ErrorIs(t, e.Resolve(ctx, which, nil), core.ErrNotUnknown)
			assert.Equal(t, 7, consumer.Consume(ctx, e.consumer, order, bill).Result)
		})
	}
}
