// Package routers shows where the middleware of net/http stands in routers other than http.ServeMux: chi, gorilla/mux and huma.
package routers

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-chi/chi/v5"
	"github.com/gorilla/mux"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
)

// ServeMux returns a router of the standard library with the middleware around it.
func ServeMux(engine *core.Engine, pay http.HandlerFunc) http.Handler {
	router := http.NewServeMux()
	router.HandleFunc("POST /orders/{id}/payments", pay)
	return idem.HTTP(engine)(router)
}

// Chi returns a router of chi. Middleware of Use runs before chi has chosen the route, so the option Route looks for it.
func Chi(engine *core.Engine, pay http.HandlerFunc) http.Handler {
	router := chi.NewRouter()
	router.Use(idem.HTTP(engine, idem.Route(func(r *http.Request) string {
		return router.Find(chi.NewRouteContext(), r.Method, r.URL.Path)
	})))
	router.Post("/orders/{id}/payments", pay)
	return router
}

// Gorilla returns a router of gorilla/mux. Its middleware runs only for a route that was found.
func Gorilla(engine *core.Engine, pay http.HandlerFunc) http.Handler {
	router := mux.NewRouter()
	router.Use(mux.MiddlewareFunc(idem.HTTP(engine, idem.Route(func(r *http.Request) string {
		template, _ := mux.CurrentRoute(r).GetPathTemplate() // An error means that the route has no path: then it has no name.
		return template
	}))))
	router.HandleFunc("/orders/{id}/payments", pay).Methods(http.MethodPost)
	return router
}

// Payment is what the operation of Huma takes and returns.
type Payment struct {
	Body struct {
		Amount int `json:"amount"`
	}
}

// PaymentInput is the request of the operation of Huma. Huma lists its header field in the OpenAPI document. It must not be required
// here: then Huma would refuse a request without a key before the engine does, in its own words.
type PaymentInput struct {
	ID  string `path:"id"`
	Key string `header:"Idempotency-Key" minLength:"1" maxLength:"255" doc:"The same for each retry of one payment, another for the next."`
	Payment
}

// Huma returns an API of huma on http.ServeMux. The middleware is around the router: huma's own middleware has no http.Handler.
func Huma(engine *core.Engine, pay func(context.Context, *PaymentInput) (*Payment, error)) (http.Handler, huma.API) {
	router := http.NewServeMux()
	api := humago.New(router, huma.DefaultConfig("Payments", "1.0.0"))
	huma.Register(api, huma.Operation{
		OperationID: "pay", Method: http.MethodPost, Path: "/orders/{id}/payments", DefaultStatus: http.StatusCreated,
		Responses: map[string]*huma.Response{
			"201": {Headers: map[string]*huma.Param{"Idempotent-Replayed": {
				Description: "true, if this is the response to an earlier request with this key.", Schema: &huma.Schema{Type: "string"},
			}}},
			"409": refusal("Another request with this key is in progress, or what became of it is not known."),
			"422": refusal("This key came with another request before."),
			"503": refusal("The store is unavailable. Nothing has run."),
		},
	}, pay)
	return idem.HTTP(engine)(router), api
}

// refusal is a response of the engine in the OpenAPI document: a problem (RFC 9457) with a code.
func refusal(description string) *huma.Response {
	text, truth := &huma.Schema{Type: "string"}, &huma.Schema{Type: "boolean"}
	problem := &huma.Schema{Type: "object", Required: []string{"code", "status"}, Properties: map[string]*huma.Schema{
		"type": text, "title": text, "status": {Type: "integer"}, "detail": text, "instance": text, "code": text, "safe_new_key": truth,
	}}
	return &huma.Response{
		Description: description,
		Headers:     map[string]*huma.Param{"Retry-After": {Description: "in seconds", Schema: &huma.Schema{Type: "integer"}}},
		Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: problem}},
	}
}
