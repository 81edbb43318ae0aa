package idem_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // The clients compress some requests.
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	idem "github.com/go-idem/idem/adapters/grpc"
	"github.com/go-idem/idem/adapters/internal/rpc"
	"github.com/go-idem/idem/adapters/internal/rpc/rpctest"
	"github.com/go-idem/idem/core"
)

// The Redis server of the table ends with the process.
func TestMain(m *testing.M) {
	rpctest.ServeIfChild(func(e *core.Engine, h rpctest.Handler, l net.Listener) {
		server := grpc.NewServer(grpc.UnaryInterceptor(idem.UnaryServerInterceptor(e)))
		server.RegisterService(description(h), nil)
		_ = server.Serve(l)
	})
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/go-idem/idem/internal/tied.startAll"),
		goleak.IgnoreAnyFunction("github.com/go-idem/idem/internal/redistest.(*Server).spawn.func1"))
}

func TestAdapter(t *testing.T) {
	rpctest.Run(t, rpctest.Adapter{
		Start: start,
		Response: func(m proto.Message, s *spb.Status) *core.Response {
			return idem.Response(m, status.FromProto(s).Err())
		},
		State: func(e *core.Engine, o rpc.Options) func(context.Context, string, string) (rpc.State, *spb.Status) {
			ask := idem.Status(e, optionsOf(o)...)
			return func(ctx context.Context, method, key string) (rpc.State, *spb.Status) {
				found, err := ask(ctx, method, key)
				if err != nil {
					return found, status.Convert(err).Proto()
				}
				return found, nil
			}
		},
	})
}

// start is the Start of an Adapter.
func start(t testing.TB, e *core.Engine, h rpctest.Handler, o rpc.Options) rpctest.Client {
	opts := optionsOf(o)
	conn := serve(t, h, grpc.ChainUnaryInterceptor(recoverPanic, idem.UnaryServerInterceptor(e, opts...)),
		grpc.ChainStreamInterceptor(idem.StreamServerInterceptor(e, opts...)))
	return rpctest.Client{
		Call: func(ctx context.Context, r rpctest.Request) rpctest.Reply { return call(ctx, conn, r) },
		Stream: func(ctx context.Context, r rpctest.Request) rpctest.Reply {
			stream, err := conn.NewStream(outgoing(ctx, r), &grpc.StreamDesc{ServerStreams: true}, r.Method)
			require.NoError(t, err)
			require.NoError(t, stream.SendMsg(r.Message))
			require.NoError(t, stream.CloseSend())
			message := &structpb.Struct{}
			for err == nil {
				err = stream.RecvMsg(message)
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return rpctest.Reply{Message: message, Status: status.Convert(err).Proto()}
		},
	}
}

// optionsOf returns the options of an adapter.
func optionsOf(o rpc.Options) []idem.Option { return rpctest.OptionsOf(o, idem.Scope, idem.Skip) }

// recoverPanic is an interceptor that makes an error of a panic.
func recoverPanic(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (res any, err error) {
	defer func() {
		if recover() != nil {
			err = status.Error(codes.Internal, "panic")
		}
	}()
	return next(ctx, req)
}

// serve starts a server of the test service and returns a connection to it.
func serve(t testing.TB, h rpctest.Handler, opts ...grpc.ServerOption) *grpc.ClientConn {
	return dial(t, listen(t, h, opts...))
}

// listen starts a server of the test service and returns its listener.
func listen(t testing.TB, h rpctest.Handler, opts ...grpc.ServerOption) *bufconn.Listener {
	server, listener := grpc.NewServer(opts...), bufconn.Listen(1<<20)
	server.RegisterService(description(h), nil)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
	return listener
}

// dial returns a connection to a listener.
func dial(t testing.TB, listener *bufconn.Listener, opts ...grpc.DialOption) *grpc.ClientConn {
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	conn, err := grpc.NewClient("passthrough:test", opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// description describes the test service, as generated code does.
func description(h rpctest.Handler) *grpc.ServiceDesc {
	handle := func(ctx context.Context, req any) (any, error) {
		message, failure := h(ctx, req.(*structpb.Struct), exchange{ctx})
		return message, status.FromProto(failure).Err()
	}
	desc := &grpc.ServiceDesc{ServiceName: rpctest.Service, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: "Watch", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			req := &structpb.Struct{}
			if err := stream.RecvMsg(req); err != nil {
				return err
			}
			message, _ := h(stream.Context(), req, exchange{stream.Context()})
			return stream.SendMsg(message)
		},
	}}}
	for _, name := range []string{"Pay", "Refund", "Look"} {
		info := &grpc.UnaryServerInfo{FullMethod: "/" + rpctest.Service + "/" + name}
		desc.Methods = append(desc.Methods, grpc.MethodDesc{MethodName: name, Handler: func(
			_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor,
		) (any, error) {
			req := &structpb.Struct{}
			if err := decode(req); err != nil {
				return nil, err
			}
			return intercept(ctx, req, info, handle)
		}})
	}
	return desc
}

// exchange is the context of a call.
type exchange struct{ ctx context.Context }

func (x exchange) SetHeader(name, value string) {
	_ = grpc.SetHeader(x.ctx, metadata.Pairs(name, value))
}

func (x exchange) SetTrailer(name, value string) {
	_ = grpc.SetTrailer(x.ctx, metadata.Pairs(name, value))
}

// outgoing returns a context with the metadata of a request.
func outgoing(ctx context.Context, r rpctest.Request) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.MD(maps.Clone(r.Metadata)))
}

// call sends a unary call.
func call(ctx context.Context, conn *grpc.ClientConn, r rpctest.Request, opts ...grpc.CallOption) rpctest.Reply {
	var header, trailer metadata.MD
	message := &structpb.Struct{}
	err := conn.Invoke(outgoing(ctx, r), r.Method, r.Message, message, append(opts, grpc.Header(&header), grpc.Trailer(&trailer))...)
	if err != nil {
		message = nil
	}
	return rpctest.Reply{
		Header: rpctest.Metadata(header), Trailer: rpctest.Metadata(trailer), Message: message, Status: status.Convert(err).Proto(),
	}
}
