package idem_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

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
	"github.com/go-idem/idem/core/memstore"
)

// codeOf returns the code of a reply.
func codeOf(r rpctest.Reply) codes.Code { return codes.Code(r.Status.GetCode()) }

// isReplay reports whether the marker is in the header.
func isReplay(r rpctest.Reply) bool { return len(r.Header["idempotent-replayed"]) == 1 }

func TestAHeaderThatIsSentBeforeAFailureIsHeldBack(t *testing.T) {
	handle := func(ctx context.Context, _ *structpb.Struct, x rpctest.Exchange) (*structpb.Struct, *spb.Status) {
		assert.NoError(t, grpc.SetHeader(ctx, metadata.Pairs("a", "1")))
		assert.NoError(t, grpc.SendHeader(ctx, metadata.Pairs("b", "2")))
		assert.Error(t, grpc.SetHeader(ctx, metadata.Pairs("c", "3")))
		assert.Error(t, grpc.SendHeader(ctx, metadata.Pairs("c", "3")))
		x.SetTrailer("d", "4")
		return nil, &spb.Status{Code: int32(codes.NotFound), Message: "gone"}
	}
	conn := serve(t, handle, grpc.UnaryInterceptor(idem.UnaryServerInterceptor(rpctest.NewEngine(t))))
	for range 2 {
		reply := call(t.Context(), conn, rpctest.NewRequest())
		assert.Equal(t, codes.NotFound, codeOf(reply))
		assert.Equal(t, []string{"1", "2", "", "4"},
			[]string{value(reply.Header, "a"), value(reply.Header, "b"), value(reply.Header, "c"), value(reply.Trailer, "d")})
	}

	conn = serve(t, handle, grpc.UnaryInterceptor(idem.UnaryServerInterceptor(rpctest.NewEngine(t, func(c *core.Config) {
		c.Store = rpctest.Losing{Store: memstore.New()}
	}))))
	reply := call(t.Context(), conn, rpctest.NewRequest())
	assert.Equal(t, codes.Aborted, codeOf(reply))
	assert.Empty(t, value(reply.Header, "b"))
}

// value returns the only value of metadata, or "".
func value(md rpctest.Metadata, name string) string { return strings.Join(md[name], " and ") }

func TestWhatAGoroutineSetsAfterItsHandlerIsRefused(t *testing.T) {
	var late context.Context
	handle := func(ctx context.Context, _ *structpb.Struct, _ rpctest.Exchange) (*structpb.Struct, *spb.Status) {
		late = ctx
		return nil, &spb.Status{Code: int32(codes.NotFound)}
	}
	setLate := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		res, err := next(ctx, req)
		assert.Error(t, grpc.SetTrailer(late, metadata.Pairs("late", "1")))
		assert.Error(t, grpc.SetHeader(late, metadata.Pairs("late", "1")))
		return res, err
	}
	conn := serve(t, handle, grpc.ChainUnaryInterceptor(setLate, idem.UnaryServerInterceptor(rpctest.NewEngine(t))))
	reply := call(t.Context(), conn, rpctest.NewRequest())
	assert.Empty(t, value(reply.Header, "late")+value(reply.Trailer, "late"))
}

// An interceptor that refuses callers behind the engine has its refusals taken for responses of the handler: they free the key.
func TestAuthenticationBehindTheEngine(t *testing.T) {
	var isKnown atomic.Bool
	authenticate := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if !isKnown.Load() {
			return nil, status.Error(codes.Unauthenticated, "who are you?")
		}
		return next(ctx, req)
	}
	conn := serve(t, rpctest.Accepted, grpc.ChainUnaryInterceptor(idem.UnaryServerInterceptor(rpctest.NewEngine(t)), authenticate))
	assert.Equal(t, codes.Unauthenticated, codeOf(call(t.Context(), conn, rpctest.NewRequest())))
	isKnown.Store(true)
	other := rpctest.NewRequest()
	other.Message = &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewNullValue()}}
	reply := call(t.Context(), conn, other)
	assert.Equal(t, codes.OK, codeOf(reply))
	assert.False(t, isReplay(reply))
}

func TestMetadataOfInterceptorsOutsideIsNeitherStoredNorDoubled(t *testing.T) {
	var calls atomic.Int64
	outside := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if calls.Add(1) == 1 {
			assert.NoError(t, grpc.SetHeader(ctx, metadata.Pairs("first", "1")))
		}
		assert.NoError(t, grpc.SetHeader(ctx, metadata.Pairs("each", "1")))
		return next(ctx, req)
	}
	conn := serve(t, rpctest.Accepted, grpc.ChainUnaryInterceptor(outside, idem.UnaryServerInterceptor(rpctest.NewEngine(t))))
	first, replay := call(t.Context(), conn, rpctest.NewRequest()), call(t.Context(), conn, rpctest.NewRequest())
	assert.Equal(t, []string{"1", "1"}, []string{value(first.Header, "each"), value(first.Header, "first")})
	assert.Equal(t, []string{"1", ""}, []string{value(replay.Header, "each"), value(replay.Header, "first")})
	assert.True(t, isReplay(replay))
	assert.NotContains(t, replay.Header, "content-length", "the engine adds it for HTTP")
}

// The handlers of Connect encode binary metadata themselves, and records are shared.
func TestBinaryMetadataMayBePadded(t *testing.T) {
	conn := serve(t, rpctest.Accepted, grpc.UnaryInterceptor(idem.UnaryServerInterceptor(rpctest.NewEngine(t, func(c *core.Config) {
		c.Keep.OnReplay = func(_ context.Context, _ *core.Request, r *core.Response) (*core.Response, error) {
			r.Header = append(r.Header, core.Field{Name: "A-Bin", Value: "AA=="}, core.Field{Name: "B-Bin", Value: "?"})
			return r, nil
		}
	}))))
	call(t.Context(), conn, rpctest.NewRequest())
	replay := call(t.Context(), conn, rpctest.NewRequest())
	assert.Equal(t, []string{"\x00"}, replay.Header["a-bin"])
	assert.NotContains(t, replay.Header, "b-bin")
}

func TestCompressionDoesNotCount(t *testing.T) {
	var runs atomic.Int64
	handle := func(ctx context.Context, in *structpb.Struct, x rpctest.Exchange) (*structpb.Struct, *spb.Status) {
		runs.Add(1)
		return in, nil
	}
	conn := serve(t, handle, grpc.UnaryInterceptor(idem.UnaryServerInterceptor(rpctest.NewEngine(t))))
	request := rpctest.NewRequest()
	request.Message.Fields = map[string]*structpb.Value{"x": structpb.NewStringValue(strings.Repeat("x", 10000))}
	first := call(t.Context(), conn, request, grpc.UseCompressor("gzip"))
	replay := call(t.Context(), conn, request)
	assert.True(t, isReplay(replay))
	assert.Equal(t, first.Message.Fields["x"].GetStringValue(), replay.Message.Fields["x"].GetStringValue())
	assert.EqualValues(t, 1, runs.Load())
}

func TestTwoInterceptorsAreOneIfTheyAgree(t *testing.T) {
	engine := rpctest.NewEngine(t)
	inner := engine.With(func(c *core.Config) { c.Keep.MaxBody = 7 })
	for name, c := range map[string]struct {
		inner *core.Engine
		want  codes.Code
	}{
		"one engine twice":    {engine, codes.OK},
		"engines that differ": {inner, codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			conn := serve(t, rpctest.Accepted,
				grpc.ChainUnaryInterceptor(idem.UnaryServerInterceptor(engine), idem.UnaryServerInterceptor(c.inner)))
			request := rpctest.NewRequest()
			request.Metadata["idempotency-key"] = []string{strings.ReplaceAll(name, " ", "-")}
			assert.Equal(t, c.want, codeOf(call(t.Context(), conn, request)))
		})
	}
}

func TestAMethodThatTheRegistryLacksIsRefusedWithAKey(t *testing.T) {
	intercept := idem.UnaryServerInterceptor(rpctest.NewEngine(t))
	info := &grpc.UnaryServerInfo{FullMethod: "/acme.Unknown/Pay"}
	runs := 0
	handle := func(context.Context, any) (any, error) {
		runs++
		return "paid", nil
	}
	_, err := intercept(t.Context(), "request", info, handle)
	require.NoError(t, err)
	keyed := metadata.NewIncomingContext(t.Context(), metadata.Pairs("idempotency-key", "k"))
	_, err = intercept(keyed, "request", info, handle)
	assert.Equal(t, codes.Internal, status.Code(err))
	info.FullMethod = rpctest.Pay
	_, err = intercept(keyed, "request", info, handle)
	assert.Equal(t, codes.Internal, status.Code(err))
	assert.Equal(t, 1, runs)
}

func TestTheAuthorityCanCount(t *testing.T) {
	conn := serve(t, rpctest.Accepted, grpc.UnaryInterceptor(idem.UnaryServerInterceptor(rpctest.NewEngine(t, func(c *core.Config) {
		c.Fingerprint.Headers = []string{"Host"}
	}))))
	for range 2 {
		require.Equal(t, codes.OK, codeOf(call(t.Context(), conn, rpctest.NewRequest(), grpc.CallAuthority("eu.example"))))
	}
	other := call(t.Context(), conn, rpctest.NewRequest(), grpc.CallAuthority("us.example"))
	assert.Equal(t, codes.FailedPrecondition, codeOf(other))
}

// odd is an error with a status that says OK.
type odd struct{}

func (odd) Error() string              { return "odd" }
func (odd) GRPCStatus() *status.Status { return status.New(codes.OK, "fine") }

func TestAnErrorWhoseStatusIsOKIsAnError(t *testing.T) {
	intercept := idem.UnaryServerInterceptor(rpctest.NewEngine(t))
	keyed := metadata.NewIncomingContext(t.Context(), metadata.Pairs("idempotency-key", "k"))
	info, runs := &grpc.UnaryServerInfo{FullMethod: rpctest.Pay}, 0
	for range 2 {
		_, err := intercept(keyed, &structpb.Struct{}, info, func(context.Context, any) (any, error) {
			runs++
			return nil, odd{}
		})
		assert.Error(t, err)
	}
	assert.Equal(t, 2, runs)
}
