package idem

import (
	"context"

	grpcstatus "google.golang.org/grpc/status"

	"github.com/go-idem/idem/adapters/internal/rpc"
	"github.com/go-idem/idem/core"
)

// State is what became of a key: its state, and the HTTP status of the stored code.
type State = rpc.State

// Status returns a function that says what became of a key, for a method of the application. fullMethod is that of the guarded
// call, such as "/acme.Payments/Pay", and key the value that the call had in its metadata. The application passes the key in the
// message of its method: a key in the metadata would make that call a guarded one.
//
// The scope is that of the caller, whose context is ctx, so that callers learn about their own keys only. The function claims
// nothing, changes nothing in the record, and returns nothing of a stored message. Its errors are the refusals of docs/grpc.md.
// The option Skip has no effect. The function is safe for concurrent use. Status panics if e was made with a configuration that
// is invalid for calls.
func Status(e *core.Engine, opts ...Option) func(ctx context.Context, fullMethod, key string) (State, error) {
	server := newServer(e, opts)
	return func(ctx context.Context, fullMethod, key string) (State, error) {
		found, refused := server.State(ctx, fullMethod, key, newCall(ctx, fullMethod, nil).Header)
		return found, grpcstatus.FromProto(refused).Err()
	}
}
