package idem_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

func Example() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	made := 0
	pay := func(w http.ResponseWriter, _ *http.Request) {
		made++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "payment ", made)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", idem.HTTP(engine)(http.HandlerFunc(pay)))
	mux.Handle("GET /payments", idem.Status(engine)) // what became of a key

	for _, key := range []string{"order-7", "order-7", "order-8"} {
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(key, w.Code, w.Header().Get("Idempotent-Replayed"), w.Body)
	}
	// Output:
	// order-7 201  payment 1
	// order-7 201 true payment 1
	// order-8 201  payment 2
}

// The scope of a key comes from authentication, so that two customers may use the same key.
func ExampleScope() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	customer := func(r *http.Request) string { name, _, _ := r.BasicAuth(); return name } // checked by middleware outside
	handler := idem.HTTP(engine, idem.Scope(customer))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "paid by ", customer(r))
	}))
	for _, name := range []string{"alice", "bob", "alice"} {
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		r.SetBasicAuth(name, "secret")
		r.Header.Set("Idempotency-Key", "order-7")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Header().Get("Idempotent-Replayed"), w.Body)
	}
	// Output:
	//  paid by alice
	//  paid by bob
	// true paid by alice
}
