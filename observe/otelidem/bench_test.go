package otelidem_test

import (
	"strconv"
	"testing"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/telemetry/telemetrytest"
)

// A new key with telemetry, beside the same without: the difference is what telemetry takes.
func BenchmarkNewKey(b *testing.B) {
	made, _ := newTelemetry(b)
	for name, hooks := range map[string]core.Hooks{"without": {}, "with": made.Hooks(core.Hooks{})} {
		b.Run(name, func(b *testing.B) {
			engine := telemetrytest.Engine(b, hooks)
			b.ReportAllocs()
			for i := range b.N {
				telemetrytest.Fuzz(b, engine, "POST", "/", strconv.Itoa(i), "alice", "body", 1)
			}
		})
	}
}
