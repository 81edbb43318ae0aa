package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	idem "github.com/go-idem/idem/adapters/http"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/pgstore"
)

// A payment and the response that tells of it are committed together.
func ExampleInTx() {
	serve := func(pool *pgxpool.Pool) error {
		if err := pgstore.Migrate(context.Background(), pool); err != nil {
			return err
		}
		engine, err := core.New(core.Config{Store: pgstore.New(pool), Scope: core.SingleTenant})
		if err != nil {
			return err
		}
		pay := func(w http.ResponseWriter, r *http.Request) {
			err := pgstore.InTx(r.Context(), pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
				_, err := tx.Exec(r.Context(), "INSERT INTO payment (amount) VALUES ($1)", 100)
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

// A 400 is stored by default, and a stored response commits the transaction: an error from the function takes the rows back.
func ExampleInTx_refused() {
	errNoFunds := errors.New("no funds")
	pay := func(pool *pgxpool.Pool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			err := pgstore.InTx(r.Context(), pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
				left := 0
				err := tx.QueryRow(r.Context(), "UPDATE account SET amount = amount - 100 RETURNING amount").Scan(&left)
				if err == nil && left < 0 {
					err = errNoFunds // without this the account is charged, and each retry is told 400
				}
				return err
			})
			switch {
			case errors.Is(err, errNoFunds):
				http.Error(w, "no funds", http.StatusBadRequest)
			case err != nil:
				http.Error(w, "try again", http.StatusServiceUnavailable)
			default:
				w.WriteHeader(http.StatusCreated)
			}
		}
	}
	_ = pay
}

// What has expired is deleted by a timer of the service's own.
func ExampleStore_Sweep() {
	sweepEachMinute := func(ctx context.Context, store *pgstore.Store) {
		const limit = 1000
		for range time.Tick(time.Minute) {
			n, err := limit, error(nil)
			for n == limit && err == nil {
				n, err = store.Sweep(ctx, limit)
			}
			if err != nil {
				fmt.Println(err)
			}
		}
	}
	_ = sweepEachMinute
}
