package idem_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	idem "github.com/go-idem/idem/adapters/grpc"
	"github.com/go-idem/idem/adapters/internal/rpc/rpctest"
	"github.com/go-idem/idem/core"
)

// losingReplies returns an interceptor of a client that loses the first replies, and reports the keys that were sent.
func losingReplies(lost int, keys *[]string) grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		md, _ := metadata.FromOutgoingContext(ctx)
		*keys = append(*keys, md.Get("idempotency-key")...)
		err := invoke(ctx, method, req, reply, conn, opts...)
		if lost--; lost >= 0 {
			return status.Error(codes.Unavailable, "lost")
		}
		return err
	}
}

// quick is a Pause for tests.
func quick(int) time.Duration { return 0 }

// client returns a connection of a client to a new guarded server.
func client(t *testing.T, h rpctest.Handler, c *idem.Client, inner grpc.UnaryClientInterceptor) *grpc.ClientConn {
	engine := rpctest.NewEngine(t, func(c *core.Config) { c.Lease.Duration = 10 * time.Second }) // RetryInfo is a tenth of that.
	listener := listen(t, h, grpc.UnaryInterceptor(idem.UnaryServerInterceptor(engine)))
	return dial(t, listener, grpc.WithChainUnaryInterceptor(c.UnaryInterceptor(), inner))
}

func TestAClientWhoseRepliesAreLostPaysOnce(t *testing.T) {
	var runs atomic.Int64
	handle := func(_ context.Context, _ *structpb.Struct, x rpctest.Exchange) (*structpb.Struct, *spb.Status) {
		runs.Add(1)
		x.SetHeader("payment", "42")
		return &structpb.Struct{}, nil
	}
	var keys []string
	conn := client(t, handle, &idem.Client{Pause: quick}, losingReplies(3, &keys))
	request := rpctest.NewRequest()
	delete(request.Metadata, "idempotency-key")
	reply := call(t.Context(), conn, request)
	assert.Equal(t, codes.OK, codeOf(reply))
	assert.Equal(t, "42", value(reply.Header, "payment"))
	assert.True(t, isReplay(reply))
	assert.EqualValues(t, 1, runs.Load())
	require.Len(t, keys, 4)
	assert.Equal(t, []string{keys[0], keys[0], keys[0]}, keys[1:])

	assert.False(t, isReplay(call(t.Context(), conn, request)), "another call is another payment")
	assert.EqualValues(t, 2, runs.Load())

	assert.False(t, isReplay(call(t.Context(), conn, rpctest.NewRequest())))
	assert.True(t, isReplay(call(t.Context(), conn, rpctest.NewRequest())), "the caller's own key is sent")
	assert.Equal(t, []string{"k", "k"}, keys[5:])
}

// A call that comes while the first attempt runs waits as the server asks, and gets the outcome of the first.
func TestAClientWaitsForTheRunInProgress(t *testing.T) {
	running, goOn := make(chan struct{}), make(chan struct{})
	held := func(ctx context.Context, in *structpb.Struct, x rpctest.Exchange) (*structpb.Struct, *spb.Status) {
		close(running)
		<-goOn
		return rpctest.Accepted(ctx, in, x)
	}
	var refused []codes.Code
	inspect := func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := invoke(ctx, method, req, reply, conn, opts...)
		if status.Code(err) == codes.Aborted {
			refused = append(refused, codes.Aborted)
			close(goOn)
		}
		return err
	}
	conn := client(t, held, &idem.Client{Pause: quick}, inspect)
	first := make(chan rpctest.Reply, 1)
	go func() { first <- call(t.Context(), conn, rpctest.NewRequest()) }()
	<-running
	second := call(t.Context(), conn, rpctest.NewRequest())
	assert.True(t, isReplay(second))
	assert.Equal(t, codes.OK, codeOf(<-first))
	assert.Equal(t, []codes.Code{codes.Aborted}, refused)
}

func TestAKeyThatCannotBeSentIsAnErrorAndNothingIsSent(t *testing.T) {
	intercept := (&idem.Client{}).UnaryInterceptor()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", "")
	send := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		t.Error("sent")
		return nil
	}
	err := intercept(ctx, rpctest.Pay, nil, nil, nil, send)
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
}
