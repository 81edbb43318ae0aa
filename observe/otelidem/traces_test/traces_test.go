// Package traces_test runs otelidem beside the OpenTelemetry instrumentation of the frameworks, with exporters and a receiver of OTLP.
// It is a module of its own, so that nobody pays for the frameworks' instrumentation.
package traces_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/contrib/otelfiber/v2"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/github.com/gin-gonic/gin/otelgin"
	"go.opentelemetry.io/contrib/instrumentation/github.com/labstack/echo/otelecho"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	idemecho "github.com/go-idem/idem/adapters/echo"
	idemfiber "github.com/go-idem/idem/adapters/fiber"
	idemgin "github.com/go-idem/idem/adapters/gin"
	idemhttp "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/observe/otelidem"
)

var update = flag.Bool("update", false, "write the traces into docs/telemetry.md")

// receiver is a server that takes OTLP over HTTP.
type receiver struct {
	url     string
	mu      sync.Mutex
	spans   []*spanpb.Span
	metrics *metricspb.ExportMetricsServiceRequest // the last
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err == nil {
			err = r.receive(req.URL.Path, body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// receive stores what an exporter has sent.
func (r *receiver) receive(path string, body []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if path == "/v1/metrics" {
		r.metrics = &metricspb.ExportMetricsServiceRequest{}
		return proto.Unmarshal(body, r.metrics)
	}
	var request tracepb.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return err
	}
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
	return nil
}

// requests returns the sum of idem.requests by result.
func (r *receiver) requests() map[string]int64 {
	found := map[string]int64{}
	for _, resource := range r.metrics.GetResourceMetrics() {
		for _, scope := range resource.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				if m.GetName() != "idem.requests" {
					continue
				}
				for _, p := range m.GetSum().GetDataPoints() {
					found[attributes(p.GetAttributes())["idem.result"]] += p.GetAsInt()
				}
			}
		}
	}
	return found
}

func attributes(all []*commonpb.KeyValue) map[string]string {
	found := map[string]string{}
	for _, a := range all {
		found[a.GetKey()] = fmt.Sprint(a.GetValue().GetStringValue())
		if v, ok := a.GetValue().GetValue().(*commonpb.AnyValue_IntValue); ok {
			found[a.GetKey()] = fmt.Sprint(v.IntValue)
		}
		if v, ok := a.GetValue().GetValue().(*commonpb.AnyValue_BoolValue); ok {
			found[a.GetKey()] = fmt.Sprint(v.BoolValue)
		}
	}
	return found
}

// tree draws the spans: each below its parent, with what idem has added.
func (r *receiver) tree() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.spans, func(a, b *spanpb.Span) int { return int(a.GetStartTimeUnixNano()) - int(b.GetStartTimeUnixNano()) })
	numbers := map[string]int{}
	for i, span := range r.spans {
		numbers[string(span.GetSpanId())] = i + 1
	}
	var text strings.Builder
	var draw func(parent, indent string)
	draw = func(parent, indent string) {
		for _, span := range r.spans {
			if string(span.GetParentSpanId()) != parent {
				continue
			}
			fmt.Fprintf(&text, "%s%d %s", indent, numbers[string(span.GetSpanId())], span.GetName())
			of := attributes(span.GetAttributes())
			for _, name := range []string{"idem.result", "idem.end", "idem.attempt", "idem.code"} {
				if of[name] != "" {
					fmt.Fprintf(&text, " %s=%s", name, of[name])
				}
			}
			for _, link := range span.GetLinks() {
				fmt.Fprintf(&text, " -> %d", numbers[string(link.GetSpanId())])
			}
			text.WriteString("\n")
			draw(string(span.GetSpanId()), indent+"  ")
		}
	}
	draw("", "")
	return text.String()
}

// charge is the work of all handlers: a span of its own.
func charge(ctx context.Context) {
	_, span := otel.Tracer("orders").Start(ctx, "charge")
	span.End()
}

// service is a framework with its instrumentation outside the engine.
type service struct {
	name  string
	start func(t *testing.T, e *core.Engine, provider trace.TracerProvider) (url string)
}

var services = []service{
	{"net/http with otelhttp", func(t *testing.T, e *core.Engine, provider trace.TracerProvider) string {
		mux := http.NewServeMux()
		mux.Handle("POST /orders/{id}", idemhttp.HTTP(e)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			charge(r.Context())
			w.WriteHeader(http.StatusCreated)
		})))
		return served(t, otelhttp.NewHandler(mux, "orders", otelhttp.WithTracerProvider(provider)))
	}},
	{"Gin with otelgin", func(t *testing.T, e *core.Engine, provider trace.TracerProvider) string {
		gin.SetMode(gin.ReleaseMode)
		r := gin.New()
		r.Use(otelgin.Middleware("orders", otelgin.WithTracerProvider(provider)), idemgin.Gin(e))
		r.POST("/orders/:id", func(c *gin.Context) {
			charge(c.Request.Context())
			c.Status(http.StatusCreated)
		})
		return served(t, r)
	}},
	{"Echo with otelecho", func(t *testing.T, e *core.Engine, provider trace.TracerProvider) string {
		r := echo.New()
		r.Use(otelecho.Middleware("orders", otelecho.WithTracerProvider(provider)), idemecho.Echo(e))
		r.POST("/orders/:id", func(c echo.Context) error {
			charge(c.Request().Context())
			return c.NoContent(http.StatusCreated)
		})
		return served(t, r)
	}},
	{"Fiber with otelfiber", func(t *testing.T, e *core.Engine, provider trace.TracerProvider) string {
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		app.Use(otelfiber.Middleware(otelfiber.WithTracerProvider(provider)), idemfiber.Fiber(e))
		app.Post("/orders/:id", func(c *fiber.Ctx) error {
			charge(c.UserContext())
			return c.SendStatus(http.StatusCreated)
		})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go func() { _ = app.Listener(l) }()
		t.Cleanup(func() { _ = app.Shutdown() })
		return "http://" + l.Addr().String()
	}},
}

func served(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// TEL-03: what arrives by OTLP is what happened, beside the instrumentation of each framework: one span for each request, the spans of
// the handler below it, and a link from a replay to the run. The counts that arrive are those of the requests.
func TestTracesBesideTheInstrumentationOfEachFramework(t *testing.T) {
	drawn := ""
	for _, service := range services {
		r := newReceiver(t)
		ctx := context.Background()
		spans, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(r.url+"/v1/traces"))
		require.NoError(t, err)
		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		otel.SetTracerProvider(provider)
		metrics, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(r.url+"/v1/metrics"))
		require.NoError(t, err)
		meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(metrics)))

		telemetry, err := otelidem.New(otelidem.Config{MeterProvider: meters})
		require.NoError(t, err)
		cfg := core.Config{Store: memstore.New(), Scope: core.SingleTenant, Hooks: telemetry.Hooks(core.Hooks{})}
		cfg.Keep.Origin = otelidem.Origin
		engine, err := core.New(cfg)
		require.NoError(t, err)
		url := service.start(t, engine, provider)
		for _, body := range []string{"first", "first", "another"} {
			req, err := http.NewRequest(http.MethodPost, url+"/orders/7", strings.NewReader(body))
			require.NoError(t, err)
			req.Header.Set("Idempotency-Key", "K")
			response, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			_ = response.Body.Close()
		}
		require.NoError(t, provider.Shutdown(ctx))
		require.NoError(t, meters.Shutdown(ctx))
		assert.Equal(t, map[string]int64{"run": 1, "replay": 1, "mismatch": 1}, r.requests(), service.name)
		drawn += service.name + "\n" + r.tree() + "\n"
	}
	compare(t, strings.TrimSuffix(drawn, "\n"))
}

// compare compares the traces with those of docs/telemetry.md.
func compare(t *testing.T, drawn string) {
	t.Helper()
	const page, begin, end = "../../../docs/telemetry.md", "<!-- traces: go -C observe/otelidem/traces_test test -update . -->\n```text\n", "```\n"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok, "docs/telemetry.md has a place for the traces")
	was, after, _ := strings.Cut(rest, end)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+begin+drawn+end+after), 0o600))
		return
	}
	assert.Equal(t, was, drawn)
}
