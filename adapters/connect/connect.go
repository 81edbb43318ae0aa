// Package idem makes unary methods of Connect handlers idempotent: [Interceptor] runs them under a core.Engine. It works for
// clients that speak Connect, gRPC or gRPC-Web, and one key is the same key in each.
//
//	mux.Handle(paymentsv1connect.NewPaymentsHandler(payments, connect.WithInterceptors(authenticate, idem.Interceptor(engine))))
//
// The key is in the header field Idempotency-Key. docs/grpc.md says which codes are stored, and with which codes calls are
// refused.
//
// # Where to put the interceptor
//
// Put it after authentication and rate limits, so that they refuse a call before the engine looks at its key. The middleware of
// adapters/http is not needed around the handler: it would store the bytes of one protocol, and refuse in none.
//
// A handler reads its run from its context, with core.FromContext, core.ChildKey and core.Step. The context outlives a client
// that leaves, and ends at the deadline that the client has set, because the client tells the server that deadline.
//
// # Options
//
//	Scope  whose key it is     default: Config.Scope of the engine
//	Skip   what is not guarded default: methods whose idempotency_level is NO_SIDE_EFFECTS
package idem

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/go-idem/idem/adapters/internal/rpc"
	"github.com/go-idem/idem/core"
)

// Option changes how [Interceptor] treats a call.
type Option func(*options)

// options are what the options of Interceptor set.
type options struct{ rpc.Options }

// Scope takes the scope of a key from the context of the call. It MUST come from authentication. f is called for calls with a key
// and must be safe for concurrent use. Default: Config.Scope of the engine.
func Scope(f func(context.Context) string) Option { return func(o *options) { o.Scope = f } }

// Skip runs the handler without the engine for procedures, such as "/acme.Payments/Pay", for which f returns true: nothing is
// stored or replayed, and a key is ignored. f must be safe for concurrent use. Default: no procedure is skipped. Methods whose
// idempotency_level is NO_SIDE_EFFECTS are always skipped.
func Skip(f func(procedure string) bool) Option { return func(o *options) { o.Skip = f } }

// newServer returns the server of an engine with these options.
func newServer(e *core.Engine, opts []Option) *rpc.Server {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return rpc.NewServer(e, o.Options)
}

// Response returns the form in which the engine stores a message, or the code, text and details of err if err is not nil. It is
// for functions that say what became of a call, such as core.LeaseConfig.OnUnknown and core.Engine.Resolve. It returns nil if the
// message cannot be encoded.
func Response(message proto.Message, err error) *core.Response {
	return rpc.Response(message, statusOf(err))
}
