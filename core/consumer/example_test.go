package consumer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/memstore"
)

// Receipt is the result of a message's handler.
type Receipt struct{ Amount int }

// A broker delivers a message, delivers it again, and another payload under its ID.
func ExampleConsume() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		fmt.Println(err)
		return
	}
	billing, err := consumer.New(engine, consumer.Config{MaxAttempts: 5})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, payload := range []string{"100 EUR", "100 EUR", "999 EUR"} {
		m := consumer.Message{Group: "billing", ID: "event-1", Payload: []byte(payload)}
		d := consumer.Consume(context.Background(), billing, m, func(ctx context.Context) (Receipt, error) {
			fmt.Println("charging")
			return Receipt{Amount: 100}, nil
		})
		switch d.Verdict {
		case consumer.Done, consumer.Duplicate: // acknowledge
			fmt.Println(d.Verdict, d.Result)
		case consumer.Dead: // put it aside, then acknowledge
			fmt.Println(d.Verdict, d.Err)
		case consumer.Busy, consumer.Failed: // deliver again after d.RedeliverAfter
			fmt.Println(d.Verdict, d.RedeliverAfter, d.Err)
		}
	}
	// Output:
	// charging
	// done {100}
	// duplicate {100}
	// dead idem: another payload came under this message ID before
}

// A handler that fails between two steps does not do the first one again.
func ExampleConsume_step() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		fmt.Println(err)
		return
	}
	billing, err := consumer.New(engine, consumer.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	m := consumer.Message{Group: "billing", ID: "event-1", Payload: []byte("100 EUR")}
	for attempt := range 2 {
		d := consumer.Consume(context.Background(), billing, m, func(ctx context.Context) (Receipt, error) {
			receipt, err := core.Step(ctx, "charge", func(context.Context) (Receipt, error) {
				fmt.Println("charging")
				return Receipt{Amount: 100}, nil
			})
			if err != nil {
				return Receipt{}, err
			}
			if attempt == 0 {
				return Receipt{}, errors.New("the mail server is away")
			}
			fmt.Println("mailing", receipt)
			return receipt, nil
		})
		fmt.Println(d.Verdict, d.Err)
	}
	// Output:
	// charging
	// failed the mail server is away
	// mailing {100}
	// done <nil>
}
