package redisstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/lua"
)

// BenchmarkLayout compares ways to keep a record: what a new claim, its completion and a replay cost the server, in
// microseconds by its own account (INFO commandstats), and what a finished record weighs (MEMORY USAGE). The numbers are
// kept in docs/layout.md.
//
//	go test ./core/redisstore -run '^$' -bench Layout -benchtime 20000x
func BenchmarkLayout(b *testing.B) {
	client := redistest.Start(b).Client(b)
	layouts := []struct {
		name string
		new  func(*redis.Client) layout
	}{
		{"string-as-it-is", func(c *redis.Client) layout { return oneString{redisstore.New(c)} }},
		{"string-and-GET", func(c *redis.Client) layout { return otherBegin{oneString{redisstore.New(c)}, c, beginAndGET, true} }},
		{"string-through-Lua", func(c *redis.Client) layout {
			return otherBegin{oneString{redisstore.New(c)}, c, beginThroughLua, false}
		}},
		{"hash", func(c *redis.Client) layout { return hash{c} }},
		{"two-keys-JSON", func(c *redis.Client) layout { return twoKeys{c} }},
	}
	for _, size := range []int{512, 4 << 10, 64 << 10} {
		body := strings.Repeat(`{"id":"pay_1","amount":100}`, size/27+1)[:size]
		for _, l := range layouts {
			b.Run(fmt.Sprintf("%s/%dB", l.name, size), func(b *testing.B) { measure(b, client, l.new(client), body) })
		}
	}
}

// layout is one way to keep a record.
type layout interface {
	begin(key string)
	complete(key, body string)
	replay(key string) (length int)
	keys(key string) []string
}

func measure(b *testing.B, client *redis.Client, l layout, body string) {
	require.NoError(b, client.FlushAll(ctx).Err())
	names := make([]string, min(b.N, 2000)) // the same keys again and again would not be new; many large ones would swap
	for i := range names {
		names[i] = fmt.Sprintf("%032d", i)
	}
	l.begin("warm")
	l.complete("warm", body)
	require.NotZero(b, l.replay("warm"))
	var begin, complete, replay float64
	for round := range (b.N + len(names) - 1) / len(names) {
		if round > 0 {
			require.NoError(b, client.FlushDB(ctx).Err())
		}
		begin += serverTime(b, client, func() { each(names, l.begin) })
		complete += serverTime(b, client, func() { each(names, func(key string) { l.complete(key, body) }) })
		replay += serverTime(b, client, func() { each(names, func(key string) { l.replay(key) }) })
	}
	bytes := int64(0)
	for _, key := range l.keys(names[0]) {
		bytes += client.MemoryUsage(ctx, key, 0).Val() // 0: every field of a hash, not a sample
	}
	n := float64((b.N+len(names)-1)/len(names)) * float64(len(names))
	b.ReportMetric(begin/n, "begin-µs")
	b.ReportMetric(complete/n, "complete-µs")
	b.ReportMetric(replay/n, "replay-µs")
	b.ReportMetric(float64(bytes), "B/record")
	b.ReportMetric(0, "ns/op")
}

func each(names []string, f func(string)) {
	for _, name := range names {
		f(name)
	}
}

// serverTime is what the commands sent by f took, in µs. Commands inside scripts are counted in their script.
func serverTime(b *testing.B, client *redis.Client, f func()) (sum float64) {
	require.NoError(b, client.ConfigResetStat(ctx).Err())
	f()
	stats := client.Info(ctx, "commandstats").Val()
	top := regexp.MustCompile(`cmdstat_(evalsha|get|set|mget):calls=\d+,usec=(\d+)`)
	inScript := strings.Contains(stats, "cmdstat_evalsha")
	for _, m := range top.FindAllStringSubmatch(stats, -1) {
		usec, err := strconv.ParseFloat(m[2], 64)
		require.NoError(b, err)
		if m[1] == "evalsha" || !inScript || m[1] == "get" {
			sum += usec
		}
	}
	return sum
}

var header = []core.Field{
	{Name: "Content-Type", Value: "application/json"}, {Name: "Location", Value: "/payments/pay_1"}, {Name: "Etag", Value: `"1"`},
	{Name: "Vary", Value: "Accept"}, {Name: "Cache-Control", Value: "no-store"}, {Name: "X-Api-Version", Value: "2026-01-01"},
}

// packed is what the engine hands to a store, but for the checksum.
func packed(body string) []byte {
	return append(append(slices.Clone(packedHead()), body...), 1, 2, 3, 4)
}

// packedHead is what stands before the body, in an outcome that the engine has made.
var packedHead = sync.OnceValue(func() []byte {
	kept := &keeper{Store: memstore.New()}
	engine, err := core.New(core.Config{Store: kept, Scope: core.SingleTenant})
	if err != nil {
		panic(err)
	}
	request := core.Request{
		Method: "POST", Path: "/",
		Header: func(string) []string { return []string{"key"} },
		Body:   func(int64) ([]byte, error) { return nil, nil },
	}
	answer := &core.Response{Status: 201, Header: header}
	if _, err := engine.Do(ctx, request, func(context.Context) (*core.Response, error) { return answer, nil }); err != nil {
		panic(err)
	}
	return kept.outcome[:len(kept.outcome)-4]
})

// keeper is a store that remembers the last outcome.
type keeper struct {
	driver.Store
	outcome []byte
}

func (k *keeper) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	k.outcome = outcome
	return k.Store.Complete(ctx, c, outcome)
}

// oneString is the store as it is.
type oneString struct{ store *redisstore.Store }

func (l oneString) claim(key string) driver.Claim {
	c := driver.Claim{Lease: 30 * time.Second, Retention: 24 * time.Hour, Owner: [16]byte{1}, Fingerprint: [32]byte{2}}
	copy(c.Key[:], key)
	return c
}

func (l oneString) begin(key string) {
	if _, err := l.store.Begin(ctx, l.claim(key)); err != nil {
		panic(err)
	}
}

func (l oneString) complete(key, body string) {
	c := l.claim(key)
	c.Attempt = 1
	if err := l.store.Complete(ctx, c, packed(body)); err != nil {
		panic(err)
	}
}

func (l oneString) replay(key string) int {
	c := l.claim(key)
	c.Owner[0]++
	entry, err := l.store.Begin(ctx, c)
	if err != nil {
		panic(err)
	}
	return len(entry.Outcome)
}

func (l oneString) keys(key string) []string {
	return []string{"idem:{" + redisKey(key) + "}"}
}

// redisKey is what the store makes of a key of 32 bytes.
func redisKey(key string) string {
	var padded [32]byte
	copy(padded[:], key)
	return string(driver.AppendRecordName(nil, padded))
}

// otherBegin has a script that returns every record, or none and has a GET behind it.
type otherBegin struct {
	oneString
	client *redis.Client
	script *redis.Script
	get    bool
}

var (
	beginAndGET     = redis.NewScript(strings.NewReplacer("2047", "89", "#record < 2048", "false").Replace(lua.Begin))
	beginThroughLua = redis.NewScript(strings.NewReplacer("2047", "-1", "#record < 2048", "true").Replace(lua.Begin))
)

func (l otherBegin) begin(key string) { l.send(l.claim(key), l.keys(key)) }

func (l otherBegin) replay(key string) int {
	c := l.claim(key)
	c.Owner[0]++
	return l.send(c, l.keys(key))
}

// send returns how long the answer is.
func (l otherBegin) send(c driver.Claim, keys []string) int {
	args := []any{c.Owner[:], c.Fingerprint[:], c.Lease.Microseconds(), c.Retention.Milliseconds(), "1", "0"}
	if err := l.script.Load(ctx, l.client).Err(); err != nil {
		panic(err)
	}
	p := l.client.Pipeline()
	answer := l.script.EvalSha(ctx, p, keys, args...)
	record := &redis.StringCmd{}
	if l.get {
		record = p.Get(ctx, keys[0])
	}
	_, _ = p.Exec(ctx) // each command has its own error
	text, err := answer.Text()
	if err != nil {
		panic(err)
	}
	return max(len(text), len(record.Val()))
}

// hash keeps a field for each part.
type hash struct{ client *redis.Client }

var (
	hashBegin = redis.NewScript(`
local r = redis.call('HMGET', KEYS[1], 'state', 'owner', 'fingerprint', 'fence', 'attempt', 'lease', 'outcome')
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
if r[1] then
  if r[3] ~= ARGV[2] then return {'mismatch'} end
  if r[1] == 'completed' then return {'completed', r[7]} end
  return {'in-progress', tonumber(r[6]) - now}
end
redis.call('HSET', KEYS[1], 'state', 'started', 'owner', ARGV[1], 'fingerprint', ARGV[2],
  'fence', string.format('%.0f', now), 'attempt', 1, 'lease', string.format('%.0f', now + ARGV[3]))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {'claimed', now, 1}`)
	hashComplete = redis.NewScript(`
local r = redis.call('HMGET', KEYS[1], 'state', 'owner')
if r[1] ~= 'started' or r[2] ~= ARGV[1] then return 'lost' end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('HSET', KEYS[1], 'state', 'completed', 'outcome', ARGV[3])
return 'ok'`)
)

func (l hash) begin(key string) {
	check(hashBegin.Run(ctx, l.client, l.keys(key), "owner-of-16-byte", strings.Repeat("f", 32), 30_000_000, 86_400_000))
}

func (l hash) complete(key, body string) {
	check(hashComplete.Run(ctx, l.client, l.keys(key), "owner-of-16-byte", 86_400_000, packed(body)))
}

func (l hash) replay(key string) int {
	reply, _ := hashBegin.Run(ctx, l.client, l.keys(key), "another-16-bytes", strings.Repeat("f", 32), 30_000_000, 86_400_000).StringSlice()
	return len(reply[1])
}

func (l hash) keys(key string) []string { return []string{"idem:{" + redisKey(key) + "}"} }

// twoKeys is a lock beside a JSON result, each written by a script, without fence or attempt.
type twoKeys struct{ client *redis.Client }

var (
	twoBegin = redis.NewScript(`
local result = redis.call('GET', KEYS[2])
if result then
  local r = cjson.decode(result)
  if r.fingerprint ~= ARGV[2] then return {'mismatch'} end
  return {'completed', result}
end
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then return {'in-progress'} end
return {'claimed'}`)
	twoComplete = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'lost' end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
return 'ok'`)
)

func (l twoKeys) begin(key string) {
	check(twoBegin.Run(ctx, l.client, l.keys(key), "0b2ef1c0-7c4e-4a53-8f6e-93ab7f5ad3a1", strings.Repeat("f", 64), 86_400_000))
}

func (l twoKeys) complete(key, body string) {
	result, _ := json.Marshal(map[string]any{"status": 201, "header": header, "body": body, "fingerprint": strings.Repeat("f", 64)})
	check(twoComplete.Run(ctx, l.client, l.keys(key), "0b2ef1c0-7c4e-4a53-8f6e-93ab7f5ad3a1", 86_400_000, result))
}

func (l twoKeys) replay(key string) int {
	reply, _ := twoBegin.Run(ctx, l.client, l.keys(key), "another", strings.Repeat("f", 64), 86_400_000).StringSlice()
	return len(reply[1])
}

func (l twoKeys) keys(key string) []string {
	return []string{"idem:{" + redisKey(key) + "}:lock", "idem:{" + redisKey(key) + "}:result"}
}

func check(cmd *redis.Cmd) {
	if err := cmd.Err(); err != nil {
		panic(err)
	}
}
