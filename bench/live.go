package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/internal/redistest"
)

// liveSpeed is a server with so many live keys.
type liveSpeed struct {
	keys                    int
	begin, complete, replay verbSpeed
	leftOut                 string // why it was not measured
}

// verbSpeed has a value for each round.
type verbSpeed struct {
	p50, p99 []time.Duration
	usec     []float64 // of the server per call
}

// liveCounts are how many keys live, up to so many.
func liveCounts(most int) []int { return []int{max(most/10_000, 1), most / 100, most / 10, most} }

// liveBytes is about what a key of fillLive takes: claims and outcomes of a body are larger.
const liveBytes = 256 + 2*16

// measureLive calls each verb on new keys of servers that have few keys and many, in turn.
func measureLive(b *bench) error {
	var servers []*bench
	b.results.live = nil
	for _, keys := range liveCounts(b.plan.keys) {
		if free := freeMemory(); free > 0 && int64(keys)*liveBytes*3/2 > free {
			b.results.live = append(b.results.live, liveSpeed{keys: keys, leftOut: fmt.Sprintf("needs %d MB, and %d MB are free",
				int64(keys)*liveBytes*3/2>>20, free>>20)})
			continue
		}
		at, err := b.beside(keys)
		if err != nil {
			return err
		}
		defer at.server.Kill()
		servers, b.results.live = append(servers, at), append(b.results.live, liveSpeed{keys: keys})
	}
	for n := range 4 * b.plan.scripts { // short rounds, so that what else the machine does meets all
		for k := range servers {
			i := (k + n) % len(servers)
			if err := b.results.live[i].measure(servers[i], b.plan.calls/4); err != nil {
				return err
			}
		}
	}
	return nil
}

// beside returns a bench with a server of its own that has so many live keys.
func (b *bench) beside(keys int) (*bench, error) {
	at := *b
	at.server = redistest.Start(b.tb)
	at.client = at.server.Client(b.tb)
	if err := loadScripts(context.Background(), at.client); err != nil {
		return nil, err
	}
	return &at, fillLive(context.Background(), at.client, keys)
}

// fillScript writes copies of a record under the names of records. It declares no keys, as a script in a service must.
var fillScript = redis.NewScript(`
for i = tonumber(ARGV[1]), ARGV[2] - 1 do
  redis.call('SET', 'idem:{' .. string.format('%043d', i) .. '}', ARGV[3], 'PX', ARGV[4])
end
return 'ok'`)

// fillLive makes n records with an outcome that has neither header lines nor a body.
func fillLive(ctx context.Context, client *redis.Client, n int) error {
	const batch = 20_000
	record := claimOf("").record(time.Now().UnixMicro(), []byte("1\x00\xc9\x01\x00\x00sum4"))
	for i := 0; i < n; i += batch {
		if err := fillScript.Run(ctx, client, nil, i, min(i+batch, n), record, retentionMillis).Err(); err != nil {
			return err
		}
	}
	return finishTables(ctx, client, n)
}

// measure adds a round of n calls one at a time and n in pipelines, on new keys, which are gone afterwards.
func (l *liveSpeed) measure(at *bench, n int) error {
	ctx, own, body := context.Background(), layouts[0], jsonBody(512)
	names := make([]string, 2*n)
	for i := range names {
		names[i] = fmt.Sprintf("live-%038d", i)
	}
	for _, v := range []struct {
		into *verbSpeed
		call func(to redis.Cmdable, key string)
	}{
		{&l.begin, func(to redis.Cmdable, key string) { own.begin(ctx, to, key) }},
		{&l.complete, func(to redis.Cmdable, key string) { own.complete(ctx, to, key, body) }},
		{&l.replay, func(to redis.Cmdable, key string) { own.replay(ctx, to, key, false) }},
	} {
		latencies := make([]time.Duration, n)
		for i := range latencies {
			began := time.Now()
			v.call(at.client, names[i])
			latencies[i] = time.Since(began)
		}
		usec, err := at.serverTime(own.commands, n, at.grouped(names[n:], pipelined, v.call))
		if err == nil && v.into == &l.begin {
			err = own.learn(ctx, at.client, names[n:])
		}
		if err != nil {
			return err
		}
		v.into.p50, v.into.p99 = append(v.into.p50, quantile(latencies, 0.5)), append(v.into.p99, quantile(latencies, 0.99))
		v.into.usec = append(v.into.usec, usec)
	}
	_, err := at.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names {
			p.Del(ctx, own.keys(name)...)
		}
		return nil
	})
	return err
}

// freeMemory is what the machine has left, in bytes; 0 where nobody says.
func freeMemory() int64 {
	info, _ := os.ReadFile("/proc/meminfo") // Linux only
	kilobytes, _ := strconv.ParseInt(firstMatch(`MemAvailable:\s*(\d+)`, string(info)), 10, 64)
	return kilobytes << 10
}
