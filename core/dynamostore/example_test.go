package dynamostore_test

import (
	"context"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/dynamostore"
)

// The configuration of the client comes from config.LoadDefaultConfig of the SDK, for example.
func ExampleNew() {
	serve := func(client *dynamodb.Client, pay http.Handler) error {
		store := dynamostore.New(client, "payments-idempotency")
		if _, err := store.Check(context.Background()); err != nil { // log the findings
			return err
		}
		engine, err := core.New(core.Config{Store: store, Scope: core.SingleTenant})
		if err != nil {
			return err
		}
		return http.ListenAndServe("127.0.0.1:8080", idem.HTTP(engine)(pay))
	}
	_ = serve
}
