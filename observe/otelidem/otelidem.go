// Package otelidem reports what engines do to OpenTelemetry: metrics, and attributes and links of the spans that other
// instrumentation has started.
//
//	telemetry, err := otelidem.New(otelidem.Config{})
//	cfg.Hooks = telemetry.Hooks(cfg.Hooks)
//	cfg.Keep.Origin = otelidem.Origin
//
// docs/telemetry.md lists the metrics. No attribute of a metric has a key, a scope, a record, an owner or a path, so that the number
// of series does not depend on what clients send.
//
// # Spans
//
// The package starts no spans, except in Consume. It adds to the span of the request or message, which is that of the context that the engine got, what
// became of it: idem.result, and where there is one idem.engine, idem.code, idem.end, idem.attempt and idem.takeover. With Origin, the
// span of a replay has a link to the span of the run that made the outcome, also if another process made it. A span that has ended
// gets nothing: Fiber's streams end after their span.
package otelidem

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/operator"
	"github.com/go-idem/idem/internal/telemetry"
)

// scope is the name of the instrumentation scope.
const scope = "github.com/go-idem/idem/observe/otelidem"

// Config configures a Telemetry. Its zero value is valid.
type Config struct {
	// MeterProvider makes the instruments. Default: otel.GetMeterProvider().
	MeterProvider metric.MeterProvider

	// DBSystem is the attribute db.system.name of calls to the store, such as "redis" or "postgresql". Calls to Keep.Blobs do not have
	// it. Default "": no attribute.
	DBSystem string
}

// Telemetry reports events of engines. It is safe for concurrent use. Several engines may share one.
type Telemetry struct {
	dbSystem   string
	counters   map[*telemetry.Instrument]metric.Int64Counter
	upDowns    map[*telemetry.Instrument]metric.Int64UpDownCounter
	histograms map[*telemetry.Instrument]metric.Float64Histogram
}

// New makes the instruments. Its error is that of the meter provider.
func New(cfg Config) (*Telemetry, error) {
	provider := cfg.MeterProvider
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	t := &Telemetry{
		dbSystem:   cfg.DBSystem,
		counters:   map[*telemetry.Instrument]metric.Int64Counter{},
		upDowns:    map[*telemetry.Instrument]metric.Int64UpDownCounter{},
		histograms: map[*telemetry.Instrument]metric.Float64Histogram{},
	}
	meter := provider.Meter(scope)
	var failed error
	for _, i := range telemetry.All {
		failed = errors.Join(failed, t.add(meter, i))
	}
	if failed != nil {
		return nil, failed
	}
	return t, nil
}

// add makes one instrument.
func (t *Telemetry) add(meter metric.Meter, i *telemetry.Instrument) (err error) {
	unit, description := metric.WithUnit(i.Unit), metric.WithDescription(i.Description)
	switch i.Kind {
	case telemetry.Counter:
		t.counters[i], err = meter.Int64Counter(i.Name, unit, description)
	case telemetry.UpDown:
		t.upDowns[i], err = meter.Int64UpDownCounter(i.Name, unit, description)
	case telemetry.Histogram:
		buckets := metric.WithExplicitBucketBoundaries(i.Buckets...)
		t.histograms[i], err = meter.Float64Histogram(i.Name, unit, description, buckets)
	}
	return err
}

// Hooks returns hooks that report, and then call the same hook of next, if it is not nil.
func (t *Telemetry) Hooks(next core.Hooks) core.Hooks {
	done := next.Done
	next.Done = func(ctx context.Context, e core.Event) {
		describe(trace.SpanFromContext(ctx), &e)
		if done != nil {
			done(ctx, e)
		}
	}
	return telemetry.Hooks((*exporter)(t), next)
}

// OperatorDone returns a function for operator.Config.Done that counts acts of operators, and then calls next, if it is not nil.
func (t *Telemetry) OperatorDone(next func(context.Context, operator.Act, error)) func(context.Context, operator.Act, error) {
	return telemetry.OperatorDone((*exporter)(t), next)
}

// describe adds to a span what became of its request.
func describe(span trace.Span, e *core.Event) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("idem.result", e.Result))
	for _, text := range [...]struct{ name, value string }{{"idem.engine", e.Engine}, {"idem.code", e.Code}, {"idem.end", e.End}} {
		if text.value != "" {
			span.SetAttributes(attribute.String(text.name, text.value))
		}
	}
	if e.Attempt > 0 {
		span.SetAttributes(attribute.Int("idem.attempt", e.Attempt), attribute.Bool("idem.takeover", e.Takeover))
	}
	if origin := parseOrigin(e.Origin); origin.IsValid() {
		span.AddLink(trace.Link{SpanContext: origin, Attributes: []attribute.KeyValue{attribute.String("idem.link", "origin")}})
	}
}

// Origin is a Keep.Origin: it returns the ids of the span in ctx, as the header field traceparent has them (W3C Trace Context), or ""
// if there is no span.
func Origin(ctx context.Context) string {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return ""
	}
	return "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-" + hex.EncodeToString([]byte{byte(span.TraceFlags())})
}

// parseOrigin undoes Origin. What Origin has not made is no valid span context.
func parseOrigin(text string) trace.SpanContext {
	parts := strings.Split(text, "-")
	if len(parts) != 4 || parts[0] != "00" {
		return trace.SpanContext{}
	}
	traceID, err := trace.TraceIDFromHex(parts[1])
	spanID, err2 := trace.SpanIDFromHex(parts[2])
	flags, err3 := hex.DecodeString(parts[3])
	if errors.Join(err, err2, err3) != nil || len(flags) != 1 {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags[0]), Remote: true,
	})
}

// exporter is the Telemetry as package telemetry sees it.
type exporter Telemetry

// Series implements telemetry.Exporter.
func (x *exporter) Series(i *telemetry.Instrument, isMessage bool, values telemetry.Values) telemetry.Series {
	set := metric.WithAttributeSet(x.attributes(i, isMessage, values))
	switch i.Kind {
	case telemetry.Counter:
		counter, options := x.counters[i], []metric.AddOption{set}
		return func(ctx context.Context, value float64) { counter.Add(ctx, int64(value), options...) }
	case telemetry.UpDown:
		upDown, options := x.upDowns[i], []metric.AddOption{set}
		return func(ctx context.Context, value float64) { upDown.Add(ctx, int64(value), options...) }
	}
	histogram, options := x.histograms[i], []metric.RecordOption{set}
	return func(ctx context.Context, value float64) { histogram.Record(ctx, value, options...) }
}

// attributes returns the attributes of a measurement. One without a value is left out.
func (x *exporter) attributes(i *telemetry.Instrument, isMessage bool, values telemetry.Values) attribute.Set {
	var attributes []attribute.KeyValue
	for n, name := range i.Attributes {
		if values[n] != "" {
			attributes = append(attributes, attribute.String(attributeName(name, isMessage), strings.ToValidUTF8(values[n], "\uFFFD")))
		}
	}
	if i == telemetry.StoreDuration && x.dbSystem != "" && !strings.HasPrefix(values[0], "Blobs.") {
		attributes = append(attributes, attribute.String("db.system.name", x.dbSystem))
	}
	return attribute.NewSet(attributes...)
}

// attributeName returns the name of an attribute: that of the semantic conventions, where they have one.
func attributeName(name string, isMessage bool) string {
	switch {
	case name == "route" && isMessage:
		return "messaging.consumer.group.name"
	case name == "route":
		return "http.route"
	case name == "error":
		return "error.type"
	}
	return "idem." + name
}
