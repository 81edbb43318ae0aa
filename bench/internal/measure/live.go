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
// longer when it has more keys; they are those of scripts on a busy server. The fullest server takes about 300 bytes for each
// key.
func live(b *Bench) (rows []report.Row, err error) {
	counts := []int{max(b.Plan.Keys/10_000, 1), b.Plan.Keys / 100, b.Plan.Keys / 10, b.Plan.Keys}
	servers := make([]*redis.Client, len(counts))
	for i, keys := range counts {
		server := redistest.Start(b.tb)
		defer server.Kill()
		servers[i] = server.Client(b.tb)
		if err := fillLive(servers[i], keys); err != nil {
			return nil, err
		}
	}
	// Many short rounds, so that other work on the machine meets all servers.
	found, err := inTurns(4*b.Plan.Scripts, len(counts), func(i int) (map[string]float64, error) {
		figures := map[string]float64{}
		return figures, timeCalls(figures, "_busy_us", servers[i], subject.Layouts[0], 512, b.Plan.Calls/4, pipelined)
	})
	if err != nil {
		return nil, err
	}
	for i, keys := range counts {
		rows = append(rows, report.Row{Name: []string{fmt.Sprint(keys)}, Figures: found[i].medians()})
	}
	return rows, nil
}

// fillScript copies a record to many keys, which would take minutes by one command for each. It declares no keys, as a script in a
// service must.
var fillScript = redis.NewScript(`
local record = redis.call('GET', ARGV[4])
for i = tonumber(ARGV[1]), ARGV[2] - 1 do
  redis.call('SET', 'idem:{' .. string.format('%044d', i) .. '}', record, 'PX', ARGV[3])
end
return 'ok'`)

// fillLive makes n records with a time to live of a day, twice: the first time the hash tables of the server grow, and the second
// time each SET moves a bucket to the grown ones. What is measured afterwards does not pay for the growth.
func fillLive(client *redis.Client, n int) error {
	const batch, day, source = 20_000, 86_400_000, "source"
	ctx := context.Background()
	if err := subject.LoadScripts(ctx, client); err != nil {
		return err
	}
	subject.Layouts[0].Begin(ctx, client, source)
	subject.Layouts[0].Complete(ctx, client, source, []byte("no outcome"))
	for range 2 {
		for i := 0; i < n; i += batch {
			if err := fillScript.Run(ctx, client, nil, i, min(i+batch, n), day, subject.Own(source)[0]).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}
