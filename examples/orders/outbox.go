package main

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
)

const (
	orderPlaced    = "OrderPlaced"
	orderConfirmed = "OrderConfirmed"
)

// event is what happened to an order.
type event struct {
	ID      string // the ID of its row in the outbox
	OrderID int64
	Version int // 1 for the order's first event, then 2, 3, …
	Type    string
	Payload []byte
}

// emit writes an event into the outbox, in the transaction of the change that it describes.
func emit(ctx context.Context, tx pgx.Tx, e event, payload any) error {
	b, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO outbox (order_id, version, type, payload) VALUES ($1, $2, $3, $4)`, e.OrderID, e.Version, e.Type, b)
	return err
}
