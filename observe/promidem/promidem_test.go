package promidem_test

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/operator"
	"github.com/go-idem/idem/internal/telemetry"
	"github.com/go-idem/idem/internal/telemetry/telemetrytest"
	"github.com/go-idem/idem/observe/promidem"
)

var ctx = context.Background()

// gathered returns the metrics of a collector, by name.
func gathered(t testing.TB, c *promidem.Collector) map[string][]*dto.Metric {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	found := map[string][]*dto.Metric{}
	for _, f := range families {
		found[f.GetName()] = f.GetMetric()
	}
	return found
}

// sums returns the sums of counters, or counts of histograms, by the value of a label.
func sums(metrics []*dto.Metric, label string) map[string]int {
	found := map[string]int{}
	for _, m := range metrics {
		for _, l := range m.GetLabel() {
			if l.GetName() == label {
				found[l.GetValue()] += int(m.GetCounter().GetValue()) + int(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return found
}

func played(t *testing.T, cfg promidem.Config) *promidem.Collector {
	t.Helper()
	c := promidem.New(cfg)
	telemetrytest.Play(ctx, t, func(cfg *core.Config) { cfg.Hooks = c.Hooks(cfg.Hooks) })
	return c
}

// TEL-01: every operation is counted once.
func TestEveryOperationIsCountedOnce(t *testing.T) {
	found := gathered(t, played(t, promidem.Config{}))
	assert.Equal(t, telemetrytest.Requests, sums(found["idem_requests_total"], "result"))
	codes := sums(found["idem_requests_total"], "code")
	delete(codes, "")
	assert.Equal(t, telemetrytest.Codes, codes)
	assert.Equal(t, telemetrytest.Ends, sums(found["idem_run_duration_seconds"], "end"))
	for _, gauge := range []string{"idem_run_active", "idem_wait_active"} {
		for _, m := range found[gauge] {
			assert.Zero(t, m.GetGauge().GetValue(), gauge)
		}
	}
	routes := slices.Sorted(maps.Keys(sums(found["idem_requests_total"], "route")))
	assert.Equal(t, []string{"/orders/:id", "billing"}, routes)
	assert.Positive(t, found["idem_outcome_size_bytes"][0].GetHistogram().GetSampleSum())
	assert.Positive(t, sums(found["idem_store_operation_duration_seconds"], "call")["Begin"])
	assert.Positive(t, sums(found["idem_store_operation_duration_seconds"], "error")["other"])
}

func TestTheMetricsAreAsPrometheusWantsThem(t *testing.T) {
	c := played(t, promidem.Config{ConstLabels: prometheus.Labels{"store": "memory"}})
	problems, err := testutil.CollectAndLint(c)
	require.NoError(t, err)
	assert.Empty(t, problems)
	for name, metrics := range gathered(t, c) {
		for _, m := range metrics {
			if h := m.GetHistogram(); h != nil {
				assert.NotEmpty(t, h.GetBucket(), "%s has classic buckets", name)
				assert.NotNil(t, h.Schema, "%s has native buckets", name)
			}
		}
	}
}

// A registry has each metric at most once, and all that the instruments say.
func TestEachInstrumentIsAMetric(t *testing.T) {
	c := played(t, promidem.Config{})
	c.OperatorDone(nil)(ctx, operator.Act{Action: operator.Resolve}, operator.ErrChanged)
	hooks := c.Hooks(core.Hooks{})
	hooks.Lost(ctx, core.Event{})
	hooks.Wait(ctx, core.Event{})
	hooks.Done(ctx, core.Event{Result: "replay", Waited: 1})
	found := gathered(t, c)
	for _, i := range telemetry.All {
		assert.NotEmpty(t, found[i.PrometheusName()], i.Name)
	}
	assert.Len(t, found, len(telemetry.All))
	assert.Equal(t, map[string]int{"changed": 1}, sums(found["idem_operator_acts_total"], "error"))
}

// traceKey is the context key of the id of a trace.
type traceKey struct{}

func TestExemplarsComeFromTheContext(t *testing.T) {
	c := promidem.New(promidem.Config{Exemplar: func(ctx context.Context) prometheus.Labels {
		id, _ := ctx.Value(traceKey{}).(string)
		if id == "" {
			return nil
		}
		return prometheus.Labels{"trace_id": id}
	}})
	engine := telemetrytest.Engine(t, c.Hooks(core.Hooks{}))
	traced := context.WithValue(ctx, traceKey{}, "abc")
	_, err := engine.Do(traced, telemetrytest.Request("K", "1"), func(context.Context) (*core.Response, error) {
		return &core.Response{Status: 201}, nil
	})
	require.NoError(t, err)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	var text bytes.Buffer
	for _, f := range families {
		_, err := expfmt.MetricFamilyToOpenMetrics(&text, f)
		require.NoError(t, err)
	}
	for _, name := range []string{"idem_requests_total", "idem_run_duration_seconds_bucket", "idem_store_operation_duration_seconds_bucket"} {
		assert.Regexp(t, `(?m)^`+name+`\{.*# \{trace_id="abc"\}`, text.String())
	}
}

// Prometheus panics at such labels, which would end the request.
func TestLabelsThatMakeNoExemplarEndNoRequest(t *testing.T) {
	for name, labels := range map[string]prometheus.Labels{
		"too long":           {"agent": strings.Repeat("x", prometheus.ExemplarMaxRunes)},
		"no UTF-8":           {"agent": "\xff"},
		"a name that is not": {"\xff": "x"},
		"no name":            {"": "x"},
		"a reserved name":    {"__name__": "x"},
	} {
		found := gathered(t, played(t, promidem.Config{Exemplar: func(context.Context) prometheus.Labels { return labels }}))
		assert.Equal(t, telemetrytest.Requests, sums(found["idem_requests_total"], "result"), name)
	}
}

func TestNewPanicsAtWhatWouldEndRequests(t *testing.T) {
	for _, cfg := range []promidem.Config{{DurationBuckets: []float64{2, 1}}, {ConstLabels: prometheus.Labels{"le": "x"}}} {
		assert.Panics(t, func() { promidem.New(cfg) })
	}
}

func TestHooksThatWereThereAreCalledToo(t *testing.T) {
	calls := 0
	c := promidem.New(promidem.Config{})
	h := c.Hooks(core.Hooks{Done: func(context.Context, core.Event) { calls++ }, Kept: func(context.Context, core.Event) { calls++ }})
	h.Done(ctx, core.Event{})
	h.Kept(ctx, core.Event{})
	acts := 0
	c.OperatorDone(func(context.Context, operator.Act, error) { acts++ })(ctx, operator.Act{}, nil)
	assert.Equal(t, []int{2, 1}, []int{calls, acts})
}

// series returns the number of series, and fails if a label has a text of the client.
func series(t testing.TB, c *promidem.Collector, texts ...string) (n int) {
	for _, metrics := range gathered(t, c) {
		n += len(metrics)
		for _, m := range metrics {
			for _, l := range m.GetLabel() {
				for _, text := range texts {
					if len(text) > 3 && strings.Contains(l.GetValue(), text) {
						t.Errorf("label %s has %q of the client", l.GetName(), text)
					}
				}
			}
		}
	}
	return n
}

// TEL-02: what clients send makes no series: neither key nor scope nor path, method or status.
func FuzzTheNumberOfSeriesHasABound(f *testing.F) {
	c := promidem.New(promidem.Config{})
	engine := telemetrytest.Engine(f, c.Hooks(core.Hooks{}))
	f.Add("POST", "/orders/1", "key-one", "scope-one", "body-one", uint16(1))
	f.Add("PATCH", "/orders/\xff", "", "", "", uint16(300))
	calls := 0
	f.Fuzz(func(t *testing.T, method, path, key, scope, body string, status uint16) {
		telemetrytest.Fuzz(t, engine, method, path, key, scope, body, status)
		if calls++; calls%50 > 2 { // all series are those of all calls so far
			return
		}
		if n := series(t, c); n > 60 {
			t.Fatalf("%d series", n)
		}
	})
}

func TestNoLabelHasATextOfAClient(t *testing.T) {
	c := promidem.New(promidem.Config{})
	engine := telemetrytest.Engine(t, c.Hooks(core.Hooks{}))
	telemetrytest.Fuzz(t, engine, "POST", "/hidden-path", "hidden-key", "hidden-scope", "hidden-body", 1)
	telemetrytest.Fuzz(t, engine, "HIDDEN", "/hidden-path", "hidden key", "hidden-scope", "hidden-body", 1)
	assert.Positive(t, series(t, c, "hidden", "HIDDEN"))
	c.Hooks(core.Hooks{}).Done(ctx, core.Event{Route: "\xff"}) // Prometheus panics at what is not UTF-8
}
