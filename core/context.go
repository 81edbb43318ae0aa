package core

import (
	"context"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/deadline"
)

// place is the position of a context among the runs around it. The innermost place hides the others.
type place struct {
	keyed         *keyed            // whose handler or OnUnknown the context belongs to; nil in the handler of a batch
	run           *run              // nil if there is no claim
	runs          []context.Context // of the runs that share one handler; see ContextKey
	isUnprotected bool
	outer         *place // nil: none, or together has it
}

// placed is what Value(ContextKey) of a context returns.
type placed interface{ place() *place }

// placeOf returns the place of ctx, and nil outside of all runs. There is no other way from a context to a run.
func placeOf(ctx context.Context) *place {
	switch at := ctx.Value(driver.ContextKey).(type) {
	case placed:
		return at.place()
	case interface{ Runs() []context.Context }:
		return &place{runs: at.Runs()}
	}
	return nil
}

// runOf returns the run that ctx belongs to. It returns nil outside of a run, and in a run without a claim.
func runOf(ctx context.Context) *run {
	if p := placeOf(ctx); p != nil {
		return p.run
	}
	return nil
}

// enclosing returns the run of a record that encloses ctx, however many other runs are in between. It returns nil if there is none.
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

// placeContext is the context of a function that belongs to an operation without a run.
type placeContext struct {
	context.Context
	at place
}

// in returns a copy of ctx with a place of its own, inside that of ctx.
func in(ctx context.Context, at place) context.Context {
	at.outer = placeOf(ctx)
	return &placeContext{ctx, at}
}

func (c *placeContext) place() *place { return &c.at }

// Value implements context.Context.
func (c *placeContext) Value(key any) any {
	if key == driver.ContextKey {
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
	if key == driver.ContextKey {
		return c
	}
	return c.Detached.Value(key)
}
