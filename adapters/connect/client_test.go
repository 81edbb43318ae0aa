package idem_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	idem "github.com/go-idem/idem/adapters/connect"
	"github.com/go-idem/idem/adapters/internal/rpc/rpctest"
)

// breaking is an HTTPClient that loses the first responses, and reports the keys that were sent.
type breaking struct {
	*http.Client
	lost int
	keys []string
}

func (b *breaking) Do(req *http.Request) (*http.Response, error) {
	b.keys = append(b.keys, req.Header.Values("Idempotency-Key")...)
	res, err := b.Client.Do(req)
	if b.lost--; err == nil && b.lost >= 0 {
		_ = res.Body.Close()
		return nil, errors.New("lost")
	}
	return res, err
}

// quick is a Pause for tests.
func quick(int) time.Duration { return 0 }

func TestAClientWhoseRepliesAreLostPaysOnce(t *testing.T) {
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			count := func(ctx context.Context, in *structpb.Struct, x rpctest.Exchange) (*structpb.Struct, *status.Status) {
				runs.Add(1)
				return rpctest.Accepted(ctx, in, x)
			}
			httpClient, url := listen(t, newMux(count, idem.Interceptor(rpctest.NewEngine(t))))
			broken := &breaking{Client: httpClient, lost: 3}
			client := connect.NewClient[structpb.Struct, structpb.Struct](broken, url+rpctest.Pay, protocol,
				connect.WithInterceptors((&idem.Client{Pause: quick}).Interceptor()))
			request := connect.NewRequest(&structpb.Struct{})
			res, err := client.CallUnary(t.Context(), request)
			require.NoError(t, err)
			assert.Equal(t, "true", res.Header().Get("Idempotent-Replayed"))
			assert.EqualValues(t, 1, runs.Load())
			require.Len(t, broken.keys, 4)
			assert.Equal(t, []string{broken.keys[0], broken.keys[0], broken.keys[0]}, broken.keys[1:])

			assert.Empty(t, request.Header().Get("Idempotency-Key"))
			res, err = client.CallUnary(t.Context(), request)
			require.NoError(t, err)
			assert.Empty(t, res.Header().Get("Idempotent-Replayed"), "another call is another payment")

			for _, replayed := range []string{"", "true"} {
				res, err = client.CallUnary(t.Context(), outgoing(rpctest.NewRequest()))
				require.NoError(t, err)
				assert.Equal(t, replayed, res.Header().Get("Idempotent-Replayed"), "the caller's own key is sent")
			}
		})
	}
}

// Generated code of the simple kind takes headers from the context.
func TestAKeyInTheContextIsSent(t *testing.T) {
	httpClient, url := listen(t, newMux(rpctest.Accepted, idem.Interceptor(rpctest.NewEngine(t))))
	sent := &breaking{Client: httpClient}
	client := connect.NewClient[structpb.Struct, structpb.Struct](sent, url+rpctest.Pay,
		connect.WithInterceptors((&idem.Client{}).Interceptor()))
	ctx, info := connect.NewClientContext(t.Context())
	info.RequestHeader().Set("Idempotency-Key", "order-7")
	_, err := client.CallUnary(ctx, connect.NewRequest(&structpb.Struct{}))
	require.NoError(t, err)
	assert.Equal(t, []string{"order-7"}, sent.keys)
}

func TestAKeyThatCannotBeSentIsAnErrorAndNothingIsSent(t *testing.T) {
	sent := &breaking{Client: http.DefaultClient}
	client := connect.NewClient[structpb.Struct, structpb.Struct](sent, "http://127.0.0.1:1"+rpctest.Pay,
		connect.WithInterceptors((&idem.Client{}).Interceptor()))
	request := outgoing(rpctest.NewRequest())
	request.Header().Set("Idempotency-Key", "")
	_, err := client.CallUnary(t.Context(), request)
	assert.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
	assert.Empty(t, sent.keys)
}

func TestStreamsOfAClientHaveNoKey(t *testing.T) {
	client := serve(t, rpctest.Accepted, connect.WithClientOptions(connect.WithInterceptors((&idem.Client{}).Interceptor())),
		idem.Interceptor(rpctest.NewEngine(t)))
	assert.Zero(t, client.Stream(t.Context(), rpctest.Request{Method: rpctest.Watch, Message: &structpb.Struct{}}).Status.Code)
}
