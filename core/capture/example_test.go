package capture_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/capture"
	"github.com/go-idem/idem/core/memstore"
)

// The adapter of a framework that is built on net/http.
func Example() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	keep := engine.Config().Keep
	adapt := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x := capture.NewExchange(r)
			result, _ := engine.Do(r.Context(), x.Request(), func(ctx context.Context) (*core.Response, error) {
				held := x.NewWriter(ctx, w, keep) // It holds the response back until it is stored.
				inner := x.RequestWithContext(ctx)
				defer x.Finish(inner)
				next.ServeHTTP(held, inner)
				return held.Response(), nil
			})
			switch {
			case result.Bypassed: // no key, or a method that is not guarded
				x.Bypass()
				next.ServeHTTP(w, r)
			case result.Response != nil:
				_ = x.Send(w, result.Response) // An error means that the client has left.
			}
		})
	}
	handler := adapt(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "payment 1") }))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		r.Header.Set("Idempotency-Key", "order-7")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Printf("%s, replayed: %q\n", w.Body, w.Header().Get("Idempotent-Replayed"))
	}
	// Output:
	// payment 1, replayed: ""
	// payment 1, replayed: "true"
}
