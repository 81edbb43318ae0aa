package telemetry

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/operator"
)

// Exporter makes what records measurements.
type Exporter interface {
	// Series returns the series of an instrument with these values of its attributes. It is called again for a series that was
	// made before, and then returns the same series or one that adds to it. isMessage is whether a route is the group of a consumer.
	Series(i *Instrument, isMessage bool, values Values) Series
}

// Series records a value in one series. It is safe for concurrent use.
type Series func(ctx context.Context, value float64)

// meter has the series that requests record in, because to look one up costs more than the measurement.
type meter struct {
	exporter Exporter
	begins   cache[string, Series]
	calls    cache[callKey, Series]
	ends     cache[endKey, endSeries]
}

// callKey is what calls to the store have in common that record in the same series.
type callKey struct{ call, engine, err string }

// endKey is what operations have in common that record in the same series at their end.
type endKey struct {
	result, end, engine, route, code            string
	isTakeover, isMessage, hasWaited, hasStored bool
}

// endSeries has the series in which an operation records at its end. One that it does not record in is nil.
type endSeries struct{ requests, waited, waits, active, took, size Series }

// Hooks returns hooks that record what happens, and then call the same hook of next, if it is not nil.
func Hooks(x Exporter, next core.Hooks) core.Hooks {
	m := &meter{exporter: x}
	h := next
	h.Begin = then(m.begin, next.Begin)
	h.Wait = then(m.counts(WaitsActive), next.Wait)
	h.Lost = then(m.counts(LeaseLost), next.Lost)
	h.StoreError = then(m.counts(StoreErrors), next.StoreError)
	h.StoreCall = then(m.storeCall, next.StoreCall)
	h.Done = then(m.done, next.Done)
	return h
}

// then returns a hook that calls first and then next, if it is not nil.
func then(first, next core.Hook) core.Hook {
	if next == nil {
		return first
	}
	return func(ctx context.Context, e core.Event) {
		first(ctx, e)
		next(ctx, e)
	}
}

// counts returns a hook that counts what is rare.
func (m *meter) counts(i *Instrument) core.Hook {
	return func(ctx context.Context, e core.Event) { m.exporter.Series(i, false, Values{e.Engine})(ctx, 1) }
}

// begin is Hooks.Begin.
func (m *meter) begin(ctx context.Context, e core.Event) {
	active := m.begins.get(e.Engine, func() (string, Series) {
		return e.Engine, m.exporter.Series(RunsActive, false, Values{e.Engine})
	})
	active(ctx, 1)
	if e.Waited > 0 {
		m.exporter.Series(WaitsActive, false, Values{e.Engine})(ctx, -1)
	}
}

// storeCall is Hooks.StoreCall.
func (m *meter) storeCall(ctx context.Context, e core.Event) {
	key := callKey{e.Call, e.Engine, ErrorType(e.Err)}
	took := m.calls.get(key, func() (callKey, Series) {
		return key, m.exporter.Series(StoreDuration, false, Values{key.call, key.engine, key.err})
	})
	took(ctx, e.Took.Seconds())
}

// done is Hooks.Done.
func (m *meter) done(ctx context.Context, e core.Event) {
	key := endKey{
		result: e.Result, end: e.End, engine: e.Engine, route: e.Route, code: e.Code, isTakeover: e.Takeover,
		isMessage: e.Method == consumer.Kind, hasWaited: e.Waited > 0, hasStored: e.Result == "run" && e.Size > 0,
	}
	series := m.ends.get(key, func() (endKey, endSeries) { return m.seriesOf(key) })
	series.requests(ctx, 1)
	if series.waited != nil {
		series.waited(ctx, e.Waited.Seconds())
	}
	if series.waits != nil {
		series.waits(ctx, -1)
	}
	if series.active != nil {
		series.active(ctx, -1)
		series.took(ctx, e.Took.Seconds())
	}
	if series.size != nil {
		series.size(ctx, float64(e.Size))
	}
}

// seriesOf returns the series of operations that end in the same way. The key that it returns has a copy of the route, which may be
// in memory that the server uses again.
func (m *meter) seriesOf(key endKey) (endKey, endSeries) {
	key.route = strings.Clone(key.route)
	x := m.exporter
	s := endSeries{requests: x.Series(Requests, key.isMessage, Values{key.result, key.engine, key.route, key.code})}
	if key.hasWaited {
		s.waited = x.Series(WaitDuration, false, Values{key.result, key.engine})
	}
	if key.hasWaited && key.result != "run" { // the wait of a run has ended at its Begin
		s.waits = x.Series(WaitsActive, false, Values{key.engine})
	}
	if key.result == "run" {
		s.active = x.Series(RunsActive, false, Values{key.engine})
		s.took = x.Series(RunDuration, key.isMessage, Values{key.end, strconv.FormatBool(key.isTakeover), key.engine, key.route})
	}
	if key.hasStored {
		s.size = x.Series(OutcomeSize, false, Values{key.engine})
	}
	return key, s
}

// OperatorDone returns a function for operator.Config.Done that records each act, and then calls next, if it is not nil.
func OperatorDone(x Exporter, next func(context.Context, operator.Act, error)) func(context.Context, operator.Act, error) {
	return func(ctx context.Context, act operator.Act, err error) {
		x.Series(Acts, false, Values{string(act.Action), ErrorType(err)})(ctx, 1)
		if next != nil {
			next(ctx, act, err)
		}
	}
}

// cache keeps what was made for each key. Its keys have the values of attributes, so it is as large as the number of series. The
// zero value is ready to use. It is safe for concurrent use.
type cache[K comparable, V any] struct {
	mu   sync.RWMutex
	made map[K]V
}

// get returns what was made for a key, or makes it. makeOne returns the key again, in memory that does not change.
func (c *cache[K, V]) get(key K, makeOne func() (K, V)) V {
	c.mu.RLock()
	v, ok := c.made[key]
	c.mu.RUnlock()
	if ok {
		return v
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok = c.made[key]; ok {
		return v
	}
	if c.made == nil {
		c.made = map[K]V{}
	}
	key, v = makeOne()
	c.made[key] = v
	return v
}
