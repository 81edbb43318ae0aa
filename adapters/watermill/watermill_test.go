package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	idem "github.com/go-idem/idem/adapters/watermill"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const lease = 30 * time.Second

var errTest = errors.New("test")

// engine is an engine and a consumer of its messages.
type engine struct {
	*core.Engine
	*consumer.Consumer
}

// newEngine takes changes of the engine's config, and a consumer's config.
func newEngine(t *testing.T, changes ...any) engine {
	t.Helper()
	cfg, settings := core.Config{Store: memstore.New(), Scope: core.SingleTenant}, consumer.Config{}
	cfg.Lease.Duration = lease
	for _, change := range changes {
		switch c := change.(type) {
		case func(*core.Config):
			c(&cfg)
		case consumer.Config:
			settings = c
		}
	}
	e, err := core.New(cfg)
	require.NoError(t, err)
	c, err := consumer.New(e, settings)
	require.NoError(t, err)
	return engine{e, c}
}

// order is a delivery of the message "order-1".
func order() *message.Message { return message.NewMessage("order-1", []byte("tea")) }

func invoice() *message.Message {
	msg := message.NewMessage("invoice-1", []byte{0, 0xff})
	msg.Metadata.Set("to", "billing")
	msg.Metadata.Set("trace", "\xff\x00")
	return msg
}

// bill is a handler that counts its runs, fails in the first few, and else produces an invoice.
type bill struct{ runs, failures int }

func (b *bill) handle(*message.Message) ([]*message.Message, error) {
	if b.runs++; b.runs <= b.failures {
		return []*message.Message{message.NewMessage("draft", nil)}, errTest
	}
	return []*message.Message{invoice()}, nil
}

func crash(msg *message.Message) ([]*message.Message, error) {
	core.Decide(msg.Context(), core.LeaveUnknown)
	return nil, nil
}

func assertProduced(t *testing.T, produced []*message.Message) {
	t.Helper()
	if assert.Len(t, produced, 1) {
		assert.True(t, produced[0].Equals(invoice()), "%+v", produced[0])
		assert.True(t, produced[0].Ack())
		<-produced[0].Acked()
	}
}

// EVT-01.
func TestADuplicateIsHandedTheMessagesThatTheHandlerProduced(t *testing.T) {
	b := &bill{}
	handle := idem.Watermill(newEngine(t).Consumer, "billing")(b.handle)
	for range 3 {
		produced, err := handle(order())
		assert.NoError(t, err)
		assertProduced(t, produced)
	}
	assert.Equal(t, 1, b.runs)
}

func TestAHandlerThatProducesNothing(t *testing.T) {
	handle := idem.Watermill(newEngine(t).Consumer, "billing")(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	for range 2 {
		produced, err := handle(order())
		assert.NoError(t, err)
		assert.Empty(t, produced)
	}
}

// Publishers use the context of a message, which handlers make of that of the delivery: it lasts as long as without the engine,
// and has the same values.
func TestAProducedMessageThatHasTheRunsContextCanBePublished(t *testing.T) {
	type key struct{}
	engine := newEngine(t)
	produce := func(msg *message.Message) ([]*message.Message, error) {
		ctx := context.WithValue(msg.Context(), key{}, "own")
		return []*message.Message{message.NewMessageWithContext(ctx, "1", nil), message.NewMessageWithContext(msg.Context(), "2", nil), msg}, nil
	}
	for name, handle := range map[string]message.HandlerFunc{
		"one middleware":  idem.Watermill(engine.Consumer, "one")(produce),
		"two of a group":  idem.Watermill(engine.Consumer, "two")(idem.Watermill(engine.Consumer, "two")(produce)),
		"two of two":      idem.Watermill(engine.Consumer, "a")(idem.Watermill(engine.Consumer, "b")(produce)),
		"without a claim": idem.Watermill(newEngine(t, failOpen).Consumer, "one")(produce),
	} {
		t.Run(name, func(t *testing.T) {
			outer, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "outer"))
			msg := order()
			msg.SetContext(outer)
			produced, err := handle(msg)
			require.NoError(t, err)
			for i, value := range []string{"own", "outer", "outer"} {
				ctx := produced[i].Context()
				require.NoError(t, ctx.Err(), i)
				assert.Equal(t, value, ctx.Value(key{}))
				_, isRun := core.FromContext(ctx)
				assert.False(t, isRun, "it is over")
			}
			cancel(errTest)
			for i := range produced {
				ctx, free := context.WithCancel(produced[i].Context())
				assert.ErrorIs(t, context.Cause(ctx), errTest, "the subscriber has closed")
				free()
			}
		})
	}
}

func failOpen(c *core.Config) {
	away := storetest.NewFaulty(c.Store)
	away.Inject("begin", storetest.Before, 1_000)
	c.Store, c.DangerouslyFailOpen = away, true
}

func TestTheFirstDeliveryIsHandedTheHandlersOwnMessages(t *testing.T) {
	own := message.NewMessageWithContext(t.Context(), "own", nil)
	handle := idem.Watermill(newEngine(t).Consumer, "billing")(func(*message.Message) ([]*message.Message, error) {
		return []*message.Message{own}, nil
	})
	produced, err := handle(order())
	require.NoError(t, err)
	assert.Same(t, own, produced[0])
}

// EVT-02.
func TestABusyMessageWaitsAndIsNotHandled(t *testing.T) {
	for _, c := range []struct {
		name   string
		client time.Duration // when the delivery's context ends
		want   time.Duration
	}{
		{"as long as the engine says", time.Hour, 3 * time.Second},
		{"until its context ends", time.Second, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, engine := &bill{}, newEngine(t)
				leave := make(chan struct{})
				go idem.Watermill(engine.Consumer, "billing")(func(*message.Message) ([]*message.Message, error) {
					<-leave
					return nil, nil
				})(order())
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), c.client)
				defer cancel()
				again, began := order(), time.Now()
				again.SetContext(ctx)
				_, err := idem.Watermill(engine.Consumer, "billing")(b.handle)(again)
				assert.Equal(t, c.want, time.Since(began))
				assert.ErrorIs(t, err, idem.ErrBusy)
				assert.Zero(t, b.runs)
				close(leave)
			})
		})
	}
}

func TestAMessageIsBusyWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, engine := &bill{}, newEngine(t, func(c *core.Config) { c.Store = away{c.Store} })
		_, err := idem.Watermill(engine.Consumer, "billing")(b.handle)(order())
		assert.ErrorIs(t, err, idem.ErrBusy)
		assert.ErrorContains(t, err, "store-unavailable")
		assert.Zero(t, b.runs)
		require.NoError(t, engine.Close(t.Context()))
	})
}

// away is a store whose Begin fails.
type away struct{ driver.Store }

func (away) Begin(context.Context, driver.Claim) (driver.Entry, error) {
	return driver.Entry{}, errTest
}

// EVT-03.
func TestAMessageThatFailedIsHandledAgain(t *testing.T) {
	b := &bill{failures: 1}
	handle := idem.Watermill(newEngine(t).Consumer, "billing")(b.handle)
	produced, err := handle(order())
	assert.ErrorIs(t, err, errTest)
	assert.Len(t, produced, 1, "what the handler returned beside its error passes on")
	produced, err = handle(order())
	assert.NoError(t, err)
	assertProduced(t, produced)
	assert.Equal(t, 2, b.runs)
}

// EVT-04.
func TestAMessageWhoseRunVanishedIsHandledAgainAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, engine := &bill{}, newEngine(t)
		_, err := idem.Watermill(engine.Consumer, "billing")(crash)(order())
		assert.ErrorIs(t, err, idem.ErrBusy)
		assert.ErrorIs(t, err, core.ErrOutcomeUnknown)
		produced, err := idem.Watermill(engine.Consumer, "billing")(b.handle)(order())
		assert.NoError(t, err)
		assertProduced(t, produced)
	})
}

// EVT-05.
func TestGroupsHandleAMessageEachOnTheirOwn(t *testing.T) {
	engine := newEngine(t)
	for _, group := range []string{"billing", "shipping"} {
		b := &bill{}
		_, err := idem.Watermill(engine.Consumer, group)(b.handle)(order())
		assert.NoError(t, err)
		assert.Equal(t, 1, b.runs)
	}
}

// other has the ID of order.
func other() *message.Message { return message.NewMessage("order-1", []byte("coffee")) }

// EVT-06, and others.
func TestADeadMessage(t *testing.T) {
	for _, c := range []struct {
		name   string
		msg    *message.Message
		change func(*core.Config)
		cause  string
	}{
		{"that came with another payload", other(), func(*core.Config) {}, "another payload"},
		{"without an ID", message.NewMessage("", nil), func(*core.Config) {}, "Message.ID"},
		{"whose kept messages can not be read", order(), garbled, "unreadable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, engine := &bill{}, newEngine(t, c.change)
			_, err := idem.Watermill(engine.Consumer, "billing")(b.handle)(order())
			require.NoError(t, err)

			_, err = idem.Watermill(engine.Consumer, "billing")(b.handle)(c.msg)
			assert.ErrorIs(t, err, idem.ErrDead)
			assert.ErrorContains(t, err, c.cause)

			fate := errTest
			handle := idem.Watermill(engine.Consumer, "billing", idem.Dead(func(msg *message.Message, cause error) error {
				assert.Same(t, c.msg, msg)
				assert.ErrorContains(t, cause, c.cause)
				return fate
			}))(b.handle)
			_, err = handle(c.msg)
			assert.Equal(t, errTest, err, "it can not be put aside")
			fate = nil
			produced, err := handle(c.msg)
			assert.NoError(t, err)
			assert.Empty(t, produced)
			assert.Equal(t, 1, b.runs)
		})
	}
}

func TestAMessageWithoutGroupIsDeadOutsideOfARouter(t *testing.T) {
	b := &bill{}
	_, err := idem.Watermill(newEngine(t).Consumer, "")(b.handle)(order())
	assert.ErrorIs(t, err, idem.ErrDead)
	assert.ErrorContains(t, err, "Message.Group")
	assert.Zero(t, b.runs)
}

// EVT-06.
func TestAnotherPayloadMayBeSkipped(t *testing.T) {
	b := &bill{}
	handle := idem.Watermill(newEngine(t, consumer.Config{SkipMismatch: true}).Consumer, "billing")(b.handle)
	_, err := handle(order())
	assert.NoError(t, err)
	produced, err := handle(other())
	assert.NoError(t, err)
	assert.Empty(t, produced)
	assert.Equal(t, 1, b.runs)
}

// garbled keeps what can not be read.
func garbled(c *core.Config) {
	c.Marshal = func(any) ([]byte, error) { return []byte("?"), nil }
	c.Unmarshal = func([]byte, any) error { return errTest }
}

func TestAMessageIsDeadAfterItsLastAttempt(t *testing.T) {
	b := &bill{failures: 9}
	engine := newEngine(t, consumer.Config{MaxAttempts: 2})
	handle := idem.Watermill(engine.Consumer, "billing")(b.handle)
	_, err := handle(order())
	assert.Equal(t, errTest, err)
	for range 2 {
		_, err = handle(order())
		assert.ErrorIs(t, err, idem.ErrDead)
		assert.ErrorContains(t, err, "test")
	}
	assert.Equal(t, 2, b.runs)
}

func TestTheContextOfAMessageIsThatOfItsRun(t *testing.T) {
	type key struct{}
	outer := context.WithValue(t.Context(), key{}, "outer")
	engine, msg := newEngine(t), order()
	msg.SetContext(outer)
	charged := 0
	handle := func(fate func() error) message.HandlerFunc {
		return idem.Watermill(engine.Consumer, "billing")(func(msg *message.Message) ([]*message.Message, error) {
			run, ok := core.FromContext(msg.Context())
			assert.True(t, ok)
			assert.Equal(t, charged+1, run.Attempt)
			assert.Equal(t, "outer", msg.Context().Value(key{}))
			assert.NotEmpty(t, core.ChildKey(msg.Context(), "charge"))
			n, err := core.Step(msg.Context(), "charge", func(context.Context) (int, error) { return run.Attempt, nil })
			assert.NoError(t, err)
			assert.Equal(t, 1, n, "the first run's")
			charged++
			return nil, fate()
		})
	}
	assert.Panics(t, func() { _, _ = handle(func() error { panic("test") })(msg) })
	assert.Equal(t, outer, msg.Context(), "after a panic")
	_, err := handle(func() error { return errTest })(msg)
	assert.ErrorIs(t, err, errTest)
	assert.Equal(t, outer, msg.Context(), "after an error")
	_, err = handle(func() error { return nil })(msg)
	assert.NoError(t, err)
	assert.Equal(t, outer, msg.Context(), "after success")
	assert.Equal(t, 3, charged)
}

func TestTheIDOfAMessageMayComeFromElsewhere(t *testing.T) {
	b := &bill{}
	byOrder := idem.ID(func(msg *message.Message) string { return msg.Metadata.Get("order") })
	handle := idem.Watermill(newEngine(t).Consumer, "billing", byOrder)(b.handle)
	for _, uuid := range []string{"published", "published again"} {
		msg := message.NewMessage(uuid, nil)
		msg.Metadata.Set("order", "1")
		_, err := handle(msg)
		assert.NoError(t, err)
	}
	assert.Equal(t, 1, b.runs)
	_, err := handle(message.NewMessage("unnamed", nil))
	assert.ErrorIs(t, err, idem.ErrDead)
}

func TestMessagesMayPassBy(t *testing.T) {
	b := &bill{}
	ticks := idem.Skip(func(msg *message.Message) bool { return string(msg.Payload) == "tick" })
	handle := idem.Watermill(newEngine(t).Consumer, "billing", ticks)(b.handle)
	for _, payload := range []string{"tick", "tick", "order", "order"} {
		produced, err := handle(message.NewMessage(payload, []byte(payload)))
		assert.NoError(t, err)
		assertProduced(t, produced)
	}
	assert.Equal(t, 3, b.runs)
}

// What the package says about the order of middlewares.
func TestWatermillsMiddlewaresAround(t *testing.T) {
	retry := middleware.Retry{MaxRetries: 2, InitialInterval: time.Millisecond}.Middleware
	two := consumer.Config{MaxAttempts: 2}
	t.Run("Retry inside: its tries are one attempt", func(t *testing.T) {
		b := &bill{failures: 2}
		produced, err := idem.Watermill(newEngine(t, two).Consumer, "billing")(retry(b.handle))(order())
		assert.NoError(t, err)
		assertProduced(t, produced)
	})
	t.Run("Retry outside: each try is an attempt", func(t *testing.T) {
		b := &bill{failures: 2}
		_, err := retry(idem.Watermill(newEngine(t, two).Consumer, "billing")(b.handle))(order())
		assert.ErrorIs(t, err, idem.ErrDead)
		assert.Equal(t, 2, b.runs)
	})
	for name, around := range map[string]func(message.HandlerMiddleware, message.HandlerFunc) message.HandlerFunc{
		"Recoverer inside": func(m message.HandlerMiddleware, h message.HandlerFunc) message.HandlerFunc {
			return m(middleware.Recoverer(h))
		},
		"Recoverer outside": func(m message.HandlerMiddleware, h message.HandlerFunc) message.HandlerFunc {
			return middleware.Recoverer(m(h))
		},
	} {
		t.Run(name+": a panic is an attempt", func(t *testing.T) {
			runs := 0
			handle := around(idem.Watermill(newEngine(t, two).Consumer, "billing"), func(*message.Message) ([]*message.Message, error) {
				runs++
				panic("poison")
			})
			var err error
			for range 3 {
				_, err = handle(order())
			}
			assert.ErrorIs(t, err, idem.ErrDead)
			assert.Equal(t, 2, runs)
		})
	}
	t.Run("PoisonQueue outside, with a filter: it takes the dead", func(t *testing.T) {
		b, queue := &bill{failures: 9}, &publisher{}
		poison, err := middleware.PoisonQueueWithFilter(queue, "dead", func(err error) bool { return errors.Is(err, idem.ErrDead) })
		require.NoError(t, err)
		handle := poison(idem.Watermill(newEngine(t, two).Consumer, "billing")(b.handle))
		_, err = handle(order())
		assert.ErrorIs(t, err, errTest)
		produced, err := handle(order())
		assert.NoError(t, err)
		assert.Empty(t, produced)
		assert.Equal(t, []string{"order-1"}, queue.published)
	})
	for name, around := range map[string]func(message.HandlerMiddleware, message.HandlerMiddleware, message.HandlerFunc) message.HandlerFunc{
		"inside":  func(d, m message.HandlerMiddleware, h message.HandlerFunc) message.HandlerFunc { return m(d(h)) },
		"outside": func(d, m message.HandlerMiddleware, h message.HandlerFunc) message.HandlerFunc { return d(m(h)) },
	} {
		t.Run("Deduplicator "+name+": it loses a message that failed", func(t *testing.T) {
			b, d := &bill{failures: 1}, &middleware.Deduplicator{Repository: tags{}}
			handle := around(d.Middleware, idem.Watermill(newEngine(t).Consumer, "billing"), b.handle)
			_, err := handle(order())
			assert.ErrorIs(t, err, errTest)
			produced, err := handle(order())
			assert.NoError(t, err)
			assert.Empty(t, produced)
			assert.Equal(t, 1, b.runs)
		})
	}
	t.Run("Timeout: the handler's context has its deadline", func(t *testing.T) {
		deadline := func(msg *message.Message) ([]*message.Message, error) {
			_, ok := msg.Context().Deadline()
			assert.True(t, ok)
			return nil, nil
		}
		timeout := middleware.Timeout(time.Minute)
		_, err := timeout(idem.Watermill(newEngine(t).Consumer, "billing")(deadline))(order())
		assert.NoError(t, err)
		_, err = idem.Watermill(newEngine(t).Consumer, "billing")(timeout(deadline))(order())
		assert.NoError(t, err)
	})
}

// publisher keeps the UUIDs of what is published.
type publisher struct{ published []string }

func (p *publisher) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		p.published = append(p.published, msg.UUID)
	}
	return nil
}

func (*publisher) Close() error { return nil }

// tags are those that a Deduplicator has seen.
type tags map[string]bool

func (t tags) IsDuplicate(_ context.Context, tag string) (bool, error) {
	duplicate := t[tag]
	t[tag] = true
	return duplicate, nil
}

// EVT-10: nothing is acknowledged whose messages may not have been published.
func TestWhatIsTooLongToKeepIsProducedOnceAndDeadThen(t *testing.T) {
	b := &bill{}
	handle := idem.Watermill(newEngine(t, func(c *core.Config) { c.Keep.MaxBody = 10 }).Consumer, "billing")(b.handle)
	produced, err := handle(order())
	assert.NoError(t, err)
	assertProduced(t, produced)
	produced, err = handle(order())
	assert.ErrorIs(t, err, idem.ErrDead)
	assert.ErrorIs(t, err, idem.ErrNotKept)
	assert.Empty(t, produced)
	assert.Equal(t, 1, b.runs)
}

// shelf is one blob, or an error.
type shelf struct {
	data []byte
	err  error
}

func (s *shelf) Put(_ context.Context, _ string, data []byte, _ time.Duration) error {
	s.data = data
	return nil
}
func (s *shelf) Get(context.Context, string) ([]byte, error) { return s.data, s.err }
func (s *shelf) Delete(context.Context, string) error        { return nil }

// EVT-10.
func TestMessagesThatAreKeptInABlob(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want []error
	}{
		"are published again":               {nil, nil},
		"EVT-10 are busy while it is away":  {errTest, []error{idem.ErrBusy}},
		"EVT-10 are dead when it is lost":   {fs.ErrNotExist, []error{idem.ErrDead, idem.ErrNotKept, fs.ErrNotExist}},
		"EVT-10 are busy when it hangs":     {context.DeadlineExceeded, []error{idem.ErrBusy}},
		"EVT-10 are busy when it is broken": {driver.ErrUnreadable, []error{idem.ErrBusy, driver.ErrUnreadable}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, s := &bill{}, &shelf{}
				handle := idem.Watermill(newEngine(t, func(c *core.Config) { c.Keep.Blobs, c.Keep.BlobsFrom = s, 1 }).Consumer, "billing")(b.handle)
				_, err := handle(order())
				require.NoError(t, err)
				s.err = c.err
				produced, err := handle(order())
				if c.err == nil {
					assert.NoError(t, err)
					assertProduced(t, produced)
					return
				}
				for _, want := range c.want {
					assert.ErrorIs(t, err, want)
				}
				assert.Empty(t, produced)
				s.err = nil
				produced, err = handle(order())
				assert.NoError(t, err)
				assertProduced(t, produced)
				assert.Equal(t, 1, b.runs)
			})
		})
	}
}

// EVT-10: what OnUnknown finds is published.
func TestMessagesThatAreFoundArePublished(t *testing.T) {
	var record []byte
	keeping := newEngine(t, func(c *core.Config) {
		c.Marshal = func(v any) (b []byte, err error) { record, err = json.Marshal(v); return record, err }
		c.Unmarshal = json.Unmarshal
	})
	_, err := idem.Watermill(keeping.Consumer, "billing")((&bill{}).handle)(order())
	require.NoError(t, err)
	for name, c := range map[string]struct {
		found *core.Response
		want  int
		cause error
	}{
		"as they were kept":    {&core.Response{Status: 200, Body: record}, 1, nil},
		"none":                 {&core.Response{Status: 200, Body: []byte("[]")}, 0, nil},
		"what they are is not": {&core.Response{Status: 200, Omitted: true}, 0, idem.ErrNotKept},
		"something else":       {&core.Response{Status: 201, Body: []byte("an answer to a client")}, 0, driver.ErrUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := newEngine(t, func(cfg *core.Config) {
					cfg.Lease.OnUnknown = func(context.Context, *core.Request) (*core.Response, error) { return c.found, nil }
				})
				_, err := idem.Watermill(engine.Consumer, "billing")(crash)(order())
				require.ErrorIs(t, err, core.ErrOutcomeUnknown)
				b := &bill{}
				for range 2 {
					produced, err := idem.Watermill(engine.Consumer, "billing")(b.handle)(order())
					assert.Len(t, produced, c.want)
					if c.cause == nil {
						assert.NoError(t, err)
						continue
					}
					assert.ErrorIs(t, err, idem.ErrDead)
					assert.ErrorIs(t, err, c.cause)
				}
				assert.Zero(t, b.runs)
			})
		})
	}
}

// EVT-10: a handler that publishes nothing has lost nothing, and one that publishes may have.
func TestADuplicateOfWhichATombstoneIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		add  func(*message.Router, message.Subscriber, message.HandlerFunc) *message.Handler
		dead int64
	}{
		"is acknowledged where there is no publisher": {func(r *message.Router, s message.Subscriber, h message.HandlerFunc) *message.Handler {
			return r.AddConsumerHandler("bill", "orders", s, func(msg *message.Message) error { _, err := h(msg); return err })
		}, 0},
		"is dead where there is one": {func(r *message.Router, s message.Subscriber, h message.HandlerFunc) *message.Handler {
			return r.AddHandler("bill", "orders", s, "invoices", &publisher{}, h)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			engine := newEngine(t, func(c *core.Config) {
				c.Store = memstore.New(memstore.Clock(func() time.Time { return now }))
				c.Keep.LateRetry = time.Hour
			})
			broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
			router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
			require.NoError(t, err)
			dead := atomic.Int64{}
			bury := idem.Dead(func(_ *message.Message, cause error) error {
				assert.ErrorIs(t, cause, idem.ErrNotKept)
				dead.Add(1)
				return nil
			})
			b := &bill{}
			c.add(router, broker, b.handle).AddMiddleware(idem.Watermill(engine.Consumer, "billing", bury))
			done := make(chan error)
			go func() { done <- router.Run(context.Background()) }()
			<-router.Running()
			require.NoError(t, broker.Publish("orders", order()))
			now = now.Add(24*time.Hour + time.Minute)
			require.NoError(t, broker.Publish("orders", order()))
			require.NoError(t, router.Close())
			require.NoError(t, <-done)
			assert.Equal(t, 1, b.runs)
			assert.Equal(t, c.dead, dead.Load())
		})
	}
}

// A message that stays dead must not keep a broker busy that delivers again at once.
func TestAMessageThatStaysDeadWaits(t *testing.T) {
	elapsed := func(f func()) time.Duration {
		began := time.Now()
		f()
		return time.Since(began)
	}
	nameless := func(ctx context.Context, id string) *message.Message {
		return message.NewMessageWithContext(ctx, "", []byte(id))
	}
	synctest.Test(t, func(t *testing.T) {
		engine := newEngine(t, consumer.Config{MaxAttempts: 1})
		failing := func(*message.Message) ([]*message.Message, error) { return nil, errTest }
		handle := idem.Watermill(engine.Consumer, "billing")(failing)
		dead := func() {
			_, err := handle(order())
			assert.ErrorIs(t, err, idem.ErrDead)
		}
		assert.Zero(t, elapsed(dead), "the first time it goes on at once, to a poison queue for one")
		assert.Equal(t, time.Second, elapsed(dead))
		assert.Equal(t, time.Second, elapsed(dead))
		time.Sleep(2 * time.Minute)
		assert.Zero(t, elapsed(dead))

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _ = handle(nameless(ctx, "1"))
		assert.Equal(t, time.Millisecond, elapsed(func() { _, _ = handle(nameless(ctx, "1")) }), "or until its context ends")

		aside := idem.Watermill(engine.Consumer, "billing", idem.Dead(func(*message.Message, error) error { return nil }))(failing)
		for range 3 {
			assert.Zero(t, elapsed(func() {
				_, err := aside(order())
				assert.NoError(t, err)
			}), "it is put aside")
		}
		for i := range 10_000 {
			_, err := handle(message.NewMessage(strconv.Itoa(i), nil))
			assert.ErrorIs(t, err, idem.ErrDead)
		}
		assert.Equal(t, time.Second, elapsed(func() { _, _ = handle(message.NewMessage("one too many", nil)) }), "in bounded memory")
	})
}

// changes is a handler that fails once, and changes its message each time.
func changes(runs *int) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		*runs++
		if len(msg.Payload) > 0 {
			msg.Payload[0] = 'X'
		}
		msg.Payload = append(msg.Payload, '!')
		msg.Metadata.Set("order", "other")
		msg.UUID = "other"
		if *runs == 1 {
			return nil, errTest
		}
		return []*message.Message{msg}, nil
	}
}

func TestAHandlerThatChangesItsMessageIsTriedAgainWithTheOneThatWasDelivered(t *testing.T) {
	byOrder := idem.ID(func(msg *message.Message) string { return msg.Metadata.Get("order") })
	delivery := func() *message.Message {
		msg := message.NewMessage("order-1", []byte("tea"))
		msg.Metadata.Set("order", "1")
		return msg
	}
	for name, opts := range map[string][]idem.Option{"by its UUID": nil, "by its metadata": {byOrder}} {
		t.Run("after an error, "+name, func(t *testing.T) {
			runs := 0
			retry := middleware.Retry{MaxRetries: 1, InitialInterval: time.Millisecond}.Middleware
			handle := retry(idem.Watermill(newEngine(t).Consumer, "billing", opts...)(changes(&runs)))
			produced, err := handle(delivery())
			require.NoError(t, err)
			require.Len(t, produced, 1)
			assert.Equal(t, "Xea!", string(produced[0].Payload), "what it produces is its own")
			produced, err = handle(delivery())
			require.NoError(t, err)
			assert.Equal(t, "Xea!", string(produced[0].Payload))
			assert.Equal(t, 2, runs)
		})
	}
	t.Run("after a panic", func(t *testing.T) {
		msg, runs := delivery(), 0
		handle := idem.Watermill(newEngine(t).Consumer, "billing")(func(msg *message.Message) ([]*message.Message, error) {
			_, _ = changes(&runs)(msg)
			panic("poison")
		})
		assert.Panics(t, func() { _, _ = handle(msg) })
		assert.True(t, msg.Equals(delivery()), "%+v", msg)
	})
	t.Run("and that one is put aside when it is dead", func(t *testing.T) {
		runs := 0
		dead := idem.Dead(func(msg *message.Message, _ error) error {
			assert.True(t, msg.Equals(delivery()), "%+v", msg)
			return nil
		})
		engine := newEngine(t, consumer.Config{MaxAttempts: 1})
		_, err := idem.Watermill(engine.Consumer, "billing", dead)(changes(&runs))(delivery())
		assert.NoError(t, err)
	})
}
