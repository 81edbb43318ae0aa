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
	"math"
	"slices"
	"strconv"
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

// Begin implements driver.Store.
func (s *Store) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	for range 3 { // a COMPLETED record may expire between the script and a GET: then the key is free
		entry, retry, err := s.begin(ctx, &c)
		if !retry {
			return entry, err
		}
	}
	return driver.Entry{}, errors.New("idem: record changed on every read")
}

// begin sends the script. Most outcomes come with its answer; one that is longer is read by a GET, since Lua would take five
// times as long for it, see docs/layout.md. Where that has happened, the next scripts have the GET behind them, in the same
// round trip. retry is true when the two did not see the same record.
func (s *Store) begin(ctx context.Context, c *driver.Claim) (entry driver.Entry, retry bool, err error) {
	q := s.beginQuery(c)
	if err = s.send(ctx, q); isSplitSlot(err) && c.LateRetry > 0 {
		q, err = s.beginSplit(ctx, c)
	}
	if err != nil {
		return driver.Entry{}, false, storeError(err)
	}
	a, err := parseBeginReply(q.status())
	if err != nil {
		return driver.Entry{}, false, err
	}
	if a.status != "completed" {
		entry, err = entryFrom(a)
		return entry, false, err
	}
	outcome, found := parseOutcome(a.rest, c)
	if a.rest == "" {
		s.pipelinedGets.Store(pipelinedGetsAfterLongRecord)
		record, err := s.longRecord(ctx, c, q)
		if err != nil {
			return driver.Entry{}, false, storeError(err)
		}
		outcome, found = parseOutcome(record, c)
	}
	entry = driver.Entry{State: driver.Completed, Outcome: outcome}
	if c.WantRemaining {
		entry.Remaining = time.Duration(a.numbers[0]) * time.Millisecond
	}
	return entry, !found, nil
}

// pipelinedGetsAfterLongRecord is how many scripts have a GET behind them after a long record.
const pipelinedGetsAfterLongRecord = 100

func (s *Store) beginQuery(c *driver.Claim) (q *query) {
	if c.LateRetry > 0 {
		q = s.newQuery(beginScript, c, tombstoneSuffix)
	} else {
		q = s.newQuery(beginScript, c)
	}
	q.fingerprint = c.Fingerprint
	q.args = append(q.args, &q.owner, &q.fingerprint, &q.lease, &q.retention, takeoverArgument(c), s.subscribedArgument(c))
	if c.WantRemaining {
		q.args = append(q.args, "1")
	}
	q.durableStatus, q.withGet = "claimed", s.pipelinedGets.Load() > 0 && s.pipelinedGets.Add(-1) >= 0
	return q
}

// longRecord returns what the GET behind the script has read, or reads now. A record that has moved to another node is read by a
// script, which follows it.
func (s *Store) longRecord(ctx context.Context, c *driver.Claim, q *query) ([]byte, error) {
	if q.withGet && !isRedirect(q.getReply.Err()) {
		return getBytes(q.getReply)
	}
	node, err := s.node(ctx, q.name)
	if err != nil {
		return nil, err
	}
	found := node.Get(ctx, q.name)
	if !isRedirect(found.Err()) {
		return getBytes(found)
	}
	record, err := s.runCommand(ctx, c, "", "GET")
	text, _ := record.(string)
	return []byte(text), err
}

// entryFrom gives begin's answers their meaning, but for completed.
func entryFrom(a beginReply) (driver.Entry, error) {
	switch n := a.numbers; a.status {
	case "claimed":
		return driver.Entry{State: driver.Claimed, Fence: n[0], Attempt: int(n[1]), Takeover: n[2] == 1, Remaining: microseconds(n[3]), Operation: n[4]}, nil
	case "in-progress":
		return driver.Entry{State: driver.InProgress, Remaining: microseconds(n[0])}, nil
	case "unknown":
		return driver.Entry{State: driver.Unknown, Fence: n[0]}, nil
	case "mismatch":
		entry := driver.Entry{State: driver.Mismatch}
		copy(entry.Fingerprint[:], a.rest)
		return entry, nil
	case "expired":
		return driver.Entry{State: driver.Expired}, nil
	}
	return driver.Entry{}, statusError(a.status)
}

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

// Checkpoint implements driver.Checkpointer.
func (s *Store) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	_, err := s.runStep(ctx, &c, step, result)
	return err
}

// Checkpoints implements driver.Checkpointer.
func (s *Store) Checkpoints(ctx context.Context, c driver.Claim) (map[string][]byte, error) {
	pairs, err := s.runStep(ctx, &c)
	if err != nil {
		return nil, err
	}
	kept := make(map[string][]byte, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		kept[pair[0]] = []byte(pair[1])
	}
	return kept, nil
}

// runStep runs the step script and returns what follows its word.
func (s *Store) runStep(ctx context.Context, c *driver.Claim, stepAndResult ...any) ([]string, error) {
	q := s.newQuery(stepScript, c, stepsSuffix).withOwner()
	q.args = append(append(q.args, &q.retention), stepAndResult...)
	err := s.send(ctx, q)
	var answer []string
	switch {
	case err == nil:
		answer, err = q.reply.StringSlice()
	case isSplitSlot(err):
		answer, err = s.runStepSplit(ctx, c, stepAndResult...)
	}
	if err != nil {
		return nil, storeError(err)
	}
	if len(answer)%2 == 0 {
		return nil, fmt.Errorf("idem: step answered %d values", len(answer))
	}
	return answer[1:], statusError(answer[0])
}

// beginReply is begin's: a word, whole numbers, and of two words bytes of a record.
type beginReply struct {
	status  string
	numbers [5]int64
	rest    string
}

// parseBeginReply takes begin's answer apart.
func parseBeginReply(text string) (a beginReply, err error) {
	if text != "" && text[0] >= '0' && text[0] <= '9' { // a record's format
		return beginReply{status: "completed", rest: text}, nil
	}
	a.status, a.rest, _ = strings.Cut(text, " ")
	for i := range numberCount(a.status) {
		var number string
		number, a.rest, _ = strings.Cut(a.rest, " ")
		if a.numbers[i], err = strconv.ParseInt(number, 10, 64); err != nil {
			return beginReply{}, fmt.Errorf("idem: begin answered %q", text)
		}
	}
	isShort := a.status == "mismatch" && len(a.rest) != len(driver.Claim{}.Fingerprint)
	isLong := a.status != "mismatch" && a.status != "completed" && a.rest != ""
	if isShort || isLong {
		return beginReply{}, fmt.Errorf("idem: begin answered %q", text)
	}
	return a, nil
}

// numberCount is how many numbers come behind a word.
func numberCount(word string) int {
	switch word {
	case "claimed":
		return 5
	case "in-progress", "unknown", "completed":
		return 1
	}
	return 0
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

// takeoverArgument is what begin may take over: any claim, none, or one.
func takeoverArgument(c *driver.Claim) any {
	if c.NoTakeover {
		return c.TakeoverFence
	}
	return "1"
}

// subscribedArgument is how the record of a run that c waits for is to tell.
func (s *Store) subscribedArgument(c *driver.Claim) any {
	switch {
	case !c.Subscribed:
		return "0"
	case s.notifier.sharded():
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
func milliseconds(d time.Duration) int64 {
	return max(1, int64((min(d, math.MaxInt64-time.Millisecond)+time.Millisecond-1)/time.Millisecond))
}

// longestLease is the longest whose end a record has room for, and Lua's numbers are exact to the µs.
const longestLease = 100 * 365 * 24 * time.Hour
