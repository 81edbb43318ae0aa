// Package inflight counts the goroutines that outlive their requests.
package inflight

import (
	"context"
	"sync"
)

// Group counts running goroutines. Unlike a sync.WaitGroup it may be waited for while
// goroutines are added.
type Group struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // closed while running is 0
}

// New returns an empty group.
func New() *Group {
	b := &Group{idle: make(chan struct{})}
	close(b.idle)
	return b
}

// Go runs f in a goroutine.
func (b *Group) Go(f func()) {
	b.Add()
	go func() {
		defer b.Done()
		f()
	}()
}

// Add counts the calling goroutine until it calls Done.
func (b *Group) Add() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running == 0 {
		b.idle = make(chan struct{})
	}
	b.running++
}

// Done ends what Add began.
func (b *Group) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running--; b.running == 0 {
		close(b.idle)
	}
}

// Wait returns when nothing runs, or with the cause of ctx's end.
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

// Len is how many run.
func (b *Group) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}
