// Package redisstore keeps records in Redis 5.0 or later, or in Valkey: on a single server, behind Sentinel, or in a Cluster,
// whichever the client connects to. Package lua has the scripts that change the records; each script is atomic.
//
// Set ContextTimeoutEnabled in the options of the client. Without it go-redis ignores the deadlines of contexts, and a dead
// server delays a request by ReadTimeout times the client's retries, instead of by Config.Limits.StoreTimeout.
//
// # What is in Redis
//
// A record is one string, whose layout lua/record.lua documents. Its Redis key is the prefix and, in braces, the name of the
// record. A tombstone is an empty string, and the results of steps are a hash; their keys are that of the record with a
// suffix. The braces place all three in one slot of a Cluster, so that one script can change them.
//
// The retention is the TTL of the key, in milliseconds. The lease is no TTL, since a record outlives its lease: its end is a
// field of the record, in microseconds, on the clock of the server that executes the script. A claim that a plain SET
// has made has durations in place of times, since SET cannot write the time: see [Scripts].
//
// # Atomicity
//
// One script, or one SET, is one atomic step. What is pipelined with it is not part of the step: a GET, a PEXPIRETIME or a
// WAIT may run after a later change of the record. So the store checks that a record which GET has read is that of the request.
//
// go-redis sends a command again after some errors of the connection. A script may therefore be executed twice, and
// recognises its own first execution.
//
// # Errors
//
// An error of package driver is a fact about the record, or says with driver.ErrNotDurable that the write was executed, and
// that too few servers have confirmed it. Another error with which the server has replied, such as READONLY, means that it
// has refused the call. After all other errors, such as a timeout or a broken connection, nobody knows whether the call was
// executed.
//
// # Failover and resharding
//
// Redis replicates asynchronously, so a replica that becomes the primary may lack the last writes: a claim or an outcome is
// then gone, and its key may run again. [WaitReplicas] and [WaitAOF] make that rarer. Leases go on by the clock of the new
// primary. A server that does not know the scripts yet gets their text. While a slot of a Cluster moves, the store follows
// MOVED and ASK, and sends commands for one key each where a script would need the keys of two nodes.
package redisstore

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/lua"
)

// The scripts that the store sends. Each is hashed once, when the program starts. A call sends the hash (EVALSHA), and the
// text only to a server that does not know the hash.
var (
	beginScript    = newScript(lua.Begin)
	extendScript   = newScript(lua.Extend)
	completeScript = newScript(lua.Complete)
	failScript     = newScript(lua.Fail)
	stepScript     = newScript(lua.Step)
	reopenScript   = newScript(lua.Reopen)
	stepsScript    = newScript(lua.Steps)
	commandScript  = newScript(lua.Command)
	lookScript     = newScript(lua.Look)
	forgetScript   = newScript(lua.Forget)
)

// Store is a driver.Store in Redis. It has all optional abilities of package driver but sessions. Each call is one round
// trip, except for Scan, the first read of a long outcome, redirects, calls while a slot of a Cluster moves, and calls that a
// plain command could not decide: see [Scripts]. Every Redis key that the store writes has a TTL. A Store is safe for
// concurrent use: its fields are set by New, are atomic, or have a mutex of their own.
type Store struct {
	client     redis.UniversalClient
	prefix     string
	durability durability
	batches    *batches // nil when Batch is off
	notifier   *notifier
	dials      dials

	// pipelinedGets counts the next calls of Begin that pipeline a GET with the script, because a recent record was too long
	// to return from Lua.
	pipelinedGets atomic.Int32

	plainBegin, plainComplete ability      // whether the server has the commands of beginNative and completeNative
	claims                    atomic.Int64 // how many beginNative has tried to make
	replays                   atomic.Int32 // how many replays it has found in a row; more than replaysOfBurst are not counted
}

// Option changes a Store. Pass options to New and Check.
type Option func(*Store)

// Prefix sets the text that begins the name of every Redis key. Services with different prefixes share no records. Default
// "idem:". A Cluster places keys by the text in the first braces: a prefix such as "{pay}:" puts all records into one slot, so on
// one master, and one whose first braces are empty would put a record and its steps into different slots, so New refuses it.
func Prefix(p string) Option { return func(s *Store) { s.prefix = p } }

// New returns a store that uses client, and adds a hook to it that sees why the client cannot connect. Call New once for a
// client and these options. The caller closes the client after its last use. New accepts a *redis.Client, with or without
// Sentinel, and a *redis.ClusterClient. It panics if client is nil or an option is not valid. It also panics for a
// *redis.Ring: a Ring moves the keys of an unavailable shard to another shard, where their requests would run again. The hook
// wraps connection attempts only, and stays in the client for good.
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
	if _, ok := client.(*redis.ClusterClient); ok && hasEmptyTag(s.prefix) {
		panic("redisstore: New: the first braces of Prefix are empty, so a Cluster would put a record and its steps into different slots")
	}
	s.durability.validate()
	s.dials.observe(client)
	if s.durability.enabled() { // one slow replica would delay whole batches
		s.batches = nil
	}
	return s
}

// hasEmptyTag reports whether the first braces of a prefix are empty: a Cluster then places a key by all of its name.
func hasEmptyTag(prefix string) bool {
	_, behind, _ := strings.Cut(prefix, "{")
	return strings.HasPrefix(behind, "}")
}

// recordName returns the Redis key of a record: the prefix and the name in braces. Cluster places keys by the text in the first
// braces, so the record shares its slot with its tombstone and its steps.
func (s *Store) recordName(key [32]byte) string {
	var array [64]byte // long enough for most names
	name := append(append(array[:0], s.prefix...), '{')
	return string(append(driver.AppendRecordName(name, key), '}'))
}

// The suffixes of the extra keys of a record: its tombstone and the results of its steps.
const (
	tombstoneSuffix = ":late"
	stepsSuffix     = ":steps"
)

// Extend implements driver.Store. The lease counts in µs, the retention in ms. The script names the key of the steps only if
// the run has some, so that most calls have one key, which never needs two nodes. If the two keys are on two nodes,
// extendSplit sends two calls.
func (s *Store) Extend(ctx context.Context, c driver.Claim) error {
	if c.Fence == 0 { // for the scripts 0 matches any fence, which only Fail accepts
		return driver.ErrLost
	}
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

// Complete implements driver.Store. It sends the whole record, so that the script copies no outcome. A plain SET is tried
// first, if the server has one with IFEQ. The script of a repeated Complete compares the whole record with the one that is
// stored, so it is sent again without change.
func (s *Store) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	if c.Fence == 0 {
		return driver.ErrLost
	}
	if done, err := s.completeNative(ctx, &c, outcome); done || err != nil {
		return err
	}
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

// tombstoneTTL returns how long the tombstone of c lives after Complete, in ms. 0 means that there is none.
func tombstoneTTL(c *driver.Claim) int64 {
	if c.LateRetry <= 0 {
		return 0
	}
	return milliseconds(c.Retention) + milliseconds(c.LateRetry)
}

// Fail implements driver.Store. The lease is sent too, since a withdrawal that finds no record makes one for a lease. Fail
// waits for no replica: if its record is lost in a failover, the key is free or its lease ends.
func (s *Store) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	q := s.newQuery(failScript, &c).withOwner()
	free := flag(f.NoEffects)
	if f.NotRun {
		free = "2"
	}
	return s.execute(ctx, q, &q.retention, free, f.Cause[:min(len(f.Cause), driver.MaxCauseBytes)], milliseconds(c.Lease))
}

// Reopen turns the COMPLETED record of a dead message into a FAILED one, so that the message can run again.
// core.Engine.Resolve calls it. Reopen returns driver.ErrLost if the record does not hold exactly this outcome. While the
// slot moves, the record is reopened first and the tombstone is deleted after it. If the second call fails, the caller
// repeats both.
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

// reopen sends the script with the record and these extra keys.
func (s *Store) reopen(ctx context.Context, c *driver.Claim, outcome []byte, extraKeys ...string) error {
	q := s.newQuery(reopenScript, c, extraKeys...)
	q.record, q.durableStatus = outcome, "ok"
	return s.execute(ctx, q, &q.owner, &q.retention, &q.record, "an operator revived it")
}

// execute sends q with more arguments. The script of q returns only a status. The reply is a word, so the error of the
// transport and that of the record are two steps.
func (s *Store) execute(ctx context.Context, q *query, args ...any) error {
	q.args = append(q.args, args...)
	if err := s.send(ctx, q); err != nil {
		return storeError(err)
	}
	return statusError(q.status())
}

// statusError returns the error that a script's status stands for, or nil for "ok".
func statusError(word string) error {
	switch word {
	case "ok":
		return nil
	case "lost":
		return driver.ErrLost
	case "gone":
		return driver.ErrGone
	case "unreadable":
		return driver.ErrUnreadable
	}
	return fmt.Errorf("idem: script answered %q", word)
}

// storeError wraps driver.ErrUnreadable if the Redis key holds something else than a string, which another program has
// written there. It returns every other error as it is: the server may have refused the call, or may have executed it and its
// reply was lost.
func storeError(err error) error {
	if strings.Contains(err.Error(), "WRONGTYPE") {
		return fmt.Errorf("%w: %w", driver.ErrUnreadable, err)
	}
	return err
}

// flag returns the form of a bool in script arguments and records.
func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// milliseconds rounds up, so that a retention is never shorter than requested and never 0, which Redis refuses.
func milliseconds(d time.Duration) int64 {
	return max(1, int64((min(d, math.MaxInt64-time.Millisecond)+time.Millisecond-1)/time.Millisecond))
}

// longestLease bounds leases. The end of a longer one might not fit into its 16 digits, or into the numbers of Lua, which are
// exact up to 2^53 µs.
const longestLease = 100 * 365 * 24 * time.Hour
