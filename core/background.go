package core

import (
	"context"
	"sync"
)

// background counts the goroutines that outlive their requests. Unlike a sync.WaitGroup it may be waited for while
// goroutines are added.
type background struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // closed while running is 0
}

func newBackground() *background {
	b := &background{idle: make(chan struct{})}
	close(b.idle)
	return b
}

// run runs f in a goroutine.
func (b *background) run(f func()) {
	b.enter()
	go func() {
		defer b.done()
		f()
	}()
}

// enter counts the calling goroutine until it calls done.
func (b *background) enter() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running == 0 {
		b.idle = make(chan struct{})
	}
	b.running++
}

func (b *background) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running--; b.running == 0 {
		close(b.idle)
	}
}

// wait returns when nothing runs, or with the cause of ctx's end.
func (b *background) wait(ctx context.Context) error {
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

// count is how many run.
func (b *background) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}
