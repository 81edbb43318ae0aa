package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// The names share a hash tag, so that one transaction of a Redis Cluster can write both.
const (
	stream     = "{orders}:events"
	deadStream = "{orders}:dead"
)

// batchSize is how many events a transaction publishes at most.
const batchSize = 100

// relay moves events from the outbox to the stream. Any number of workers, in any number of processes, share the work.
type relay struct {
	*service
	wake chan struct{} // holds a value for each worker that should look for events
}

func newRelay(s *service) *relay { return &relay{s, make(chan struct{}, s.cfg.Relays)} }

// run publishes events until ctx ends.
func (r *relay) run(ctx context.Context) error {
	var g errgroup.Group
	for range r.cfg.Relays {
		g.Go(func() error { r.work(ctx); return nil })
	}
	g.Go(func() error { r.listen(ctx); return nil })
	g.Go(func() error { r.tidy(ctx); return nil })
	return g.Wait()
}

// work publishes batches until ctx ends, and finishes the current one.
func (r *relay) work(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := r.publish(context.WithoutCancel(ctx))
		if err != nil {
			r.log.Warn("relay", "err", err)
			pause(ctx, 100*time.Millisecond)
			continue
		}
		if n > 0 { // The next event of each of these orders can be published now.
			continue
		}
		select {
		case <-r.wake:
		case <-time.After(r.cfg.Poll):
		case <-ctx.Done():
		}
	}
}

// publish moves one batch: in one transaction it claims rows, adds them to the stream, and marks them as published. After a crash
// in between, the rows are published again with the same IDs.
func (r *relay) publish(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestTransaction)
	defer cancel()
	err = pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
		events, err := claim(ctx, tx)
		if n = len(events); err != nil || n == 0 {
			return err
		}
		if err := r.add(ctx, events); err != nil {
			return err
		}
		gap("the events are in the stream, the outbox is not marked")
		return mark(ctx, tx, events)
	})
	return n, err
}

// claim locks the oldest unpublished event of each order, and skips events that another worker has locked. The next event of an
// order can be claimed when the earlier one is marked and committed, so no event overtakes another one of its order.
func claim(ctx context.Context, tx pgx.Tx) ([]event, error) {
	rows, err := tx.Query(ctx, `
		SELECT id::text, order_id, version, type, payload FROM outbox o
		WHERE published_at IS NULL AND NOT EXISTS (
			SELECT FROM outbox earlier
			WHERE earlier.order_id = o.order_id AND earlier.version < o.version AND earlier.published_at IS NULL)
		ORDER BY o.id LIMIT $1 FOR UPDATE SKIP LOCKED`, batchSize)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[event])
}

// add adds events to the stream in one round trip.
func (r *relay) add(ctx context.Context, events []event) error {
	_, err := r.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, e := range events {
			p.XAdd(ctx, &redis.XAddArgs{
				Stream: stream,
				Values: []any{"id", e.ID, "order", e.OrderID, "version", e.Version, "type", e.Type, "payload", e.Payload},
			})
		}
		return nil
	})
	return err
}

// mark marks events as published.
func mark(ctx context.Context, tx pgx.Tx, events []event) error {
	ids := make([]string, len(events))
	for i, e := range events {
		ids[i] = e.ID
	}
	_, err := tx.Exec(ctx, `UPDATE outbox SET published_at = now() WHERE id = ANY($1::text[]::bigint[])`, ids)
	return err
}

// listen wakes workers when there are events to publish. While it has no connection, the workers find events by polling.
func (r *relay) listen(ctx context.Context) {
	for {
		if err := r.notified(ctx); ctx.Err() == nil {
			r.log.Warn("listen", "err", err)
		}
		if !pause(ctx, time.Second) {
			return
		}
	}
}

// notified listens on a connection of its own until that fails.
func (r *relay) notified(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, r.db.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN outbox"); err != nil {
		return err
	}
	for {
		select {
		case r.wake <- struct{}{}:
		default: // All workers are awake already.
		}
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}

// tidy deletes old events: from the outbox if they are published, and from the stream if all groups have acknowledged them.
func (r *relay) tidy(ctx context.Context) {
	for pause(ctx, r.cfg.KeepFor/100) {
		if err := r.trim(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("trim", "err", err)
		}
		if err := r.deleteOld(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("tidy", "err", err)
		}
	}
}

// deleteOld deletes old events from the outbox if they are published.
func (r *relay) deleteOld(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longestTransaction) // Otherwise a database that is silent would stop the worker.
	defer cancel()
	_, err := r.db.Exec(ctx, `DELETE FROM outbox WHERE published_at < now() - $1::interval`, r.cfg.KeepFor)
	return err
}

// trim drops old entries from the stream, but none that a group has not read or acknowledged: a consumer that is stopped for a
// long time loses nothing. A stream that nobody reads grows until Redis is full and refuses more. Then the events stay in the
// outbox.
func (r *relay) trim(ctx context.Context) error {
	groups, err := r.redis.XInfoGroups(ctx, stream).Result()
	if err != nil || len(groups) == 0 {
		return err
	}
	keep := strconv.FormatInt(time.Now().Add(-r.cfg.KeepFor).UnixMilli(), 10)
	for _, g := range groups { // Entries that are delivered from now on come after LastDeliveredID.
		pending, err := r.redis.XPending(ctx, stream, g.Name).Result()
		if err != nil {
			return err
		}
		keep = earlier(keep, g.LastDeliveredID)
		if pending.Count > 0 {
			keep = earlier(keep, pending.Lower)
		}
	}
	return r.redis.XTrimMinIDApprox(ctx, stream, keep, 0).Err()
}

// earlier returns the lower of two IDs of stream entries.
func earlier(a, b string) string {
	parse := func(id string) (ms, number uint64) {
		before, after, _ := strings.Cut(id, "-")
		ms, _ = strconv.ParseUint(before, 10, 64)
		number, _ = strconv.ParseUint(after, 10, 64)
		return ms, number
	}
	aMS, aNumber := parse(a)
	bMS, bNumber := parse(b)
	if bMS < aMS || bMS == aMS && bNumber < aNumber {
		return b
	}
	return a
}
