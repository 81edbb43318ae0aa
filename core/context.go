package core

import (
	"context"

	"github.com/go-idem/idem/core/internal/deadline"
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
	run           *run              // of the run; nil when there is no claim
	runs          []context.Context // of the runs that share one handler; see ContextKey
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
		return &place{runs: at.Runs()}
	}
	return nil
}

// keeperOf returns the keeper of the run that ctx is in; nil when there is no run, or no claim.
func runOf(ctx context.Context) *run {
	if p := placeOf(ctx); p != nil {
		return p.run
	}
	return nil
}

// enclosing returns the keeper of a run of record that goes on around ctx, however many others are between; nil without one.
func enclosing(ctx context.Context, record [32]byte) *run {
	for p := placeOf(ctx); p != nil; p = p.outer {
		if p.run != nil && p.run.isOf(record) {
			return p.run
		}
		for _, run := range p.runs {
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

// runContext is the context of a run. It has the values and the deadline of the client's context, and does not end with that one.
type runContext struct {
	deadline.Detached
	at place
}

func (c *runContext) place() *place { return &c.at }

// Value implements context.Context.
func (c *runContext) Value(key any) any {
	if key == ContextKey {
		return c
	}
	return c.Detached.Value(key)
}
