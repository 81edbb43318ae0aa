// Package brokers_test runs the middleware behind real routers on real brokers. It is a module of its own, so that nobody who
// uses the middleware has to do with brokers that they do not use.
package brokers_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-idem/idem/internal/redistest"
)

func TestMain(m *testing.M) {
	if spec := strings.Fields(os.Getenv(child)); len(spec) == 5 {
		runChild(spec[0], spec[1], spec[2], spec[3], spec[4])
		return
	}
	goleak.VerifyTestMain(m, // but for the server that the tests share, and a subscriber that sleeps before it sees that it is closed
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream.(*Subscriber).read"),
		goleak.IgnoreAnyFunction("github.com/go-idem/idem/internal/tied.startAll"),
		goleak.IgnoreAnyFunction("github.com/go-idem/idem/internal/redistest.(*Server).spawn.func1"))
}

// deliverAgain is when a broker delivers a message again whose consumer says nothing.
const deliverAgain = 3 * time.Second

// dialer connects a member of a group, who closes both, the subscriber first.
type dialer func(group string) (message.Publisher, message.Subscriber, error)

// broker is one that Watermill speaks to.
type broker struct {
	name    string
	start   func(*testing.T) (addr string)
	connect func(addr string) dialer
}

var brokers = []broker{
	{"gochannel", func(*testing.T) string { return "" }, inProcess},
	{"Redis Streams", func(t *testing.T) string { return redistest.Shared(t).Addr }, redisStreams},
	{"NATS JetStream", startNATS, jetStream},
}

// inProcess is gochannel: every consumer gets every message, whatever its group.
func inProcess(string) dialer {
	channel := gochannel.NewGoChannel(gochannel.Config{}, nil)
	return func(string) (message.Publisher, message.Subscriber, error) {
		return open{channel}, openToo{channel}, nil
	}
}

// open is a publisher that its user can not close.
type open struct{ message.Publisher }

func (open) Close() error { return nil }

// openToo is such a subscriber.
type openToo struct{ message.Subscriber }

func (openToo) Close() error { return nil }

func redisStreams(addr string) dialer {
	return func(group string) (message.Publisher, message.Subscriber, error) {
		publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{
			Client: redis.NewClient(&redis.Options{Addr: addr}),
		}, watermill.NopLogger{})
		if err != nil {
			return nil, nil, err
		}
		subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
			Client: redis.NewClient(&redis.Options{Addr: addr}), ConsumerGroup: group, DisableIndefiniteInitialBlock: true,
			MaxIdleTime: deliverAgain, ClaimInterval: deliverAgain / 10,
		}, watermill.NopLogger{})
		return publisher, subscriber, err
	}
}

func startNATS(t *testing.T) string {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	require.True(t, s.ReadyForConnections(time.Minute))
	return s.ClientURL()
}

func jetStream(url string) dialer {
	return func(group string) (message.Publisher, message.Subscriber, error) {
		config := nats.JetStreamConfig{
			AutoProvision: true, DurablePrefix: group,
			ConnectOptions:    []natsgo.JSOpt{natsgo.MaxWait(aWhile)},
			DurableCalculator: func(group, topic string) string { return group + "-" + topic },
			SubscribeOptions:  []natsgo.SubOpt{natsgo.AckExplicit(), natsgo.ManualAck(), natsgo.DeliverAll(), natsgo.AckWait(deliverAgain)},
		}
		publisher, err := nats.NewPublisher(nats.PublisherConfig{URL: url, JetStream: config}, watermill.NopLogger{})
		if err != nil {
			return nil, nil, err
		}
		subscriber, err := nats.NewSubscriber(nats.SubscriberConfig{
			URL: url, QueueGroupPrefix: group, AckWaitTimeout: deliverAgain, JetStream: config,
		}, watermill.NopLogger{})
		return publisher, subscriber, err
	}
}

// route is a consumer: one handler of a router.
type route struct {
	group, from, to string
	handle          message.HandlerFunc
	around          []message.HandlerMiddleware
	publishing      message.PublisherDecorator
}

// run starts r and returns when it is subscribed. Who calls it calls stop.
func (r route) run(dial dialer) (stop func() error, err error) {
	publisher, subscriber, err := dial(r.group)
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Minute}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	if r.publishing != nil {
		router.AddPublisherDecorators(r.publishing)
	}
	router.AddMiddleware(r.around...)
	router.AddHandler("handler of "+r.group, r.from, subscriber, r.to, open{publisher}, r.handle) // it closes while handlers run
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	select {
	case err := <-ended:
		return nil, err
	case <-router.Running():
	}
	return func() error { return errors.Join(router.Close(), <-ended, publisher.Close()) }, nil
}
