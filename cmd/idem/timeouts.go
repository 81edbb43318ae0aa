package main

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// timeout bounds each call of a store, so that a server that does not respond is noticed in the middle of a scan, too. A scan as
// a whole has no bound. A timeout is a hook of go-redis and a tracer of pgx.
type timeout time.Duration

// DialHook implements redis.Hook.
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

// ProcessPipelineHook implements redis.Hook.
func (t timeout) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(t))
		defer cancel()
		return next(ctx, cmds)
	}
}

// cancelKey is the key under which a statement's context has the function that frees its timer.
type cancelKey struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (t timeout) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(t))
	return context.WithValue(ctx, cancelKey{}, cancel)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (t timeout) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok {
		cancel()
	}
}
