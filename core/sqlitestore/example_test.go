package sqlitestore_test

import (
	"context"
	"net/http"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/sqlitestore"
)

// A payment and the response that tells of it are committed together, in one file.
func ExampleStore_InTx() {
	serve := func() error {
		store, err := sqlitestore.Open(context.Background(), "payments.db")
		if err != nil {
			return err
		}
		engine, err := core.New(core.Config{Store: store, Scope: core.SingleTenant})
		if err != nil {
			return err
		}
		pay := func(w http.ResponseWriter, r *http.Request) {
			err := store.InTx(r.Context(), func(tx sqlitestore.Tx) error {
				_, err := tx.ExecContext(r.Context(), "INSERT INTO payment (amount) VALUES (?)", 100)
				return err
			})
			if err != nil {
				http.Error(w, "try again", http.StatusServiceUnavailable) // a 5xx: nothing was paid, and a retry runs again
				return
			}
			w.WriteHeader(http.StatusCreated) // sent when the payment is committed, not before
		}
		return http.ListenAndServe("127.0.0.1:8080", idem.HTTP(engine)(http.HandlerFunc(pay)))
	}
	_ = serve
}
