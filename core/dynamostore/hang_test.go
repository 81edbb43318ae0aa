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
	"github.com/go-idem/idem/core/storetest"
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

// calls are all exported functions that take a context, by their names. Those without a value do not call the server.
var calls = map[string]func(context.Context, *hanging) error{
	"Store.Begin": func(ctx context.Context, h *hanging) error {
		_, err := h.store.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
		return err
	},
	"Store.Extend":     func(ctx context.Context, h *hanging) error { return h.store.Extend(ctx, h.claim) },
	"Store.Complete":   func(ctx context.Context, h *hanging) error { return h.store.Complete(ctx, h.claim, nil) },
	"Store.Fail":       func(ctx context.Context, h *hanging) error { return h.store.Fail(ctx, h.claim, driver.Failure{}) },
	"Store.Reopen":     func(ctx context.Context, h *hanging) error { return h.store.Reopen(ctx, h.claim, nil) },
	"Store.Checkpoint": func(ctx context.Context, h *hanging) error { return h.store.Checkpoint(ctx, h.claim, "step", nil) },
	"Store.Checkpoints": func(ctx context.Context, h *hanging) error {
		_, err := h.store.Checkpoints(ctx, h.claim)
		return err
	},
	"Store.Look": func(ctx context.Context, h *hanging) error {
		_, err := h.store.Look(ctx, h.claim.Key)
		return err
	},
	"Store.Outcome": func(ctx context.Context, h *hanging) error {
		_, err := h.store.Outcome(ctx, h.claim.Key)
		return err
	},
	"Store.Steps": func(ctx context.Context, h *hanging) error {
		_, err := h.store.Steps(ctx, h.claim.Key)
		return err
	},
	"Store.Scan": func(ctx context.Context, h *hanging) error {
		return h.store.Scan(ctx, driver.Filter{}, func(driver.Record) bool { return true })
	},
	"Store.Forget": func(ctx context.Context, h *hanging) error {
		return h.store.Forget(ctx, driver.Record{Name: h.claim.Key})
	},
	"Store.Watch": nil,
	"Store.Check": func(ctx context.Context, h *hanging) error {
		_, err := h.store.Check(ctx)
		return err
	},
	"CreateTable": func(ctx context.Context, h *hanging) error { return dynamostore.CreateTable(ctx, h.client, "another") },
}

// The client of the SDK has its default retries, and the server hangs.
func TestAServerThatHangsHoldsNoCallLongerThanItsContext(t *testing.T) {
	t.Parallel()
	hangtest.RequireAll(t, ".", calls)
	server := dynalite.Start(t)
	client := newClient(server.URL, func(o *dynamodb.Options) { o.Retryer = retry.NewStandard() })
	require.NoError(t, dynamostore.CreateTable(ctx, client, "payments"))
	store := dynamostore.New(client, "payments")
	h := &hanging{client: client, store: store, claim: claimed(t, store, time.Minute)}
	require.NoError(t, server.Stop())
	for name, call := range calls {
		if call != nil {
			t.Run(name, func(t *testing.T) {
				hangtest.EndInTime(t, 3, bound, func(ctx context.Context) error { return call(ctx, h) })
			})
		}
	}
	require.NoError(t, server.Continue())
	claimed(t, store, time.Minute)
}
