package brokers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/watermill"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
)

// lease is short, since tests wait for its end.
const lease = 2 * time.Second

const aWhile = time.Minute

var errTest = errors.New("test")

// engine is an engine and a consumer of its messages.
type engine struct {
	*core.Engine
	*consumer.Consumer
}

func newEngine(client redis.UniversalClient, settings ...consumer.Config) (engine, error) {
	cfg := core.Config{Store: redisstore.New(client), Scope: core.SingleTenant}
	cfg.Lease.Duration, cfg.Limits.StoreTimeout = lease, lease/2
	e, err := core.New(cfg)
	if err != nil {
		return engine{}, err
	}
	c, err := consumer.New(e, append(settings, consumer.Config{})[0])
	return engine{e, c}, err
}

// site is a broker, an engine, and the names of topics and groups, which no other test uses.
type site struct {
	*testing.T
	broker broker
	addr   string
	dial   dialer
	name   string
	redis  *redis.Client
	engine engine
}

var sites atomic.Int64

func newSite(t *testing.T, b broker, settings ...consumer.Config) *site {
	s := &site{T: t, broker: b, addr: b.start(t)}
	s.dial = b.connect(s.addr)
	s.name = fmt.Sprintf("site%d-%d", time.Now().UnixNano(), sites.Add(1))
	s.redis = redistest.Shared(t).Client(t)
	engine, err := newEngine(s.redis, settings...)
	require.NoError(t, err)
	s.engine = engine
	t.Cleanup(func() { assert.NoError(t, engine.Close(context.Background())) })
	return s
}

func forEachBroker(t *testing.T, test func(*site), settings ...consumer.Config) {
	for _, b := range brokers {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(newSite(t, b, settings...))
		})
	}
}

func (s *site) topic(name string) string { return s.name + "-" + name }

func (s *site) publish(topic, id, payload string) {
	publisher, subscriber, err := s.dial(s.topic("publishers"))
	require.NoError(s, err)
	assert.NoError(s, publisher.Publish(s.topic(topic), message.NewMessage(id, []byte(payload))))
	assert.NoError(s, publisher.Close())
	assert.NoError(s, subscriber.Close())
}

// observed is a route of a site that is observed.
type observed struct {
	tb   testing.TB
	runs atomic.Int64

	mu       sync.Mutex
	refused  []error
	produced []message.Messages // of deliveries that are acknowledged
}

// consume starts a consumer behind the middleware.
func (s *site) consume(group, topic string, handle message.HandlerFunc, opts ...idem.Option) *observed {
	return s.consumeBehind(group, topic, handle, idem.Watermill(s.engine.Consumer, s.topic(group), opts...))
}

func (s *site) consumeBehind(group, topic string, handle message.HandlerFunc, around ...message.HandlerMiddleware) *observed {
	c := &observed{tb: s}
	s.start(route{
		group: s.topic(group), from: s.topic(topic), to: s.topic("invoices"),
		around: append([]message.HandlerMiddleware{c.watch}, around...),
		handle: func(msg *message.Message) ([]*message.Message, error) { c.runs.Add(1); return handle(msg) },
	})
	return c
}

func (s *site) start(r route) {
	stop, err := r.run(s.dial)
	require.NoError(s, err)
	s.Cleanup(func() { assert.NoError(s, stop()) })
}

// watch keeps what becomes of deliveries.
func (c *observed) watch(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := next(msg)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.refused = append(c.refused, err)
		} else {
			c.produced = append(c.produced, produced)
		}
		return produced, err
	}
}

// acknowledged waits for at least so many deliveries that are acknowledged, and returns what was produced.
func (c *observed) acknowledged(times int) []message.Messages {
	c.tb.Helper()
	require.Eventually(c.tb, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.produced) >= times }, aWhile, time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.produced
}

// refuses waits for a delivery that is not acknowledged, and returns why.
func (c *observed) refuses() error {
	c.tb.Helper()
	require.Eventually(c.tb, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.refused) > 0 }, aWhile, time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[0]
}

func (c *observed) ran(times int64) {
	c.tb.Helper()
	assert.Equal(c.tb, times, c.runs.Load(), "runs")
}

// bill produces an invoice with the number of an attempt.
func bill(msg *message.Message) ([]*message.Message, error) {
	run, _ := core.FromContext(msg.Context())
	invoice := message.NewMessage(core.ChildKey(msg.Context(), "invoice"), fmt.Append(nil, run.Attempt))
	invoice.Metadata.Set("order", msg.UUID)
	return []*message.Message{invoice}, nil
}

// EVT-01.
func TestAMessageThatIsDeliveredTwiceIsHandledOnce(t *testing.T) {
	forEachBroker(t, func(s *site) {
		billing, all := s.consume("billing", "orders", bill), s.raw("invoices")
		s.publish("orders", "1", "tea")
		s.publish("orders", "1", "tea")
		produced := billing.acknowledged(2)
		require.Len(s, produced[0], 1)
		require.Len(s, produced[1], 1)
		assert.True(s, produced[0][0].Equals(produced[1][0]))
		billing.ran(1)
		invoices := all(2)
		assert.True(s, invoices[0].Equals(invoices[1]))
		assert.Equal(s, "1", invoices[0].Metadata.Get("order"))
	})
}

// raw subscribes to a topic, and returns what waits for so many messages that it got.
func (s *site) raw(topic string) func(times int) []*message.Message {
	all := make(chan *message.Message, 100)
	s.start(route{
		group: s.topic("all"), from: s.topic(topic), to: s.topic("nothing"),
		handle: func(msg *message.Message) ([]*message.Message, error) { all <- msg; return nil, nil },
	})
	return func(times int) (messages []*message.Message) {
		for range times {
			select {
			case msg := <-all:
				messages = append(messages, msg)
			case <-time.After(aWhile):
				require.Fail(s, "too few messages", "%d of %d", len(messages), times)
			}
		}
		return messages
	}
}

// EVT-02.
func TestAMessageInProgressIsDeliveredAgainLater(t *testing.T) {
	forEachBroker(t, func(s *site) {
		entered, leave := make(chan struct{}), make(chan struct{})
		first := s.consume("billing", "orders", func(msg *message.Message) ([]*message.Message, error) {
			close(entered)
			<-leave
			return bill(msg)
		})
		second := s.consume("billing", "reorders", bill)
		s.publish("orders", "1", "tea")
		<-entered
		s.publish("reorders", "1", "tea")
		assert.ErrorIs(s, second.refuses(), idem.ErrBusy)
		assert.Empty(s, second.acknowledged(0))
		close(leave)
		assert.Equal(s, "1", string(second.acknowledged(1)[0][0].Payload))
		first.acknowledged(1)
		first.ran(1)
		second.ran(0)
	})
}

// EVT-03.
func TestAMessageThatFailedIsDeliveredAndHandledAgain(t *testing.T) {
	forEachBroker(t, func(s *site) {
		billing := s.consume("billing", "orders", func(msg *message.Message) ([]*message.Message, error) {
			if run, _ := core.FromContext(msg.Context()); run.Attempt < 3 {
				return nil, errTest
			}
			return bill(msg)
		})
		s.publish("orders", "1", "tea")
		assert.Equal(s, "3", string(billing.acknowledged(1)[0][0].Payload))
		assert.ErrorIs(s, billing.refuses(), errTest)
		billing.ran(3)
	})
}

// EVT-04.
func TestAMessageWhoseRunVanishedIsHandledAgain(t *testing.T) {
	forEachBroker(t, func(s *site) {
		billing := s.consume("billing", "orders", func(msg *message.Message) ([]*message.Message, error) {
			run, _ := core.FromContext(msg.Context())
			assert.Equal(s, run.Attempt == 2, run.Takeover)
			if run.Attempt == 1 {
				core.Decide(msg.Context(), core.LeaveUnknown)
			}
			return bill(msg)
		})
		s.publish("orders", "1", "tea")
		assert.Equal(s, "2", string(billing.acknowledged(1)[0][0].Payload))
		billing.ran(2)
	})
}

// EVT-05.
func TestGroupsHandleAMessageEachOnTheirOwn(t *testing.T) {
	forEachBroker(t, func(s *site) {
		billing, shipping := s.consume("billing", "orders", bill), s.consume("shipping", "orders", bill)
		s.publish("orders", "1", "tea")
		billing.acknowledged(1)
		shipping.acknowledged(1)
		billing.ran(1)
		shipping.ran(1)
	})
}

// A router with one middleware for all its handlers.
func TestHandlersAreGroupsWhenNoneIsNamed(t *testing.T) {
	forEachBroker(t, func(s *site) {
		all := idem.Watermill(s.engine.Consumer, "")
		billing, shipping := s.consumeBehind("billing", "orders", bill, all), s.consumeBehind("shipping", "orders", bill, all)
		for range 2 {
			s.publish("orders", "1", "tea")
		}
		billing.acknowledged(2)
		shipping.acknowledged(2)
		billing.ran(1)
		shipping.ran(1)
	})
}

// EVT-06.
func TestAMessageWithAnotherPayloadIsDead(t *testing.T) {
	t.Run("and put aside", func(t *testing.T) {
		forEachBroker(t, func(s *site) {
			dead := make(chan error, 100)
			billing := s.consume("billing", "orders", bill, idem.Dead(func(_ *message.Message, cause error) error {
				dead <- cause
				return nil
			}))
			s.publish("orders", "1", "tea")
			s.publish("orders", "1", "coffee")
			assert.ErrorContains(s, <-dead, "another payload")
			billing.acknowledged(2)
			billing.ran(1)
		})
	})
	t.Run("and taken by the poison queue", func(t *testing.T) {
		forEachBroker(t, func(s *site) {
			publisher, subscriber, err := s.dial(s.topic("poison"))
			require.NoError(s, err)
			s.Cleanup(func() { assert.NoError(s, publisher.Close()); assert.NoError(s, subscriber.Close()) })
			poison, err := middleware.PoisonQueueWithFilter(publisher, s.topic("dead"), func(err error) bool { return errors.Is(err, idem.ErrDead) })
			require.NoError(s, err)
			queue := s.raw("dead")
			billing := s.consumeBehind("billing", "orders", bill, poison, idem.Watermill(s.engine.Consumer, s.topic("billing")))
			s.publish("orders", "1", "tea")
			billing.acknowledged(1)
			s.publish("orders", "1", "coffee")
			put := queue(1)[0]
			assert.Equal(s, "coffee", string(put.Payload))
			assert.Contains(s, put.Metadata.Get(middleware.ReasonForPoisonedKey), "another payload")
			billing.acknowledged(2)
			billing.ran(1)
		})
	})
	t.Run("or skipped", func(t *testing.T) {
		forEachBroker(t, func(s *site) {
			billing := s.consume("billing", "orders", bill)
			s.publish("orders", "1", "tea")
			billing.acknowledged(1)
			s.publish("orders", "1", "coffee")
			assert.Empty(s, billing.acknowledged(2)[1])
			billing.ran(1)
		}, consumer.Config{SkipMismatch: true})
	})
}

func TestAMessageThatNeverSucceedsIsDeadAfterItsLastAttempt(t *testing.T) {
	forEachBroker(t, func(s *site) {
		dead := make(chan error, 100)
		billing := s.consume("billing", "orders", func(*message.Message) ([]*message.Message, error) {
			panic("poison")
		}, idem.Dead(func(_ *message.Message, cause error) error { dead <- cause; return nil }))
		s.publish("orders", "1", "tea")
		assert.ErrorContains(s, <-dead, "no attempt is left")
		billing.acknowledged(1)
		billing.ran(3)
	}, consumer.Config{MaxAttempts: 3})
}
