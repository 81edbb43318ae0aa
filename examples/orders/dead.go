package main

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
)

// revive revives dead events: those with the given IDs, or all if there are none. It makes their records ready for another run,
// and moves the events to the end of the stream. It returns how many it has revived. Repair the cause of their death first.
func (s *service) revive(ctx context.Context, ids ...string) (n int, err error) {
	dead, err := s.redis.XRange(ctx, deadStream, "-", "+").Result()
	if err != nil {
		return 0, err
	}
	for _, m := range dead {
		id := eventOf(m).ID
		if id == "" || len(ids) > 0 && !slices.Contains(ids, id) {
			continue
		}
		if err := s.reviveOne(ctx, m, id); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// reviveOne revives one event. After a crash in the middle the event is still in the stream of the dead, and can be revived
// again.
func (s *service) reviveOne(ctx context.Context, m redis.XMessage, id string) error {
	err := s.engine.Resolve(ctx, core.Task{Kind: consumer.Kind, Scope: group, Key: id}, nil)
	if err != nil && !errors.Is(err, core.ErrNotUnknown) { // that: it is not dead, or no longer
		return err
	}
	values := maps.Clone(m.Values)
	delete(values, "entry")
	delete(values, "cause")
	_, err = s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: values})
		p.XDel(ctx, deadStream, m.ID)
		return nil
	})
	return err
}
