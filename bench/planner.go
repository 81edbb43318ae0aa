package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// planned is what the planner says that a load takes, in bytes.
type planned struct {
	args           string
	library        int64
	locks, results int64 // of the textbook: sums of lengths
	twoKeys        int64 // what Redis takes for the lock and the result
}

// filled is a plan beside what so many records took of a server.
type filled struct {
	planned
	records, measured int64
}

// difference is how far the planner is off, as a part of what was measured.
func (f filled) difference() float64 { return float64(f.library-f.measured) / float64(f.measured) }

// The case that is often reckoned for a lock and a result.
const textbookLoad = "-rate 1000 -lease 30s -retention 24h -body 512"

// plannerLoad makes as many records as measurePlanner fills in: a tenth runs, and nine tenths have outcomes.
func plannerLoad(records int) string {
	return fmt.Sprintf("-rate %v -lease 20s -handler 20s -retention 180s -body 512", float64(records)/200)
}

// ask runs the planner.
func ask(args string) (p planned, err error) {
	run := exec.Command("go", append([]string{"run", "./examples/plan"}, strings.Fields(args)...)...)
	run.Dir = ".."
	out, err := run.CombinedOutput()
	if err != nil {
		return p, fmt.Errorf("examples/plan %s: %w: %s", args, err, out)
	}
	p.args = args
	for pattern, into := range map[string]*int64{
		`(?s)What this library takes.*?\n +(= [\d,]+) `:             &p.library,
		`(?s)What Redis takes for these two keys.*?\n +(= [\d,]+) `: &p.twoKeys,
		`([\d,]+)  locks: .*of owner`:                               &p.locks,
		`([\d,]+)  results: .*of status`:                            &p.results,
	} {
		found := regexp.MustCompile(pattern).FindSubmatch(out)
		if found == nil {
			return p, fmt.Errorf("examples/plan %s: nothing looks like %s in\n%s", args, pattern, out)
		}
		*into, _ = strconv.ParseInt(strings.NewReplacer("= ", "", ",", "").Replace(string(found[1])), 10, 64) // digits only
	}
	return p, nil
}

// measurePlanner asks the planner about a server that it then fills, and about the textbook's case: as it is, and with
// what a dictionary leaves of an outcome, if that was measured.
func measurePlanner(b *bench) error {
	quantum, err := b.quantum()
	if err != nil {
		return err
	}
	found := &b.results.filled
	if found.planned, err = ask(plannerLoad(b.plan.records) + quantum); err != nil {
		return err
	}
	found.records = int64(b.plan.records)
	if found.measured, err = b.usedByRecords(b.plan.records); err != nil {
		return err
	}
	loads := []string{textbookLoad}
	if w := b.results.formNamed(dictionaryForm, 512); w.packed > 0 {
		loads = append(loads, fmt.Sprintf("%s -ratio %.2f", textbookLoad, w.outcome/w.packed))
	}
	for _, load := range loads {
		p, err := ask(load + quantum)
		if err != nil {
			return err
		}
		b.results.planned = append(b.results.planned, p)
	}
	return nil
}

// usedByRecords is what records with their hash tables take, a tenth of which run.
func (b *bench) usedByRecords(n int) (int64, error) {
	ctx, body := context.Background(), jsonBody(512)
	if err := b.client.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	empty, err := usedMemory(ctx, b.client)
	if err != nil {
		return 0, err
	}
	err = fill(ctx, b.client, n, func(to redis.Cmdable, key string) { ownBegin(ctx, to, key) })
	if err == nil {
		err = fill(ctx, b.client, n-n/10, func(to redis.Cmdable, key string) { ownComplete(ctx, to, key, body) })
	}
	if err == nil {
		err = finishTables(ctx, b.client, n)
	}
	if err != nil {
		return 0, err
	}
	full, err := usedMemory(ctx, b.client)
	return full - empty, err
}

// quantum is the planner's flag for how the server's jemalloc was built, which a name of 50 bytes tells.
func (b *bench) quantum() (string, error) {
	ctx := context.Background()
	if err := b.client.FlushAll(ctx).Err(); err != nil {
		return "", err
	}
	ownBegin(ctx, b.client, name(0))
	if weigh(ctx, b.client, ownKeys(name(0))) == 192 {
		return " -quantum 8", nil
	}
	return " -quantum 16", nil
}

// finishTables ends the growing of the tables of keys and expiries, whose old ones are there until all their buckets have
// moved: each look at a key moves one. Record 0 must be there.
func finishTables(ctx context.Context, client *redis.Client, keys int) error {
	const looks = 100_000
	for range keys/looks + 1 {
		if err := lookScript.Run(ctx, client, ownKeys(name(0)), looks).Err(); err != nil {
			return err
		}
	}
	return nil
}

var lookScript = redis.NewScript(`for i = 1, tonumber(ARGV[1]) do redis.call('EXISTS', KEYS[1]) end return 'ok'`)
