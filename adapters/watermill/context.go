package idem

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/go-idem/idem/core/driver"
)

// moveToOuter changes the context of a produced message. If that is made of the run's context, it would end with the run, but the
// message is published after the run. So it gets a context that ends with outer, the context around the run.
func moveToOuter(msg *message.Message, run, outer context.Context) {
	if ctx := msg.Context(); ctx.Value(driver.ContextKey) == run.Value(driver.ContextKey) {
		msg.SetContext(publishContext{outer, context.WithoutCancel(ctx)})
	}
}

// publishContext is the context of a message that is published after the run that produced it. It ends with the context around
// the run, and is in no run itself. All other values are those of the message's own context.
type publishContext struct {
	context.Context                 // the context around the run
	values          context.Context // the message's own context, without its end
}

// Value implements context.Context.
func (p publishContext) Value(key any) any {
	if key != driver.ContextKey {
		if value := p.values.Value(key); value != nil {
			return value
		}
	}
	return p.Context.Value(key)
}
