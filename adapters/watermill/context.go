package idem

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/go-idem/idem/core"
)

// moveToOuter lets the context of a message that was made of that of a run end with the one around the run: it is published when the
// run is over.
func moveToOuter(msg *message.Message, run, outer context.Context) {
	if ctx := msg.Context(); ctx.Value(core.ContextKey) == run.Value(core.ContextKey) {
		msg.SetContext(publishContext{outer, context.WithoutCancel(ctx)})
	}
}

// publishContext is the context of a message that is published when the run which produced it is over.
type publishContext struct {
	context.Context // around the run
	values          context.Context
}

// Value implements context.Context.
func (p publishContext) Value(key any) any {
	if key != core.ContextKey {
		if value := p.values.Value(key); value != nil {
			return value
		}
	}
	return p.Context.Value(key)
}
