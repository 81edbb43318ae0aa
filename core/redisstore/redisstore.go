// Package redisstore keeps records in Redis 5.0 or later, or Valkey: a single server, Sentinel or Cluster, whatever the
// client handed in speaks to. The state machine runs in the scripts of package lua.
//
// Give the client ContextTimeoutEnabled: without it go-redis does not watch deadlines, and a dead server adds its
// ReadTimeout, times its retries, to a request instead of Config.Limits.StoreTimeout.
package redisstore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/lua"
)

var (
	beginScript    = redis.NewScript(lua.Begin)
	extendScript   = redis.NewScript(lua.Extend)
	completeScript = redis.NewScript(lua.Complete)
	failScript     = redis.NewScript(lua.Fail)
	stepScript     = redis.NewScript(lua.Step)
)

// Store is a core.Store in Redis. Each verb is one round trip. Every key it writes has a TTL.
type Store struct {
	client   redis.UniversalClient
	prefix   string
	sharded  bool // on Cluster, who publishes to all nodes wakes nobody faster
	wait     durability
	batches  *batches // nil: off
	notifier notifier
}

// Option changes a Store.
type Option func(*Store)

// Prefix begins the name of every key; services with different prefixes never meet. Default "idem:".
func Prefix(p string) Option { return func(s *Store) { s.prefix = p } }

// New returns a store on client, which stays the caller's to close. Any client does: *redis.Client, a failover client,
// *redis.ClusterClient. Not a *redis.Ring: it moves the keys of a shard that does not answer to another, where they are new.
func New(client redis.UniversalClient, opts ...Option) *Store {
	s := &Store{client: client, prefix: "idem:", notifier: notifier{subs: map[redis.UniversalClient]*subscription{}}}
	_, s.sharded = client.(*redis.ClusterClient)
	for _, opt := range opts {
		opt(s)
	}
	if client == nil {
		panic("redisstore: New: client is nil; pass redis.NewClient, redis.NewFailoverClient or redis.NewClusterClient")
	}
	if _, ok := client.(*redis.Ring); ok {
		panic("redisstore: New: a Ring moves the keys of a shard that does not answer, so they could run twice; use Cluster or Sentinel")
	}
	s.wait.validate()
	if s.wait.on() { // one slow replica would hold up whole batches
		s.batches = nil
	}
	return s
}

// name names a record. The braces are a hash tag: what lies beside the record shares its slot on Cluster.
func (s *Store) name(key [32]byte) string {
	return s.prefix + "{" + base64.RawURLEncoding.EncodeToString(key[:]) + "}"
}

const (
	tombstone = ":late"
	steps     = ":steps"
)

// Begin implements core.Store.
func (s *Store) Begin(ctx context.Context, c core.Claim) (core.Entry, error) {
	for range 3 { // a COMPLETED record may expire between the script and the GET behind it: then the key is free
		entry, again, err := s.begin(ctx, &c)
		if !again {
			return entry, err
		}
	}
	return core.Entry{}, errors.New("idem: record changed on every read")
}

// begin sends the script with a GET behind it in one round trip. The GET is for replays: an outcome that is copied through
// Lua costs the server seven times as much at 64 KiB, see docs/layout.md. again is true when the two did not see the
// same record.
func (s *Store) begin(ctx context.Context, c *core.Claim) (entry core.Entry, again bool, err error) {
	keys := make([]string, 1, 2)
	keys[0] = s.name(c.Key)
	if c.LateRetry > 0 {
		keys = append(keys, keys[0]+tombstone)
	}
	args := append(make([]any, 0, 7), c.Owner[:], c.Fingerprint[:], c.Lease.Microseconds(), milliseconds(c.Retention), takeover(c), s.waits(c))
	if c.TellLeft {
		args = append(args, "1")
	}
	q := query{script: beginScript, keys: keys, args: args, get: true, durable: "claimed"}
	if err := s.send(ctx, &q); err != nil {
		return core.Entry{}, false, storeError(err)
	}
	record, err := q.read()
	if err != nil {
		return core.Entry{}, false, storeError(err)
	}
	return entryOf(q.word(), record, c)
}

// entryOf reads begin's answer and the record behind it.
func entryOf(answer string, record []byte, c *core.Claim) (entry core.Entry, again bool, err error) {
	word, numbers, err := readAnswer(answer)
	switch {
	case err != nil:
		return core.Entry{}, false, err
	case word == "claimed":
		return core.Entry{
			State: core.Claimed, Fence: numbers[0], Attempt: int(numbers[1]), Takeover: numbers[2] == 1, Left: microseconds(numbers[3]),
		}, false, nil
	case word == "in-progress":
		return core.Entry{State: core.InProgress, Left: microseconds(numbers[0])}, false, nil
	case word == "unknown":
		return core.Entry{State: core.Unknown, Fence: numbers[0]}, false, nil
	case word == "completed":
		outcome, ok := outcomeOf(record, c)
		return core.Entry{State: core.Completed, Outcome: outcome, Left: time.Duration(numbers[0]) * time.Millisecond}, !ok, nil
	case word == "mismatch":
		fingerprint, ok := fingerprintOf(record, c)
		return core.Entry{State: core.Mismatch, Fingerprint: fingerprint}, !ok, nil
	case word == "expired":
		return core.Entry{State: core.Expired}, false, nil
	}
	return core.Entry{}, false, wordError(word)
}

// Extend implements core.Store.
func (s *Store) Extend(ctx context.Context, c core.Claim) error {
	keys := []string{s.name(c.Key)}
	if c.Steps {
		keys = append(keys, keys[0]+steps)
	}
	return s.run(ctx, &query{script: extendScript, keys: keys}, &c, c.Lease.Microseconds(), milliseconds(c.Retention))
}

// Complete implements core.Store.
func (s *Store) Complete(ctx context.Context, c core.Claim, outcome []byte) error {
	keys := []string{s.name(c.Key)}
	args := []any{milliseconds(c.Retention), completedRecord(&c, outcome)}
	if c.Steps || c.LateRetry > 0 {
		keys = append(keys, keys[0]+tombstone, keys[0]+steps)
		args = append(args, late(&c))
	}
	q := &query{script: completeScript, keys: keys}
	if s.wait.on() {
		q.durable = "ok"
	}
	return s.run(ctx, q, &c, args...)
}

// late is how long a tombstone lives.
func late(c *core.Claim) string {
	if c.LateRetry <= 0 {
		return "0"
	}
	return milliseconds(c.Retention + c.LateRetry)
}

// Fail implements core.Store.
func (s *Store) Fail(ctx context.Context, c core.Claim, f core.Failure) error {
	q := &query{script: failScript, keys: []string{s.name(c.Key)}}
	return s.run(ctx, q, &c, milliseconds(c.Retention), flag(f.Free), f.Cause[:min(len(f.Cause), 200)])
}

// run runs a script that answers with one word. Its arguments begin with owner and fence.
func (s *Store) run(ctx context.Context, q *query, c *core.Claim, args ...any) error {
	q.args = append([]any{c.Owner[:], c.Fence}, args...)
	if err := s.send(ctx, q); err != nil {
		return storeError(err)
	}
	return wordError(q.word())
}

// Checkpoint implements core.Checkpointer.
func (s *Store) Checkpoint(ctx context.Context, c core.Claim, step string, result []byte) error {
	_, err := s.steps(ctx, &c, step, result)
	return err
}

// Checkpoints implements core.Checkpointer.
func (s *Store) Checkpoints(ctx context.Context, c core.Claim) (map[string][]byte, error) {
	pairs, err := s.steps(ctx, &c)
	if err != nil {
		return nil, err
	}
	kept := make(map[string][]byte, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		kept[pair[0]] = []byte(pair[1])
	}
	return kept, nil
}

// steps runs the step script and returns what follows its word.
func (s *Store) steps(ctx context.Context, c *core.Claim, stepAndResult ...any) ([]string, error) {
	name := s.name(c.Key)
	args := append([]any{c.Owner[:], c.Fence, milliseconds(c.Retention)}, stepAndResult...)
	q := query{script: stepScript, keys: []string{name, name + steps}, args: args}
	if err := s.send(ctx, &q); err != nil {
		return nil, storeError(err)
	}
	answer, err := q.eval.StringSlice()
	if err != nil {
		return nil, err
	}
	if len(answer)%2 == 0 {
		return nil, fmt.Errorf("idem: step answered %d values", len(answer))
	}
	return answer[1:], wordError(answer[0])
}

// numbersOf is how many numbers come behind each of begin's words.
var numbersOf = map[string]int{"claimed": 4, "in-progress": 1, "unknown": 1, "completed": 1}

// readAnswer takes begin's answer apart: a word and whole numbers.
func readAnswer(answer string) (word string, numbers [4]int64, err error) {
	word, rest, _ := strings.Cut(answer, " ")
	for i := range numbersOf[word] {
		var text string
		text, rest, _ = strings.Cut(rest, " ")
		if numbers[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return "", numbers, fmt.Errorf("idem: begin answered %q", answer)
		}
	}
	if rest != "" {
		return "", numbers, fmt.Errorf("idem: begin answered %q", answer)
	}
	return word, numbers, nil
}

// wordError gives the words of the scripts their meaning.
func wordError(word string) error {
	switch word {
	case "ok":
		return nil
	case "lost":
		return core.ErrLost
	case "unreadable":
		return core.ErrUnreadable
	}
	return fmt.Errorf("idem: script answered %q", word)
}

// storeError tells a key of a foreign type from a server that can not answer.
func storeError(err error) error {
	if strings.Contains(err.Error(), "WRONGTYPE") {
		return fmt.Errorf("%w: %w", core.ErrUnreadable, err)
	}
	return err
}

// takeover is what begin may take over: any claim, none, or one.
func takeover(c *core.Claim) string {
	if c.NoTakeover {
		return strconv.FormatInt(c.Over, 10)
	}
	return "1"
}

// waits is how the record of a run that c waits for is to tell.
func (s *Store) waits(c *core.Claim) string {
	switch {
	case !c.Waits:
		return "0"
	case s.sharded:
		return "2"
	}
	return "1"
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// milliseconds rounds up: a retention is never shorter than asked for, and never the 0 that Redis refuses.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Millisecond-1)/time.Millisecond)), 10)
}
