package promidem_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/internal/telemetry/telemetrytest"
	"github.com/go-idem/idem/observe/promidem"
)

var update = flag.Bool("update", false, "draw docs/telemetry-dashboard.svg")

// slowStore is a store whose calls take as long as those of a Redis nearby, and that is away for a while.
type slowStore struct {
	driver.Store
	random *rand.Rand
	mu     *sync.Mutex
	isAway *bool
}

// pause waits for the reply to a call.
func (s slowStore) pause() error {
	s.mu.Lock()
	took, isAway := time.Duration(300+s.random.ExpFloat64()*300)*time.Microsecond, *s.isAway
	s.mu.Unlock()
	time.Sleep(took)
	if isAway {
		return context.DeadlineExceeded
	}
	return nil
}

// Begin implements driver.Store.
func (s slowStore) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	if err := s.pause(); err != nil {
		return driver.Entry{}, err
	}
	return s.Store.Begin(ctx, c)
}

// Complete implements driver.Store.
func (s slowStore) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	if err := s.pause(); err != nil {
		return err
	}
	return s.Store.Complete(ctx, c, outcome)
}

// traffic sends 40 requests a second for two minutes, in virtual time: a third are retries, some come too early, and from the 60th to
// the 75th second the store is away. It returns what was gathered at each second.
func traffic(t *testing.T) (seconds []map[string][]*dto.Metric) {
	t.Helper()
	random, isAway := rand.New(rand.NewPCG(1, 2)), false
	var mu sync.Mutex
	c := promidem.New(promidem.Config{})
	cfg := core.Config{Store: slowStore{memstore.New(), random, &mu, &isAway}, Scope: core.SingleTenant, Name: "payments"}
	cfg.Hooks = c.Hooks(core.Hooks{})
	engine, err := core.New(cfg)
	require.NoError(t, err)
	var all sync.WaitGroup
	for second := range 120 {
		mu.Lock()
		isAway = second >= 60 && second < 75
		mu.Unlock()
		for n := range 40 {
			mu.Lock()
			key, takes := second*40+n, time.Duration(20+random.ExpFloat64()*60)*time.Millisecond
			if random.IntN(3) == 0 {
				key -= random.IntN(200)
			}
			mu.Unlock()
			all.Go(func() {
				_, _ = engine.Do(ctx, telemetrytest.Request(fmt.Sprint("key", key), "1"), func(context.Context) (*core.Response, error) {
					time.Sleep(takes)
					return &core.Response{Status: 201, Body: make([]byte, 300)}, nil
				})
			})
			time.Sleep(25 * time.Millisecond)
		}
		seconds = append(seconds, gathered(t, c))
	}
	all.Wait()
	require.NoError(t, engine.Close(ctx))
	return seconds
}

// rates returns the sum of a counter by a label at each second, per second over the last five.
func rates(seconds []map[string][]*dto.Metric, name, label string) map[string][]float64 {
	found := map[string][]float64{}
	for i := 5; i < len(seconds); i++ {
		now, before := sums(seconds[i][name], label), sums(seconds[i-5][name], label)
		for value := range now {
			for len(found[value]) < i-5 {
				found[value] = append(found[value], 0)
			}
			found[value] = append(found[value], float64(now[value]-before[value])/5)
		}
	}
	return found
}

// quantile returns the q-quantile of a histogram at each second, over the last five, as histogram_quantile computes it.
func quantile(seconds []map[string][]*dto.Metric, name string, q float64) (all []float64) {
	buckets := func(metrics []*dto.Metric) map[float64]float64 {
		counts := map[float64]float64{}
		for _, m := range metrics {
			for _, b := range m.GetHistogram().GetBucket() {
				counts[b.GetUpperBound()] += float64(b.GetCumulativeCount())
			}
		}
		return counts
	}
	for i := 5; i < len(seconds); i++ {
		now, before := buckets(seconds[i][name]), buckets(seconds[i-5][name])
		all = append(all, interpolated(now, before, q))
	}
	return all
}

// interpolated returns the q-quantile of the observations that now has and before has not.
func interpolated(now, before map[float64]float64, q float64) float64 {
	bounds := slices.Sorted(maps.Keys(now))
	if len(bounds) == 0 {
		return 0
	}
	last := bounds[len(bounds)-1]
	if now[last] == before[last] { // nothing was observed
		return 0
	}
	rank, low, count := q*(now[last]-before[last]), 0.0, 0.0
	for _, bound := range bounds {
		in := now[bound] - before[bound]
		if in >= rank && in > count {
			return low + (bound-low)*(rank-count)/(in-count)
		}
		low, count = bound, in
	}
	return low
}

// panel is a chart of the dashboard.
type panel struct {
	title, unit string
	lines       map[string][]float64
}

var colours = []string{"#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2"}

// draw returns the chart as SVG, at a place.
func (p panel) draw(x, y int) string {
	const width, height = 380, 130
	top := 0.0
	names := slices.Sorted(maps.Keys(p.lines))
	for _, name := range names {
		top = max(top, slices.Max(p.lines[name]))
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, `<g transform="translate(%d %d)"><text y="-8" font-weight="bold">%s</text>`, x, y, p.title)
	fmt.Fprintf(&text, `<path d="M0 0V%dH%d" fill="none" stroke="#888"/><text x="4" y="10" fill="#666">%.3g %s</text>`, height, width, top, p.unit)
	for i, name := range names {
		path := ""
		for n, value := range p.lines[name] {
			step := "L"
			if n == 0 {
				step = "M"
			}
			path += fmt.Sprintf("%s%.0f %.0f", step, float64(n)*width/float64(len(p.lines[name])), height-math.Max(value, 0)/max(top, 1e-9)*(height-14))
		}
		fmt.Fprintf(&text, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`, path, colours[i%len(colours)])
		fmt.Fprintf(&text, `<text x="%d" y="%d" fill="%s">%s</text>`, 4+i%3*125, height+16+i/3*14, colours[i%len(colours)], name)
	}
	text.WriteString("</g>\n")
	return text.String()
}

// The picture in docs/telemetry.md has the data of a run.
func TestTheDashboardShowsAnOutage(t *testing.T) {
	var seconds []map[string][]*dto.Metric
	synctest.Test(t, func(t *testing.T) { seconds = traffic(t) })
	results := rates(seconds, "idem_requests_total", "result")
	assert.Greater(t, slices.Max(results["refused"]), 10.0, "during the outage requests are refused")
	assert.Zero(t, results["refused"][20])
	errors := rates(seconds, "idem_store_operation_duration_seconds", "error")
	delete(errors, "")
	panels := []panel{
		{"Operations by result", "/s", results},
		{"How long handlers run", "s", map[string][]float64{
			"median": quantile(seconds, "idem_run_duration_seconds", 0.5), "99 %": quantile(seconds, "idem_run_duration_seconds", 0.99),
		}},
		{"Runs by their end", "/s", rates(seconds, "idem_run_duration_seconds", "end")},
		{"Calls to the store that fail", "/s", errors},
	}
	picture := `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 400" font-family="sans-serif" font-size="11">` + "\n" +
		`<rect width="860" height="400" fill="#fff"/>` + "\n"
	for i, p := range panels {
		picture += p.draw(25+i%2*425, 30+i/2*195)
	}
	picture += "</svg>\n"
	const file = "../../docs/telemetry-dashboard.svg"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(picture), 0o600))
	}
	drawn, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(drawn), "Operations by result")
}
