package idem_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	idem "github.com/go-idem/idem/adapters/grpc"
	"github.com/go-idem/idem/adapters/internal/rpc/rpctest"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

func TestAKilledServerIsTakenOver(t *testing.T) {
	rpctest.TestAKilledServerIsTakenOver(t, func(t *testing.T, addr string) rpctest.Client {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return rpctest.Client{Call: func(ctx context.Context, r rpctest.Request) rpctest.Reply { return call(ctx, conn, r) }}
	})
}

// retryPolicy is a service config whose retries come below the interceptors of a client.
const retryPolicy = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.001s",
	"maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// gRPC's own retries have the metadata of the first attempt, and so its key.
func TestRetriesOfTheServiceConfigRunOnce(t *testing.T) {
	for name, fault := range map[string]struct {
		inject   func(store *storetest.Faulty, conn net.Conn, attempt int64)
		isReplay bool
	}{
		"the connection breaks when the handler has returned": {func(_ *storetest.Faulty, conn net.Conn, attempt int64) {
			if attempt == 1 {
				_ = conn.Close()
			}
		}, true},
		"the store is away": {func(store *storetest.Faulty, _ net.Conn, attempt int64) {
			if attempt == 0 {
				store.Inject("begin", storetest.Before, 2)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var runs, attempts atomic.Int64
			var dialled atomic.Value
			store := storetest.NewFaulty(memstore.New())
			engine := rpctest.NewEngine(t, func(c *core.Config) { c.Store = store })
			fault.inject(store, nil, 0)
			after := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				res, err := next(ctx, req)
				fault.inject(store, dialled.Load().(net.Conn), attempts.Add(1))
				return res, err
			}
			listener := listen(t, func(context.Context, *structpb.Struct, rpctest.Exchange) (*structpb.Struct, *spb.Status) {
				runs.Add(1)
				return &structpb.Struct{}, nil
			}, grpc.ChainUnaryInterceptor(after, idem.UnaryServerInterceptor(engine)))
			conn, err := grpc.NewClient("passthrough:test", grpc.WithDefaultServiceConfig(retryPolicy),
				grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					conn, err := listener.DialContext(ctx)
					dialled.Store(conn)
					return conn, err
				}))
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			reply := call(t.Context(), conn, rpctest.NewRequest())
			assert.Equal(t, codes.OK, codeOf(reply), reply.Status)
			assert.Equal(t, fault.isReplay, isReplay(reply))
			assert.EqualValues(t, 1, runs.Load())
			assert.Greater(t, attempts.Load(), int64(1), "gRPC has sent the call again")
		})
	}
}
