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
)

// Store is a core.Store in Redis. Each verb is one round trip. Every key it writes has a TTL.
type Store struct {
	client redis.UniversalClient
	prefix string
}

// Option changes a Store.
type Option func(*Store)

// Prefix begins the name of every key; services with different prefixes never meet. Default "idem:".
func Prefix(p string) Option { return func(s *Store) { s.prefix = p } }

// New returns a store on client, which stays the caller's to close. Any client does: *redis.Client, a failover client,
// *redis.ClusterClient. Not a *redis.Ring: it moves the keys of a shard that does not answer to another, where they are new.
func New(client redis.UniversalClient, opts ...Option) *Store {
	s := &Store{client: client, prefix: "idem:"}
	for _, opt := range opts {
		opt(s)
	}
	if client == nil {
		panic("redisstore: New: client is nil; pass redis.NewClient, redis.NewFailoverClient or redis.NewClusterClient")
	}
	if _, ok := client.(*redis.Ring); ok {
		panic("redisstore: New: a Ring moves the keys of a shard that does not answer, so they could run twice; use Cluster or Sentinel")
	}
	return s
}

// key names a record. The braces are a hash tag: what may come to lie beside the record shares its slot on Cluster.
func (s *Store) key(c *core.Claim) string {
	return s.prefix + "{" + base64.RawURLEncoding.EncodeToString(c.Key[:]) + "}"
}

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
	key := s.key(c)
	reply, record, err := s.evalAndGet(ctx, beginScript, key,
		c.Owner[:], c.Fingerprint[:], c.Lease.Microseconds(), milliseconds(c.Retention), takeover(c))
	if err != nil {
		return core.Entry{}, false, storeError(err)
	}
	word, numbers, err := readReply(reply)
	switch {
	case err != nil:
		return core.Entry{}, false, err
	case word == "claimed" && len(numbers) == 4:
		return core.Entry{
			State: core.Claimed, Fence: numbers[0], Attempt: int(numbers[1]), Takeover: numbers[2] == 1, Left: microseconds(numbers[3]),
		}, false, nil
	case word == "in-progress" && len(numbers) == 1:
		return core.Entry{State: core.InProgress, Left: microseconds(numbers[0])}, false, nil
	case word == "unknown" && len(numbers) == 1:
		return core.Entry{State: core.Unknown, Fence: numbers[0]}, false, nil
	case word == "completed":
		outcome, ok := outcomeOf(record, c)
		return core.Entry{State: core.Completed, Outcome: outcome}, !ok, nil
	}
	return bareEntry(word)
}

// bareEntry is the entry for a word that comes alone.
func bareEntry(word string) (core.Entry, bool, error) {
	switch word {
	case "mismatch":
		return core.Entry{State: core.Mismatch}, false, nil
	}
	return core.Entry{}, false, wordError(word)
}

// Extend implements core.Store.
func (s *Store) Extend(ctx context.Context, c core.Claim) error {
	return s.run(ctx, extendScript, &c, c.Lease.Microseconds(), milliseconds(c.Retention))
}

// Complete implements core.Store.
func (s *Store) Complete(ctx context.Context, c core.Claim, outcome []byte) error {
	return s.run(ctx, completeScript, &c, milliseconds(c.Retention), completedRecord(&c, outcome))
}

// Fail implements core.Store.
func (s *Store) Fail(ctx context.Context, c core.Claim, f core.Failure) error {
	return s.run(ctx, failScript, &c, milliseconds(c.Retention), flag(f.Free), f.Cause[:min(len(f.Cause), 200)])
}

// run runs a script that answers with one word. Its arguments begin with owner and fence.
func (s *Store) run(ctx context.Context, script *redis.Script, c *core.Claim, args ...any) error {
	args = append([]any{c.Owner[:], c.Fence}, args...)
	word, err := script.Run(ctx, s.client, []string{s.key(c)}, args...).Text()
	if err != nil {
		return storeError(err)
	}
	return wordError(word)
}

// evalAndGet runs script and reads key behind it, in one pipeline. A server that does not know the script, such as a
// replica that was just promoted, gets its text in a second one.
func (s *Store) evalAndGet(ctx context.Context, script *redis.Script, key string, args ...any) (reply any, record []byte, err error) {
	keys := []string{key}
	eval, get := s.pipeline(ctx, func(p redis.Pipeliner) *redis.Cmd { return script.EvalSha(ctx, p, keys, args...) }, key)
	if redis.HasErrorPrefix(eval.Err(), "NOSCRIPT") {
		eval, get = s.pipeline(ctx, func(p redis.Pipeliner) *redis.Cmd { return script.Eval(ctx, p, keys, args...) }, key)
	}
	if err := eval.Err(); err != nil {
		return nil, nil, err
	}
	record, err = get.Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, nil, err
	}
	return eval.Val(), record, nil
}

func (s *Store) pipeline(ctx context.Context, eval func(redis.Pipeliner) *redis.Cmd, key string) (*redis.Cmd, *redis.StringCmd) {
	p := s.client.Pipeline()
	cmd, get := eval(p), p.Get(ctx, key)
	_, _ = p.Exec(ctx) // each command has its own error
	return cmd, get
}

// readReply takes begin's answer apart: a word and whole numbers.
func readReply(reply any) (word string, numbers []int64, err error) {
	values, ok := reply.([]any)
	if !ok || len(values) == 0 {
		return "", nil, fmt.Errorf("idem: begin answered %T", reply)
	}
	word, _ = values[0].(string)
	for _, v := range values[1:] {
		n, ok := v.(int64)
		if !ok {
			return "", nil, fmt.Errorf("idem: begin answered %s with a %T", word, v)
		}
		numbers = append(numbers, n)
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

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// milliseconds rounds up: a retention is never shorter than asked for.
func milliseconds(d time.Duration) string {
	n := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		n++
	}
	return strconv.FormatInt(n, 10)
}
