package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
)

// The steps of an operation may outlive its record. A run of another operation, under the same key and with the same request,
// has not done them.
func TestStepsOfAnEarlierOperationAreNotThoseOfANewOne(t *testing.T) {
	const short = 100 * time.Millisecond
	for name, end := range map[string]func(*testing.T, *redis.Client, *redisstore.Store, driver.Claim){
		"an operator deletes the record": func(t *testing.T, client *redis.Client, _ *redisstore.Store, c driver.Claim) {
			redistest.Eventually(t, "the ms of the claim is over, within which the next fence may be smaller", func() bool {
				return client.Time(ctx).Val().UnixMilli() > c.Fence/1000
			})
			for _, key := range client.Keys(ctx, "idem:*}").Val() {
				require.NoError(t, client.Del(ctx, key).Err())
			}
		},
		"the next deployment keeps less, and its run vanishes": func(t *testing.T, client *redis.Client, store *redisstore.Store, c driver.Claim) {
			require.NoError(t, store.Fail(ctx, c, driver.Failure{}))
			c.Retention, c.Lease = short, short/2
			require.Equal(t, 2, heir(t, store, c).Attempt)
			redistest.Eventually(t, "the record is gone", func() bool { return len(client.Keys(ctx, "idem:*}").Val()) == 0 })
		},
	} {
		for _, isMoving := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, moving %t", name, isMoving), func(t *testing.T) {
				client := redistest.Start(t).Client(t)
				if isMoving {
					client.AddHook(slotMoves)
				}
				store := redisstore.New(client)
				c := heir(t, store, storetest.NewClaim(time.Minute, time.Hour))
				require.NoError(t, store.Checkpoint(ctx, c, "ship", []byte("shipped")))
				end(t, client, store, c)
				require.Len(t, client.Keys(ctx, "*:steps").Val(), 1, "there are no steps that could be taken for others")

				c = heir(t, store, c)
				require.Equal(t, 1, c.Attempt)
				require.NoError(t, store.Fail(ctx, c, driver.Failure{}))
				c = heir(t, store, c)
				require.Equal(t, 2, c.Attempt)
				steps, err := store.Checkpoints(ctx, c)
				require.NoError(t, err)
				assert.Empty(t, steps)
			})
		}
	}
}

// Runs of one operation hand their steps on, however often they fail.
func TestStepsAreHandedOnFromRunToRun(t *testing.T) {
	store := redisstore.New(redistest.Start(t).Client(t))
	c := storetest.NewClaim(time.Minute, time.Hour)
	for attempt := range 4 {
		c = heir(t, store, c)
		require.Equal(t, attempt+1, c.Attempt)
		steps, err := store.Checkpoints(ctx, c)
		require.NoError(t, err)
		assert.Len(t, steps, attempt)
		require.NoError(t, store.Checkpoint(ctx, c, string(rune('a'+attempt)), []byte("done")))
		require.NoError(t, store.Fail(ctx, c, driver.Failure{Cause: "a cause that is no fence"}))
	}
}

// heir returns a claim like c of another run.
func heir(t *testing.T, store *redisstore.Store, c driver.Claim) driver.Claim {
	t.Helper()
	c.Owner = storetest.NewClaim(time.Minute, time.Hour).Owner
	entry, err := store.Begin(ctx, c)
	require.NoError(t, err)
	require.Equal(t, driver.Claimed, entry.State)
	c.Fence, c.Attempt, c.Operation = entry.Fence, entry.Attempt, entry.Operation
	return c
}
