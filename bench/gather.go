package main

import (
	"context"
	"runtime"
	"sync"

	"github.com/redis/go-redis/v9"
)

// gatherer sends what goroutines ask for at once in one pipeline, and lets each give up when its context ends. That is the
// least that batches can do for callers that do not know of each other.
type gatherer struct {
	client *redis.Client

	mu       sync.Mutex
	underWay int
	waiting  []gathered
}

// gathered is one caller's command.
type gathered struct {
	cmd  *redis.Cmd
	done chan struct{}
}

// roundTrips is how many pipelines are under way at most: while the server works at one, another is gathered and written.
const roundTrips = 2

// do returns when cmd has its answer or ctx ends.
func (g *gatherer) do(ctx context.Context, cmd *redis.Cmd) error {
	own := gathered{cmd, make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, own)
	isFree := g.underWay < roundTrips
	if isFree {
		g.underWay++
	}
	g.mu.Unlock()
	if isFree {
		go g.work()
	}
	select {
	case <-own.done:
		return cmd.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work sends pipelines until nobody waits.
func (g *gatherer) work() {
	for batch := g.take(); len(batch) > 0; batch = g.take() {
		p := g.client.Pipeline()
		for _, each := range batch {
			_ = p.Process(context.Background(), each.cmd)
		}
		_, _ = p.Exec(context.Background()) // each command has its own error
		for _, each := range batch {
			close(each.done)
		}
		runtime.Gosched() // who has an answer may ask again at once, and goes along
	}
}

// take returns who waits; with nobody, one round trip less is under way.
func (g *gatherer) take() []gathered {
	g.mu.Lock()
	defer g.mu.Unlock()
	batch := g.waiting
	if g.waiting = nil; batch == nil {
		g.underWay--
	}
	return batch
}

// gatheredPair is a pair of raw script calls through g.
func gatheredPair(g *gatherer) pairing {
	return func(ctx context.Context, key [32]byte, outcome []byte) error {
		w := newWire(ownKeys(string(key[:]))[0])
		send := func(script *redis.Script, args []any) (*redis.Cmd, error) {
			cmd := redis.NewCmd(ctx, append([]any{"evalsha", script.Hash(), 1, w.key}, args...)...)
			return cmd, g.do(ctx, cmd)
		}
		begun, err := send(beginScript, w.beginArgs())
		if err != nil {
			return err
		}
		fence, err := claimed(begun)
		if err == nil {
			_, err = send(completeScript, w.completeArgs(fence, outcome))
		}
		return err
	}
}
