package otelidem_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/operator"
	"github.com/go-idem/idem/internal/telemetry"
	"github.com/go-idem/idem/internal/telemetry/telemetrytest"
	"github.com/go-idem/idem/observe/otelidem"
)

var ctx = context.Background()

// newTelemetry returns a Telemetry, and a function that returns what it has measured, by instrument.
func newTelemetry(t testing.TB) (*otelidem.Telemetry, func() map[string]metricdata.Metrics) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	made, err := otelidem.New(otelidem.Config{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), DBSystem: "memory",
	})
	require.NoError(t, err)
	return made, func() map[string]metricdata.Metrics {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(ctx, &all); err != nil {
			panic(err)
		}
		found := map[string]metricdata.Metrics{}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				found[m.Name] = m
			}
		}
		return found
	}
}

// point is a sum, or the count of a histogram, with its attributes.
type point struct {
	attributes attribute.Set
	value      int
}

func points(m metricdata.Metrics) (all []point) {
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			all = append(all, point{p.Attributes, int(p.Value)})
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			all = append(all, point{p.Attributes, int(p.Count)})
		}
	}
	return all
}

// sums returns the sums of points by the value of an attribute. Points without it do not count.
func sums(m metricdata.Metrics, name string) map[string]int {
	found := map[string]int{}
	for _, p := range points(m) {
		if value, ok := p.attributes.Value(attribute.Key(name)); ok {
			found[value.String()] += p.value
		}
	}
	return found
}

// TEL-01: every operation is counted once.
func TestEveryOperationIsCountedOnce(t *testing.T) {
	made, measured := newTelemetry(t)
	telemetrytest.Play(ctx, t, func(c *core.Config) { c.Hooks = made.Hooks(c.Hooks) })
	found := measured()
	requests := found["idem.requests"]
	assert.Equal(t, telemetrytest.Requests, sums(requests, "idem.result"))
	assert.Equal(t, telemetrytest.Codes, sums(requests, "idem.code"))
	assert.Equal(t, map[string]int{"billing": 2}, sums(requests, "messaging.consumer.group.name"))
	assert.Equal(t, map[string]int{"/orders/:id": 16}, sums(requests, "http.route"))
	assert.Equal(t, map[string]int{"payments": 18}, sums(requests, "idem.engine"))
	assert.Equal(t, telemetrytest.Ends, sums(found["idem.run.duration"], "idem.end"))
	assert.Equal(t, map[string]int{"payments": 0}, sums(found["idem.run.active"], "idem.engine"))
	assert.Positive(t, sums(found["idem.store.operation.duration"], "db.system.name")["memory"])
	assert.Positive(t, sums(found["idem.store.operation.duration"], "error.type")["other"])
	assert.Positive(t, sums(found["idem.store.operation.duration"], "idem.call")["Complete"])
}

// Each instrument has the unit and the description that the documentation lists.
func TestEachInstrumentIsMade(t *testing.T) {
	made, measured := newTelemetry(t)
	hooks := made.Hooks(core.Hooks{})
	hooks.Wait(ctx, core.Event{})
	hooks.Begin(ctx, core.Event{Waited: 1})
	hooks.Lost(ctx, core.Event{})
	hooks.StoreError(ctx, core.Event{})
	hooks.StoreCall(ctx, core.Event{Call: "Begin", Took: 1, Err: context.DeadlineExceeded})
	hooks.Done(ctx, core.Event{Result: "run", End: "kept", Waited: 1, Took: 1, Size: 1})
	made.OperatorDone(nil)(ctx, operator.Act{Action: operator.Forget}, nil)
	found := measured()
	require.Len(t, found, len(telemetry.All))
	for _, i := range telemetry.All {
		m := found[i.Name]
		assert.Equal(t, []string{i.Unit, i.Description}, []string{m.Unit, m.Description}, i.Name)
		assert.Len(t, points(m), 1, i.Name)
	}
	assert.Equal(t, map[string]int{"timeout": 1}, sums(found["idem.store.operation.duration"], "error.type"))
	assert.Equal(t, 0, points(found["idem.wait.active"])[0].value, "a wait ends at the Begin that follows it")
}

// The blobs are no part of the database that keeps the records.
func TestACallToTheBlobsIsNotOneToTheDatabase(t *testing.T) {
	made, measured := newTelemetry(t)
	hooks := made.Hooks(core.Hooks{})
	for _, call := range []string{"Complete", "Blobs.Put", "Blobs.Get"} {
		hooks.StoreCall(ctx, core.Event{Call: call, Took: 1})
	}
	calls := measured()["idem.store.operation.duration"]
	assert.Len(t, sums(calls, "idem.call"), 3)
	assert.Equal(t, map[string]int{"memory": 1}, sums(calls, "db.system.name"))
}

// traced sends a request in a span of its own to an engine, and returns the span.
func traced(t *testing.T, e *core.Engine, key, body string, status int) tracetest.SpanStub {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)).Tracer("test")
	ctx, span := tracer.Start(ctx, "POST /orders/:id")
	_, err := e.Do(ctx, telemetrytest.Request(key, body), func(context.Context) (*core.Response, error) {
		return &core.Response{Status: status, Body: []byte("made")}, nil
	})
	require.NoError(t, err)
	span.End()
	require.Len(t, exporter.GetSpans(), 1)
	return exporter.GetSpans()[0]
}

// values returns the attributes of a span as text.
func values(span tracetest.SpanStub) map[string]string {
	found := map[string]string{}
	for _, a := range span.Attributes {
		found[string(a.Key)] = a.Value.String()
	}
	return found
}

// TEL-03: a replay links to the span of the run that made its outcome, in another process, too.
func TestAReplayLinksToTheSpanOfItsRun(t *testing.T) {
	store := memstore.New()
	process := func() *core.Engine {
		made, _ := newTelemetry(t)
		cfg := core.Config{Store: store, Scope: core.SingleTenant, Name: "payments", Hooks: made.Hooks(core.Hooks{})}
		cfg.Keep.Origin = otelidem.Origin
		e, err := core.New(cfg)
		require.NoError(t, err)
		return e
	}
	run := traced(t, process(), "K", "1", 201)
	assert.Empty(t, run.Links)
	assert.Equal(t, map[string]string{
		"idem.result": "run", "idem.end": "kept", "idem.engine": "payments", "idem.attempt": "1", "idem.takeover": "false",
	}, values(run))

	replay := traced(t, process(), "K", "1", 0)
	assert.Equal(t, map[string]string{"idem.result": "replay", "idem.engine": "payments"}, values(replay))
	require.Len(t, replay.Links, 1)
	assert.Equal(t, run.SpanContext.TraceID(), replay.Links[0].SpanContext.TraceID())
	assert.Equal(t, run.SpanContext.SpanID(), replay.Links[0].SpanContext.SpanID())
	assert.NotEqual(t, run.SpanContext.TraceID(), replay.SpanContext.TraceID())

	refused := traced(t, process(), "K", "another", 0)
	assert.Equal(t, "mismatch", values(refused)["idem.result"])
	assert.Equal(t, "fingerprint-mismatch", values(refused)["idem.code"])
	assert.Empty(t, refused.Links)
}

func TestAnOriginThatNobodyMadeIsNoLink(t *testing.T) {
	for _, origin := range []string{"", "request 7", "00-", "00-x-y-z", "00-" + strings.Repeat("0", 32) + "-" + strings.Repeat("0", 16) + "-01"} {
		cfg := core.Config{Store: memstore.New(), Scope: core.SingleTenant}
		made, _ := newTelemetry(t)
		cfg.Hooks, cfg.Keep.Origin = made.Hooks(core.Hooks{}), func(context.Context) string { return origin }
		e, err := core.New(cfg)
		require.NoError(t, err)
		traced(t, e, "K", "1", 201)
		assert.Empty(t, traced(t, e, "K", "1", 0).Links, origin)
	}
	assert.Empty(t, otelidem.Origin(ctx), "there is no span")
}

// TEL-02: what clients send makes no series.
func FuzzTheNumberOfSeriesHasABound(f *testing.F) {
	made, measured := newTelemetry(f)
	engine := telemetrytest.Engine(f, made.Hooks(core.Hooks{}))
	f.Add("POST", "/orders/1", "key-one", "scope-one", "body-one", uint16(1))
	f.Add("PATCH", "/orders/\xff", "", "", "", uint16(300))
	calls := 0
	f.Fuzz(func(t *testing.T, method, path, key, scope, body string, status uint16) {
		telemetrytest.Fuzz(t, engine, method, path, key, scope, body, status)
		if calls++; calls%50 > 2 { // all series are those of all calls so far
			return
		}
		series := 0
		for _, m := range measured() {
			series += len(points(m))
		}
		if series > 60 {
			t.Fatalf("%d series", series)
		}
	})
}
