package measure

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"

	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
	"github.com/go-idem/idem/core"
)

// allocations counts what requests allocate. They are served in process, without a body and one after the other, unguarded and on
// the memory store, so that only the engine and its adapter differ.
//
// The figures are numbers of allocations, and their bytes: of the bare handler, what a new key adds to it, and of a replay in
// all, for which the handler does not run.
func allocations(b *Bench) (rows []report.Row, err error) {
	for _, f := range subject.Frameworks {
		row := report.Row{Name: []string{f.Name}, Figures: map[string]float64{}}
		engine := subject.NewEngine(subject.NewMemstore())
		for _, c := range []struct {
			figure string
			engine *core.Engine
			runs   int // of the handler, of twice as many requests
		}{{"bare", nil, 2 * b.Plan.Requests}, {"new", engine, 2 * b.Plan.Requests}, {"replay", engine, 0}} {
			count, bytes, err := allocated(f, c.engine, b.Plan.Requests, c.runs)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.Name, err)
			}
			row.Figures[c.figure], row.Figures[c.figure+"_bytes"] = count, bytes
		}
		row.Figures["new"] -= row.Figures["bare"]
		row.Figures["new_bytes"] -= row.Figures["bare_bytes"]
		rows = append(rows, row)
	}
	return rows, nil
}

// allocated serves n requests, after as many others that fill pools and maps. The collector is off meanwhile, because it empties
// pools. The handler must run so many times. An engine that ran it for replays, or that refused requests, would have figures of
// something else.
func allocated(f subject.Framework, e *core.Engine, n, runs int) (count, size float64, err error) {
	var payments subject.Payments
	serve := prepare(f.Mount(&payments, e), 2*n)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for i := range n {
		serve(i)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		serve(n + i)
	}
	runtime.ReadMemStats(&after)
	if payments.Runs() != int64(runs) {
		return 0, 0, fmt.Errorf("the handler ran %d times, want %d", payments.Runs(), runs)
	}
	per := func(total uint64) float64 { return float64(total) / float64(n) }
	return per(after.Mallocs - before.Mallocs), per(after.TotalAlloc - before.TotalAlloc), nil
}

// prepare makes n requests, always with the same keys, so that only serving them counts. Each has a response of its own, since
// net/http makes one for each request, too: the header fields that a handler sets allocate.
func prepare(app subject.App, n int) (serve func(i int)) {
	keys := subject.NewKeys("allocations")
	if app.Fast != nil {
		return prepareFast(app.Fast, keys)
	}
	requests, writers := make([]*http.Request, n), make([]discard, n)
	for i := range requests {
		requests[i] = httptest.NewRequest(http.MethodPost, subject.Path, nil)
		requests[i].Header.Set(subject.KeyHeader, string(keys.At(int64(i))))
		writers[i].header = http.Header{}
	}
	return func(i int) { app.Std.ServeHTTP(&writers[i], requests[i]) }
}

// prepareFast is prepare for fasthttp. All requests share a context and its buffers, as those of a connection do, so that filling
// it does not allocate.
func prepareFast(server *fasthttp.Server, keys *subject.Keys) (serve func(i int)) {
	var ctx fasthttp.RequestCtx
	ctx.Init(&fasthttp.Request{}, nil, nil)
	return func(i int) {
		ctx.ResetUserValues()
		ctx.Request.Reset()
		ctx.Response.Reset()
		ctx.Request.Header.SetMethod(fasthttp.MethodPost)
		ctx.Request.SetRequestURI(subject.Path)
		ctx.Request.Header.SetBytesV(subject.KeyHeader, keys.At(int64(i)))
		server.Handler(&ctx)
	}
}

// discard is an http.ResponseWriter that keeps nothing. That of package httptest would allocate as well, and its allocations
// would be counted.
type discard struct{ header http.Header }

// The methods of http.ResponseWriter.
func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}
