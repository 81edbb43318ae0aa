package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// dials is a redis.Hook that keeps the last error of a connection attempt. go-redis dials again until the context of the call
// ends, and then returns only that the context has ended, which says nothing about the reason. It is safe for concurrent use.
// A success clears the error, so that an error of an earlier outage explains nothing.
type dials struct {
	mu       sync.Mutex
	err      error
	failedAt time.Time
}

// observe makes the client report its connection attempts to d. Those of a Cluster's nodes that the client knows already are not
// reported.
func (d *dials) observe(client redis.UniversalClient) {
	switch client := client.(type) {
	case *redis.Client:
		client.AddHook(d)
	case *redis.ClusterClient:
		client.OnNewNode(func(node *redis.Client) { node.AddHook(d) })
	}
}

// explain adds to the error of a call that had no response in time why the client could not connect since the call began, if it
// could not.
func (d *dials) explain(err error, began time.Time) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil || d.failedAt.Before(began) {
		return err
	}
	return fmt.Errorf("%w: the client cannot connect: %w", err, d.err)
}

// DialHook implements redis.Hook.
func (d *dials) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := next(ctx, network, address)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.err, d.failedAt = err, time.Now()
		return conn, err
	}
}

// ProcessHook implements redis.Hook. It observes nothing.
func (d *dials) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook. It observes nothing.
func (d *dials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
