package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"net/http"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
)

// layout is one way to keep a record, as commands to a server or to a pipeline.
type layout struct {
	name     string
	begin    func(ctx context.Context, to redis.Cmdable, key string)
	complete func(ctx context.Context, to redis.Cmdable, key, body string)
	replay   func(ctx context.Context, to redis.Cmdable, key string, isLong bool)
	keys     func(key string) []string // what the record of a key lies under
	commands []string                  // sent, other than from a script

	learn func(ctx context.Context, client *redis.Client, names []string) error // what complete needs of the keys begun; nil: nothing
}

// isLong tells whether this library reads a record with a body of so many bytes by a GET.
func isLong(size int) bool { return size >= 2<<10 }

var layouts = []layout{
	{"this library", ownBegin, ownComplete, ownReplay, ownKeys, []string{"evalsha", "get"}, learnFences},
	{"a hash", hashOpen, hashClose, hashReplay, ownKeys, []string{"evalsha"}, nil},
	{"two keys with JSON", pairOpen, pairClose, pairReplay, pairKeys, []string{"evalsha"}, nil},
}

// headLines are the header lines of the answer that is kept.
var headLines = [][2]string{
	{"Content-Type", "application/json"}, {"Location", "/payments/pay_1"}, {"Etag", `"1"`},
	{"Vary", "Accept"}, {"Cache-Control", "no-store"}, {"X-Api-Version", "2026-01-01"},
}

// packed is what the engine hands to a store.
func packed(body string) []byte {
	head := packedHead()
	b := append(append(make([]byte, 0, len(head)+len(body)+checksumLength), head...), body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

const checksumLength = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// packedHead is what stands before the body, in an outcome that the engine has made.
var packedHead = sync.OnceValue(func() []byte {
	outcome := engineOutcome("")
	return outcome[:len(outcome)-checksumLength]
})

// engineOutcome is what the engine makes of an answer.
func engineOutcome(body string) []byte {
	kept := &keeper{Store: memstore.New()}
	engine, err := core.New(core.Config{Store: kept, Scope: core.SingleTenant})
	if err != nil {
		panic(err)
	}
	answer := &core.Response{Status: http.StatusCreated, Body: []byte(body)}
	for _, line := range headLines {
		answer.Header = append(answer.Header, core.Field{Name: line[0], Value: line[1]})
	}
	request := core.Request{
		Method: "POST", Path: "/",
		Header: func(string) []string { return []string{"key"} },
		Body:   func(int64) ([]byte, error) { return nil, nil },
	}
	if _, err := engine.Do(context.Background(), request, func(context.Context) (*core.Response, error) { return answer, nil }); err != nil {
		panic(err)
	}
	return kept.outcome
}

// keeper is a store that remembers the last outcome.
type keeper struct {
	driver.Store
	outcome []byte
}

func (k *keeper) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	k.outcome = outcome
	return k.Store.Complete(ctx, c, outcome)
}

// jsonBody is always the same answer of so many bytes.
func jsonBody(size int) string { return newAnswers(1).body(size) }

// claimOf is the claim that owns a key.
func claimOf(key string) *wire {
	return &wire{key: ownKeys(key)[0], owner: [16]byte{1}, fingerprint: [32]byte{1}}
}

func ownKeys(key string) []string { return []string{"idem:{" + key + "}"} }

// fences are those of the claims that ownBegin was given, by key.
var fences sync.Map

func ownBegin(ctx context.Context, to redis.Cmdable, key string) {
	_, fence, _, _ := answer(claimOf(key).begin(ctx, to))
	fences.Store(key, fence)
}

// ownReplay reads a long record by a GET behind the script, as redisstore does when it has met one.
func ownReplay(ctx context.Context, to redis.Cmdable, key string, isLong bool) {
	c := claimOf(key)
	c.owner[0]++
	c.begin(ctx, to)
	if isLong {
		to.Get(ctx, c.key)
	}
}

// ownComplete completes what ownBegin began.
func ownComplete(ctx context.Context, to redis.Cmdable, key, body string) {
	known, _ := fences.LoadAndDelete(key)
	fence, _ := known.(int64) // 0 for "not known", as of what began in a pipeline
	claimOf(key).complete(ctx, to, fence, packed(body))
}

// learnFences finds the fences of what began in a pipeline.
func learnFences(ctx context.Context, client *redis.Client, names []string) error {
	read := make([]*redis.StringCmd, len(names))
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			read[i] = p.GetRange(ctx, ownKeys(name)[0], 10, 25)
		}
		return nil
	})
	for i, name := range names {
		fence, _ := read[i].Int64() // err says whether it was read
		fences.Store(name, fence)
	}
	return err
}

// The hash has a field for each part. It has all that this library's record has.
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

func hashOpen(ctx context.Context, to redis.Cmdable, key string) {
	hashBegin.EvalSha(ctx, to, ownKeys(key), "owner-of-16-byte", strings.Repeat("f", 32), leaseMicros, retentionMillis)
}

func hashReplay(ctx context.Context, to redis.Cmdable, key string, _ bool) { hashOpen(ctx, to, key) }

func hashClose(ctx context.Context, to redis.Cmdable, key, body string) {
	hashComplete.EvalSha(ctx, to, ownKeys(key), "owner-of-16-byte", retentionMillis, packed(body))
}

// The pair is a lock beside a JSON result, without fence, attempt or takeover.
var (
	pairBegin = redis.NewScript(`
local result = redis.call('GET', KEYS[2])
if result then
  if cjson.decode(result).fingerprint ~= ARGV[2] then return {'mismatch'} end
  return {'completed', result}
end
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then return {'in-progress'} end
return {'claimed'}`)
	pairComplete = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'lost' end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
return 'ok'`)
)

const pairOwner = "0b2ef1c0-7c4e-4a53-8f6e-93ab7f5ad3a1"

var pairFingerprint = strings.Repeat("f", 64)

type pairResult struct {
	Status      int         `json:"status"`
	Header      [][2]string `json:"header"`
	Body        string      `json:"body"`
	Fingerprint string      `json:"fingerprint"`
}

func newPairResult(body []byte) []byte {
	b, _ := json.Marshal(pairResult{201, headLines, string(body), pairFingerprint}) // cannot fail
	return b
}

// newBytesResult is newPairResult by who keeps a body as bytes, whatever they are.
func newBytesResult(body []byte) []byte {
	b, _ := json.Marshal(struct { // cannot fail
		pairResult
		Body []byte `json:"body"`
	}{pairResult{Status: 201, Header: headLines, Fingerprint: pairFingerprint}, body})
	return b
}

func pairKeys(key string) []string {
	return []string{"pair:{" + key + "}:lock", "pair:{" + key + "}:result"}
}

func pairOpen(ctx context.Context, to redis.Cmdable, key string) {
	pairBegin.EvalSha(ctx, to, pairKeys(key), pairOwner, pairFingerprint, retentionMillis)
}

func pairReplay(ctx context.Context, to redis.Cmdable, key string, _ bool) { pairOpen(ctx, to, key) }

func pairClose(ctx context.Context, to redis.Cmdable, key, body string) {
	pairComplete.EvalSha(ctx, to, pairKeys(key), pairOwner, retentionMillis, newPairResult([]byte(body)))
}
