package idem

import (
	"context"

	"connectrpc.com/connect"

	"github.com/go-idem/idem/adapters/internal/rpc"
	"github.com/go-idem/idem/core"
)

// State is what became of a key: its state, and the HTTP status of the stored code.
type State = rpc.State

// Status returns a function that says what became of a key, for a method of the application. procedure is that of the guarded
// call, such as "/acme.Payments/Pay", and key the value that the call had in its header. The application passes the key in the
// message of its method: a key in the header would make that call a guarded one.
//
// The scope is that of the caller, whose context is ctx, so that callers learn about their own keys only. The function claims
// nothing, changes nothing in the record, and returns nothing of a stored message. Its errors are the refusals of docs/grpc.md.
// The option Skip has no effect. The function is safe for concurrent use. Status panics if e was made with a configuration that
// is invalid for calls.
func Status(e *core.Engine, opts ...Option) func(ctx context.Context, procedure, key string) (State, error) {
	server := newServer(e, opts)
	return func(ctx context.Context, procedure, key string) (State, error) {
		found, refused := server.State(ctx, procedure, key, headerIn(ctx))
		if refused != nil {
			return found, errorOf(refused, nil)
		}
		return found, nil
	}
}

// headerIn returns the function that reads the header of the call whose context is ctx. Outside of a handler the header is empty.
func headerIn(ctx context.Context) func(name string) []string {
	call, isHandled := connect.CallInfoForHandlerContext(ctx)
	if !isHandled {
		return func(string) []string { return nil }
	}
	return call.RequestHeader().Values
}
