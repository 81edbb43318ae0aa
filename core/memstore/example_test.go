package memstore_test

import (
	"fmt"
	"log"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// A store of at most 10,000 records and 16 MiB. It evicts nothing: when it is full, new keys are refused.
func Example() {
	store := memstore.New(memstore.MaxRecords(10_000), memstore.MaxBytes(16<<20))
	engine, err := core.New(core.Config{Store: store, Scope: core.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(engine.Config().Keep.Retention)
	// Output: 24h0m0s
}
