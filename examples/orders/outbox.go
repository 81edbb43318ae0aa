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
	ID      string // of the outbox's row
	OrderID int64
	Version int // 1 for the order's first event, and so on without a hole
	Type    string
	Payload []byte
}

// emit writes an event into the outbox, in the transaction that it tells of.
func emit(ctx context.Context, tx pgx.Tx, e event, payload any) error {
	b, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO outbox (order_id, version, type, payload) VALUES ($1, $2, $3, $4)`, e.OrderID, e.Version, e.Type, b)
	return err
}
