package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-idem/idem/core"
)

// order is an order as the API shows it.
type order struct {
	ID       int64  `json:"id"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
	State    string `json:"state,omitempty"` // empty in the response to a new order
}

var (
	errNoOrder    = errors.New("there is no such order")
	errOtherOrder = errors.New("this key has placed another order before: send a new order with a new key")
)

// longestTransaction is the timeout of a transaction. It includes the wait for a connection. Tests shorten it.
var longestTransaction = 5 * time.Second

// orders writes each change of an order and its event in one transaction.
type orders struct{ db *pgxpool.Pool }

// place writes o and its first event. If an earlier run of the same request has written them, place finds that order by its child
// key. After the retention the engine does not know any more which order came with the key, so place compares the two orders.
func (s *orders) place(ctx context.Context, o *order) error {
	return s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
		operation := core.ChildKey(ctx, "order")
		err := tx.QueryRow(ctx, `
			INSERT INTO orders (operation, customer, item, quantity) VALUES ($1, $2, $3, $4)
			ON CONFLICT (operation) DO NOTHING RETURNING id`, operation, customer(ctx), o.Item, o.Quantity).Scan(&o.ID)
		if errors.Is(err, pgx.ErrNoRows) {
			return findPlaced(ctx, tx, operation, o)
		}
		if err != nil {
			return err
		}
		return emit(ctx, tx, event{OrderID: o.ID, Version: 1, Type: orderPlaced}, o)
	})
}

// findPlaced sets o.ID to the order that operation has placed, or returns errOtherOrder if that order is not the same as o.
func findPlaced(ctx context.Context, tx pgx.Tx, operation string, o *order) error {
	var first order
	err := tx.QueryRow(ctx, `SELECT id, item, quantity FROM orders WHERE operation = $1`, operation).
		Scan(&first.ID, &first.Item, &first.Quantity)
	if err != nil {
		return err
	}
	o.ID = first.ID
	if first != *o {
		return errOtherOrder
	}
	return nil
}

// confirm moves an order from placed to confirmed. It does nothing if the order is confirmed already.
func (s *orders) confirm(ctx context.Context, id int64) (o order, err error) {
	err = s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var version int
		err := tx.QueryRow(ctx, `
			UPDATE orders SET state = 'confirmed', version = version + 1
			WHERE id = $1 AND customer = $2 AND state = 'placed' RETURNING version`, id, customer(ctx)).Scan(&version)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if o, err = read(ctx, tx, id); err != nil || version == 0 {
			return err
		}
		return emit(ctx, tx, event{OrderID: id, Version: version, Type: orderConfirmed}, o)
	})
	return o, err
}

// find returns an order of the customer.
func (s *orders) find(ctx context.Context, id int64) (o order, err error) {
	err = s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
		o, err = read(ctx, tx, id)
		return err
	})
	return o, err
}

// read returns an order of the customer, or errNoOrder.
func read(ctx context.Context, tx pgx.Tx, id int64) (o order, err error) {
	err = tx.QueryRow(ctx, `SELECT id, item, quantity, state FROM orders WHERE id = $1 AND customer = $2`, id, customer(ctx)).
		Scan(&o.ID, &o.Item, &o.Quantity, &o.State)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoOrder
	}
	return o, err
}

// transaction runs do in a transaction, and commits it if do returns nil.
func (s *orders) transaction(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, longestTransaction)
	defer cancel()
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error { return do(ctx, tx) })
}
