package main

import (
	"fmt"
	"log"
	"net/http"
	"sync/atomic"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

func main() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	var made atomic.Int64
	pay := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "payment %d\n", made.Add(1))
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", idem.HTTP(engine)(http.HandlerFunc(pay)))
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", mux))
}
