// Package slogidem writes a line for each request, task and message to a log of log/slog. The package needs only the standard
// library.
//
//	cfg.Hooks = slogidem.Hooks(slog.Default(), cfg.Hooks)
//
// # Levels
//
//	ERROR  something may have happened twice, or not at all: an outcome is unknown, a claim was lost, a run had no claim
//	WARN   a run failed, an outcome is not stored yet, the store fails, a key came with another request
//	INFO   a run, a replay, a conflict, and every other refusal
//	DEBUG  a request that passes by
//
// A line has no key, scope, path or body. The attribute record names the record for operators: `idem show --instance` takes it.
package slogidem

import (
	"context"
	"log/slog"

	"github.com/go-idem/idem/core"
)

// Hooks returns hooks that write to logger, and then call the same hook of next, if it is not nil. Beside the line for each operation
// there is one when a run loses its claim, and one when the store fails. Hooks uses
// slog.Default if logger is nil.
func Hooks(logger *slog.Logger, next core.Hooks) core.Hooks {
	if logger == nil {
		logger = slog.Default()
	}
	h := next
	h.Done = both(next.Done, func(ctx context.Context, e *core.Event) { logDone(ctx, logger, e) })
	h.Lost = both(next.Lost, func(ctx context.Context, e *core.Event) {
		logger.LogAttrs(ctx, slog.LevelError, "idem: a run has lost its claim", attributes(e)...)
	})
	h.StoreError = both(next.StoreError, func(ctx context.Context, e *core.Event) {
		logger.LogAttrs(ctx, slog.LevelWarn, "idem: the store has failed", attributes(e)...)
	})
	return h
}

// both returns a hook that calls log and then next, if it is not nil.
func both(next core.Hook, log func(context.Context, *core.Event)) core.Hook {
	return func(ctx context.Context, e core.Event) {
		log(ctx, &e)
		if next != nil {
			next(ctx, e)
		}
	}
}

// logDone writes the line of an operation.
func logDone(ctx context.Context, logger *slog.Logger, e *core.Event) {
	level := levelOf(e)
	if logger.Enabled(ctx, level) {
		logger.LogAttrs(ctx, level, "idem: "+e.Result, attributes(e)...)
	}
}

// levelOf returns the level of the line of an operation.
func levelOf(e *core.Event) slog.Level {
	switch {
	case e.Result == "bypass":
		return slog.LevelDebug
	case e.Result == "unprotected", e.Result == "unknown", e.End == "unknown", e.End == "lost":
		return slog.LevelError
	case e.Result == "mismatch", e.End == "failed", e.End == "pending", e.Status >= 500 && e.Code != "":
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// attributes returns what an event says, without what is empty.
func attributes(e *core.Event) []slog.Attr {
	all := []slog.Attr{slog.String("method", e.Method)}
	for _, text := range [...]struct{ name, value string }{
		{"engine", e.Engine}, {"route", e.Route}, {"end", e.End}, {"code", e.Code}, {"record", e.Record}, {"origin", e.Origin},
	} {
		if text.value != "" {
			all = append(all, slog.String(text.name, text.value))
		}
	}
	for _, number := range [...]struct {
		name  string
		value int
	}{{"status", e.Status}, {"attempt", e.Attempt}, {"size", e.Size}} {
		if number.value != 0 {
			all = append(all, slog.Int(number.name, number.value))
		}
	}
	if e.Takeover {
		all = append(all, slog.Bool("takeover", true))
	}
	if e.Took > 0 {
		all = append(all, slog.Duration("took", e.Took))
	}
	if e.Waited > 0 {
		all = append(all, slog.Duration("waited", e.Waited))
	}
	if e.Err != nil {
		all = append(all, slog.Any("error", e.Err))
	}
	return all
}
