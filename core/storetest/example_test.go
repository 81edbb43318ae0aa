package storetest_test

import (
	"testing"
	"time"

	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

// The test of a store. go test runs a function of this form: func TestStore(t *testing.T).
func ExampleRun() {
	_ = func(t *testing.T) {
		storetest.Run(t, func(testing.TB) storetest.Harness {
			return storetest.Harness{Store: memstore.New(), Advance: time.Sleep} // a store of your own in place of memstore
		})
	}
}
