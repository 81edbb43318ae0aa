package measure

import (
	"context"
	"strconv"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
)

// pipelines compares three ways to send the calls of concurrent requests, in turns: each alone, in batches, and through
// AutoPipeline in full duplex. A call of the store is the same in all three, so they differ in nothing but how it travels.
//
// The figures are pairs of a claim and its outcome in a second, and the CPU time of client and server for a pair.
func pipelines(b *Bench) (rows []report.Row, err error) {
	ways := []struct {
		name  string
		store *redisstore.Store
	}{
		{"one by one", redisstore.New(b.client)},
		{"in batches", redisstore.New(b.client, redisstore.Batch())},
		{"in full duplex", redisstore.New(b.auto)},
	}
	for _, callers := range []int{64, 256} {
		found, err := inTurns(b.Plan.Scripts, len(ways), func(i int) (map[string]float64, error) {
			return b.pairs(ways[i].store, 20*b.Plan.Calls, callers)
		})
		if err != nil {
			return nil, err
		}
		for i, way := range ways {
			rows = append(rows, report.Row{Name: []string{strconv.Itoa(callers), way.name}, Figures: found[i].medians()})
		}
	}
	return rows, nil
}

// pairs makes n claims and their outcomes, by so many goroutines at once. A goroutine makes both calls of a pair before the next
// pair, as a request does, so that claims and outcomes of different requests share a pipeline.
func (b *Bench) pairs(store driver.Store, n, callers int) (map[string]float64, error) {
	ctx, outcome, claims := context.Background(), []byte(subject.Body(512)), newClaims(n)
	found, err := costOf(b.client, func() (int, error) {
		return n, callAll(claims, callers, func(c *driver.Claim) error {
			if err := begin(ctx, store, c, driver.Claimed); err != nil {
				return err
			}
			return store.Complete(ctx, *c, outcome)
		})
	})
	if err != nil {
		return nil, err
	}
	return map[string]float64{
		"per_second": found["per_second"], "client_us": found["cpu_us"], "server_us": found["server_cpu_us"],
	}, b.client.FlushAll(ctx).Err()
}
