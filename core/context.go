package core

import (
	"context"
	"sync"
	"time"
)

// ContextKey is where an adapter puts the context of a run, the one that [Engine.Do] gives to run, into the context of its
// framework while the run lasts, if that context does not have the values of the run's by itself: *gin.Context and
// *fasthttp.RequestCtx do not. [FromContext], [ChildKey], [Step], [Decide] and [CancelOnDisconnect] then work on the
// framework's context. For every context that belongs to a run, Value(ContextKey) is the context of the run.
//
// A function that works for many runs at once, such as the handler of a batch, has a context whose Value(ContextKey) has a
// method Runs() []context.Context, which returns the contexts of these runs. The context belongs to none of them, and all of them go
// on around it.
const ContextKey = "github.com/go-idem/idem/core.run"

// place is what a context says about the run that it is in. It hides the places around it.
type place struct {
	op            *operation        // whose handler it is, or whose OnUnknown; nil in the handler of a batch
	keeper        *keeper           // of the run; nil when there is no claim
	together      []context.Context // of the runs that share one handler; see ContextKey
	isUnprotected bool
	outer         *place // nil: none, or together has it
}

// placed is what Value(ContextKey) of a context returns.
type placed interface{ place() *place }

// placeOf returns where ctx is, nil outside of all runs. It is the only way from a context to a run.
func placeOf(ctx context.Context) *place {
	switch at := ctx.Value(ContextKey).(type) {
	case placed:
		return at.place()
	case interface{ Runs() []context.Context }:
		return &place{together: at.Runs()}
	}
	return nil
}

// keeperOf returns the keeper of the run that ctx is in; nil when there is no run, or no claim.
func keeperOf(ctx context.Context) *keeper {
	if p := placeOf(ctx); p != nil {
		return p.keeper
	}
	return nil
}

// enclosing returns the keeper of a run of record that goes on around ctx, however many others are between; nil without one.
func enclosing(ctx context.Context, record [32]byte) *keeper {
	for p := placeOf(ctx); p != nil; p = p.outer {
		if p.keeper != nil && p.keeper.runs(record) {
			return p.keeper
		}
		for _, run := range p.together {
			if k := enclosing(run, record); k != nil {
				return k
			}
		}
	}
	return nil
}

// placeContext is a context in a place that has no claim of its own.
type placeContext struct {
	context.Context
	at place
}

// in returns a context like ctx, but for its place, which lies in that of ctx.
func in(ctx context.Context, at place) context.Context {
	at.outer = placeOf(ctx)
	return &placeContext{ctx, at}
}

func (c *placeContext) place() *place { return &c.at }

// Value implements context.Context.
func (c *placeContext) Value(key any) any {
	if key == ContextKey {
		return c
	}
	return c.Context.Value(key)
}

// runContext is the context of a run. Few handlers ask for its end, so what can be cancelled is made when one does.
type runContext struct {
	at     place
	keeper *keeper // of the run, and of its client's context: the values and the deadline are that one's, the end is not

	mu     sync.Mutex
	over   bool
	inner  context.Context
	cancel context.CancelCauseFunc
	free   context.CancelFunc
}

func (c *runContext) place() *place { return &c.at }

// Deadline implements context.Context.
func (c *runContext) Deadline() (time.Time, bool) { return c.keeper.op.ctx.Deadline() }

// Done implements context.Context.
func (c *runContext) Done() <-chan struct{} { return c.made().Done() }

// Err implements context.Context.
func (c *runContext) Err() error {
	c.mu.Lock()
	inner, over := c.inner, c.over
	c.mu.Unlock()
	switch deadline, ok := c.Deadline(); {
	case inner != nil:
		return inner.Err()
	case over:
		return context.Canceled
	case ok && !time.Now().Before(deadline):
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements context.Context.
func (c *runContext) Value(key any) any {
	if key == ContextKey {
		return c
	}
	return c.made().Value(key) // the standard library finds what cancels a context by its values
}

// made returns a context of the standard library that does what this one says.
func (c *runContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner != nil {
		return c.inner
	}
	c.inner, c.cancel = context.WithCancelCause(c.keeper.detached())
	if deadline, ok := c.Deadline(); ok {
		c.inner, c.free = context.WithDeadline(c.inner, deadline)
	}
	if c.over {
		c.stop(nil)
	}
	return c.inner
}

// end cancels the context. A nil cause stands for an end without one.
func (c *runContext) end(cause error) {
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
func (c *runContext) stop(cause error) {
	c.cancel(cause)
	if c.free != nil {
		c.free()
	}
}

// callContext is the context of one call of the store: it ends at its deadline, or before that with its client unless it is
// detached. Most stores ask for its end, and few calls come to it. So an operation's calls share an appointment, and a
// patient one does not watch its client before it has lasted for some time: then it looks, once, and watches it if it is still
// there. It must not be used for two calls.
type callContext struct {
	client   context.Context // the request's: its values are this one's
	detached bool            // the client's end is not this one's
	patient  bool
	sooner   bool // the client's deadline comes first
	engine   *Engine
	deadline time.Time
	next     *appointment

	mu      sync.Mutex
	err     error         // nil until the end
	done    chan struct{} // nil until somebody asks
	unwatch func() bool   // ends the watch for the client's leaving; nil without one
}

// firstLook is how long somebody waits for the end of a patient call before it looks at its client.
const firstLook = 20 * time.Millisecond

// start begins the one call. Whose appointment next is ends it when the call is over.
func (c *callContext) start(e *Engine, client context.Context, deadline time.Time, next *appointment) *callContext {
	c.engine, c.client, c.deadline, c.next = e, client, deadline, next
	if !c.detached {
		clients, ok := client.Deadline()
		c.sooner = ok && clients.Before(deadline)
	}
	return c
}

// Deadline implements context.Context.
func (c *callContext) Deadline() (time.Time, bool) {
	if c.sooner {
		return c.client.Deadline()
	}
	return c.deadline, true
}

// Value implements context.Context.
func (c *callContext) Value(key any) any {
	if c.detached { // the standard library finds what cancels a context, and why, by its values
		return context.WithoutCancel(c.client).Value(key)
	}
	return c.client.Value(key)
}

// Err implements context.Context.
func (c *callContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look(time.Until(c.deadline))
	return c.err
}

// look ends the context if its time has come; the caller holds mu.
func (c *callContext) look(left time.Duration) {
	if c.err == nil {
		c.close(c.over(left))
	}
}

// over returns why the call has come to its end, nil before.
func (c *callContext) over(left time.Duration) error {
	if !c.detached && c.client.Err() != nil {
		return c.client.Err()
	}
	if left <= 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// Done implements context.Context.
func (c *callContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done != nil {
		return c.done
	}
	left := time.Until(c.deadline)
	c.look(left)
	c.done = make(chan struct{})
	switch {
	case c.err != nil:
		close(c.done)
	case c.patient && !c.sooner && left > firstLook:
		c.next.set(&c.engine.looks, c, c.deadline.Add(firstLook-left))
	default:
		c.watch()
	}
	return c.done
}

// watch sees to it that the context ends; the caller holds mu.
func (c *callContext) watch() {
	if !c.detached {
		c.unwatch = context.AfterFunc(c.client, func() { c.end(c.client.Err()) })
	}
	c.next.set(&c.engine.deadlines, c, c.deadline)
}

// come looks, or ends the context at its deadline.
func (c *callContext) come() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	if c.look(time.Until(c.deadline)); c.err == nil {
		c.watch()
	}
}

// end ends the context, if it has not ended before.
func (c *callContext) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.close(err)
	}
}

// close ends the context with err, unless that is nil; the caller holds mu.
func (c *callContext) close(err error) {
	if c.err = err; err == nil || c.done == nil {
		return
	}
	close(c.done)
	c.next.cancel()
	if c.unwatch != nil {
		c.unwatch()
	}
}
