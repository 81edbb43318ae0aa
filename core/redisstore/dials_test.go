package redisstore_test

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/core/storetest"
)

// go-redis dials until the time of the call is over, and then says only that: nobody could tell a server that is down from one
// that is slow.
func TestACallThatCannotConnectSaysWhy(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := listener.Addr().String()
	require.NoError(t, listener.Close())
	for name, connect := range map[string]func() redis.UniversalClient{
		"one server": func() redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: closed, ContextTimeoutEnabled: true})
		},
		"a Cluster": func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{closed}, ContextTimeoutEnabled: true})
		},
	} {
		for kind, opts := range map[string][]redisstore.Option{"": nil, ", in batches": {redisstore.Batch()}} {
			t.Run(name+kind, func(t *testing.T) {
				t.Parallel()
				client := connect()
				defer client.Close()
				store := redisstore.New(client, opts...)
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				_, err := store.Begin(ctx, storetest.NewClaim(time.Minute, time.Hour))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.ErrorIs(t, err, syscall.ECONNREFUSED)
			})
		}
	}
}
