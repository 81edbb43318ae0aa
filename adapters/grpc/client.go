package idem

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/go-idem/idem/adapters/internal/rpc"
)

// Client gives each unary call one key, and sends the call again, with the same key and request, when the response is lost or is
// no outcome: after Unavailable, after DeadlineExceeded while the caller's own deadline has not come, and after Aborted or
// ResourceExhausted with RetryInfo. The attempts are bounded by Attempts, MaxElapsed, MaxPause, Window and the context of the
// call, which also bounds how long one attempt takes: give each call a deadline. The caller gets the last response or error.
//
// The key is the value that the caller has put into the outgoing metadata, or a new UUIDv7. Put it there if it must outlive the
// process, or if core.ChildKey derives it:
//
//	ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", key)
//
// A server without this library takes each attempt for a new call, unless it knows keys itself: use Client for servers that do.
//
// The zero value is ready to use. A Client must not be changed after its first use. If a field has an invalid value, or a key
// cannot be sent, each call returns InvalidArgument, and nothing is sent.
type Client struct {
	// Header is the name of the metadata that carries the key. Default "idempotency-key".
	Header string

	// Bare sends keys without quotes, for servers that demand, for example, a UUID. Default false. Servers of this library take
	// both forms as the same key.
	Bare bool

	// Skip excludes methods, such as "/acme.Payments/Pay": their calls are sent once, as they are. It must be safe for concurrent
	// use. Default: no method is skipped. Methods whose idempotency_level is NO_SIDE_EFFECTS are always skipped.
	Skip func(fullMethod string) bool

	// Attempts is how often a call is sent at most. Default 20, which is more than there is time for with the other defaults.
	Attempts int

	// MaxElapsed is how long after the first attempt another attempt may begin. Default 1 min, which is longer than the lease of
	// a server whose process dies (core.LeaseConfig.Duration).
	MaxElapsed time.Duration

	// Window is how long the server keeps outcomes, counted from the first attempt. No attempt is sent after that, because it
	// would run the operation again. If an earlier call has used the key, set Window to the time that is left. Default 24 h.
	Window time.Duration

	// Pause returns the pause before an attempt; attempt is 2 or more. A longer RetryInfo of the server takes its place. It must
	// be safe for concurrent use. Default: 100 ms before the second attempt, and twice as long before each further one, up to
	// 10 s; up to half of that is subtracted at random.
	Pause func(attempt int) time.Duration

	// MaxPause is the longest pause. If the server asks for a longer one, there is no further attempt. Default 1 min.
	MaxPause time.Duration
}

// UnaryInterceptor returns an interceptor for clients. It is safe for concurrent use.
func (c *Client) UnaryInterceptor() grpc.UnaryClientInterceptor {
	client := rpc.Client(*c)
	return func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		md, _ := metadata.FromOutgoingContext(ctx)
		call := &rpc.Call{Procedure: method, Schema: rpc.Schema(method), Header: md.Get}
		var result error
		err := client.Do(ctx, call, func(value string, isNew bool) *status.Status {
			sent := ctx
			if isNew {
				sent = metadata.AppendToOutgoingContext(ctx, client.Name(), value)
			}
			result = invoke(sent, method, req, reply, conn, opts...)
			return statusOf(result)
		})
		if err != nil {
			return grpcstatus.Error(codes.InvalidArgument, err.Error())
		}
		return result
	}
}
