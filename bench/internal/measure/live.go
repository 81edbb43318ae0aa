package measure

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/bench/internal/report"
	"github.com/go-idem/idem/bench/internal/subject"
	"github.com/go-idem/idem/internal/redistest"
)

// live calls the scripts on new keys of servers with few and many live keys, in turn. The figures say whether a call takes Redis
// longer when it has more keys. The fullest server takes about 300 bytes for each key.
func live(b *Bench) (rows []report.Row, err error) {
	counts := []int{max(b.Plan.Keys/10_000, 1), b.Plan.Keys / 100, b.Plan.Keys / 10, b.Plan.Keys}
	servers, found := make([]*redis.Client, len(counts)), make([]times, len(counts))
	for i, keys := range counts {
		server := redistest.Start(b.tb)
		defer server.Kill()
		servers[i], found[i] = server.Client(b.tb), times{}
		if err := fillLive(servers[i], keys); err != nil {
			return nil, err
		}
	}
	for n := range 4 * b.Plan.Scripts { // short rounds, so that other work on the machine meets all servers
		for _, i := range rotated([]int{0, 1, 2, 3}, n) {
			if err := found[i].add(servers[i], subject.Layouts[0], 512, b.Plan.Calls/4, pipelined, "_busy_us"); err != nil {
				return nil, err
			}
		}
	}
	for i, keys := range counts {
		rows = append(rows, report.Row{Name: []string{fmt.Sprint(keys)}, Figures: found[i].medians()})
	}
	return rows, nil
}

// fillScript copies a record to many keys. It declares no keys, as a script in a service must.
var fillScript = redis.NewScript(`
local record = redis.call('GET', 'source')
for i = tonumber(ARGV[1]), ARGV[2] - 1 do
  redis.call('SET', 'idem:{' .. string.format('%044d', i) .. '}', record, 'PX', ARGV[3])
end
return 'ok'`)

// lookScript looks for a key many times.
var lookScript = redis.NewScript(`for i = 1, tonumber(ARGV[1]) do redis.call('EXISTS', 'source') end return 'ok'`)

// fillLive makes n records with a time to live of a day, and finishes the growth of the server's hash tables: each look at a
// key moves one bucket.
func fillLive(client *redis.Client, n int) error {
	const batch, day = 20_000, 86_400_000
	ctx := context.Background()
	if err := subject.LoadScripts(ctx, client); err != nil {
		return err
	}
	if err := client.Set(ctx, "source", subject.EmptyRecord(), 0).Err(); err != nil {
		return err
	}
	for i := 0; i < n; i += batch {
		if err := fillScript.Run(ctx, client, nil, i, min(i+batch, n), day).Err(); err != nil {
			return err
		}
	}
	for range n/batch + 1 {
		if err := lookScript.Run(ctx, client, nil, batch).Err(); err != nil {
			return err
		}
	}
	return nil
}
