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
	b := &Group{idle: make(chan struct{})}
	close(b.idle)
	return b
}

// Go runs f in a goroutine, and counts it until f has returned.
func (b *Group) Go(f func()) {
	b.Add()
	go func() {
		defer b.Done()
		f()
	}()
}

// Add counts one goroutine more, until Done is called.
func (b *Group) Add() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running == 0 {
		b.idle = make(chan struct{})
	}
	b.running++
}

// Done counts one goroutine less. Each call of Add needs one call of Done.
func (b *Group) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running--; b.running == 0 {
		close(b.idle)
	}
}

// Wait blocks until no goroutine runs, and returns nil. If ctx ends first, it returns the cause. If no goroutine runs at the
// time of the call, it returns nil even when ctx has ended.
func (b *Group) Wait(ctx context.Context) error {
	b.mu.Lock()
	idle := b.idle
	b.mu.Unlock()
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
func (b *Group) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}
