package dynamostore_test

import (
	"bytes"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/dynamostore"
	"github.com/go-idem/idem/core/storetest"
)

// deletedIn returns after which time from now Time to Live may delete the item of a record.
func deletedIn(tb testing.TB, name [32]byte) time.Duration {
	tb.Helper()
	t, id := sharedTable(tb), string(driver.AppendRecordName(nil, name))
	out, err := t.client().GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &t.name, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: id}},
	})
	require.NoError(tb, err)
	require.Contains(tb, out.Item, "delete_after")
	seconds, err := strconv.ParseInt(out.Item["delete_after"].(*types.AttributeValueMemberN).Value, 10, 64)
	require.NoError(tb, err)
	return time.Until(time.Unix(seconds, 0))
}

// Fences grow after an item was deleted only if it outlives its record.
func TestTimeToLiveLeavesAnItemForAnHourAfterItsTimes(t *testing.T) {
	t.Parallel()
	store := sharedTable(t).store()
	isDeletedAfter := func(c driver.Claim, after time.Duration, when string) {
		t.Helper()
		assert.InDelta(t, after+time.Minute+time.Hour, deletedIn(t, c.Key), float64(10*time.Second), when)
	}
	c := claimed(t, store, time.Minute)
	isDeletedAfter(c, time.Hour, "begin")
	c.Retention = 2 * time.Hour
	require.NoError(t, store.Extend(ctx, c))
	isDeletedAfter(c, 2*time.Hour, "extend")
	c.Retention, c.LateRetry = 3*time.Hour, 5*time.Hour
	require.NoError(t, store.Complete(ctx, c, nil))
	isDeletedAfter(c, 8*time.Hour, "complete")

	failed := claimed(t, store, time.Minute)
	failed.Retention = 4 * time.Hour
	require.NoError(t, store.Fail(ctx, failed, driver.Failure{}))
	isDeletedAfter(failed, 4*time.Hour, "fail")
	seen, err := store.Look(ctx, failed.Key)
	require.NoError(t, err)
	require.NoError(t, store.Forget(ctx, seen))
	assert.InDelta(t, time.Hour, deletedIn(t, failed.Key), float64(10*time.Second), "forget")

	withdrawn := storetest.NewClaim(time.Minute, time.Hour)
	require.NoError(t, store.Fail(ctx, withdrawn, driver.Failure{NoEffects: true, NotRun: true}))
	isDeletedAfter(withdrawn, time.Minute, "withdrawal")
}

// The update of an Extend would let Time to Live delete the tombstone, so the whole item is written.
func TestALeaseBehindATombstoneIsExtended(t *testing.T) {
	t.Parallel()
	for _, leaseMargin := range []time.Duration{0, never} {
		h := withClock(t, leaseMargin)
		c := claimed(t, h.Store, time.Minute)
		c.Retention, c.LateRetry = time.Minute, 10*time.Hour
		require.NoError(t, h.Store.Complete(ctx, c, nil))
		h.Advance(time.Minute)
		next := rival(c)
		next.LateRetry, next.Retention = 0, time.Hour
		next.Fence = begin(t, h.Store, next).Fence
		for range 3 {
			h.Advance(50 * time.Second)
			assert.Equal(t, driver.InProgress, begin(t, h.Store, rival(next)).State)
			require.NoError(t, h.Store.Extend(ctx, next))
		}
		h.Advance(time.Minute)
		assert.Equal(t, driver.Claimed, begin(t, h.Store, rival(next)).State)
	}
}

// A record that comes after an outcome does not shorten the tombstone of that outcome.
func TestATombstoneOutlivesLaterRecords(t *testing.T) {
	t.Parallel()
	h := withClock(t, 0)
	late := func(c driver.Claim) driver.State {
		c = rival(c)
		c.LateRetry = time.Hour
		return begin(t, h.Store, c).State
	}
	c := claimed(t, h.Store, time.Minute)
	c.Retention, c.LateRetry = time.Minute, 10*time.Hour
	require.NoError(t, h.Store.Complete(ctx, c, []byte("first")))
	for _, end := range []func(driver.Claim) error{
		func(c driver.Claim) error { c.LateRetry = 0; return h.Store.Complete(ctx, c, []byte("without")) },
		func(c driver.Claim) error {
			c.LateRetry = time.Minute
			return h.Store.Complete(ctx, c, []byte("shorter"))
		},
		func(c driver.Claim) error { return h.Store.Fail(ctx, c, driver.Failure{}) },
		func(c driver.Claim) error { return h.Store.Fail(ctx, c, driver.Failure{NoEffects: true}) },
		func(c driver.Claim) error { return h.Store.Extend(ctx, c) },
	} {
		h.Advance(time.Minute)
		assert.Equal(t, driver.Expired, late(c))
		next := rival(c)
		next.LateRetry = 0 // a careless client
		entry := begin(t, h.Store, next)
		require.Equal(t, driver.Claimed, entry.State)
		next.Fence, next.Retention = entry.Fence, time.Minute
		require.NoError(t, end(next))
		assert.Greater(t, deletedIn(t, c.Key), 10*time.Hour)
	}
	h.Advance(time.Minute)
	assert.Equal(t, driver.Expired, late(c))
	h.Advance(10 * time.Hour)
	assert.Equal(t, driver.Claimed, late(c))
}

// No time passes, so only the fence of the item makes the next one greater.
func TestARecordThatIsForgottenLeavesItsFence(t *testing.T) {
	t.Parallel()
	store := withClock(t, 0).Store.(*dynamostore.Store)
	c := claimed(t, store, time.Minute)
	require.NoError(t, store.Fail(ctx, c, driver.Failure{NoEffects: true}))
	seen, err := store.Look(ctx, c.Key)
	require.NoError(t, err)
	require.NoError(t, store.Forget(ctx, seen))
	entry := begin(t, store, rival(c))
	assert.Equal(t, 1, entry.Attempt)
	assert.Greater(t, entry.Fence, c.Fence)
}

// A read must see the last write. A dynalite has one copy of each item, so the test looks at the request.
func TestReadsAreConsistent(t *testing.T) {
	t.Parallel()
	var reads, inconsistent atomic.Int64
	store := sharedTable(t).store(through(func(send transport) transport {
		return func(r *http.Request) (*http.Response, error) {
			if call := callOf(r); call == "GetItem" || call == "Scan" {
				body, err := read(&r.Body)
				if reads.Add(1); err != nil || !bytes.Contains(body, []byte(`"ConsistentRead":true`)) {
					inconsistent.Add(1)
				}
			}
			return send(r)
		}
	}))
	c := claimed(t, store, time.Minute)
	begin(t, store, rival(c))
	_, err := store.Look(ctx, c.Key)
	require.NoError(t, err)
	require.NoError(t, store.Scan(ctx, driver.Filter{Scope: c.Key[:driver.ScopeBytes]}, func(driver.Record) bool { return true }))
	assert.Greater(t, reads.Load(), int64(3))
	assert.Zero(t, inconsistent.Load())
}
