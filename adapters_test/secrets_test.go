package adapters_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/blobs"
	"github.com/go-idem/idem/core/compress"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/seal"
	"github.com/go-idem/idem/internal/redistest"
)

// sealed is how a service keeps answers that nobody else may read.
func sealed(t *testing.T) func(*core.Config) {
	zstd, err := compress.Zstd()
	require.NoError(t, err)
	box, err := seal.New([]seal.Key{{ID: "2026", Secret: bytes.Repeat([]byte{7}, 32)}})
	require.NoError(t, err)
	return func(c *core.Config) {
		c.Keep.Codecs = []driver.Codec{zstd, box}
		c.Secret = bytes.Repeat([]byte{9}, 32)
	}
}

// Neither the store nor a blob tells what clients sent or got, or under which key.
func TestNothingOfARequestOrItsAnswerCanBeReadInTheStore(t *testing.T) {
	for _, f := range frameworks {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t).Client(t)
			dir, err := blobs.Dir(t.TempDir())
			require.NoError(t, err)
			put := &spied{Blobs: dir}
			svc := start(t, f, redisstore.New(redis), func(request) answer {
				return answer{status: 201, header: http.Header{"X-Canary": {"canary-header"}}, body: strings.Repeat("canary-answer ", 1000)}
			}, setup{}, func(c *core.Config) {
				sealed(t)(c)
				c.Keep.Blobs, c.Keep.BlobsFrom = put, 8000
				c.Scope = func(context.Context, *core.Request) string { return "canary-tenant" }
			})
			first := svc.post("canary-key", "canary-request")
			second := svc.post("canary-key", "canary-request")
			require.Equal(t, first.body, second.body)
			require.Equal(t, "canary-header", second.header.Get("X-Canary"))
			require.True(t, second.replayed())

			ctx := context.Background()
			for _, key := range redis.Keys(ctx, "*").Val() {
				assert.NotContains(t, key, "canary")
				assert.NotContains(t, redis.Get(ctx, key).Val(), "canary")
			}
			require.Len(t, put.data, 1, "the body went into a blob")
			assert.NotContains(t, string(put.data[0]), "canary")
		})
	}
}

// spied keeps what is put.
type spied struct {
	driver.Blobs
	data [][]byte
}

func (s *spied) Put(ctx context.Context, id string, data []byte, ttl time.Duration) error {
	s.data = append(s.data, data)
	return s.Blobs.Put(ctx, id, data, ttl)
}

// A record that was moved to another key, or was never sealed, is refused, and nothing runs.
func TestASealedRecordIsGoodForItsKeyOnly(t *testing.T) {
	redis := redistest.Start(t).Client(t)
	svc := start(t, frameworks[0], redisstore.New(redis), ok(), setup{}, sealed(t))
	ctx := context.Background()
	svc.post("A", "B")
	a := redis.Keys(ctx, "*").Val()[0]
	svc.post("C", "B")
	outcome := redis.Get(ctx, a).Val()[58:]
	for _, key := range redis.Keys(ctx, "*").Val() {
		if key != a {
			record := redis.Get(ctx, key).Val()
			require.NoError(t, redis.Set(ctx, key, record[:58]+outcome, time.Hour).Err())
		}
	}
	swapped := svc.post("C", "B")
	assert.Equal(t, 503, swapped.status)
	assert.Contains(t, swapped.body, "record-unreadable")
	assert.True(t, svc.post("A", "B").replayed())
	assert.EqualValues(t, 2, svc.runs.Load())
}
