// Command sqlite is a payments service without a server: its payments and its records are in one file, and each payment is committed
// together with the response that tells of it.
//
//	$ IDEM_DB=payments.db go -C examples/sqlite run .
//	$ curl -s localhost:8080/payments -H 'Idempotency-Key: order-7' -d '{"amount": 100}'
//	{"id":1,"amount":100}
//
// The same request again, also after a restart, has the same response, and no second payment is made. ADDR sets the address (default
// 127.0.0.1:8080), and IDEM_DB the file (default payments.db).
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/sqlitestore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cmp.Or(os.Getenv("IDEM_DB"), "payments.db"), cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080")); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends. It returns when the requests in progress have their responses, and the file is closed.
func run(ctx context.Context, path, address string) error {
	store, err := sqlitestore.Open(ctx, path)
	if err != nil {
		return err
	}
	findings, err := store.Check(ctx)
	for _, finding := range findings {
		log.Print(finding)
	}
	if err == nil {
		_, err = store.DB().ExecContext(ctx, "CREATE TABLE IF NOT EXISTS payment (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL)")
	}
	var engine *core.Engine
	if err == nil {
		engine, err = core.New(core.Config{Store: store, Scope: core.SingleTenant, Key: core.KeyConfig{Required: true}})
	}
	if err == nil {
		err = serve(ctx, address, newHandler(engine, store))
		err = errors.Join(err, engine.Close(context.WithoutCancel(ctx)))
	}
	return errors.Join(err, store.Close())
}

// serve serves until ctx ends.
func serve(ctx context.Context, address string, handler http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	log.Printf("listening on http://%s", listener.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return server.Shutdown(ctx)
}

// newHandler returns the routes of the service.
func newHandler(engine *core.Engine, store *sqlitestore.Store) http.Handler {
	p := payments{store}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", idem.HTTP(engine)(http.HandlerFunc(p.create)))
	mux.HandleFunc("GET /payments", p.count)
	return mux
}

// payment is the body of a request and of its response.
type payment struct {
	ID     int64 `json:"id"`
	Amount int64 `json:"amount"`
}

// payments has the handlers.
type payments struct{ store *sqlitestore.Store }

// create makes a payment. Its row and its response are committed together, after the handler has returned.
func (p payments) create(w http.ResponseWriter, r *http.Request) {
	var made payment
	if err := json.NewDecoder(r.Body).Decode(&made); err != nil || made.Amount <= 0 {
		http.Error(w, `send a payment, such as {"amount": 100}`, http.StatusBadRequest)
		return
	}
	err := p.store.InTx(r.Context(), func(tx sqlitestore.Tx) error {
		row := tx.QueryRowContext(r.Context(), "INSERT INTO payment (amount) VALUES (?) RETURNING id", made.Amount)
		return row.Scan(&made.ID)
	})
	if err != nil {
		log.Print(err)
		http.Error(w, "try again", http.StatusServiceUnavailable) // a 5xx: nothing is paid, and a retry runs again
		return
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(made) // an error means that the client has left
}

// count says how many payments there are.
func (p payments) count(w http.ResponseWriter, r *http.Request) {
	var n int
	if err := p.store.DB().QueryRowContext(r.Context(), "SELECT count(*) FROM payment").Scan(&n); err != nil {
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	_ = json.NewEncoder(w).Encode(n)
}
