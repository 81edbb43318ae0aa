package promidem_test

import (
	"strconv"
	"testing"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/telemetry/telemetrytest"
	"github.com/go-idem/idem/observe/promidem"
)

// A new key with telemetry, beside the same without: the difference is what telemetry takes.
func BenchmarkNewKey(b *testing.B) {
	for name, hooks := range map[string]core.Hooks{"without": {}, "with": promidem.New(promidem.Config{}).Hooks(core.Hooks{})} {
		b.Run(name, func(b *testing.B) {
			engine := telemetrytest.Engine(b, hooks)
			b.ReportAllocs()
			for i := range b.N {
				telemetrytest.Fuzz(b, engine, "POST", "/", strconv.Itoa(i), "alice", "body", 1)
			}
		})
	}
}
