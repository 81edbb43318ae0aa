package adaptertest

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

// Sealed is how a service keeps answers that nobody else may read.
func Sealed(t *testing.T) func(*core.Config) {
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
func TestNothingOfARequestOrItsAnswerCanBeReadInTheStore(t *testing.T, f Framework) {
	t.Parallel()
	redis := redistest.Start(t).Client(t)
	dir, err := blobs.Dir(t.TempDir())
	require.NoError(t, err)
	put := &spied{Blobs: dir}
	svc := Start(t, f, redisstore.New(redis), func(Request) Response {
		return Response{Status: 201, Header: http.Header{"X-Canary": {"canary-header"}}, Body: strings.Repeat("canary-answer ", 1000)}
	}, Setup{}, func(c *core.Config) {
		Sealed(t)(c)
		c.Keep.Blobs, c.Keep.BlobsFrom = put, 8000
		c.Scope = func(context.Context, *core.Request) string { return "canary-tenant" }
	})
	first := svc.Post("canary-key", "canary-request")
	second := svc.Post("canary-key", "canary-request")
	require.Equal(t, first.Body, second.Body)
	require.Equal(t, "canary-header", second.Header.Get("X-Canary"))
	require.True(t, second.Replayed())

	ctx := context.Background()
	for _, key := range redis.Keys(ctx, "*").Val() {
		assert.NotContains(t, key, "canary")
		assert.NotContains(t, redis.Get(ctx, key).Val(), "canary")
	}
	require.Len(t, put.data, 1, "the body went into a blob")
	assert.NotContains(t, string(put.data[0]), "canary")
}

// spied keeps what is put.
type spied struct {
	driver.Blobs
	data [][]byte
}

// Put implements driver.Blobs. It keeps the data as it came from the codecs, and passes it on.
func (s *spied) Put(ctx context.Context, id string, data []byte, ttl time.Duration) error {
	s.data = append(s.data, data)
	return s.Blobs.Put(ctx, id, data, ttl)
}
