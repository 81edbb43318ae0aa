package otelidem_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/observe/otelidem"
)

// consumers returns what starts a process that consumes from one store, and what returns the spans that have ended, in their order.
func consumers(t *testing.T, cfg consumer.Config) (start func() *consumer.Consumer, provider trace.TracerProvider, ended func() tracetest.SpanStubs) {
	t.Helper()
	store, exporter := memstore.New(), tracetest.NewInMemoryExporter()
	start = func() *consumer.Consumer {
		made, _ := newTelemetry(t)
		engine := core.Config{Store: store, Scope: core.SingleTenant, Hooks: made.Hooks(core.Hooks{})}
		engine.Keep.Origin = otelidem.Origin
		e, err := core.New(engine)
		require.NoError(t, err)
		c, err := consumer.New(e, cfg)
		require.NoError(t, err)
		return c
	}
	return start, sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)), exporter.GetSpans
}

// TEL-03: the span of a message that was handled before links to the span of its run, in another process, too.
func TestADuplicateLinksToTheSpanThatHandledItsMessage(t *testing.T) {
	start, provider, ended := consumers(t, consumer.Config{})
	producer := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, Remote: true})
	message := consumer.Message{Group: "billing", ID: "secret-7"}
	inRun := trace.SpanContext{}
	handle := func(ctx context.Context) (int, error) {
		inRun = trace.SpanContextFromContext(ctx)
		return 7, nil
	}
	first := otelidem.Consume(ctx, provider, start(), message, handle, trace.WithLinks(trace.Link{SpanContext: producer}))
	second := otelidem.Consume(ctx, provider, start(), message, handle)
	assert.Equal(t, []consumer.Verdict{consumer.Done, consumer.Duplicate}, []consumer.Verdict{first.Verdict, second.Verdict})
	assert.Equal(t, 7, second.Result)

	require.Len(t, ended(), 2)
	run, duplicate := ended()[0], ended()[1]
	assert.Equal(t, run.SpanContext, inRun, "the handler runs in the span")
	assert.Equal(t, "process billing", run.Name)
	assert.Equal(t, trace.SpanKindConsumer, run.SpanKind)
	assert.Equal(t, map[string]string{
		"messaging.operation.name": "process", "messaging.operation.type": "process", "messaging.consumer.group.name": "billing",
		"idem.verdict": "done", "idem.result": "run", "idem.end": "kept", "idem.attempt": "1", "idem.takeover": "false",
	}, values(run))
	require.Len(t, run.Links, 1)
	assert.Equal(t, producer, run.Links[0].SpanContext)
	assert.Equal(t, "duplicate", values(duplicate)["idem.verdict"])
	require.Len(t, duplicate.Links, 1)
	assert.Equal(t, run.SpanContext.SpanID(), duplicate.Links[0].SpanContext.SpanID())
}

func TestTheSpanOfAMessageThatFailsIsAnError(t *testing.T) {
	start, provider, ended := consumers(t, consumer.Config{MaxAttempts: 2})
	failing := func(context.Context) (int, error) { return 0, errors.New("no funds") }
	for range 2 {
		otelidem.Consume(ctx, provider, start(), consumer.Message{Group: "billing", ID: "7"}, failing)
	}
	assert.Panics(t, func() {
		otelidem.Consume(ctx, provider, start(), consumer.Message{Group: "billing", ID: "8"}, func(context.Context) (int, error) { panic("bug") })
	})
	require.Len(t, ended(), 3)
	for n, verdict := range []string{"failed", "dead"} {
		assert.Equal(t, verdict, values(ended()[n])["idem.verdict"])
		assert.Equal(t, codes.Error, ended()[n].Status.Code)
		assert.NotContains(t, ended()[n].Status.Description, "funds")
	}
	require.Len(t, ended()[2].Events, 1, "the span notes the panic")
}

func TestWithoutAProviderTheGlobalOneIsUsed(t *testing.T) {
	start, provider, ended := consumers(t, consumer.Config{})
	before := otel.GetTracerProvider()
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	otel.SetTracerProvider(provider)
	otelidem.Consume(ctx, nil, start(), consumer.Message{Group: "billing", ID: "7"}, func(context.Context) (int, error) { return 1, nil })
	assert.Len(t, ended(), 1)
}
