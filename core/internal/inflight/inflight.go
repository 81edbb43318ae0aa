// Package inflight counts goroutines that outlive their requests, so that an engine can wait for them when it closes.
package inflight

import (
	"context"
	"sync"
)

// Group counts running goroutines. Unlike with a sync.WaitGroup, goroutines may be added while another goroutine waits. It is
// safe for concurrent use.
type Group struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // closed while running is 0; a new one is made when running becomes 1
}

// New returns an empty group.
func New() *Group {
	g := &Group{idle: make(chan struct{})}
	close(g.idle)
	return g
}

// Go runs f in a goroutine, and counts it until f has returned. f gets how many run with it.
func (g *Group) Go(f func(running int)) {
	running := g.Add()
	go func() {
		defer g.Done()
		f(running)
	}()
}

// Add counts one goroutine more, until Done is called, and returns how many run with it.
func (g *Group) Add() (running int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running == 0 {
		g.idle = make(chan struct{})
	}
	g.running++
	return g.running
}

// Done counts one goroutine less. Each call of Add needs one call of Done.
func (g *Group) Done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.running == 0 {
		close(g.idle)
	}
}

// Wait blocks until no goroutine runs, and returns nil. If ctx ends first, it returns the cause. If no goroutine runs at the
// time of the call, it returns nil even when ctx has ended.
func (g *Group) Wait(ctx context.Context) error {
	g.mu.Lock()
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	default:
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Len returns how many goroutines run.
func (g *Group) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running
}
