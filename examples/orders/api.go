package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
)

// newServer returns the server of the API. A request passes authentication, then the engine, then its handler.
func newServer(s *service) *http.Server {
	a := &api{orders: &orders{s.db}, service: s}
	guard := idem.HTTP(s.engine)
	mux := http.NewServeMux()
	mux.Handle("POST /orders", guard(http.HandlerFunc(a.place)))
	mux.Handle("POST /orders/{id}/confirmation", guard(http.HandlerFunc(a.confirm)))
	mux.HandleFunc("GET /orders/{id}", a.show)
	outer := http.NewServeMux()
	outer.Handle("/orders", a.authenticated(mux))
	outer.Handle("/orders/", a.authenticated(mux))
	outer.HandleFunc("GET /healthz", a.health)
	return &http.Server{Handler: outer, ReadHeaderTimeout: 5 * time.Second}
}

// api has the handlers.
type api struct {
	*service
	orders *orders
}

// customerKey is the context key of the authenticated customer.
type customerKey struct{}

// customer returns the authenticated customer, "" if there is none. It is the scope of keys.
func customer(ctx context.Context) string {
	name, _ := ctx.Value(customerKey{}).(string)
	return name
}

// authenticated returns a handler that refuses requests without a known token, and stores the customer in the context of others.
func (a *api) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		name := a.cfg.Tokens[token]
		if name == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, "send a token that the service knows")
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), customerKey{}, name)))
	})
}

// place handles POST /orders.
func (a *api) place(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Item == "" || o.Quantity < 1 {
		refuse(w, http.StatusBadRequest, `send an order in JSON, such as {"item": "book", "quantity": 2}`)
		return
	}
	o = order{Item: o.Item, Quantity: o.Quantity}
	err := a.orders.place(r.Context(), &o)
	if errors.Is(err, errOtherOrder) {
		core.Decide(r.Context(), core.Release) // The key stays with its first order.
		refuse(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	if err != nil {
		a.unavailable(w, err)
		return
	}
	gap("the order is committed, the answer is not kept")
	w.Header().Set("Location", "/orders/"+strconv.FormatInt(o.ID, 10))
	respond(w, http.StatusCreated, o)
}

// confirm handles POST /orders/{id}/confirmation.
func (a *api) confirm(w http.ResponseWriter, r *http.Request) {
	a.respondWithOrder(w, r, func(ctx context.Context, id int64) (order, error) {
		o, err := a.orders.confirm(ctx, id)
		if err == nil {
			gap("the confirmation is committed, the answer is not kept")
		}
		return o, err
	})
}

// show handles GET /orders/{id}.
func (a *api) show(w http.ResponseWriter, r *http.Request) { a.respondWithOrder(w, r, a.orders.find) }

// respondWithOrder responds with the order that get returns for the ID in the path.
func (a *api) respondWithOrder(w http.ResponseWriter, r *http.Request, get func(context.Context, int64) (order, error)) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		refuse(w, http.StatusNotFound, errNoOrder.Error())
		return
	}
	o, err := get(r.Context(), id)
	switch {
	case errors.Is(err, errNoOrder):
		refuse(w, http.StatusNotFound, err.Error())
	case err != nil:
		a.unavailable(w, err)
	default:
		respond(w, http.StatusOK, o)
	}
}

// unavailable responds with 503 after an error of the database. Nobody knows whether the transaction was committed. A 503 is not
// stored, so a retry with the same key runs again, and finds out.
func (a *api) unavailable(w http.ResponseWriter, err error) {
	a.log.Warn("database error", "err", err)
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, "send the request again with the same key")
}

// health handles GET /healthz: 204 if database and Redis respond, else 503.
func (a *api) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if err := errors.Join(a.db.Ping(ctx), a.redis.Ping(ctx).Err()); err != nil {
		a.log.Warn("not healthy", "err", err)
		refuse(w, http.StatusServiceUnavailable, "a server is away")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// refuse responds with an error in JSON.
func refuse(w http.ResponseWriter, status int, why string) {
	respond(w, status, map[string]string{"error": why})
}

// respond responds with v in JSON.
func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // An error means that the client has left.
}
