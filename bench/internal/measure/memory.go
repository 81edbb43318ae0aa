package measure

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
)

// memory weighs a record of each layout, while its request runs and afterwards.
func memory(b *Bench) (rows []report.Row, err error) {
	ctx := context.Background()
	for _, size := range sizes {
		for _, l := range subject.Layouts {
			if err := b.client.FlushAll(ctx).Err(); err != nil {
				return nil, err
			}
			l.Begin(ctx, b.client, keyName(0))
			running := meanWeight(ctx, b.client, 1, l.Keys)
			l.Complete(ctx, b.client, keyName(0), subject.Body(size))
			rows = append(rows, report.Row{
				Name:    []string{sizeName(size), l.Name},
				Figures: map[string]float64{"running_bytes": running, "completed_bytes": meanWeight(ctx, b.client, 1, l.Keys)},
			})
		}
	}
	return rows, nil
}

// keyName returns the key of record i. It has the length of a real one.
func keyName(i int) string { return fmt.Sprintf("%044d", i) }

// fill calls f for n keys, many in one round trip.
func fill(ctx context.Context, client *redis.Client, n int, f func(to redis.Cmdable, key string)) error {
	const batch = 100
	for i := 0; i < n; i += batch {
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for k := i; k < min(i+batch, n); k++ {
				f(p, keyName(k))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// meanWeight is what one of the first n records takes on average, by MEMORY USAGE with every field of a hash.
func meanWeight(ctx context.Context, client *redis.Client, n int, keys func(key string) []string) float64 {
	var sum int64
	for i := range n {
		for _, key := range keys(keyName(i)) {
			sum += client.MemoryUsage(ctx, key, 0).Val() // a key that is not there weighs nothing
		}
	}
	return float64(sum) / float64(n)
}
