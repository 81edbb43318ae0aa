// Package servicetest has the engine and the request of a small service, for the tests of stores whose promises concern a whole run
// and not one call.
package servicetest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

// NewEngine returns an engine on a store, with one tenant, and calls of the store that may take five seconds. changes are made to
// its configuration in their order. The engine is closed when the test ends, and the test fails if that returns an error.
func NewEngine(tb testing.TB, store driver.Store, changes ...func(*core.Config)) *core.Engine {
	tb.Helper()
	cfg := core.Config{Store: store, Scope: core.SingleTenant}
	cfg.Limits.StoreTimeout = 5 * time.Second
	for _, change := range changes {
		change(&cfg)
	}
	engine, err := core.New(cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, engine.Close(context.Background())) })
	return engine
}

// Order returns a POST of an order to /orders with this key, or without one if the key is "".
func Order(key string) core.Request {
	header := http.Header{}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	return core.Request{
		Method: "POST",
		Path:   "/orders",
		Header: header.Values,
		Body:   func(int64) ([]byte, error) { return []byte("tea"), nil },
	}
}
