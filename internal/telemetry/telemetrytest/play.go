// Package telemetrytest plays requests whose telemetry is known, for the tests of the modules below observe.
package telemetrytest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

// Requests has how many operations Play ends with each result; their sum is the number of operations. Codes has the refusals.
var (
	Requests = map[string]int{
		"run": 6, "replay": 2, "local_replay": 1, "conflict": 1, "mismatch": 1, "unknown": 1, "refused": 3, "unprotected": 1, "bypass": 2,
	}
	Codes = map[string]int{
		"in-progress": 1, "fingerprint-mismatch": 1, "outcome-unknown": 1, "key-malformed": 1, "scope-missing": 1, "store-unavailable": 1,
	}
	Ends = map[string]int{"kept": 3, "failed": 1, "released": 1, "unknown": 1}
)

// Request returns a request for a route.
func Request(key, body string) core.Request {
	return core.Request{
		Method: "POST", Path: "/orders/" + key, Route: "/orders/:id",
		Header: func(string) []string { return []string{key} },
		Body:   func(int64) ([]byte, error) { return []byte(body), nil },
		Scope:  func() string { return "alice" },
	}
}

// responds is a handler that responds with a status.
func responds(status int) func(context.Context) (*core.Response, error) {
	return func(context.Context) (*core.Response, error) {
		return &core.Response{Status: status, Body: []byte("body")}, nil
	}
}

// Play sends operations that end in each way to engines with the configuration after change. ctx is that of each request.
func Play(ctx context.Context, t testing.TB, change func(*core.Config)) {
	t.Helper()
	store := storetest.NewFaulty(memstore.New())
	cfg := core.Config{Store: store, Scope: core.SingleTenant, Name: "payments"}
	cfg.Lease.OnUnknown = core.RefuseUnknown
	change(&cfg)
	engine, err := core.New(cfg)
	require.NoError(t, err)
	send := func(e *core.Engine, r core.Request, run func(context.Context) (*core.Response, error)) {
		_, err := e.Do(ctx, r, run)
		require.NoError(t, err)
	}

	send(engine, Request("kept", "1"), func(ctx context.Context) (*core.Response, error) {
		_, err := engine.Do(ctx, Request("kept", "1"), nil) // passes by
		require.NoError(t, err)
		return responds(201)(ctx)
	})
	send(engine, Request("kept", "1"), nil)
	send(engine, Request("kept", "2"), nil)
	remembering := engine.With(func(c *core.Config) { c.Keep.LocalReplays = 1 << 20 })
	send(remembering, Request("local", "1"), responds(201))
	send(remembering, Request("local", "1"), nil)
	send(engine, Request("failed", "1"), responds(500))
	send(engine, Request("released", "1"), responds(401))
	send(engine, Request("unknown", "1"), func(ctx context.Context) (*core.Response, error) {
		core.Decide(ctx, core.LeaveUnknown)
		_, err := engine.Do(context.Background(), Request("unknown", "1"), nil) // is in progress
		require.NoError(t, err)
		return responds(504)(ctx)
	})
	settled := engine.With(func(c *core.Config) { c.Store = unknownStore{store} })
	send(settled, Request("unknown", "1"), nil)

	get := Request("kept", "1")
	get.Method = "GET"
	send(engine, get, nil)
	send(engine, Request("a b", "1"), nil)
	nobody := Request("kept", "1")
	nobody.Scope = func() string { return "" }
	send(engine, nobody, nil)
	store.Inject("begin", storetest.Before, 1)
	send(engine, Request("away", "1"), nil)
	store.Inject("begin", storetest.Before, 1)
	send(engine.With(func(c *core.Config) { c.DangerouslyFailOpen = true }), Request("away", "1"), responds(201))

	messages, err := consumer.New(engine, consumer.Config{})
	require.NoError(t, err)
	for range 2 {
		consumer.Consume(ctx, messages, consumer.Message{Group: "billing", ID: "1"}, func(context.Context) (int, error) { return 1, nil })
	}
	require.NoError(t, engine.Close(context.Background()))
}

// Fuzz sends a request with values of a client's choice. The series that it leaves must not depend on them.
func Fuzz(t testing.TB, engine *core.Engine, method, path, key, scope, body string, status uint16) {
	t.Helper()
	r := Request(key, body)
	r.Method, r.Path, r.Scope = method, path, func() string { return scope }
	_, err := engine.Do(context.Background(), r, responds(200+int(status)%400))
	require.NoError(t, err)
}

// Engine returns an engine for Fuzz.
func Engine(t testing.TB, hooks core.Hooks) *core.Engine {
	t.Helper()
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant, Name: "payments", Hooks: hooks})
	require.NoError(t, err)
	return engine
}

// unknownStore is a store in which the runs of all claims have vanished.
type unknownStore struct{ *storetest.Faulty }

// Begin implements driver.Store.
func (unknownStore) Begin(context.Context, driver.Claim) (driver.Entry, error) {
	return driver.Entry{State: driver.Unknown}, nil
}
