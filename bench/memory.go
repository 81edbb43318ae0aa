package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// weight is what a record of one layout takes, in bytes.
type weight struct {
	layout                 string
	size                   int // of the answer
	records                int
	running, completed     int64   // one record, by MEMORY USAGE with every part counted
	runningAll, completeds float64 // a record of many, by the growth of used_memory
}

// measureMemory fills an empty server with records of each layout.
func measureMemory(b *bench) error {
	for _, size := range sizes {
		for _, l := range layouts {
			w := weight{layout: l.name, size: size, records: min(b.plan.records, b.plan.weight/(2*size+1024))}
			if err := w.measure(b, l); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			b.results.weights = append(b.results.weights, w)
		}
	}
	return b.client.FlushAll(context.Background()).Err()
}

func (w *weight) measure(b *bench, l layout) error {
	ctx, body := context.Background(), jsonBody(w.size)
	if err := b.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	empty, err := usedMemory(ctx, b.client)
	if err != nil {
		return err
	}
	verbs := []struct {
		call func(to redis.Cmdable, key string)
		one  *int64
		many *float64
	}{
		{func(to redis.Cmdable, key string) { l.begin(ctx, to, key) }, &w.running, &w.runningAll},
		{func(to redis.Cmdable, key string) { l.complete(ctx, to, key, body) }, &w.completed, &w.completeds},
	}
	for _, v := range verbs {
		if err := fill(ctx, b.client, w.records, v.call); err != nil {
			return err
		}
		used, err := usedMemory(ctx, b.client)
		if err != nil {
			return err
		}
		*v.many = float64(used-empty) / float64(w.records)
		*v.one = weigh(ctx, b.client, l.keys(name(0)))
	}
	return nil
}

// name is the key of record i, as long as the name of a real one.
func name(i int) string { return fmt.Sprintf("%043d", i) }

// fill calls f for n keys, many in one round trip.
func fill(ctx context.Context, client *redis.Client, n int, f func(to redis.Cmdable, key string)) error {
	const batch = 100
	for i := 0; i < n; i += batch {
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for k := i; k < min(i+batch, n); k++ {
				f(p, name(k))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func weigh(ctx context.Context, client *redis.Client, keys []string) (bytes int64) {
	for _, key := range keys {
		bytes += client.MemoryUsage(ctx, key, 0).Val() // 0: every field of a hash; a key that is not there weighs nothing
	}
	return bytes
}

var usedMemoryLine = regexp.MustCompile(`(?m)^used_memory:(\d+)`)

func usedMemory(ctx context.Context, client *redis.Client) (int64, error) {
	info, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	found := usedMemoryLine.FindStringSubmatch(info)
	if found == nil {
		return 0, fmt.Errorf("INFO memory has no used_memory: %s", info)
	}
	return strconv.ParseInt(found[1], 10, 64)
}
