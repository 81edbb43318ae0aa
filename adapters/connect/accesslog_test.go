package idem_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"

	idem "github.com/go-idem/idem/adapters/connect"
	"github.com/go-idem/idem/adapters/internal/rpc/rpctest"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/accesslog"
)

// The access log of docs/guide.md, as an interceptor.
func TestAnAccessLogKnowsWhatTheEngineKnows(t *testing.T) {
	var lines bytes.Buffer
	var accessLog connect.UnaryInterceptorFunc
	logged := make(chan string, 2)
	engine := rpctest.NewEngine(t, func(cfg *core.Config) {
		withDone, logDone := accesslog.New(cfg, slog.New(slog.NewTextHandler(&lines, nil)))
		accessLog = func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
				ctx, done := withDone(ctx)
				res, err := next(ctx, req)
				lines.Reset()
				logDone(done)
				logged <- lines.String()
				return res, err
			}
		}
	})
	client := serve(t, rpctest.Accepted, connect.WithGRPC(), accessLog, idem.Interceptor(engine))
	for _, want := range []string{"attempt=1 result=run", "attempt=0 result=replay"} {
		client.Call(t.Context(), rpctest.NewRequest())
		assert.Contains(t, <-logged, want)
	}
}
