package deadline

import (
	"context"
	"sync"
	"time"
)

// cancelCheckDelay is how long the channel of a lazy Context may stay open after its parent was cancelled, counted from the first call
// of Done. A call that returns earlier saves the registration with its parent.
const cancelCheckDelay = 20 * time.Millisecond

// Mode says when the end of its parent ends a Context.
type Mode int

// The modes of a Context.
const (
	CancelAtOnce Mode = iota
	CancelLazily      // at once for Err, and up to 20 ms later for the channel of Done
	CancelNever       // like a context below context.WithoutCancel
)

// Context is a context with a deadline, like that of context.WithDeadline, for one call to a store. Two things differ. If the parent
// has ended and the deadline has passed before the first call of Done or Err, Err returns the error of the parent, whichever was
// first. Once the parent has ended, context.Cause returns the cause of the parent. A Context must not be copied or used again.
type Context struct {
	queue    *Queue
	parent   context.Context // has the values
	mode     Mode
	deadline time.Time

	mu         sync.Mutex
	err        error         // nil before the end
	done       chan struct{} // nil before the first call of Done
	timer      Timer         // runs from the first call of Done to the end
	stopParent func() bool   // ends the registration with parent; nil without one
}

// WithDeadline is context.WithDeadline. The caller must call Cancel when the context is not needed any more.
func (q *Queue) WithDeadline(parent context.Context, deadline time.Time) *Context {
	c := &Context{}
	c.Init(q, parent, deadline, CancelAtOnce)
	return c
}

// Init is WithDeadline for a Context that is a field of another value, which saves an allocation, and with a mode. It must be called
// once, before all other methods.
func (c *Context) Init(q *Queue, parent context.Context, deadline time.Time, mode Mode) {
	c.queue, c.parent, c.mode, c.deadline = q, parent, mode, deadline
}

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) {
	if earlier, ok := c.parent.Deadline(); ok && c.mode != CancelNever && earlier.Before(c.deadline) {
		return earlier, true
	}
	return c.deadline, true
}

// Value implements context.Context.
func (c *Context) Value(key any) any {
	if c.mode == CancelNever { // package context looks for the cause of an end among the values
		return context.WithoutCancel(c.parent).Value(key)
	}
	return c.parent.Value(key)
}

// Err implements context.Context.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.check(time.Now())
	return c.err
}

// check ends the context if its parent has ended or its deadline has passed. The caller holds mu.
func (c *Context) check(now time.Time) {
	switch {
	case c.err != nil:
	case c.mode != CancelNever && c.parent.Err() != nil:
		c.end(c.parent.Err())
	case !now.Before(c.deadline):
		c.end(context.DeadlineExceeded)
	}
}

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done != nil {
		return c.done
	}
	now := time.Now()
	c.check(now)
	c.done = make(chan struct{})
	first, _ := c.Deadline()
	switch {
	case c.err != nil:
		close(c.done)
	case c.mode == CancelLazily && first.Equal(c.deadline) && first.Sub(now) > cancelCheckDelay:
		c.queue.At(&c.timer, now.Add(cancelCheckDelay), (*timeout)(c))
	default:
		c.watch()
	}
	return c.done
}

// watch has the context checked when parent ends, and at the deadline. The caller holds mu.
func (c *Context) watch() {
	if c.mode != CancelNever {
		c.stopParent = context.AfterFunc(c.parent, func() { _ = c.Err() })
	}
	c.queue.At(&c.timer, c.deadline, (*timeout)(c))
}

// timeout is the Context as the Func of its timer.
type timeout Context

// Fire ends the context at its deadline. At the end of cancelCheckDelay it checks the parent for the first time.
func (t *timeout) Fire() {
	c := (*Context)(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.check(time.Now()); c.err == nil {
		c.watch()
	}
}

// Cancel ends the context, unless it has ended before.
func (c *Context) Cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(context.Canceled)
}

// end ends the context with err, unless it has ended before. The caller holds mu.
func (c *Context) end(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.timer.Stop()
	if c.done != nil {
		close(c.done)
	}
	if c.stopParent != nil {
		c.stopParent()
	}
}
