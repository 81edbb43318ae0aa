package dynamostore_test

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/dynamostore"
	"github.com/go-idem/idem/internal/dynalite"
	"github.com/go-idem/idem/internal/hangtest"
)

// bound is how long a call may take.
const bound = 100 * time.Millisecond

// hanging is a store whose server does not respond, and a claim that it has.
type hanging struct {
	client *dynamodb.Client
	store  *dynamostore.Store
	claim  driver.Claim
}

// calls returns all exported functions that take a context, by their names. Those without a value do not call the server.
func (h *hanging) calls() map[string]func(context.Context) error {
	calls := hangtest.StoreCalls(h.store, h.claim)
	calls["Store.Watch"] = nil
	calls["Store.Check"] = func(ctx context.Context) error {
		_, err := h.store.Check(ctx)
		return err
	}
	calls["CreateTable"] = func(ctx context.Context) error { return dynamostore.CreateTable(ctx, h.client, "another") }
	return calls
}

// The client of the SDK has its default retries, and the server hangs.
func TestAServerThatHangsHoldsNoCallLongerThanItsContext(t *testing.T) {
	t.Parallel()
	hangtest.RequireAll(t, ".", new(hanging).calls())
	server := dynalite.Start(t)
	client := newClient(server.URL, func(o *dynamodb.Options) { o.Retryer = retry.NewStandard() })
	require.NoError(t, dynamostore.CreateTable(ctx, client, "payments"))
	store := dynamostore.New(client, "payments")
	h := &hanging{client: client, store: store, claim: claimed(t, store, time.Minute)}
	require.NoError(t, server.Stop())
	for name, call := range h.calls() {
		if call != nil {
			t.Run(name, func(t *testing.T) {
				hangtest.EndInTime(t, 3, bound, call)
			})
		}
	}
	require.NoError(t, server.Continue())
	claimed(t, store, time.Minute)
}
