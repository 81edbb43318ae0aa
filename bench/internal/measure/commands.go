package measure

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
)

// commands compares a store that sends plain commands where it can with one that sends scripts alone, in turns. It measures on
// the usual server, and on those of MORE_SERVERS, a list of paths like PATH.
//
// The figures of both stores are the CPU time of the server and of the client for a call, and how many calls end in a second. The
// CPU time of the server has all that a call takes there: also reading it, and writing the response.
func commands(b *Bench) (rows []report.Row, err error) {
	usual := os.Getenv("REDIS_SERVER")
	defer func() { _ = os.Setenv("REDIS_SERVER", usual) }()
	for _, binary := range append([]string{usual}, filepath.SplitList(os.Getenv("MORE_SERVERS"))...) {
		_ = os.Setenv("REDIS_SERVER", binary)
		client := redistest.Start(b.tb).Client(b.tb, func(o *redis.Options) { o.PoolSize = 100 })
		found, err := b.commandsOn(client)
		if err != nil {
			return nil, err
		}
		rows = append(rows, found...)
	}
	return rows, nil
}

// sending is one way to send the calls of many goroutines.
type sending struct {
	name    string
	callers int
	options []redisstore.Option
}

// commandsOn measures on one server. Both stores share the client, so they have the same connections.
func (b *Bench) commandsOn(client *redis.Client) (rows []report.Row, err error) {
	for _, way := range []sending{{"one by one", 64, nil}, {"in batches", 256, []redisstore.Option{redisstore.Batch()}}} {
		plain, scripts := redisstore.New(client, way.options...), redisstore.New(client, append(way.options, redisstore.Scripts())...)
		found, err := inTurns(b.Plan.Scripts, 2, func(i int) (map[string]float64, error) {
			return costOfCalls(client, []driver.Store{plain, scripts}[i], 20*b.Plan.Calls, way.callers)
		})
		if err != nil {
			return nil, err
		}
		for _, call := range calls {
			row := report.Row{Name: []string{report.ServerName(serverInfo(client)), way.name, call}, Figures: map[string]float64{}}
			for _, figure := range []string{"_server_us", "_client_us", "_per_second"} {
				row.Figures["plain"+figure] = median(found[0][call+figure])
				row.Figures["scripts"+figure] = median(found[1][call+figure])
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// calls are what costOfCalls measures, in the order of the report.
var calls = []string{"claim", "outcome", "replay", "claim and replay"}

// costOfCalls measures n claims, then their outcomes, then a replay of each, by so many goroutines at once. One kind of call
// comes after the other, because the CPU time of a process does not say which calls it went to. So these replays are a burst; a
// claim and a replay in turn are none, and their figures are those of both.
func costOfCalls(client *redis.Client, store driver.Store, n, callers int) (map[string]float64, error) {
	ctx, outcome, claims := context.Background(), []byte(subject.Body(512)), newClaims(n)
	figures := map[string]float64{}
	for _, step := range []struct {
		name string
		call func(*driver.Claim) error
	}{
		{"claim", func(c *driver.Claim) error { return begin(ctx, store, c, driver.Claimed) }},
		{"outcome", func(c *driver.Claim) error { return store.Complete(ctx, *c, outcome) }},
		{"replay", func(c *driver.Claim) error { c.Owner[0]++; return begin(ctx, store, c, driver.Completed) }},
		{"claim and replay", func(c *driver.Claim) error {
			fresh := *c
			fresh.Key[0]++
			c.Owner[0]++
			return errors.Join(begin(ctx, store, &fresh, driver.Claimed), begin(ctx, store, c, driver.Completed))
		}},
	} {
		found, err := costOf(client, func() (int, error) { return n, callAll(claims, callers, step.call) })
		if err != nil {
			return nil, err
		}
		figures[step.name+"_server_us"], figures[step.name+"_client_us"] = found["server_cpu_us"], found["cpu_us"]
		figures[step.name+"_per_second"] = found["per_second"]
	}
	return figures, client.FlushAll(ctx).Err()
}

// begin begins a claim, which must find this state, and keeps what a later call needs. A store that finds another state has taken
// another way through its code, so its figures would not be those of the call.
func begin(ctx context.Context, store driver.Store, c *driver.Claim, want driver.State) error {
	entry, err := store.Begin(ctx, *c)
	if err == nil && entry.State != want {
		err = fmt.Errorf("begin returned %s, not %s", entry.State, want)
	}
	c.Fence, c.Attempt = entry.Fence, entry.Attempt
	return err
}

// newClaims returns n claims of keys that no record has. They are made before the clock starts, because making them is no part of
// a call.
func newClaims(n int) []driver.Claim {
	claims := make([]driver.Claim, n)
	for i := range claims {
		claims[i] = driver.Claim{Lease: time.Minute, Retention: time.Hour}
		rand.Read(claims[i].Key[:])
		rand.Read(claims[i].Owner[:])
		claims[i].Fingerprint[0] = 1
	}
	return claims
}

// callAll calls a function with each claim, from so many goroutines, and returns one of its errors. A goroutine takes the next
// claim when it is done with one, so that all of them call until the end.
func callAll(claims []driver.Claim, callers int, call func(*driver.Claim) error) error {
	var next atomic.Int64
	var all errgroup.Group
	for range callers {
		all.Go(func() error {
			for i := next.Add(1) - 1; i < int64(len(claims)); i = next.Add(1) - 1 {
				if err := call(&claims[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all.Wait()
}
