// Package telemetry has the instruments of the modules below observe, and the hooks that record them. So a metric has one name, one
// unit and one meaning in OpenTelemetry and in Prometheus.
package telemetry

import (
	"context"
	"errors"
	"strings"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/operator"
)

// Kind is the kind of an instrument.
type Kind string

// The kinds of instruments.
const (
	Counter   Kind = "counter"
	UpDown    Kind = "up-down counter"
	Histogram Kind = "histogram"
)

// Instrument describes a metric. Attributes are the names of its attributes: all have few values, since none is, or contains, a key,
// a scope, a record, an owner or a path (TEL-02).
type Instrument struct {
	Name        string // as in OpenTelemetry
	Kind        Kind
	Unit        string // in UCUM: "{request}", "s" or "By"
	Description string
	Attributes  []string
	Buckets     []float64 // the upper bounds of a histogram's classic buckets, in Unit
}

// PrometheusName is the name of the metric in Prometheus, with the suffixes that its conventions ask for.
func (i *Instrument) PrometheusName() string {
	name := strings.ReplaceAll(i.Name, ".", "_")
	switch {
	case i.Kind == Counter:
		name += "_total"
	case i.Unit == "s":
		name += "_seconds"
	case i.Unit == "By":
		name += "_bytes"
	}
	return name
}

// The buckets of histograms: of calls and handlers in seconds, and of outcomes in bytes.
var (
	durationBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	sizeBuckets     = []float64{256, 512, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}
)

// The instruments. docs/telemetry.md lists them.
var (
	Requests = &Instrument{
		Name: "idem.requests", Kind: Counter, Unit: "{request}", Attributes: []string{"result", "engine", "route", "code"},
		Description: "Requests, tasks and messages by what became of them.",
	}
	RunDuration = &Instrument{
		Name: "idem.run.duration", Kind: Histogram, Unit: "s", Attributes: []string{"end", "takeover", "engine", "route"},
		Description: "How long handlers ran under a claim, by how the run ended.", Buckets: durationBuckets,
	}
	RunsActive = &Instrument{
		Name: "idem.run.active", Kind: UpDown, Unit: "{run}", Attributes: []string{"engine"},
		Description: "Handlers that run under a claim now.",
	}
	WaitsActive = &Instrument{
		Name: "idem.wait.active", Kind: UpDown, Unit: "{request}", Attributes: []string{"engine"},
		Description: "Requests that wait for a run in progress now.",
	}
	WaitDuration = &Instrument{
		Name: "idem.wait.duration", Kind: Histogram, Unit: "s", Attributes: []string{"result", "engine"},
		Description: "How long requests waited for runs in progress, by what became of the request.", Buckets: durationBuckets,
	}
	StoreDuration = &Instrument{
		Name: "idem.store.operation.duration", Kind: Histogram, Unit: "s", Attributes: []string{"call", "engine", "error"},
		Description: "How long calls to the store took.", Buckets: durationBuckets,
	}
	OutcomeSize = &Instrument{
		Name: "idem.outcome.size", Kind: Histogram, Unit: "By", Attributes: []string{"engine"},
		Description: "The size of outcomes that runs have left.", Buckets: sizeBuckets,
	}
	LeaseLost = &Instrument{
		Name: "idem.lease.lost", Kind: Counter, Unit: "{run}", Attributes: []string{"engine"},
		Description: "Runs that have lost their claim.",
	}
	StoreErrors = &Instrument{
		Name: "idem.store.errors", Kind: Counter, Unit: "{error}", Attributes: []string{"engine"},
		Description: "Failures of the store, and records that could not be read.",
	}
	Acts = &Instrument{
		Name: "idem.operator.acts", Kind: Counter, Unit: "{act}", Attributes: []string{"action", "error"},
		Description: "What operators have done to records.",
	}
)

// All has each instrument.
var All = []*Instrument{
	Requests, RunDuration, RunsActive, WaitsActive, WaitDuration, StoreDuration, OutcomeSize, LeaseLost, StoreErrors, Acts,
}

// Values are the values of the attributes of a measurement, in the order of Instrument.Attributes. Those after the last are empty.
type Values [4]string

// errorTypes has the errors that telemetry tells apart.
var errorTypes = []struct {
	err  error
	name string
}{
	{driver.ErrGone, "gone"}, {core.ErrLost, "lost"}, {driver.ErrUnreadable, "unreadable"}, {driver.ErrNotDurable, "not_durable"},
	{operator.ErrChanged, "changed"}, {operator.ErrNotStuck, "not_stuck"}, {core.ErrNotUnknown, "not_unknown"},
	{context.DeadlineExceeded, "timeout"}, {context.Canceled, "canceled"},
}

// ErrorType returns the kind of an error: one of few names, "other" for all other errors, and "" for nil.
func ErrorType(err error) string {
	if err == nil {
		return ""
	}
	for _, t := range errorTypes {
		if errors.Is(err, t.err) {
			return t.name
		}
	}
	return "other"
}
