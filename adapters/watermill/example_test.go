package idem_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	idem "github.com/go-idem/idem/adapters/watermill"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/memstore"
)

// A message is delivered twice and handled once. What is dead goes to a queue of its own; what fails is tried three times
// before the broker delivers it again.
func ExampleWatermill() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		fmt.Println(err)
		return
	}
	messages, err := consumer.New(engine, consumer.Config{MaxAttempts: 5})
	if err != nil {
		fmt.Println(err)
		return
	}
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		fmt.Println(err)
		return
	}
	poison, err := middleware.PoisonQueueWithFilter(broker, "dead", func(err error) bool { return errors.Is(err, idem.ErrDead) })
	if err != nil {
		fmt.Println(err)
		return
	}
	billing := router.AddConsumerHandler("bill", "orders", broker, func(msg *message.Message) error {
		fmt.Println("charging for", string(msg.Payload))
		return nil
	})
	billing.AddMiddleware(
		poison,
		idem.Watermill(messages, "billing"),
		middleware.Retry{MaxRetries: 2, InitialInterval: time.Second}.Middleware,
		middleware.Recoverer,
	)
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()

	for range 2 {
		if err := broker.Publish("orders", message.NewMessage("order-1", []byte("tea"))); err != nil {
			fmt.Println(err)
		}
	}
	if err := router.Close(); err != nil {
		fmt.Println(err)
	}
	// Output: charging for tea
}
