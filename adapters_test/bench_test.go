package adapters_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	idemfiber "github.com/go-idem/idem/adapters/fiber"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/internal/adaptertest"
)

// BenchmarkAllocations compares a guarded handler with the same one bare, in process, on the memory store, each request
// with a key of its own. The difference is what the engine and its adapter add.
//
//	go test ./adapters_test -run '^$' -bench Allocations -benchtime 20000x
func BenchmarkAllocations(b *testing.B) {
	handler := func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{"text/plain"}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("made"))
	}
	engine, err := core.New(core.Config{Store: memstore.New(memstore.MaxRecords(1 << 30)), Scope: core.SingleTenant})
	if err != nil {
		b.Fatal(err)
	}
	gin.SetMode(gin.ReleaseMode)
	serve := func(b *testing.B, h http.Handler) {
		requests := make([]*http.Request, b.N)
		for i := range requests {
			requests[i] = httptest.NewRequest("POST", "/orders", nil)
			requests[i].Header.Set("Idempotency-Key", fmt.Sprintf("%s-%d-%d", b.Name(), b.N, i))
		}
		recorders := make([]*httptest.ResponseRecorder, b.N)
		for i := range recorders {
			recorders[i] = httptest.NewRecorder()
		}
		b.ReportAllocs()
		b.ResetTimer()
		for i, r := range requests {
			h.ServeHTTP(recorders[i], r)
		}
		b.StopTimer()
		for _, r := range recorders {
			if r.Code != http.StatusCreated || r.Header().Get(adaptertest.Marker) != "" {
				b.Fatalf("%d %v: not a new run", r.Code, r.Body)
			}
		}
	}
	b.Run("bare", func(b *testing.B) { serve(b, http.HandlerFunc(handler)) })
	for _, f := range frameworks {
		if f.Mount != nil {
			b.Run(f.Name, func(b *testing.B) { serve(b, f.Mount(engine, handler)) })
		}
	}
}

// BenchmarkFiberAllocations is BenchmarkAllocations for Fiber, beside its own bare handler.
func BenchmarkFiberAllocations(b *testing.B) {
	engine, err := core.New(core.Config{Store: memstore.New(memstore.MaxRecords(1 << 30)), Scope: core.SingleTenant})
	if err != nil {
		b.Fatal(err)
	}
	for name, middleware := range map[string]fiber.Handler{
		"bare":  func(c *fiber.Ctx) error { return c.Next() },
		"fiber": idemfiber.Fiber(engine),
	} {
		b.Run(name, func(b *testing.B) {
			app := fiber.New()
			app.Use(middleware)
			app.Post("/orders", func(c *fiber.Ctx) error {
				c.Set("Content-Type", "text/plain")
				return c.Status(http.StatusCreated).SendString("made")
			})
			serve := app.Handler()
			exchanges := make([]*fasthttp.RequestCtx, b.N)
			for i := range exchanges {
				exchanges[i] = &fasthttp.RequestCtx{}
				exchanges[i].Request.Header.SetMethod("POST")
				exchanges[i].Request.SetRequestURI("/orders")
				exchanges[i].Request.Header.Set("Idempotency-Key", fmt.Sprintf("%s-%d-%d", b.Name(), b.N, i))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for _, x := range exchanges {
				serve(x)
			}
			b.StopTimer()
			for _, x := range exchanges {
				if x.Response.StatusCode() != http.StatusCreated || len(x.Response.Header.Peek(adaptertest.Marker)) > 0 {
					b.Fatalf("%d: not a new run", x.Response.StatusCode())
				}
			}
		})
	}
}
