package fiberadapter

import (
	"context"
	"sync"

	"github.com/valyala/fasthttp"
)

// clientContext is the context of a request whose values come from fasthttp's context. fasthttp uses that one for another request
// when this request is over, but the engine may still need the values: it retries a commit that the store has not confirmed. So
// after detach, clientContext only has the values that were read before. A store that finds its tenant by a context value still
// finds the same tenant.
type clientContext struct {
	context.Context

	mu     sync.RWMutex // guards isOver, and the use of Context
	isOver bool
	known  sync.Map // the values that were read, by key
}

// probe is the key of a user value that clientContextOf sets for a moment.
type probe struct{}

// clientContextOf returns the context of the request: user, which is the one that the application may have set in Fiber. If the
// values of that come from fasthttp's context, it returns a clientContext twice, and the caller detaches it when the request is
// over. Otherwise own is nil. To find out, it sets a user value in fasthttp's context c and looks for it in user.
func clientContextOf(user context.Context, c *fasthttp.RequestCtx) (ctx context.Context, own *clientContext) {
	ctx = user
	if ctx == context.Background() { // the default of Fiber
		return ctx, nil
	}
	sign := new(int8)
	c.SetUserValue(probe{}, sign)
	defer c.RemoveUserValue(probe{})
	if ctx.Value(probe{}) != sign {
		return ctx, nil
	}
	own = &clientContext{Context: ctx}
	return own, own
}

// Value implements context.Context.
func (c *clientContext) Value(key any) any {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.isOver {
		value, _ := c.known.Load(key)
		return value
	}
	value := c.Context.Value(key)
	c.known.Store(key, value)
	return value
}

// detach ends the use of fasthttp's context, at the end of the request. It does nothing on a nil c. It waits for a Value that is
// being read, so that no goroutine reads fasthttp's context after detach has returned.
func (c *clientContext) detach() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isOver = true
}
