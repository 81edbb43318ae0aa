// Package redisstore keeps records in Redis 5.0 or later, or Valkey: a single server, Sentinel or Cluster, whatever the
// client handed in speaks to. The state machine runs in the scripts of package lua.
//
// Give the client ContextTimeoutEnabled: without it go-redis does not watch deadlines, and a dead server adds its
// ReadTimeout, times its retries, to a request instead of Config.Limits.StoreTimeout.
package redisstore

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/lua"
)

var (
	beginScript    = newScript(lua.Begin)
	extendScript   = newScript(lua.Extend)
	completeScript = newScript(lua.Complete)
	failScript     = newScript(lua.Fail)
	stepScript     = newScript(lua.Step)
	reopenScript   = newScript(lua.Reopen)
	stepsScript    = newScript(lua.Steps)
	commandScript  = newScript(lua.Command)
)

// Store is a driver.Store in Redis. Each verb is one round trip. Every key it writes has a TTL.
type Store struct {
	client        redis.UniversalClient
	prefix        string
	durability    durability
	batches       *batches     // nil: off
	pipelinedGets atomic.Int32 // scripts that are to have a GET behind them
	notifier      *notifier
}

// Option changes a Store.
type Option func(*Store)

// Prefix begins the name of every key; services with different prefixes never meet. Default "idem:".
func Prefix(p string) Option { return func(s *Store) { s.prefix = p } }

// New returns a store on client, which stays the caller's to close. Any client does: *redis.Client, a failover client,
// *redis.ClusterClient. Not a *redis.Ring: it moves the keys of a shard that does not answer to another, where they are new.
func New(client redis.UniversalClient, opts ...Option) *Store {
	s := &Store{client: client, prefix: "idem:", notifier: newNotifier(client)}
	for _, opt := range opts {
		opt(s)
	}
	if client == nil {
		panic("redisstore: New: client is nil; pass redis.NewClient, redis.NewFailoverClient or redis.NewClusterClient")
	}
	if _, ok := client.(*redis.Ring); ok {
		panic("redisstore: New: a Ring moves the keys of a shard that does not answer, so they could run twice; use Cluster or Sentinel")
	}
	s.durability.validate()
	if s.durability.enabled() { // one slow replica would hold up whole batches
		s.batches = nil
	}
	return s
}

// recordName names a record. The braces are a hash tag: what lies beside the record shares its slot on Cluster.
func (s *Store) recordName(key [32]byte) string {
	var memory [64]byte // what most names do with
	name := append(append(memory[:0], s.prefix...), '{')
	return string(append(base64.RawURLEncoding.AppendEncode(name, key[:]), '}'))
}

const (
	tombstoneSuffix = ":late"
	stepsSuffix     = ":steps"
)

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, c driver.Claim) error {
	var extraKeys []string
	if c.Steps {
		extraKeys = []string{stepsSuffix}
	}
	q := s.newQuery(extendScript, &c, extraKeys...).withOwner()
	err := s.execute(ctx, q, &q.lease, &q.retention)
	if isSplitSlot(err) && c.Steps {
		return s.extendSplit(ctx, c)
	}
	return err
}

// Complete implements driver.Store.
func (s *Store) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	var extraKeys []string
	if c.Steps || c.LateRetry > 0 {
		extraKeys = []string{tombstoneSuffix, stepsSuffix}
	}
	q := s.newQuery(completeScript, &c, extraKeys...).withOwner()
	q.record, q.durableStatus = completedRecord(&c, outcome), "ok"
	q.args = append(q.args, &q.retention, &q.record)
	if extraKeys != nil {
		q.args = append(q.args, tombstoneTTL(&c))
	}
	err := s.execute(ctx, q)
	if isSplitSlot(err) && extraKeys != nil {
		return s.completeSplit(ctx, c, outcome)
	}
	return err
}

// tombstoneTTL is how long a tombstone lives, ms.
func tombstoneTTL(c *driver.Claim) int64 {
	if c.LateRetry <= 0 {
		return 0
	}
	return milliseconds(c.Retention) + milliseconds(c.LateRetry)
}

// Fail implements driver.Store.
func (s *Store) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	q := s.newQuery(failScript, &c).withOwner()
	free := flag(f.NoEffects)
	if f.NotRun {
		free = "2"
	}
	return s.execute(ctx, q, &q.retention, free, f.Cause[:min(len(f.Cause), 200)], milliseconds(c.Lease))
}

// Reopen lets a message that is dead, which is what its outcome says, be handled again: see core.Engine.Resolve. It returns
// driver.ErrLost when the key has another outcome, or none.
func (s *Store) Reopen(ctx context.Context, c driver.Claim, outcome []byte) error {
	err := s.reopen(ctx, &c, outcome, tombstoneSuffix)
	if !isSplitSlot(err) {
		return err
	}
	if err = s.reopen(ctx, &c, outcome); err == nil {
		_, err = s.runCommand(ctx, &c, tombstoneSuffix, "DEL")
	}
	return err
}

func (s *Store) reopen(ctx context.Context, c *driver.Claim, outcome []byte, extraKeys ...string) error {
	q := s.newQuery(reopenScript, c, extraKeys...)
	q.record, q.durableStatus = outcome, "ok"
	return s.execute(ctx, q, &q.owner, &q.retention, &q.record, "an operator revived it")
}

// execute runs a script that answers with one word.
func (s *Store) execute(ctx context.Context, q *query, args ...any) error {
	q.args = append(q.args, args...)
	if err := s.send(ctx, q); err != nil {
		return storeError(err)
	}
	return statusError(q.status())
}

// statusError gives the words of the scripts their meaning.
func statusError(word string) error {
	switch word {
	case "ok":
		return nil
	case "lost":
		return driver.ErrLost
	case "unreadable":
		return driver.ErrUnreadable
	}
	return fmt.Errorf("idem: script answered %q", word)
}

// storeError tells a key of a foreign type from a server that can not answer.
func storeError(err error) error {
	if strings.Contains(err.Error(), "WRONGTYPE") {
		return fmt.Errorf("%w: %w", driver.ErrUnreadable, err)
	}
	return err
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// milliseconds rounds up: a retention is never shorter than asked for, and never the 0 that Redis refuses.
func milliseconds(d time.Duration) int64 {
	return max(1, int64((min(d, math.MaxInt64-time.Millisecond)+time.Millisecond-1)/time.Millisecond))
}

// longestLease is the longest whose end a record has room for, and Lua's numbers are exact to the µs.
const longestLease = 100 * 365 * 24 * time.Hour
