package dynamostore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/blobs"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/dynamostore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/servicetest"
)

// post sends POST /orders with a key, and returns the result and how often the handler ran.
func post(tb testing.TB, engine *core.Engine, key, body string) (result core.Result, runs int) {
	tb.Helper()
	result, err := engine.Do(ctx, servicetest.Order(key), func(context.Context) (*core.Response, error) {
		runs++
		return &core.Response{Status: 201, Body: []byte(body)}, nil
	})
	require.NoError(tb, err)
	return result, runs
}

// newSchema makes a table whose partition key has another name, and returns a store in it.
func newSchema(tb testing.TB) *dynamostore.Store {
	tb.Helper()
	t := table{name: rand.Text(), client: newTable(tb).client}
	_, err := t.client().CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &t.name, BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS}},
	})
	require.NoError(tb, err)
	return t.store()
}

// What is wrong with a table, with credentials or with the service is an error that says what to do, and nothing runs.
func TestBadInputIsAnErrorThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	missing := sharedTable(t)
	missing.name = "another"
	for name, bad := range map[string]struct {
		store *dynamostore.Store
		want  string
	}{
		"a table that does not exist": {missing.store(), "not in the Region"},
		"another primary key":         {newSchema(t), "a partition key named id"},
		"a user that may only read": {
			sharedTable(t).store(refused("AccessDeniedException", "not authorized", "PutItem", "UpdateItem")), "let the credentials use",
		},
		"credentials of another Region": {
			sharedTable(t).store(refused("UnrecognizedClientException", "The security token is invalid")), "credentials are not valid",
		},
		"too little capacity": {
			sharedTable(t).store(refused("ProvisionedThroughputExceededException", "exceeded")), "too little capacity",
		},
		"no server": {
			dynamostore.New(newClient("http://127.0.0.1:1"), "payments"), "connection refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := storetest.NewClaim(time.Minute, time.Hour)
			_, err := bad.store.Begin(ctx, c)
			assert.ErrorContains(t, err, bad.want)
			assert.False(t, errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrUnreadable), "%v", err)
			engine := servicetest.NewEngine(t, bad.store, func(c *core.Config) { // which tries for a lease to release the claim
				c.Lease.Duration, c.Limits.StoreTimeout = time.Second, time.Second/2
			})
			result, runs := post(t, engine, rand.Text(), "made")
			assert.Equal(t, http.StatusServiceUnavailable, result.Response.Status)
			assert.Zero(t, runs)
		})
	}
}

// A user that lacks a permission learns which one, whatever the call.
func TestTheErrorNamesThePermissionThatIsMissing(t *testing.T) {
	t.Parallel()
	for operation, call := range map[string]func(*dynamostore.Store) error{
		"GetItem":    func(s *dynamostore.Store) error { _, err := s.Look(ctx, [32]byte{1}); return err },
		"UpdateItem": func(s *dynamostore.Store) error { return s.Extend(ctx, driver.Claim{Fence: 1}) },
		"Scan": func(s *dynamostore.Store) error {
			return s.Scan(ctx, driver.Filter{}, func(driver.Record) bool { return true })
		},
		"DescribeTable":      func(s *dynamostore.Store) error { _, err := s.Check(ctx); return err },
		"DescribeTimeToLive": func(s *dynamostore.Store) error { _, err := s.Check(ctx); return err },
	} {
		store := sharedTable(t).store(refused("AccessDeniedException", "not authorized", operation))
		assert.ErrorContains(t, call(store), "let the credentials use dynamodb:"+operation+" on the table")
	}
}

// An error that DynamoDB returns because an item is too long says what to do, like that of the package.
func TestAnItemThatDynamoDBFindsTooLongIsRefusedLikeThoseOfThePackage(t *testing.T) {
	t.Parallel()
	c := storetest.NewClaim(time.Minute, time.Hour)
	store := sharedTable(t).store(refused("ValidationException", "Item size to update has exceeded the maximum allowed size", "UpdateItem"))
	c.Fence = begin(t, store, c).Fence
	err := store.Complete(ctx, c, []byte("outcome"))
	assert.ErrorIs(t, err, dynamostore.ErrTooLarge)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "Keep.Blobs")
	assert.ErrorContains(t, err, sharedTable(t).name)
}

func TestAnErrorOfCheckNamesItsPlaceOnce(t *testing.T) {
	t.Parallel()
	store := sharedTable(t).store(withoutDate)
	_, err := store.Check(ctx)
	require.ErrorContains(t, err, "no Date header field")
	assert.Equal(t, 1, strings.Count(err.Error(), "dynamostore:"), "%v", err)
}

// change sets an attribute of an item, as no version of this package does, or as a later one may do.
func change(tb testing.TB, name [32]byte, attribute string, value types.AttributeValue) {
	tb.Helper()
	t, id := sharedTable(tb), string(driver.AppendRecordName(nil, name))
	_, err := t.client().UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &t.name,
		Key:                       map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: id}},
		UpdateExpression:          aws.String("SET " + attribute + " = :value"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":value": value},
	})
	require.NoError(tb, err)
}

func TestAnItemThatCannotBeReadIsLeftAlone(t *testing.T) {
	t.Parallel()
	store := sharedTable(t).store()
	for attribute, value := range map[string]types.AttributeValue{
		"layout":      &types.AttributeValueMemberN{Value: "2"},
		"claim_state": &types.AttributeValueMemberS{Value: "PAUSED"},
		"claim_owner": &types.AttributeValueMemberB{Value: []byte("short")},
		"attempt":     &types.AttributeValueMemberS{Value: "one"},
		"fingerprint": &types.AttributeValueMemberN{Value: "1"},
	} {
		t.Run(attribute, func(t *testing.T) {
			t.Parallel()
			c := claimed(t, store, time.Minute)
			change(t, c.Key, attribute, value)
			_, err := store.Begin(ctx, rival(c))
			assert.ErrorIs(t, err, driver.ErrUnreadable)
			assert.ErrorIs(t, store.Fail(ctx, rival(c), driver.Failure{}), driver.ErrUnreadable)
			seen, err := store.Look(ctx, c.Key)
			require.NoError(t, err)
			assert.Equal(t, driver.Unreadable, seen.State)
			assert.ErrorIs(t, store.Forget(ctx, seen), driver.ErrLost)
			if attribute == "layout" {
				assert.ErrorIs(t, store.Extend(ctx, c), driver.ErrUnreadable)
				assert.ErrorIs(t, store.Complete(ctx, c, nil), driver.ErrUnreadable)
			}
		})
	}
}

func TestWhatIsTooLongForAnItemIsRefused(t *testing.T) {
	t.Parallel()
	store := sharedTable(t).store()
	c := claimed(t, store, time.Minute)
	err := store.Complete(ctx, c, make([]byte, dynamostore.MaxOutcome+1))
	assert.ErrorIs(t, err, dynamostore.ErrTooLarge)
	assert.ErrorContains(t, err, "Keep.Blobs")
	require.NoError(t, store.Extend(ctx, c), "the claim is lost")

	require.NoError(t, store.Checkpoint(ctx, c, "long", make([]byte, 300<<10)))
	err = store.Checkpoint(ctx, c, "longer", make([]byte, 100<<10))
	assert.ErrorIs(t, err, dynamostore.ErrTooLarge)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "results of the steps")
	assert.NotContains(t, err.Error(), "Keep.", "no setting moves the results of steps elsewhere")
	require.NoError(t, store.Checkpoint(ctx, c, "short", make([]byte, 90<<10)))
	for range 4 {
		assert.ErrorIs(t, store.Fail(ctx, rival(c), driver.Failure{Cause: strings.Repeat("é", 500)}), driver.ErrLost)
	}
	require.NoError(t, store.Fail(ctx, c, driver.Failure{Cause: strings.Repeat("é", 500)}), "nothing else fits in")
	next := rival(c)
	entry := begin(t, store, next)
	require.Equal(t, 2, entry.Attempt)
	next.Fence = entry.Fence
	require.NoError(t, store.Complete(ctx, next, make([]byte, dynamostore.MaxOutcome)))
	assert.Len(t, begin(t, store, rival(c)).Outcome, dynamostore.MaxOutcome)
}

// Without blobs an outcome that is too long is stored without its body, after a lease in which the store has refused it.
func TestALongResponseWithoutBlobsIsReplayedWithoutItsBody(t *testing.T) {
	t.Parallel()
	engine := servicetest.NewEngine(t, sharedTable(t).store(), func(c *core.Config) {
		c.Lease.Duration, c.Limits.StoreTimeout = patientLease, patientLease/2
	})
	key, long := rand.Text(), strings.Repeat("a long response ", 32<<10)
	first, runs := post(t, engine, key, long)
	assert.Equal(t, 1, runs)
	assert.Len(t, first.Response.Body, len(long))
	var again core.Result
	require.Eventually(t, func() bool {
		again, runs = post(t, engine, key, long)
		return again.Replayed
	}, 20*time.Second, 50*time.Millisecond)
	assert.Zero(t, runs)
	assert.Equal(t, 201, again.Response.Status)
	assert.True(t, again.Response.Omitted)
	assert.Empty(t, again.Response.Body)
}

// A long response is in a blob, as the error advises.
func TestALongResponseIsReplayedFromABlob(t *testing.T) {
	t.Parallel()
	bodies, err := blobs.Dir(t.TempDir())
	require.NoError(t, err)
	engine := servicetest.NewEngine(t, sharedTable(t).store(), func(c *core.Config) {
		c.Keep.Blobs, c.Keep.BlobsFrom, c.Keep.MaxBody = bodies, 300<<10, 2<<20
	})
	key, long := rand.Text(), strings.Repeat("a long response ", 64<<10)
	first, runs := post(t, engine, key, long)
	assert.Equal(t, 1, runs)
	again, runs := post(t, engine, key, long)
	assert.Zero(t, runs)
	assert.True(t, again.Replayed)
	assert.Equal(t, string(first.Response.Body), string(again.Response.Body))
}
