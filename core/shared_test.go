package core_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

func post(key string) core.Request {
	return core.Request{Method: "POST", Path: "/", Header: func(name string) []string {
		if name == "Idempotency-Key" && key != "" {
			return []string{key}
		}
		return nil
	}, Body: func(int64) ([]byte, error) { return nil, nil }}
}

func TestARenderMayReturnOneResponseForAllProblems(t *testing.T) {
	shared := &core.Response{Header: []core.Field{{"idempotent-replayed", "true"}}, Body: []byte("no")}
	e, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant, Key: core.KeyConfig{Required: true, MaxLength: 5},
		Limits:   core.LimitsConfig{Quota: func(context.Context, string, *core.Request) bool { return false }},
		Problems: core.ProblemConfig{Render: func(core.Problem) *core.Response { return shared }}})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for key, status := range map[string]int{"": 400, "K": 429} {
				r, _ := e.Do(context.Background(), post(key), nil)
				assert.Equal(t, status, r.Response.Status)
				assert.Empty(t, r.Response.Header, "only replays have the marker")
			}
		})
	}
	wg.Wait()
}

func TestOnUnknownMayReturnOneResponseForAllRequests(t *testing.T) {
	now := time.Now()
	found := &core.Response{Status: 201, Header: []core.Field{{"Idempotent-Replayed", "true"}, {"Location", "/1"}}}
	e, err := core.New(core.Config{Store: memstore.New(memstore.Clock(func() time.Time { return now })), Scope: core.SingleTenant,
		Lease: core.LeaseConfig{OnUnknown: func(context.Context, *core.Request) (*core.Response, error) { return found, nil }}})
	require.NoError(t, err)
	keys := []string{"1", "2", "3", "4"}
	for _, key := range keys {
		_, _ = e.Do(context.Background(), post(key), func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, core.LeaveUnknown)
			return &core.Response{Status: 200}, nil
		})
	}
	now = now.Add(time.Minute)
	var wg sync.WaitGroup
	for _, key := range keys {
		wg.Go(func() {
			r, _ := e.Do(context.Background(), post(key), nil)
			assert.Equal(t, "/1", value(r.Response, "Location"))
		})
	}
	wg.Wait()
	assert.Len(t, found.Header, 2)
	assert.Equal(t, "Idempotent-Replayed", found.Header[0].Name)
}
