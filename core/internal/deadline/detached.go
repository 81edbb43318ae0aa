package deadline

import (
	"context"
	"sync"
	"time"
)

// Detached is a context with the values and the deadline of another, which does not end when the other is cancelled. It is like
// context.WithCancelCause(context.WithoutCancel(parent)) with the deadline of parent. Few callers ask for its end, so the contexts of the
// standard library are made when the first one does. It must not be copied.
type Detached struct {
	parent context.Context

	mu     sync.Mutex
	isOver bool
	inner  context.Context         // nil before somebody asks for what needs it
	cancel context.CancelCauseFunc // ends inner
}

// Init sets the parent. It must be called once, before all other methods.
func (c *Detached) Init(parent context.Context) { c.parent = parent }

// Deadline implements context.Context.
func (c *Detached) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Done implements context.Context.
func (c *Detached) Done() <-chan struct{} { return c.context().Done() }

// Value implements context.Context.
func (c *Detached) Value(key any) any {
	return c.context().Value(key) // package context looks for the cause of an end among the values
}

// Err implements context.Context.
func (c *Detached) Err() error { return c.context().Err() }

// context returns inner, and makes it first if necessary.
func (c *Detached) context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner != nil {
		return c.inner
	}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(c.parent))
	c.inner, c.cancel = inner, cancel
	if deadline, ok := c.Deadline(); ok {
		timed, free := context.WithDeadline(inner, deadline)
		c.inner, c.cancel = timed, func(cause error) { cancel(cause); free() }
	}
	if c.isOver {
		c.cancel(nil)
	}
	return c.inner
}

// Cancel ends the context with a cause, for context.Cause. If cause is nil, the cause is context.Canceled.
func (c *Detached) Cancel(cause error) {
	if cause != nil {
		c.context() // inner keeps the cause
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isOver = true
	if c.inner != nil {
		c.cancel(cause)
	}
}
