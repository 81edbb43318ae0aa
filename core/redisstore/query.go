package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/driver"
)

// script is one script of package lua: its text, and its SHA-1, by which EVALSHA names it. Both are ready to be arguments of
// a command.
type script struct{ text, hash any }

// newScript hashes the text of a script.
func newScript(text string) *script { return &script{text, redis.NewScript(text).Hash()} }

// query is one script or one plain command on one record, with the commands that are pipelined with it. Each call of the store
// makes one query, or another one if the first changed nothing. The arguments point into the query, because a value in an
// interface would be a copy on the heap. One goroutine at a time uses a query: its caller, or the batch that sends it. After
// an early end of the caller in a batch it belongs to the batch.
type query struct {
	script        *script // nil for a plain command
	name          string  // Redis key of the record
	owner         ownerArgument
	fingerprint   fingerprintArgument
	fence         int64
	lease         int64 // µs
	retention     int64 // ms
	record        bytesArgument
	args          []any  // of the command: EVALSHA, the script, the number of keys, the keys, and the script's own arguments; or a plain command
	second        any    // a command that reads the record or its expiry, pipelined behind the first; nil for none
	asking        bool   // send ASKING first: the node has the record, but not yet its slot
	durableStatus string // a reply that begins so must be as safe as WaitReplicas demands; "" for none

	reply       *redis.Cmd // of the script or the plain command
	secondReply *redis.Cmd // of the second command; nil if there was none
	waitReply   *redis.Cmd // of the WAIT or WAITAOF; nil if there was none
	argsArray   [12]any    // memory for args
	secondArgs  [2]any     // memory for the arguments of the second command

	// Only in a batch:
	deadline time.Time     // of the caller's context; zero if it has none
	done     chan struct{} // closed when the reply is there
}

// newQuery returns a query with the record of c as its first key. The other keys have the record's name and these suffixes.
func (s *Store) newQuery(script *script, c *driver.Claim, extraKeys ...string) *query {
	q := s.newQueryOf(c)
	q.script = script
	q.args = append(q.argsArray[:0], "evalsha", script.hash, 1+len(extraKeys), q.name)
	for _, key := range extraKeys {
		q.args = append(q.args, q.name+key)
	}
	return q
}

// newQueryOf returns a query without a command.
func (s *Store) newQueryOf(c *driver.Claim) *query {
	q := &query{name: s.recordName(c.Key), owner: c.Owner, fence: c.Fence}
	q.lease, q.retention = min(c.Lease, longestLease).Microseconds(), milliseconds(c.Retention)
	return q
}

// withOwner appends owner and fence, with which the arguments of every call except Begin start.
func (q *query) withOwner() *query {
	q.args = append(q.args, &q.owner, &q.fence)
	return q
}

// These types let go-redis read an argument through a pointer, without a copy of the value on the heap. Measured on Begin, that
// saves 14 allocations.
type (
	ownerArgument       [16]byte
	fingerprintArgument [32]byte
	bytesArgument       []byte
)

// MarshalBinary implements encoding.BinaryMarshaler.
func (a *ownerArgument) MarshalBinary() ([]byte, error) { return a[:], nil }

// MarshalBinary implements encoding.BinaryMarshaler.
func (a *fingerprintArgument) MarshalBinary() ([]byte, error) { return a[:], nil }

// MarshalBinary implements encoding.BinaryMarshaler.
func (a *bytesArgument) MarshalBinary() ([]byte, error) { return *a, nil }

// enqueue adds the commands of q to a pipeline: the first, then the second and the wait for replicas if q has them. A
// pipeline keeps their order, and the server executes them one after the other; other clients may come between them.
func (q *query) enqueue(ctx context.Context, p redis.Pipeliner, d durability) {
	q.enqueueAsking(ctx, p)
	_ = p.Process(ctx, q.newCommand(ctx))
	if q.second != nil {
		q.enqueueAsking(ctx, p)
		q.secondArgs = [2]any{q.second, q.firstKey()}
		q.secondReply = redis.NewCmd(ctx, q.secondArgs[:]...)
		_ = p.Process(ctx, q.secondReply)
	}
	if d.enabled() && q.durableStatus != "" {
		q.waitReply = d.enqueue(ctx, p)
	}
}

// enqueueAsking adds an ASKING if q needs one. It counts for the next command only.
func (q *query) enqueueAsking(ctx context.Context, p redis.Pipeliner) {
	if q.asking {
		_ = p.Process(ctx, redis.NewCmd(ctx, "asking"))
	}
}

// firstKey returns the name of the record as it is among the arguments, which saves a copy.
func (q *query) firstKey() any {
	if q.script == nil {
		return q.args[1]
	}
	return q.args[3]
}

// newCommand makes the first command. A script stays a *redis.Cmd, which hooks of the client may look for.
func (q *query) newCommand(ctx context.Context) redis.Cmder {
	q.reply = redis.NewCmd(ctx, q.args...)
	if q.script == nil {
		return mayBeNil{q.reply}
	}
	return q.reply
}

// mayBeNil is a plain command, of which a reply without a value is no error: SET with NX and GET has found no record and has made one, SET
// with IFEQ has found another record than it compares with, and GET none. For go-redis such a reply is an error, which it
// classifies with 17 allocations.
type mayBeNil struct{ *redis.Cmd }

// SetErr implements redis.Cmder. A reply without a value also replaces the error of an earlier try of the client.
func (c mayBeNil) SetErr(err error) {
	if err == redis.Nil {
		err = nil
	}
	c.Cmd.SetErr(err)
}

// send sends q, in a batch or alone, and follows redirects. It returns the error of the script, or driver.ErrNotDurable if
// too few servers have the write. The error of a call whose time is over says why the client cannot connect, if that is known.
func (s *Store) send(ctx context.Context, q *query) error {
	began := time.Now()
	return s.dials.explain(s.sendToNode(ctx, q), began)
}

// sendToNode is send without the reason of an error. Alone, and without a wait for replicas, the query goes through the
// client, which follows redirects by itself. A batch and a WAIT must go to one server, so the store chooses the node, and
// resend follows what that node replies.
func (s *Store) sendToNode(ctx context.Context, q *query) error {
	node, err := s.client, error(nil)
	if s.durability.enabled() || s.batches != nil {
		if node, err = s.node(ctx, q.name); err != nil {
			return err
		}
	}
	err = s.exchange(ctx, node, q)
	if err != nil && (redis.HasErrorPrefix(err, "NOSCRIPT") || isRedirect(err)) {
		err = s.resend(ctx, node, q, err)
	}
	// Only a write must be durable: a Begin that found a run in progress has written nothing that counts.
	if err != nil || q.waitReply == nil || !strings.HasPrefix(q.status(), q.durableStatus) {
		return err
	}
	return s.durability.check(q.waitReply)
}

// exchange sends q to a node, in a batch or alone, and returns the error of the script.
func (s *Store) exchange(ctx context.Context, node redis.UniversalClient, q *query) error {
	if s.batches != nil {
		return s.batches.forNode(node).send(ctx, q)
	}
	return q.roundTrip(ctx, node, s.durability)
}

// roundTrip sends q alone: as one command if that is all, otherwise as a pipeline.
func (q *query) roundTrip(ctx context.Context, node redis.UniversalClient, d durability) error {
	if q.second == nil && !q.asking && (q.durableStatus == "" || !d.enabled()) {
		_ = node.Process(ctx, q.newCommand(ctx)) // the command keeps its own error
		return q.reply.Err()
	}
	p := node.Pipeline()
	q.enqueue(ctx, p, d)
	_, _ = p.Exec(ctx) // each command keeps its own error
	return q.reply.Err()
}

// statusClaimed begins what lua/begin.lua replies to the owner of a claim.
const statusClaimed = "claimed"

// status returns the reply if that is one string, otherwise "". A SET with GET that found no record has claimed it.
func (q *query) status() string {
	if q.script == nil && q.second != nil && q.reply.Val() == nil {
		return statusClaimed
	}
	status, _ := q.reply.Val().(string)
	return status
}

// getText returns the record that a GET has read, or "" if there was none.
func getText(found *redis.Cmd) (string, error) {
	record, err := found.Text()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return record, err
}
