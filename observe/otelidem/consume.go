package otelidem

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-idem/idem/core/consumer"
)

// Consume is consumer.Consume in a span of its own, for a delivery of a broker whose client starts none. The span has the kind
// consumer and the name "process GROUP"; the attributes that the semantic conventions have for it, and idem.verdict. Its status is an
// error if the message is Failed or Dead, and a panic is an event of it. It has no ID of the message, which is a key.
//
// With Origin, the span of a Duplicate has a link to the span of the run that made the result.
//
// ctx may have the span of the producer as its parent; a consumer of many producers gives trace.WithLinks as an option. Its tracer
// is of provider, or of otel.GetTracerProvider() if that is nil. The engine of c must have the hooks of a Telemetry. Consume is
// safe for concurrent use.
func Consume[T any](
	ctx context.Context, provider trace.TracerProvider, c *consumer.Consumer, m consumer.Message,
	handle func(context.Context) (T, error), options ...trace.SpanStartOption,
) consumer.Delivery[T] {
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	ctx, span := provider.Tracer(scope).Start(ctx, "process "+m.Group, append([]trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			attribute.String("messaging.operation.name", "process"), attribute.String("messaging.operation.type", "process"),
			attribute.String("messaging.consumer.group.name", m.Group),
		),
	}, options...)...)
	defer span.End() // which adds the event of a panic
	d := consumer.Consume(ctx, c, m, handle)
	span.SetAttributes(attribute.String("idem.verdict", string(d.Verdict)))
	if d.Verdict == consumer.Failed || d.Verdict == consumer.Dead {
		span.SetStatus(codes.Error, string(d.Verdict))
	}
	return d
}
