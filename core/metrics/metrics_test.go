package metrics_test

import (
	"context"
	"encoding/json"
	"expvar"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/metrics"
	"github.com/go-idem/idem/core/storetest"
)

var _ expvar.Var = metrics.New()

func request(key, body string) core.Request {
	return core.Request{
		Method: "POST", Path: "/",
		Header: func(string) []string { return []string{key} },
		Body:   func(int64) ([]byte, error) { return []byte(body), nil },
	}
}

func made(context.Context) (*core.Response, error) { return &core.Response{Status: 201}, nil }

func TestCountersCountWhatHooksHear(t *testing.T) {
	counters, replays := metrics.New(), 0
	store := storetest.NewFaulty(memstore.New())
	engine, err := core.New(core.Config{
		Store: store, Scope: core.SingleTenant, DangerouslyFailOpen: true,
		Hooks: counters.Hooks(core.Hooks{Replay: func(context.Context, core.Event) { replays++ }}),
	})
	require.NoError(t, err)
	for _, body := range []string{"B", "B", "B", "other"} {
		_, err := engine.Do(context.Background(), request("K", body), made)
		require.NoError(t, err)
	}
	store.Inject("begin", storetest.Before, 1)
	_, err = engine.Do(context.Background(), request("K2", "B"), made)
	require.NoError(t, err)
	require.NoError(t, engine.Close(context.Background()))

	counts := counters.Counts()
	for name, n := range counts {
		want := map[string]int64{"runs": 1, "kept": 1, "replays": 2, "mismatches": 1, "store_errors": 1, "unprotected": 1,
			"refused": 1, "operations": 5, "store_calls": counts["store_calls"]}[name]
		assert.Equal(t, want, n, name)
	}
	assert.GreaterOrEqual(t, counts["store_calls"], int64(7), "five Begin, a Complete and a Fail")
	assert.Equal(t, 2, replays, "the hooks that were there are called, too")
	var read map[string]int64
	require.NoError(t, json.Unmarshal([]byte(counters.String()), &read))
	assert.Equal(t, counts, read)
}

func TestEveryHookIsCounted(t *testing.T) {
	assert.Len(t, metrics.New().Counts(), reflect.TypeFor[core.Hooks]().NumField())
}

func Example() {
	counters := metrics.New()
	engine, _ := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant, Hooks: counters.Hooks(core.Hooks{})})
	for range 3 {
		_, _ = engine.Do(context.Background(), request("order-17", ""), made)
	}
	fmt.Println(counters.Counts()["runs"], counters.Counts()["replays"])
	// Output: 1 2
}
