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

// revive lets dead events be handled again, those with the given ids or all, and returns how many: it takes back that they
// are dead, and moves them to the end of the stream. What made them die should be mended first.
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

// reviveOne revives one event. A crash in the middle leaves it among the dead: it can be said again.
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
