// Package promidem counts what engines do for Prometheus.
//
//	collector := promidem.New(promidem.Config{})
//	prometheus.MustRegister(collector)
//	cfg.Hooks = collector.Hooks(cfg.Hooks)
//
// docs/telemetry.md lists the metrics. Histograms have classic and native buckets. No label has a key, a scope, a record, an owner or
// a path, so that the number of series has a bound: it does not depend on what clients send.
package promidem

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/operator"
	"github.com/go-idem/idem/internal/telemetry"
)

// Config configures a Collector. Its zero value is valid.
type Config struct {
	// ConstLabels are labels that all metrics have, such as the store. Default none.
	ConstLabels prometheus.Labels

	// Exemplar returns the labels of the exemplar of a measurement, such as the id of the trace in ctx, or nil for no exemplar. It is
	// called for each measurement of a counter or a histogram, and must be safe for concurrent use. Labels that Prometheus does not
	// take, as more than 128 characters in all, make no exemplar. Default nil: no exemplars.
	Exemplar func(ctx context.Context) prometheus.Labels

	// DurationBuckets are the upper bounds in seconds of the classic buckets of durations. Default: 0.5 ms to 30 s.
	DurationBuckets []float64
}

// Collector counts events of engines. It is a prometheus.Collector, and safe for concurrent use. Several engines may share one.
type Collector struct {
	exemplar   func(context.Context) prometheus.Labels
	counters   map[*telemetry.Instrument]*prometheus.CounterVec
	gauges     map[*telemetry.Instrument]*prometheus.GaugeVec
	histograms map[*telemetry.Instrument]*prometheus.HistogramVec
}

// New returns a Collector without measurements. It panics if the buckets do not increase, or if Prometheus does not take the labels
// for a histogram; registering the Collector finds other mistakes in the labels.
func New(cfg Config) *Collector {
	c := &Collector{
		exemplar:   cfg.Exemplar,
		counters:   map[*telemetry.Instrument]*prometheus.CounterVec{},
		gauges:     map[*telemetry.Instrument]*prometheus.GaugeVec{},
		histograms: map[*telemetry.Instrument]*prometheus.HistogramVec{},
	}
	for _, i := range telemetry.All {
		switch opts := (prometheus.Opts{Name: i.PrometheusName(), Help: i.Description, ConstLabels: cfg.ConstLabels}); i.Kind {
		case telemetry.Counter:
			c.counters[i] = prometheus.NewCounterVec(prometheus.CounterOpts(opts), i.Attributes)
		case telemetry.UpDown:
			c.gauges[i] = prometheus.NewGaugeVec(prometheus.GaugeOpts(opts), i.Attributes)
		case telemetry.Histogram:
			_ = prometheus.NewHistogram(cfg.histogramOpts(i, opts)) // which panics now, and not in a request
			c.histograms[i] = prometheus.NewHistogramVec(cfg.histogramOpts(i, opts), i.Attributes)
		}
	}
	return c
}

// histogramOpts returns the options of a histogram.
func (cfg *Config) histogramOpts(i *telemetry.Instrument, opts prometheus.Opts) prometheus.HistogramOpts {
	buckets := i.Buckets
	if i.Unit == "s" && cfg.DurationBuckets != nil {
		buckets = cfg.DurationBuckets
	}
	return prometheus.HistogramOpts{
		Name: opts.Name, Help: opts.Help, ConstLabels: opts.ConstLabels, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
	}
}

// Hooks returns hooks that count, and then call the same hook of next, if it is not nil.
func (c *Collector) Hooks(next core.Hooks) core.Hooks { return telemetry.Hooks((*exporter)(c), next) }

// OperatorDone returns a function for operator.Config.Done that counts acts of operators, and then calls next, if it is not nil.
func (c *Collector) OperatorDone(next func(context.Context, operator.Act, error)) func(context.Context, operator.Act, error) {
	return telemetry.OperatorDone((*exporter)(c), next)
}

// all returns the metrics in the order of the instruments.
func (c *Collector) all() (all []prometheus.Collector) {
	for _, i := range telemetry.All {
		switch i.Kind {
		case telemetry.Counter:
			all = append(all, c.counters[i])
		case telemetry.UpDown:
			all = append(all, c.gauges[i])
		case telemetry.Histogram:
			all = append(all, c.histograms[i])
		}
	}
	return all
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.all() {
		m.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, m := range c.all() {
		m.Collect(to)
	}
}

// exporter is the Collector as package telemetry sees it.
type exporter Collector

// Series implements telemetry.Exporter.
func (x *exporter) Series(i *telemetry.Instrument, _ bool, values telemetry.Values) telemetry.Series {
	labels := values[:len(i.Attributes)]
	for n, label := range labels {
		labels[n] = strings.ToValidUTF8(label, "\uFFFD") // Prometheus panics at other bytes
	}
	switch i.Kind {
	case telemetry.UpDown:
		gauge := x.gauges[i].WithLabelValues(labels...)
		return func(_ context.Context, value float64) { gauge.Add(value) }
	case telemetry.Counter:
		counter := x.counters[i].WithLabelValues(labels...)
		return x.withExemplar(counter.Add, counter.(prometheus.ExemplarAdder).AddWithExemplar)
	}
	histogram := x.histograms[i].WithLabelValues(labels...)
	return x.withExemplar(histogram.Observe, histogram.(prometheus.ExemplarObserver).ObserveWithExemplar)
}

// withExemplar returns a series that records with an exemplar where there is one.
func (x *exporter) withExemplar(alone func(float64), with func(float64, prometheus.Labels)) telemetry.Series {
	if x.exemplar == nil {
		return func(_ context.Context, value float64) { alone(value) }
	}
	return func(ctx context.Context, value float64) {
		exemplar := x.exemplar(ctx)
		if !isExemplar(exemplar) {
			alone(value)
			return
		}
		with(value, exemplar)
	}
}

// isExemplar reports whether Prometheus takes the labels of an exemplar. It panics at others, which would end a request.
func isExemplar(labels prometheus.Labels) bool {
	size := 0
	for name, value := range labels {
		if name == "" || strings.HasPrefix(name, "__") || !utf8.ValidString(name) || !utf8.ValidString(value) {
			return false
		}
		size += utf8.RuneCountInString(name) + utf8.RuneCountInString(value)
	}
	return labels != nil && size <= prometheus.ExemplarMaxRunes
}
