package idem_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"

	idem "github.com/go-idem/idem/adapters/grpc"
	"github.com/go-idem/idem/adapters/internal/rpc/rpctest"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/accesslog"
)

// The access log of docs/guide.md, as an interceptor.
func TestAnAccessLogKnowsWhatTheEngineKnows(t *testing.T) {
	var lines bytes.Buffer
	var accessLog grpc.UnaryServerInterceptor
	logged := make(chan string, 2)
	engine := rpctest.NewEngine(t, func(cfg *core.Config) {
		withDone, logDone := accesslog.New(cfg, slog.New(slog.NewTextHandler(&lines, nil)))
		accessLog = func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			ctx, done := withDone(ctx)
			res, err := next(ctx, req)
			lines.Reset()
			logDone(done)
			logged <- lines.String()
			return res, err
		}
	})
	conn := serve(t, rpctest.Accepted, grpc.ChainUnaryInterceptor(accessLog, idem.UnaryServerInterceptor(engine)))
	for _, want := range []string{"attempt=1 result=run", "attempt=0 result=replay"} {
		call(t.Context(), conn, rpctest.NewRequest())
		assert.Contains(t, <-logged, want)
	}
}
