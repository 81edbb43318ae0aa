package measure

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
)

// codecs weighs records of many bodies, each in all forms and as two keys with JSON. The bodies are the same for each form.
func codecs(b *Bench) (rows []report.Row, err error) {
	forms, err := subject.Forms()
	if err != nil {
		return nil, err
	}
	for _, size := range []int{512, 1 << 10, 4 << 10, 64 << 10} {
		pair, err := weighPairs(b.client, size, b.Plan.Bodies)
		if err != nil {
			return nil, err
		}
		for _, f := range forms {
			figures, err := weighForm(b.client, f, size, b.Plan.Bodies)
			if err != nil {
				return nil, err
			}
			figures["of_pair"] = figures["completed_bytes"] / pair
			rows = append(rows, report.Row{Name: []string{sizeName(size), f.Name}, Figures: figures})
		}
	}
	return rows, b.client.FlushAll(context.Background()).Err()
}

// weighForm returns the average bytes of n records in a form, and of their outcomes.
func weighForm(client *redis.Client, f subject.Form, size, n int) (map[string]float64, error) {
	ctx, own, bodies := context.Background(), subject.Layouts[0], subject.NewBodies(uint64(size))
	if err := client.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	if err := fill(ctx, client, n, func(to redis.Cmdable, key string) { own.Begin(ctx, to, key) }); err != nil {
		return nil, err
	}
	running, plain, outcome, failed := meanWeight(ctx, client, n, own.Keys), 0, 0, error(nil)
	err := fill(ctx, client, n, func(to redis.Cmdable, key string) {
		packed := subject.Packed(bodies.Next(size))
		kept, err := f.Encode([32]byte([]byte(key)), packed)
		if err != nil {
			failed = err
		}
		subject.ClaimOf(key).Complete(ctx, to, 0, kept)
		plain, outcome = plain+len(packed), outcome+len(kept)
	})
	if failed != nil {
		return nil, failed
	}
	return map[string]float64{
		"running_bytes": running, "completed_bytes": meanWeight(ctx, client, n, own.Keys),
		"outcome_bytes": float64(outcome) / float64(n), "of_plain": float64(outcome) / float64(plain),
	}, err
}

// weighPairs returns the average bytes of n locks and results with the same bodies.
func weighPairs(client *redis.Client, size, n int) (float64, error) {
	ctx, bodies := context.Background(), subject.NewBodies(uint64(size))
	if err := client.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	err := fill(ctx, client, n, func(to redis.Cmdable, key string) {
		subject.PairBegin(ctx, to, key)
		subject.PairComplete(ctx, to, key, subject.PairResult([]byte(bodies.Next(size))))
	})
	return meanWeight(ctx, client, n, subject.PairKeys), err
}
