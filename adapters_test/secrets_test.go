package adapters_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/adaptertest"
	"github.com/go-idem/idem/internal/redistest"
)

// A record that was moved to another key, or was never sealed, is refused, and nothing runs.
func TestASealedRecordIsGoodForItsKeyOnly(t *testing.T) {
	redis := redistest.Start(t).Client(t)
	svc := adaptertest.Start(t, frameworks[0], redisstore.New(redis), adaptertest.OK(), adaptertest.Setup{}, adaptertest.Sealed(t))
	ctx := context.Background()
	svc.Post("A", "B")
	a := redis.Keys(ctx, "*").Val()[0]
	svc.Post("C", "B")
	outcome := redis.Get(ctx, a).Val()[58:]
	for _, key := range redis.Keys(ctx, "*").Val() {
		if key != a {
			record := redis.Get(ctx, key).Val()
			require.NoError(t, redis.Set(ctx, key, record[:58]+outcome, time.Hour).Err())
		}
	}
	swapped := svc.Post("C", "B")
	assert.Equal(t, 503, swapped.Status)
	assert.Contains(t, swapped.Body, "record-unreadable")
	assert.True(t, svc.Post("A", "B").Replayed())
	assert.EqualValues(t, 2, svc.Runs.Load())
}
