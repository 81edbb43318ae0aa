// Package accesslog has the access log of docs/guide.md, for the tests of all adapters.
package accesslog

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/go-idem/idem/core"
)

// New sets Hooks.Done of cfg, and returns what middleware outside the engine calls before
// a request and after it.
func New(cfg *core.Config, logger *slog.Logger) (
	before func(context.Context) (context.Context, *atomic.Pointer[core.Event]), after func(*atomic.Pointer[core.Event]),
) {
	type doneKey struct{}
	withDone := func(ctx context.Context) (context.Context, *atomic.Pointer[core.Event]) {
		done := new(atomic.Pointer[core.Event])
		return context.WithValue(ctx, doneKey{}, done), done
	}
	logDone := func(done *atomic.Pointer[core.Event]) {
		if e := done.Load(); e != nil { // nil: no engine has seen the request
			logger.Info("request", "record", e.Record, "attempt", e.Attempt, "result", e.Result, "code", e.Code)
		}
	}
	cfg.Hooks.Done = func(ctx context.Context, e core.Event) { // before slogidem.Hooks and others, which call the hooks that they get
		if done, ok := ctx.Value(doneKey{}).(*atomic.Pointer[core.Event]); ok {
			done.Store(&e)
		}
	}
	return withDone, logDone
}
