package idem_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	idem "github.com/go-idem/idem/adapters/connect"
	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/adapters/internal/rpc/rpctest"
	"github.com/go-idem/idem/core"
)

// instead returns an interceptor that does its work in place of the handler.
func instead(do func(context.Context) (connect.AnyResponse, error)) connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, _ connect.AnyRequest) (connect.AnyResponse, error) { return do(ctx) }
	})
}

func TestOneKeyIsTheSameKeyInEachProtocol(t *testing.T) {
	engine := rpctest.NewEngine(t, func(c *core.Config) { c.Fingerprint.Headers = []string{"Content-Type"} })
	var first rpctest.Reply
	for i, protocol := range []connect.ClientOption{
		connect.WithClientOptions(), connect.WithProtoJSON(), connect.WithGRPC(), connect.WithGRPCWeb(), connect.WithSendGzip(),
	} {
		client := serve(t, func(_ context.Context, _ *structpb.Struct, x rpctest.Exchange) (*structpb.Struct, *status.Status) {
			x.SetTrailer("cost", "7")
			return nil, &status.Status{Code: 5, Message: "gone"}
		}, protocol, idem.Interceptor(engine))
		reply := client.Call(t.Context(), rpctest.NewRequest())
		if i == 0 {
			first = reply
			continue
		}
		assert.Equal(t, first.Status.Code, reply.Status.Code)
		assert.Equal(t, first.Status.Message, reply.Status.Message)
		assert.Equal(t, []string{"true"}, reply.Header["idempotent-replayed"])
		assert.Equal(t, []string{"7"}, reply.Trailer["cost"])
	}
}

// The metadata of an error that another service has returned are that service's own: Connect does not send them on.
func TestTheMetadataOfAnErrorOfAnotherServiceAreNotStored(t *testing.T) {
	fail := func(_ context.Context, _ *structpb.Struct, x rpctest.Exchange) (*structpb.Struct, *status.Status) {
		x.SetHeader("session", "secret")
		return nil, &status.Status{Code: 5, Message: "gone"}
	}
	httpClient, url := listen(t, newMux(fail))
	client := connect.NewClient[structpb.Struct, structpb.Struct](httpClient, url+rpctest.Pay)
	forwards := instead(func(ctx context.Context) (connect.AnyResponse, error) {
		res, err := client.CallUnary(ctx, connect.NewRequest(&structpb.Struct{}))
		assert.True(t, connect.IsWireError(err))
		return res, err
	})
	guarded := serve(t, rpctest.Accepted, connect.WithGRPC(), idem.Interceptor(rpctest.NewEngine(t)), forwards)
	for range 2 {
		reply := guarded.Call(t.Context(), rpctest.NewRequest())
		assert.EqualValues(t, 5, reply.Status.Code)
		assert.Empty(t, reply.Header["session"])
	}
}

// Handlers may return one error, or one response, from many calls at once.
func TestWhatManyCallsReturnIsNotChanged(t *testing.T) {
	shared := connect.NewError(connect.CodeInternal, errors.New("down"))
	shared.Meta().Set("Hint", "1")
	shared.Meta().Set("Idempotent-Replayed", "true")
	res := connect.NewResponse(&structpb.Struct{})
	res.Header().Set("Hint", "1")
	for name, do := range map[string]func(context.Context) (connect.AnyResponse, error){
		"error":    func(context.Context) (connect.AnyResponse, error) { return nil, shared },
		"response": func(context.Context) (connect.AnyResponse, error) { return res, nil },
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, rpctest.Accepted, connect.WithGRPC(), idem.Interceptor(rpctest.NewEngine(t)), instead(do))
			var done sync.WaitGroup
			for i := range 8 {
				done.Go(func() {
					request := rpctest.NewRequest()
					request.Metadata["idempotency-key"] = []string{strings.Repeat("k", i+1)}
					reply := client.Call(t.Context(), request)
					assert.Equal(t, []string{"1"}, append(reply.Header["hint"], reply.Trailer["hint"]...)[:1])
					assert.Empty(t, reply.Header["idempotent-replayed"], "no handler can set the marker")
				})
			}
			done.Wait()
		})
	}
	assert.Len(t, shared.Meta(), 2)
	assert.Len(t, res.Header(), 1)
}

func TestInterceptorsOutsideSeeTheHandlersError(t *testing.T) {
	cause := errors.New("no funds")
	for name, failure := range map[string]error{
		"with a code": connect.NewError(connect.CodeFailedPrecondition, cause), "plain": cause,
	} {
		t.Run(name, func(t *testing.T) {
			outside := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
				return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
					info, _ := connect.CallInfoForHandlerContext(ctx)
					info.ResponseHeader().Set("Outside", "1")
					res, err := next(ctx, req)
					assert.ErrorIs(t, err, cause)
					return res, err
				}
			})
			client := serve(t, rpctest.Accepted, connect.WithGRPC(), outside, idem.Interceptor(rpctest.NewEngine(t)),
				instead(func(ctx context.Context) (connect.AnyResponse, error) {
					info, _ := connect.CallInfoForHandlerContext(ctx)
					info.ResponseHeader().Set("Inside", "1")
					return nil, failure
				}))
			reply := client.Call(t.Context(), rpctest.NewRequest())
			assert.Equal(t, "no funds", reply.Status.Message)
			assert.Equal(t, []string{"1"}, reply.Header["outside"])
			assert.Equal(t, []string{"1"}, reply.Header["inside"])
		})
	}
}

// The middleware of net/http stores the bytes of one protocol. A key that it has used is never replayed as a message.
func TestTheMiddlewareOfHTTPAndTheInterceptor(t *testing.T) {
	engine := rpctest.NewEngine(t)
	call := func(h http.Handler) (int, http.Header, string) {
		req := httptest.NewRequestWithContext(t.Context(), "POST", rpctest.Pay, http.NoBody)
		req.Header.Set("Content-Type", "application/proto")
		req.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		return w.Code, w.Header(), w.Body.String()
	}
	mux := newMux(rpctest.Accepted, idem.Interceptor(engine))
	for range 2 {
		code, _, body := call(idemhttp.HTTP(engine)(mux))
		assert.Equal(t, 200, code, body)
	}
	code, header, body := call(mux)
	assert.Equal(t, 400, code)
	assert.Contains(t, body, "failed_precondition")
	assert.Empty(t, header.Get("Idempotent-Replayed"))
}

// A handler that is made by hand may say so without a schema.
func TestAHandlerWithoutSideEffectsPasses(t *testing.T) {
	runs := 0
	httpClient, url := listen(t, connect.NewUnaryHandler(rpctest.Pay,
		func(context.Context, *connect.Request[structpb.Struct]) (*connect.Response[structpb.Struct], error) {
			runs++
			return connect.NewResponse(&structpb.Struct{}), nil
		}, connect.WithIdempotency(connect.IdempotencyNoSideEffects), connect.WithInterceptors(idem.Interceptor(rpctest.NewEngine(t)))))
	client := connect.NewClient[structpb.Struct, structpb.Struct](httpClient, url)
	for range 2 {
		_, err := client.CallUnary(t.Context(), outgoing(rpctest.NewRequest()))
		require.NoError(t, err)
	}
	assert.Equal(t, 2, runs)
}

// A client may have the interceptor of its server, too, as when both have one list.
func TestACallOfAClientPasses(t *testing.T) {
	engine := rpctest.NewEngine(t)
	client := serve(t, rpctest.Accepted, connect.WithClientOptions(connect.WithInterceptors(idem.Interceptor(engine))))
	for range 2 {
		reply := client.Call(t.Context(), rpctest.NewRequest())
		assert.Zero(t, reply.Status.Code)
		assert.Empty(t, reply.Header["idempotent-replayed"])
	}
	assert.Zero(t, client.Stream(t.Context(), rpctest.Request{Method: rpctest.Watch, Message: &structpb.Struct{}}).Status.Code)
}
