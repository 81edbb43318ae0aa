package slogidem_test

import (
	"io"
	"log/slog"
	"strconv"
	"testing"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/telemetry/telemetrytest"
	"github.com/go-idem/idem/observe/slogidem"
)

// A new key with a line in a log that nobody reads, beside the same without: the difference is what the line takes.
func BenchmarkNewKey(b *testing.B) {
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	for name, hooks := range map[string]core.Hooks{"without": {}, "with": slogidem.Hooks(logger, core.Hooks{})} {
		b.Run(name, func(b *testing.B) {
			engine := telemetrytest.Engine(b, hooks)
			b.ReportAllocs()
			for i := range b.N {
				telemetrytest.Fuzz(b, engine, "POST", "/", strconv.Itoa(i), "alice", "body", 1)
			}
		})
	}
}
