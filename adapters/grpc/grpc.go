// Package idem makes unary gRPC methods idempotent: [UnaryServerInterceptor] runs them under a core.Engine.
//
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(authenticate, idem.UnaryServerInterceptor(engine)),
//		grpc.ChainStreamInterceptor(authenticateStream, idem.StreamServerInterceptor(engine)),
//	)
//
// The key is in the metadata idempotency-key, in the forms that the header field Idempotency-Key may have. docs/grpc.md says
// which status codes are stored, and with which codes calls are refused.
//
// # Where to put the interceptor
//
// Put it after authentication and rate limits, so that they refuse a call before the engine looks at its key. Put an interceptor
// that recovers from panics inside it or outside: in both places the same request may run again.
//
// A handler reads its run from its context, with core.FromContext, core.ChildKey and core.Step. The context outlives a client
// that leaves, and ends at the deadline that the client has set, because gRPC tells the server that deadline.
//
// # Options
//
//	Scope  whose key it is     default: Config.Scope of the engine
//	Skip   what is not guarded default: methods whose idempotency_level is NO_SIDE_EFFECTS
package idem

import (
	"context"

	"google.golang.org/genproto/googleapis/rpc/status"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/go-idem/idem/adapters/internal/rpc"
	"github.com/go-idem/idem/core"
)

// Option changes how the server interceptors treat a call.
type Option func(*options)

// options are what the options of the server interceptors set.
type options struct{ rpc.Options }

// Scope takes the scope of a key from the context of the call. It MUST come from authentication. f is called for calls with a key
// and must be safe for concurrent use. Default: Config.Scope of the engine.
func Scope(f func(context.Context) string) Option { return func(o *options) { o.Scope = f } }

// Skip runs the handler without the engine for methods, such as "/acme.Payments/Pay", for which f returns true: nothing is stored
// or replayed, and a key is ignored. f must be safe for concurrent use. Default: no method is skipped. Methods whose
// idempotency_level is NO_SIDE_EFFECTS are always skipped.
func Skip(f func(fullMethod string) bool) Option { return func(o *options) { o.Skip = f } }

// newServer returns the server of an engine with these options.
func newServer(e *core.Engine, opts []Option) *rpc.Server {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return rpc.NewServer(e, o.Options)
}

// Response returns the form in which the engine stores a message, or the status of err if err is not nil. It is for functions
// that say what became of a call, such as core.LeaseConfig.OnUnknown and core.Engine.Resolve. It returns nil if the message
// cannot be encoded.
func Response(message proto.Message, err error) *core.Response {
	return rpc.Response(message, statusOf(err))
}

// statusOf returns the status that a gRPC server sends for the error of a handler, and nil for no error.
func statusOf(err error) *status.Status {
	if err == nil {
		return nil
	}
	s, isStatus := grpcstatus.FromError(err)
	if !isStatus {
		s = grpcstatus.FromContextError(err)
	}
	return s.Proto()
}
