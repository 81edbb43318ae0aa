package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"

	"github.com/valyala/fasthttp"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// allocation is what one framework's requests allocate.
type allocation struct {
	framework framework
	bare      usage
	fresh     usage // a new key, under the library
	replay    usage
}

// usage is per request.
type usage struct{ allocs, bytes float64 }

// measureAllocations serves requests in process, without a body and one after the other, bare and on the memory store.
func measureAllocations(b *bench) error {
	for _, f := range frameworks {
		guard := newEngine(memstore.New(memstore.MaxRecords(1<<30), memstore.MaxBytes(1<<40)))
		a := allocation{framework: f}
		for _, c := range []struct {
			into     *usage
			engine   *core.Engine
			isReplay bool
		}{{&a.bare, nil, false}, {&a.fresh, guard, false}, {&a.replay, guard, true}} {
			used, err := count(f, c.engine, b.plan.requests, c.isReplay)
			if err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			*c.into = used
		}
		b.results.allocations = append(b.results.allocations, a)
	}
	return nil
}

// count serves n requests, and as many before to fill pools and maps. The collector is off meanwhile: it empties pools.
func count(f framework, e *core.Engine, n int, isReplay bool) (usage, error) {
	var payments shop
	serve := prepare(f.mount(&payments, e), 2*n)
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
	want := int64(2 * n)
	if isReplay {
		want = 0 // all was kept by the requests for new keys
	}
	if runs := payments.runs.Load(); runs != want {
		return usage{}, fmt.Errorf("the handler ran %d times, want %d", runs, want)
	}
	per := func(total uint64) float64 { return float64(total) / float64(n) }
	return usage{per(after.Mallocs - before.Mallocs), per(after.TotalAlloc - before.TotalAlloc)}, nil
}

// prepare makes n requests, always with the same keys, so that only serving them counts.
func prepare(m mounted, n int) (serve func(i int)) {
	names := newKeys("allocations")
	if m.fast != nil {
		return prepareFast(m.fast, names, n)
	}
	requests, writers := make([]*http.Request, n), make([]discard, n)
	for i := range requests {
		requests[i] = httptest.NewRequest(http.MethodPost, path, nil)
		requests[i].Header.Set(keyHeader, string(names.key()))
		writers[i].header = http.Header{}
	}
	return func(i int) { m.std.ServeHTTP(&writers[i], requests[i]) }
}

func prepareFast(server *fasthttp.Server, names *keys, n int) (serve func(i int)) {
	requests := make([]fasthttp.Request, n)
	for i := range requests {
		requests[i].Header.SetMethod(fasthttp.MethodPost)
		requests[i].SetRequestURI(path)
		requests[i].Header.SetBytesV(keyHeader, bytes.Clone(names.key()))
	}
	var ctx fasthttp.RequestCtx // all requests share it, as those of a connection do
	ctx.Init(&fasthttp.Request{}, nil, nil)
	return func(i int) {
		ctx.ResetUserValues()
		ctx.Request.Reset()
		ctx.Response.Reset()
		requests[i].CopyTo(&ctx.Request)
		server.Handler(&ctx)
	}
}

// discard is an http.ResponseWriter that keeps nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}
