package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-idem/idem/core"
)

// shipping is the effect of the chain: one shipment for each order, which follows the order's events.
type shipping struct{ db *pgxpool.Pool }

// shipped is the result that is stored for an event.
type shipped struct {
	State string `json:"state"`
}

var (
	states    = map[string]string{orderPlaced: "reserved", orderConfirmed: "sent"}
	errEarly  = errors.New("an earlier event of the order has not been handled yet")
	errOutage = errors.New("the database is unavailable")
)

// handle applies an event. It does nothing if an earlier run has applied the event and died before the outcome was stored.
func (s *shipping) handle(ctx context.Context, e event) (shipped, error) {
	state, known := states[e.Type]
	if !known {
		return shipped{}, fmt.Errorf("there is no event %q", e.Type)
	}
	ctx, cancel := context.WithTimeout(ctx, longestTransaction)
	defer cancel()
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		effect, err := advance(ctx, tx, e, state)
		if err != nil {
			return err
		}
		return note(ctx, tx, e, effect)
	})
	if err != nil && isOutage(err) {
		core.Decide(ctx, core.Release)
		err = fmt.Errorf("%w: %w", errOutage, err)
	}
	if err != nil {
		return shipped{}, err
	}
	gap("the effect is committed, its outcome is not kept")
	return shipped{state}, nil
}

// isOutage reports whether err says nothing about the event, so that the run does not count as an attempt: the database is
// unavailable, full or too slow. If the commit itself has failed, the effect may have happened; the next run sees that by the
// version.
func isOutage(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return !slices.Contains([]string{"22", "23", "42"}, e.Code[:2]) // bad value, constraint, bad statement
	}
	return !errors.Is(err, errEarly)
}

// advance moves the shipment from the version before the event's to the event's. However often it is called, each version is
// applied once and in order. effect is false if the shipment has that version already.
func advance(ctx context.Context, tx pgx.Tx, e event, state string) (effect bool, err error) {
	_, err = tx.Exec(ctx, `INSERT INTO shipments (order_id, version, state) VALUES ($1, 0, '') ON CONFLICT DO NOTHING`, e.OrderID)
	if err != nil {
		return false, err
	}
	var version int
	if err := tx.QueryRow(ctx, `SELECT version FROM shipments WHERE order_id = $1 FOR UPDATE`, e.OrderID).Scan(&version); err != nil {
		return false, err
	}
	switch {
	case version >= e.Version:
		return false, nil
	case version < e.Version-1:
		return false, errEarly
	}
	_, err = tx.Exec(ctx, `UPDATE shipments SET version = $2, state = $3 WHERE order_id = $1`, e.OrderID, e.Version, state)
	return true, err
}

// note writes the run into the shipping log.
func note(ctx context.Context, tx pgx.Tx, e event, effect bool) error {
	run, _ := core.FromContext(ctx)
	_, err := tx.Exec(ctx, `
		INSERT INTO shipping_log (event_id, order_id, version, fence, attempt, effect) VALUES ($1, $2, $3, $4, $5, $6)`,
		e.ID, e.OrderID, e.Version, run.Fence, run.Attempt, effect)
	return err
}
