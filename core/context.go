package core

import (
	"context"
	"sync"
	"time"
)

// lazyContext is the context of one call of the store, or of a run. What most of them never ask for, something that can be
// cancelled, is made when they do. It must not be used for two.
type lazyContext struct {
	client   context.Context // the request's: its values are this one's
	detached bool            // the client's end is not this one's
	deadline time.Time       // zero: none but the client's
	keeper   *keeper         // of the run that it belongs to; nil for a call

	mu     sync.Mutex
	over   bool
	inner  context.Context
	cancel context.CancelCauseFunc
	free   context.CancelFunc
}

// Deadline implements context.Context.
func (c *lazyContext) Deadline() (time.Time, bool) {
	if deadline, ok := c.client.Deadline(); ok && !c.detached && (c.deadline.IsZero() || deadline.Before(c.deadline)) {
		return deadline, true
	}
	return c.deadline, !c.deadline.IsZero()
}

// Done implements context.Context.
func (c *lazyContext) Done() <-chan struct{} { return c.made().Done() }

// Err implements context.Context.
func (c *lazyContext) Err() error {
	c.mu.Lock()
	inner, over := c.inner, c.over
	c.mu.Unlock()
	switch {
	case inner != nil:
		return inner.Err()
	case over:
		return context.Canceled
	case !c.detached && c.client.Err() != nil:
		return c.client.Err()
	case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements context.Context.
func (c *lazyContext) Value(key any) any {
	if c.keeper != nil {
		switch key.(type) {
		case runKey:
			return c.keeper
		case claimKey:
			return c.keeper.claim
		}
	}
	if !c.detached {
		return c.client.Value(key)
	}
	return c.made().Value(key) // the standard library finds what cancels a context by its values
}

// made returns a context of the standard library that does what this one says.
func (c *lazyContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner != nil {
		return c.inner
	}
	base := c.client
	if c.detached {
		base = context.WithoutCancel(base)
	}
	if c.keeper != nil || c.deadline.IsZero() { // a call of the store ends without a cause
		c.inner, c.cancel = context.WithCancelCause(base)
		base = c.inner
	}
	if !c.deadline.IsZero() {
		c.inner, c.free = context.WithDeadline(base, c.deadline)
	}
	if c.over {
		c.stop(nil)
	}
	return c.inner
}

// end cancels the context. A nil cause stands for an end without one.
func (c *lazyContext) end(cause error) {
	if cause != nil {
		c.made() // which keeps it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.inner != nil {
		c.stop(cause)
	}
}

// stop cancels inner; the caller holds mu.
func (c *lazyContext) stop(cause error) {
	if c.cancel != nil {
		c.cancel(cause)
	}
	if c.free != nil {
		c.free()
	}
}
