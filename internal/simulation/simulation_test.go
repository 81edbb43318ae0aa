package simulation

import (
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// With one processor, the scheduler has less to decide, and a seed is more certain to make the same history again. A history leaves
// little behind, so the garbage can wait.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(4000)
	os.Exit(m.Run())
}

// duration returns for how long the simulation runs: 20 seconds; with SOAK as long as SOAK_FOR says, or ten minutes.
func duration(t *testing.T) time.Duration {
	switch soakFor := os.Getenv("SOAK_FOR"); {
	case testing.Short():
		return 2 * time.Second
	case os.Getenv("SOAK") == "":
		return 20 * time.Second
	case soakFor != "":
		d, err := time.ParseDuration(soakFor)
		require.NoError(t, err)
		return d
	}
	return 10 * time.Minute
}

// firstSeed returns the seed of the first history: SEED, or 0. With SOAK and without SEED it is random, so that no two soaks
// execute the same histories.
func firstSeed(t *testing.T) uint64 {
	if text := os.Getenv("SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		return seed
	}
	if os.Getenv("SOAK") != "" {
		return rand.Uint64() >> 1
	}
	return 0
}

// The promises of package core hold in every history. A seed that breaks one is printed with the story of a minimised history;
// SEED=n executes it again, first of all. HISTORIES=n ends the test after n histories.
func TestHistoriesKeepThePromises(t *testing.T) {
	start, first, count := time.Now(), firstSeed(t), uint64(0)
	limit, _ := strconv.ParseUint(os.Getenv("HISTORIES"), 10, 64)
	for end := start.Add(duration(t)); time.Now().Before(end) && (limit == 0 || count < limit); count++ {
		p := newPlan(first + count)
		v := execute(t, p, nil, false).violation
		if v == nil {
			continue
		}
		broken := func(smaller *plan) string {
			if v := execute(t, smaller, nil, false).violation; v != nil {
				return v.promise
			}
			return ""
		}
		p = minimise(p, v.promise, broken)
		t.Fatalf("seed %d: %s: %s\nminimised:\n%s", first+count, v.promise, v.detail, execute(t, p, nil, true).text())
	}
	t.Logf("%d histories from seed %d on, %.0f in a minute", count, first, float64(count)/time.Since(start).Minutes())
}

// A seed makes the same history each time, but for the order of events at one and the same time. The leases of two messages of a
// batch end at one time, and the first of these events decides what follows, so there are no batches here.
func TestASeedIsAHistory(t *testing.T) {
	story := func(seed uint64) []string {
		p := newPlan(seed)
		for _, c := range p.clients {
			for i := range c.attempts {
				c.attempts[i].script.isBatch = false
			}
		}
		lines := strings.Split(execute(t, p, nil, true).text(), "\n")
		slices.Sort(lines)
		return lines
	}
	for seed := range uint64(100) {
		if !assert.Equal(t, story(seed), story(seed), "seed %d", seed) {
			return
		}
	}
}

// A minimised plan breaks the same promise with less.
func TestMinimise(t *testing.T) {
	p := newPlan(1)
	require.NotEmpty(t, p.clients)
	p.faults = append(p.faults, fault{kind: slow})
	small := minimise(p, "broken", func(q *plan) string {
		if len(q.clients[0].attempts) > 0 {
			return "broken"
		}
		return ""
	})
	attempts := 0
	for _, c := range small.clients {
		attempts += len(c.attempts)
	}
	assert.Equal(t, 1, attempts)
	assert.Empty(t, small.faults)
}
