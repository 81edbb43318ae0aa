package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/redistest"
)

// longestHold is how long a scan may keep a server from other clients.
const longestHold = 10 * time.Millisecond

// OPR-02: 100 unknown outcomes among 20,000 records, or among 1,000,000 with SOAK=1, while another client calls the server.
func TestLsFindsUnknownOutcomesAmongManyRecordsWithoutHoldingTheServer(t *testing.T) {
	records, unknown := 20_000, 100
	if os.Getenv("SOAK") != "" {
		records = 1_000_000
	}
	server := redistest.Start(t)
	client := server.Client(t)
	fillWithCopies(t, server, records, unknown)
	require.NoError(t, client.ConfigResetStat(t.Context()).Err())

	idle := newLatencyProbe(t, client)
	waitFor(t, idle, 200)
	before := idle.stop()
	busy := newLatencyProbe(t, client)
	p := &program{stdin: strings.NewReader(""), getenv: func(string) string { return "" }, draws: true}
	var stdout, stderr strings.Builder
	p.stdout, p.stderr = &stdout, &stderr
	began := time.Now()
	code := p.run(t.Context(), "idem", "--store", "redis://"+server.Addr, "ls", "--state", "unknown", "--json", "--limit", "0")
	took, during := time.Since(began), busy.stop()

	assert.Equal(t, 0, code)
	assert.Equal(t, unknown, strings.Count(stdout.String(), "\n"))
	assert.Regexp(t, `\r\x1b\[K\d{2,} read`, stderr.String(), "it shows its progress")
	batch := meanBatch(t, server)
	assert.Less(t, batch, longestHold, "the server is busy with a batch for so long")
	t.Logf("%d records in %v, each batch in %v; a call of another client: 99 of 100 in %v, all in %v; without the scan in %v and %v",
		records, took.Round(time.Millisecond), batch, percentile(during, 99), percentile(during, 100), percentile(before, 99), percentile(before, 100))
	if os.Getenv("SOAK") != "" { // beside other tests the probe itself would wait for a processor
		assert.Less(t, percentile(during, 99), max(longestHold, 3*percentile(before, 99)))
	}
}

// meanBatch returns how long the server has worked for each batch of a scan: for a SCAN, and for the scripts that read its records.
func meanBatch(t *testing.T, server *redistest.Server) time.Duration {
	t.Helper()
	var usec, batches int
	for _, command := range []string{"scan", "evalsha"} {
		var calls, took int
		_, err := fmt.Sscanf(server.Info(t, "cmdstat_"+command), "calls=%d,usec=%d", &calls, &took)
		require.NoError(t, err)
		usec += took
		if command == "scan" {
			batches = calls
		}
	}
	return time.Duration(usec/batches) * time.Microsecond
}

// fillWithCopies fills a server with records: copies, under other names, of one that is completed, and of one that is unknown.
func fillWithCopies(t *testing.T, server *redistest.Server, records, unknown int) {
	t.Helper()
	client, url := server.Client(t), "redis://"+server.Addr
	send(handler(mustConnect(t, url), nil), "alice", "completed", "")
	completed := onlyRecord(t, client)
	makeUnknown(t, url)
	stuck := onlyRecord(t, client)
	for batch := range slices.Chunk(slices.Collect(upTo(records)), 10_000) {
		_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for _, i := range batch {
				text := completed
				if i%(records/unknown) == 0 {
					text = stuck
				}
				name := driver.AppendRecordName(nil, storetest.NewClaim(time.Second, time.Hour).Key)
				p.Set(t.Context(), "idem:{"+string(name)+"}", text, time.Hour)
			}
			return nil
		})
		require.NoError(t, err)
	}
	require.EqualValues(t, records, client.DBSize(t.Context()).Val())
}

// upTo yields the numbers from 0 up to n.
func upTo(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// onlyRecord returns the only record of a server, and deletes it.
func onlyRecord(t *testing.T, client *redis.Client) string {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	text, err := client.Get(t.Context(), keys[0]).Result()
	require.NoError(t, err)
	require.NoError(t, client.Del(t.Context(), keys[0]).Err())
	return text
}

// latencyProbe calls a server again and again, and measures how long each call takes.
type latencyProbe struct {
	mu    sync.Mutex
	took  []time.Duration
	over  chan bool
	ended chan bool
}

// newLatencyProbe starts a probe.
func newLatencyProbe(t *testing.T, client *redis.Client) *latencyProbe {
	p := &latencyProbe{over: make(chan bool), ended: make(chan bool)}
	go func() {
		defer close(p.ended)
		for {
			began := time.Now()
			if !assert.NoError(t, client.Ping(t.Context()).Err()) {
				return
			}
			p.mu.Lock()
			p.took = append(p.took, time.Since(began))
			p.mu.Unlock()
			select {
			case <-p.over:
				return
			case <-time.After(time.Millisecond): // so that the probe itself keeps the server idle
			}
		}
	}()
	return p
}

// count returns how many calls the probe has made.
func (p *latencyProbe) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.took)
}

// waitFor waits until a probe has made this many calls.
func waitFor(t *testing.T, p *latencyProbe, calls int) {
	t.Helper()
	redistest.Eventually(t, "the probe has made its calls", func() bool { return p.count() >= calls })
}

// stop ends the probe, and returns how long its calls took, the shortest first.
func (p *latencyProbe) stop() []time.Duration {
	close(p.over)
	<-p.ended
	slices.Sort(p.took)
	return p.took
}

// percentile returns how long the calls took of which this percentage took no longer.
func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)-1)*percent/100]
}
