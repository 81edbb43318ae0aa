package routers_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/examples/routers"
)

// service is a router with a handler that counts its runs, and the events of its engine.
type service struct {
	runs   atomic.Int64
	events chan core.Event
	http.Handler
}

// newService returns a service with the router that make returns for an engine and a handler.
func newService(t *testing.T, makeRouter func(*core.Engine, http.HandlerFunc) http.Handler) *service {
	t.Helper()
	s := &service{events: make(chan core.Event, 10)}
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant, Hooks: core.Hooks{
		Done: func(_ context.Context, e core.Event) { s.events <- e },
	}})
	require.NoError(t, err)
	s.Handler = makeRouter(engine, func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "paid "+r.URL.Path)
	})
	return s
}

// post sends a request with a key, and returns the response.
func (s *service) post(path, key string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(`{"amount":100}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	s.ServeHTTP(w, r)
	return w
}

// all are the routers, by name.
var all = map[string]func(*core.Engine, http.HandlerFunc) http.Handler{
	"ServeMux": routers.ServeMux, "chi": routers.Chi, "gorilla": routers.Gorilla,
	"huma": func(engine *core.Engine, pay http.HandlerFunc) http.Handler {
		h, _ := routers.Huma(engine, func(_ context.Context, in *routers.PaymentInput) (*routers.Payment, error) {
			pay(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders/"+in.ID, nil))
			return &in.Payment, nil
		})
		return h
	},
}

func TestARetryIsReplayedInEachRouter(t *testing.T) {
	for name, makeRouter := range all {
		t.Run(name, func(t *testing.T) {
			s := newService(t, makeRouter)
			first, again := s.post("/orders/7/payments", "K"), s.post("/orders/7/payments", "K")
			assert.Equal(t, http.StatusCreated, first.Code, first.Body)
			assert.Equal(t, first.Code, again.Code)
			assert.Equal(t, first.Body.String(), again.Body.String())
			assert.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
			assert.EqualValues(t, 1, s.runs.Load())
			assert.Equal(t, http.StatusUnprocessableEntity, s.post("/orders/8/payments", "K").Code, "another order is another request")
		})
	}
}

// Telemetry gets the pattern of the route, also of a replay where the router knows it before the engine runs.
func TestEventsHaveTheRouteOfEachRouter(t *testing.T) {
	for name, makeRouter := range all {
		t.Run(name, func(t *testing.T) {
			s := newService(t, makeRouter)
			s.post("/orders/7/payments", "K")
			assert.Equal(t, "/orders/{id}/payments", (<-s.events).Route)
			if name == "chi" || name == "gorilla" { // the others choose the route inside the middleware
				s.post("/orders/7/payments", "K")
				assert.Equal(t, "/orders/{id}/payments", (<-s.events).Route)
			}
		})
	}
}

// The 404 of a router frees the key: the next process of a deploy may have the route.
func TestTheKeyOfAnUnknownRouteIsFree(t *testing.T) {
	for name, makeRouter := range all {
		t.Run(name, func(t *testing.T) {
			s := newService(t, makeRouter)
			assert.Equal(t, http.StatusNotFound, s.post("/refunds", "K").Code)
			assert.Equal(t, http.StatusNotFound, s.post("/refunds", "K").Code)
			assert.Equal(t, http.StatusCreated, s.post("/orders/7/payments", "K").Code, "the key is free")
			assert.Empty(t, s.post("/refunds", "L").Header().Get("Idempotent-Replayed"))
		})
	}
}

// The 404 of a handler is a response like any other.
func TestTheNotFoundOfAHandlerIsReplayed(t *testing.T) {
	for _, name := range []string{"ServeMux", "chi", "gorilla"} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, func(engine *core.Engine, _ http.HandlerFunc) http.Handler {
				return all[name](engine, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such order", http.StatusNotFound) })
			})
			assert.Equal(t, http.StatusNotFound, s.post("/orders/7/payments", "K").Code)
			again := s.post("/orders/7/payments", "K")
			assert.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
			assert.Contains(t, again.Body.String(), "no such order")
		})
	}
}

// A prefix that outer middleware strips still tells two requests apart.
func TestTwoPrefixesAreTwoRequests(t *testing.T) {
	for name, makeRouter := range all {
		t.Run(name, func(t *testing.T) {
			s := newService(t, func(engine *core.Engine, pay http.HandlerFunc) http.Handler {
				inner, outer := makeRouter(engine, pay), http.NewServeMux()
				outer.Handle("/v1/", http.StripPrefix("/v1", inner))
				outer.Handle("/v2/", http.StripPrefix("/v2", inner))
				return outer
			})
			assert.Equal(t, http.StatusCreated, s.post("/v1/orders/7/payments", "K").Code)
			assert.Equal(t, http.StatusCreated, s.post("/v1/orders/7/payments", "K").Code)
			assert.Equal(t, http.StatusUnprocessableEntity, s.post("/v2/orders/7/payments", "K").Code)
			assert.EqualValues(t, 1, s.runs.Load())
		})
	}
}

// http.TimeoutHandler outside responds while the handler goes on. Its key is held until then, and the outcome is stored.
func TestATimeoutOutsideHoldsTheKeyUntilTheHandlerHasReturned(t *testing.T) {
	for name, makeRouter := range all {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			s := newService(t, func(engine *core.Engine, pay http.HandlerFunc) http.Handler {
				return http.TimeoutHandler(makeRouter(engine, func(w http.ResponseWriter, r *http.Request) {
					<-release
					pay(w, r)
				}), 20*time.Millisecond, "too slow")
			})
			assert.Equal(t, http.StatusServiceUnavailable, s.post("/orders/7/payments", "K").Code)
			assert.Equal(t, http.StatusConflict, s.post("/orders/7/payments", "K").Code)
			assert.Equal(t, "conflict", (<-s.events).Result)
			close(release)
			assert.Equal(t, "kept", (<-s.events).End)
			assert.Equal(t, http.StatusCreated, s.post("/orders/7/payments", "K").Code)
			assert.EqualValues(t, 1, s.runs.Load())
		})
	}
}

// Middleware that refuses runs before the engine: a replay needs the same rights as the first request.
func TestMiddlewareOutsideRunsForReplays(t *testing.T) {
	refuses := false
	s := newService(t, func(engine *core.Engine, pay http.HandlerFunc) http.Handler {
		router := chi.NewRouter()
		router.Use(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if refuses {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				next.ServeHTTP(w, r)
			})
		})
		router.With(idem.HTTP(engine)).Post("/orders/{id}/payments", pay)
		return router
	})
	assert.Equal(t, http.StatusCreated, s.post("/orders/7/payments", "K").Code)
	assert.Equal(t, "/orders/{id}/payments", (<-s.events).Route, "With knows the route by itself")
	refuses = true
	assert.Equal(t, http.StatusUnauthorized, s.post("/orders/7/payments", "K").Code)
}

// The OpenAPI document of huma has the header field, the refusals and the marker of replays.
func TestHumaListsTheKeyAndTheRefusals(t *testing.T) {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	require.NoError(t, err)
	_, api := routers.Huma(engine, func(_ context.Context, in *routers.PaymentInput) (*routers.Payment, error) { return &in.Payment, nil })
	text, err := json.Marshal(api.OpenAPI().Paths["/orders/{id}/payments"].Post)
	require.NoError(t, err)
	for _, listed := range []string{
		`"in":"header","name":"Idempotency-Key"`, `"Idempotent-Replayed"`, `"409"`, `"422"`, `"503"`, `"application/problem+json"`, `"safe_new_key"`, `"Retry-After"`,
	} {
		assert.Contains(t, string(text), listed)
	}
	assert.NotContains(t, string(text), `"required":true,"schema":{"maxLength"`, "the engine asks for a missing key")
}
