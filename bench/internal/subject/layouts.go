package subject

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
)

// Layout is one way to lay a record out, as commands to a server or to a pipeline.
type Layout struct {
	Name     string
	Keys     func(key string) []string // the Redis keys of a record
	Kept     func(body string) []byte  // what Complete stores of a response with a body
	Begin    func(ctx context.Context, to redis.Cmdable, key string)
	Complete func(ctx context.Context, to redis.Cmdable, key string, kept []byte)
	Replay   func(ctx context.Context, to redis.Cmdable, key string, size int)

	GetsFrom int // from this length of a body on, a replay is a script and a GET; 0: never
}

// longBytes is the length of a body from which on this library reads a record by a GET.
const longBytes = 2 << 10

// Layouts are this library's layout and one that people write.
var Layouts = []Layout{
	{"this library", Own, Packed, ownBegin, ownComplete, ownReplay, longBytes},
	{"two keys with JSON", pairKeys, pairOutcome, beginPair, completePair, replayPair, 0},
}

// headFields are the header fields of the response that is kept.
var headFields = [][2]string{
	{"Content-Type", "application/json"}, {"Location", "/payments/pay_1"}, {"Etag", `"1"`},
	{"Vary", "Accept"}, {"Cache-Control", "no-store"}, {"X-Api-Version", "2026-01-01"},
}

// Packed returns the outcome that the engine hands to a store for a response with headFields and a body.
func Packed(body string) []byte {
	kept := &keeper{Store: memstore.New()}
	engine, err := core.New(core.Config{Store: kept, Scope: core.SingleTenant})
	if err != nil {
		panic(err)
	}
	response := &core.Response{Status: http.StatusCreated, Body: []byte(body)}
	for _, field := range headFields {
		response.Header = append(response.Header, core.Field{Name: field[0], Value: field[1]})
	}
	request := core.Request{
		Method: "POST", Path: "/",
		Header: func(string) []string { return []string{"key"} },
		Body:   func(int64) ([]byte, error) { return nil, nil },
	}
	run := func(context.Context) (*core.Response, error) { return response, nil }
	if _, err := engine.Do(context.Background(), request, run); err != nil {
		panic(err)
	}
	return kept.outcome
}

// keeper is a store that remembers the last outcome.
type keeper struct {
	driver.Store
	outcome []byte
}

// Complete remembers the outcome and stores it.
func (k *keeper) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	k.outcome = outcome
	return k.Store.Complete(ctx, c, outcome)
}

// Body returns the same response body of a size in bytes at every call.
func Body(size int) string { return NewBodies(1).Next(size) }

// ClaimOf returns the claim that owns a key of this library's layout.
func ClaimOf(key string) *Claim {
	return &Claim{key: Own(key)[0], owner: [16]byte{1}, fingerprint: [32]byte{1}}
}

// Own returns the Redis keys of a record in this library's layout.
func Own(key string) []string { return []string{"idem:{" + key + "}"} }

// begun are the results of begin scripts by key, for ownComplete. That of a call in a pipeline is there when the pipeline is.
var begun sync.Map

// ownBegin begins a record and remembers the result.
func ownBegin(ctx context.Context, to redis.Cmdable, key string) {
	begun.Store(key, ClaimOf(key).Begin(ctx, to))
}

// ownComplete completes what ownBegin began.
func ownComplete(ctx context.Context, to redis.Cmdable, key string, kept []byte) {
	result, _ := begun.LoadAndDelete(key)
	_, fence, _, _ := ParseBegin(result.(*redis.Cmd)) // serverTime has counted failed calls
	ClaimOf(key).Complete(ctx, to, fence, kept)
}

// ownReplay reads a long record by a GET after the script, as redisstore does when it has met one.
func ownReplay(ctx context.Context, to redis.Cmdable, key string, size int) {
	c := ClaimOf(key)
	c.owner[0]++
	c.Begin(ctx, to)
	if size >= longBytes {
		to.Get(ctx, c.key)
	}
}

// The two keys are a lock and a JSON result, without fence, attempt or takeover.
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

// The owner and the fingerprint of every record in two keys have the lengths that people use: a UUID and SHA-256 in hex.
const pairOwner = "0b2ef1c0-7c4e-4a53-8f6e-93ab7f5ad3a1"

var pairFingerprint = strings.Repeat("f", 64)

// pairResult is the JSON of a result.
type pairResult struct {
	Status      int         `json:"status"`
	Header      [][2]string `json:"header"`
	Body        string      `json:"body"`
	Fingerprint string      `json:"fingerprint"`
}

// pairOutcome is the JSON result of two keys for a body.
func pairOutcome(body string) []byte {
	b, _ := json.Marshal(pairResult{201, headFields, body, pairFingerprint}) // cannot fail
	return b
}

// pairKeys returns the Redis keys of the lock and of the result.
func pairKeys(key string) []string {
	return []string{"pair:{" + key + "}:lock", "pair:{" + key + "}:result"}
}

// beginPair begins a record in the layout of two keys.
func beginPair(ctx context.Context, to redis.Cmdable, key string) {
	pairBegin.EvalSha(ctx, to, pairKeys(key), pairOwner, pairFingerprint, retentionMillis)
}

// completePair completes a record in the layout of two keys.
func completePair(ctx context.Context, to redis.Cmdable, key string, kept []byte) {
	pairComplete.EvalSha(ctx, to, pairKeys(key), pairOwner, retentionMillis, kept)
}

// replayPair begins a record that is complete; the script returns the result.
func replayPair(ctx context.Context, to redis.Cmdable, key string, _ int) { beginPair(ctx, to, key) }
