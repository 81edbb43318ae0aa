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
	"time"

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
		log(ctx, logger, slog.LevelError, "idem: a run has lost its claim", e)
	})
	h.StoreError = both(next.StoreError, func(ctx context.Context, e *core.Event) {
		log(ctx, logger, slog.LevelWarn, "idem: the store has failed", e)
	})
	return h
}

// log writes a line without its place in the source, which is that of the engine and costs as much as the rest.
func log(ctx context.Context, logger *slog.Logger, level slog.Level, message string, e *core.Event) {
	if !logger.Enabled(ctx, level) {
		return
	}
	var buffer [16]slog.Attr // more than an event has, so that the list needs no memory of its own
	line := slog.NewRecord(time.Now(), level, message, 0)
	line.AddAttrs(appendAttributes(buffer[:0], e)...)
	_ = logger.Handler().Handle(ctx, line) // slog.Logger ignores it, too
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
	log(ctx, logger, levelOf(e), messages[e.Result], e)
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

// messages has the message of each Event.Result.
var messages = map[string]string{
	"run": "idem: run", "replay": "idem: replay", "local_replay": "idem: local_replay", "conflict": "idem: conflict",
	"mismatch": "idem: mismatch", "unknown": "idem: unknown", "refused": "idem: refused", "unprotected": "idem: unprotected",
	"bypass": "idem: bypass",
}

// appendAttributes appends what an event says, without what is empty.
func appendAttributes(all []slog.Attr, e *core.Event) []slog.Attr {
	all = append(all, slog.String("method", e.Method))
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
