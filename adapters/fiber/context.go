package idem

import (
	"context"
	"sync"

	"github.com/gofiber/fiber/v2"
)

// clientContext is a request's context whose values come from fasthttp's, which is another request's when this one is over. The engine
// may need it for longer, for an outcome that the store has not taken. Then it knows the values that were asked for before, and no
// others: a store that finds its tenant by a value finds the same one.
type clientContext struct {
	context.Context

	mu     sync.RWMutex // over the end
	isOver bool
	known  sync.Map // of what was asked for
}

// probe is a user value that is there while somebody looks for it.
type probe struct{}

// clientContextOf returns the context of the request: the user's own, or one that ends with the request if that is made of fasthttp's.
func clientContextOf(c *fiber.Ctx) (ctx context.Context, own *clientContext) {
	ctx = c.UserContext()
	if ctx == context.Background() { // as nearly always
		return ctx, nil
	}
	sign := new(int8)
	c.Context().SetUserValue(probe{}, sign)
	defer c.Context().RemoveUserValue(probe{})
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

// detach is for the end of the request.
func (c *clientContext) detach() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isOver = true
}
