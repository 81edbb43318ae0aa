package adaptertest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// Routed is a service with the routes POST /shop/orders/:id, which responds 201, and GET /shop/orders/:id, behind the middleware. The
// middleware guards the whole service, or the group /shop.
type Routed struct {
	Name    string
	Service func(e *core.Engine) (send func(*http.Request) *http.Response)
	Run     string // the route of a first request
	Replay  string // that of a replay, for which no handler runs
	Unknown string // that of a request to a path without a route
}

// Recorded serves requests by a handler.
func Recorded(h http.Handler) func(*http.Request) *http.Response {
	return func(r *http.Request) *http.Response {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
}

// TEL-01: every request that reaches the middleware is done once, with the route that its router knows.
func TestEveryRequestIsDoneOnceWithItsRoute(t *testing.T, f Framework) {
	for _, framework := range f.Routed {
		t.Run(framework.Name, func(t *testing.T) {
			var mu sync.Mutex
			var done []core.Event
			engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant, Hooks: core.Hooks{
				Done: func(_ context.Context, e core.Event) {
					mu.Lock()
					defer mu.Unlock()
					done = append(done, e)
				},
			}})
			require.NoError(t, err)
			send := framework.Service(engine)
			for i, test := range []struct{ path, key, result, route string }{
				{"/shop/orders/1?a=b", "K", "run", framework.Run},
				{"/shop/orders/1?a=b", "K", "replay", framework.Replay},
				{"/shop/orders/2", "K", "mismatch", framework.Replay},
				{"/shop/nothing", "L", "run", framework.Unknown},
			} {
				r := httptest.NewRequest(http.MethodPost, test.path, strings.NewReader("{}"))
				r.Header.Set("Idempotency-Key", test.key)
				response := send(r)
				_, _ = io.Copy(io.Discard, response.Body)
				require.Len(t, done, i+1, "one event a request")
				assert.Equal(t, test.result, done[i].Result, test.path)
				assert.Equal(t, test.route, done[i].Route, "%s %s", test.result, test.path)
			}
		})
	}
}
