package main

import (
	"context"
	"io"
	"log"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// A new key adds to one counter, to one gauge twice, and to four histograms.
const counters, histograms = 3, 4

// alone returns functions that make the calls to the libraries which the packages with these names make for a new key, without an
// engine. What they take is what no package can save.
func alone(names string) (all []func(context.Context)) {
	if strings.Contains(names, "slogidem") {
		all = append(all, logsALine())
	}
	if strings.Contains(names, "promidem") {
		all = append(all, countsForPrometheus())
	}
	if strings.Contains(names, "otelidem") {
		all = append(all, countsForOpenTelemetry())
	}
	return all
}

// logsALine returns a function that writes a line with the attributes of a new key.
func logsALine() func(context.Context) {
	handler := slog.NewTextHandler(io.Discard, nil)
	return func(ctx context.Context) {
		line := slog.NewRecord(time.Now(), slog.LevelInfo, "idem: run", 0)
		line.AddAttrs(slog.String("method", "POST"), slog.String("engine", "payments"), slog.String("route", "POST /payments"),
			slog.String("end", "kept"), slog.String("record", "WcMQkVn5sUU.mNKD1qzFUX5YqHkl1fE3yMMcTAO_0Xo"), slog.Int("status", 201),
			slog.Int("attempt", 1), slog.Int("size", 600), slog.Duration("took", 12345*time.Nanosecond))
		_ = handler.Handle(ctx, line) // nothing can fail
	}
}

// countsForPrometheus returns a function that adds to metrics of Prometheus.
func countsForPrometheus() func(context.Context) {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "count"})
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took", NativeHistogramBucketFactor: 1.1})
	prometheus.MustRegister(gauge, histogram)
	return func(context.Context) {
		for range counters {
			gauge.Add(1)
		}
		for range histograms {
			histogram.Observe(0.000123)
		}
	}
}

// countsForOpenTelemetry returns a function that adds to instruments of the SDK.
func countsForOpenTelemetry() func(context.Context) {
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())).Meter("alone")
	counter, err := meter.Int64Counter("count")
	if err != nil {
		log.Fatal(err)
	}
	histogram, err := meter.Float64Histogram("took")
	if err != nil {
		log.Fatal(err)
	}
	set := metric.WithAttributeSet(attribute.NewSet(attribute.String("idem.call", "Begin"), attribute.String("idem.engine", "payments"),
		attribute.String("db.system.name", "redis")))
	add, record := []metric.AddOption{set}, []metric.RecordOption{set}
	return func(ctx context.Context) {
		for range counters {
			counter.Add(ctx, 1, add...)
		}
		for range histograms {
			histogram.Record(ctx, 0.000123, record...)
		}
	}
}
