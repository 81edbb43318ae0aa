package main

import (
	"context"
	"net"
	"time"

	"github.com/aws/smithy-go/middleware"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// timeout bounds each call of a store, so that a server that does not respond is noticed in the middle of a scan, too. A scan
// as a whole has no bound, because a large store takes as long as it takes. A timeout is a hook of go-redis, a tracer of pgx,
// and makes a middleware of the AWS SDK: these are the places through which each call of a client passes.
type timeout time.Duration

// DialHook implements redis.Hook. It adds no limit: the call for which a connection is made has one.
func (t timeout) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (t timeout) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(t))
		defer cancel()
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook. A pipeline is one call, with one limit for all its commands.
func (t timeout) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(t))
		defer cancel()
		return next(ctx, cmds)
	}
}

// middleware ends each call of the AWS SDK in time, with all its attempts.
func (t timeout) middleware() []func(*middleware.Stack) error {
	limit := middleware.InitializeMiddlewareFunc("timeout", func(
		ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
	) (middleware.InitializeOutput, middleware.Metadata, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(t))
		defer cancel()
		return next.HandleInitialize(ctx, in)
	})
	return []func(*middleware.Stack) error{func(s *middleware.Stack) error { return s.Initialize.Add(limit, middleware.Before) }}
}

// cancelKey is the key under which a statement's context has the function that frees its timer.
type cancelKey struct{}

// TraceQueryStart implements pgx.QueryTracer. A tracer may return another context for the statement, and pgx then sends the
// statement with it.
func (t timeout) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(t))
	return context.WithValue(ctx, cancelKey{}, cancel)
}

// TraceQueryEnd implements pgx.QueryTracer. It is called when the rows have been read, so the limit holds for them as well.
func (t timeout) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok {
		cancel()
	}
}
