package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/lua"
)

// scriptTime is what the verbs of a layout cost the server, in µs per call, for an answer of so many bytes.
type scriptTime struct {
	layout      string
	size        int
	alone, busy verbTimes
}

// verbTimes has a value for each round.
type verbTimes struct{ begin, complete, replay []float64 }

// block is one thing that a script may do, in µs per call; all but the first beyond the first, a script that does nothing.
type block struct {
	name        string
	alone, busy []float64
}

var sizes = []int{512, 4 << 10, 64 << 10}

// measureScripts asks the server for its own account of the time that commands take: of calls that are sent one by one, so
// that a command finds the server as it finds it in a quiet service, and of pipelines, as in a busy one.
func measureScripts(b *bench) error {
	for _, size := range sizes {
		times := make([]scriptTime, len(layouts))
		for n := range b.plan.scripts {
			for k := range layouts {
				i := (k + n) % len(layouts)
				times[i].layout, times[i].size = layouts[i].name, size
				calls := max(b.plan.calls*512/size, 100)
				if err := times[i].alone.measure(b, layouts[i], size, calls, 1); err != nil {
					return err
				}
				if err := times[i].busy.measure(b, layouts[i], size, calls, pipelined); err != nil {
					return err
				}
			}
		}
		b.results.scripts = append(b.results.scripts, times...)
	}
	return b.measureBlocks()
}

// pipelined is how many calls a busy server finds when it looks.
const pipelined = 50

// measure adds a round of n calls of each verb, in pipelines of so many.
func (t *verbTimes) measure(b *bench, l layout, size, n, together int) error {
	ctx, body := context.Background(), jsonBody(size)
	if err := b.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	verbs := []struct {
		into *[]float64
		call func(to redis.Cmdable, key string)
	}{
		{&t.begin, func(to redis.Cmdable, key string) { l.begin(ctx, to, key) }},
		{&t.complete, func(to redis.Cmdable, key string) { l.complete(ctx, to, key, body) }},
		{&t.replay, func(to redis.Cmdable, key string) { l.replay(ctx, to, key, isLong(size)) }},
	}
	for _, v := range verbs {
		usec, err := b.serverTime(l.commands, n, b.grouped(names, together, v.call))
		if err == nil && v.into == &t.begin && l.learn != nil && together > 1 {
			err = l.learn(ctx, b.client, names)
		}
		if err != nil {
			return err
		}
		*v.into = append(*v.into, usec)
	}
	return nil
}

// grouped returns what makes the call of a name, and all calls of a group with its last.
func (b *bench) grouped(names []string, together int, call func(to redis.Cmdable, key string)) func(i int) {
	if together == 1 {
		return func(i int) { call(b.client, names[i]) }
	}
	p := b.client.Pipeline()
	return func(i int) {
		call(p, names[i])
		if (i+1)%together == 0 || i == len(names)-1 {
			_, _ = p.Exec(context.Background()) // serverTime counts calls that went wrong
		}
	}
}

var commandStat = regexp.MustCompile(`cmdstat_(\w+):calls=(\d+),usec=(\d+)(?:.*failed_calls=(\d+))?`)

// serverTime is what the commands of one call took the server on average of n, in µs. What a script calls is part of the
// script, so only commands that are not called from scripts may be named.
func (b *bench) serverTime(commands []string, n int, call func(i int)) (usec float64, err error) {
	ctx := context.Background()
	if err := b.client.ConfigResetStat(ctx).Err(); err != nil {
		return 0, err
	}
	for i := range n {
		call(i)
	}
	info, err := b.client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	for _, found := range commandStat.FindAllStringSubmatch(info, -1) {
		if !slices.Contains(commands, found[1]) {
			continue
		}
		if found[2] != strconv.Itoa(n) || found[4] != "" && found[4] != "0" {
			return 0, fmt.Errorf("not every one of %d calls went well: %s", n, found[0])
		}
		total, _ := strconv.ParseFloat(found[3], 64) // digits only
		usec += total
	}
	return usec / float64(n), nil
}

// The blocks that the verbs can not do without.
const (
	nothing      = "a script that does nothing"
	readHeader   = "GETRANGE of a header"
	readRecord   = "GET of a record"
	readClock    = "TIME, and the sum of its parts"
	writeClaim   = "SET of a claim with PX"
	writeOutcome = "SET of a 512-byte record with PX"
)

// blocks are scripts that do one thing each. KEYS[1] is a record of this library with an answer of 512 bytes, KEYS[2] a
// hash, KEYS[3] a JSON result, KEYS[4] a key to write.
var blocks = []struct{ name, script string }{
	{nothing, `return 'ok'`},
	{"the functions of record.lua, made and not called", recordFunctions() + `return 'ok'`},
	{readHeader, `redis.call('GETRANGE', KEYS[1], '0', '89') return 'ok'`},
	{readRecord, `redis.call('GET', KEYS[1]) return 'ok'`},
	{"HMGET of seven fields", `redis.call('HMGET', KEYS[2], 'state', 'owner', 'fingerprint', 'fence', 'attempt', 'lease', 'outcome') return 'ok'`},
	{"GET and cjson.decode of a result", `cjson.decode(redis.call('GET', KEYS[3])) return 'ok'`},
	{readClock, `local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] return 'ok'`},
	{"the check of a header by string.find", `local ok = string.find(string.sub(ARGV[1], 1, 26), '^1[124][012][012]%d+$') return 'ok'`},
	{"five fields by string.sub", `local h = ARGV[1] local a, b, c, d, e = string.sub(h, 2, 2), string.sub(h, 3, 3), string.sub(h, 5, 10), string.sub(h, 11, 26), string.sub(h, 27, 58) return 'ok'`},
	{"three numbers by string.format", `string.format('%06d%016.0f%016.0f', 1, 1790000000000000, 1790000030000000) return 'ok'`},
	{writeClaim, `redis.call('SET', KEYS[4], ARGV[1], 'PX', '86400000') return 'ok'`},
	{writeOutcome, `redis.call('SET', KEYS[4], ARGV[2], 'PX', '86400000') return 'ok'`},
	{"PEXPIRE", `redis.call('PEXPIRE', KEYS[1], '86400000') return 'ok'`},
	{"an answer of five parts, not one", `return {'claimed', 1790000000000000, 1, 0, 30000000}`},
}

// recordFunctions is what every script of this library makes, unless it ends before.
func recordFunctions() string {
	_, functions, _ := strings.Cut(lua.Extend, "\n-- record:")
	functions, _, _ = strings.Cut(functions, "\nif not record")
	return "-- " + functions + "\n"
}

// measureBlocks measures the scripts of blocks, all with the same keys and arguments, beside one that does nothing.
func (b *bench) measureBlocks() error {
	keys, record, err := b.fillBlocks()
	if err != nil {
		return err
	}
	b.results.blocks = make([]block, len(blocks))
	for range b.plan.scripts {
		for i, script := range blocks {
			alone, err := b.scriptTime(script.script, 1, keys, record[:claimBytes], record)
			if err != nil {
				return fmt.Errorf("%s: %w", script.name, err)
			}
			busy, err := b.scriptTime(script.script, pipelined, keys, record[:claimBytes], record)
			if err != nil {
				return fmt.Errorf("%s: %w", script.name, err)
			}
			found := &b.results.blocks[i]
			found.name, found.alone, found.busy = script.name, append(found.alone, alone), append(found.busy, busy)
		}
	}
	for i := len(blocks) - 1; i > 0; i-- {
		b.results.blocks[i].above(&b.results.blocks[0])
	}
	return nil
}

// above leaves what the block takes beyond another.
func (o *block) above(empty *block) {
	for n := range o.alone {
		o.alone[n] -= empty.alone[n]
		o.busy[n] -= empty.busy[n]
	}
}

// sum is what blocks take together, in µs.
func (r *results) sum(names []string, of func(*block) []float64) (sum float64) {
	for i := range r.blocks {
		if slices.Contains(names, r.blocks[i].name) {
			sum += median(of(&r.blocks[i]))
		}
	}
	return sum
}

// fillBlocks writes what the blocks read, and returns the keys and a record.
func (b *bench) fillBlocks() (keys []string, record []byte, err error) {
	ctx, body, hash := context.Background(), jsonBody(512), "block-hash"
	if err := b.client.FlushAll(ctx).Err(); err != nil {
		return nil, nil, err
	}
	ownBegin(ctx, b.client, "block")
	ownComplete(ctx, b.client, "block", body)
	pairOpen(ctx, b.client, "block")
	pairClose(ctx, b.client, "block", body)
	err = b.client.HSet(ctx, hash, "state", "completed", "owner", "o", "fingerprint", "f", "outcome", packed(body)).Err()
	return []string{ownKeys("block")[0], hash, pairKeys("block")[1], "block-new"}, claimOf("block").record(0, packed(body)), err
}

// scriptTime is what a script takes the server, in µs, of calls that come so many at once.
func (b *bench) scriptTime(text string, together int, keys []string, args ...any) (float64, error) {
	ctx, script := context.Background(), redis.NewScript(text)
	if err := script.Load(ctx, b.client).Err(); err != nil {
		return 0, err
	}
	names := make([]string, b.plan.calls)
	call := func(to redis.Cmdable, _ string) { to.EvalSha(ctx, script.Hash(), keys, args...) }
	return b.serverTime([]string{"evalsha"}, len(names), b.grouped(names, together, call))
}
