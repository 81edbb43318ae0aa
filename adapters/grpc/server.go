package idem

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/go-idem/idem/adapters/internal/rpc"
	"github.com/go-idem/idem/core"
)

// UnaryServerInterceptor returns an interceptor that runs unary methods under e. It is safe for concurrent use. It panics if e
// was made with a configuration that is invalid for calls.
//
// Header and trailer that a handler sets are held back, also by grpc.SendHeader, until the outcome is stored. What interceptors
// outside set is neither stored nor doubled. In a guarded handler grpc.SetSendCompressor and grpc.ClientSupportedCompressors
// return an error, since they accept no other stream than that of the server: call them in an interceptor outside.
//
// A call with a key is refused with Internal if its method is not in protoregistry.GlobalFiles, where generated code registers
// it, or if its request is no proto.Message.
func UnaryServerInterceptor(e *core.Engine, opts ...Option) grpc.UnaryServerInterceptor {
	server := newServer(e, opts)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		var message any
		var err error
		call := newCall(ctx, info.FullMethod, req)
		result := server.Do(ctx, call, func(inner context.Context) *rpc.Reply {
			held := &heldStream{method: info.FullMethod}
			defer held.close()
			message, err = handler(grpc.NewContextWithServerTransportStream(inner, held), req)
			return held.reply(message, err)
		})
		if result.Bypassed {
			return handler(ctx, req)
		}
		send(ctx, result.Header, result.Trailer)
		switch {
		case result.First:
			return message, err
		case result.Status != nil:
			return nil, grpcstatus.FromProto(result.Status).Err()
		}
		return result.Message, nil
	}
}

// StreamServerInterceptor returns an interceptor that refuses streams with a key, with Unimplemented: a stream cannot be
// replayed, and a client that sends a key relies on it. Streams without a key, and those of Skip, pass.
func StreamServerInterceptor(e *core.Engine, opts ...Option) grpc.StreamServerInterceptor {
	server := newServer(e, opts)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if refused := server.RefuseStream(newCall(stream.Context(), info.FullMethod, nil)); refused != nil {
			return grpcstatus.FromProto(refused).Err()
		}
		return handler(srv, stream)
	}
}

// newCall returns the call whose context is ctx.
func newCall(ctx context.Context, method string, req any) *rpc.Call {
	md, _ := metadata.FromIncomingContext(ctx)
	return &rpc.Call{
		Procedure: method, Schema: rpc.Schema(method), Message: req,
		Header: func(name string) []string {
			if name == "Host" || name == "host" {
				name = ":authority"
			}
			return md.Get(name)
		},
	}
}

// send hands header and trailer to the stream of the server. It fails if the client has left, who then needs neither.
func send(ctx context.Context, header, trailer []core.Field) {
	stream := grpc.ServerTransportStreamFromContext(ctx)
	if stream == nil { // The interceptor was called without a server.
		return
	}
	_ = stream.SetHeader(mdOf(header))
	_ = stream.SetTrailer(mdOf(trailer))
}
