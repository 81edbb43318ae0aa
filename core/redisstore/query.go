package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/driver"
)

// script is one script of package lua: its text and its SHA-1, both ready to be arguments of a command.
type script struct{ text, hash any }

// newScript hashes the text of a script.
func newScript(text string) *script { return &script{text, redis.NewScript(text).Hash()} }

// query is one script on one record, with the commands that are pipelined with it. Each call of the store makes one query. The
// arguments point into the query, because a value in an interface would be a copy on the heap.
type query struct {
	script        *script
	name          string // Redis key of the record
	owner         ownerArgument
	fingerprint   fingerprintArgument
	fence         int64
	lease         int64 // µs
	retention     int64 // ms
	record        bytesArgument
	args          []any  // of the command: EVALSHA, the script, the number of keys, the keys, and the script's own arguments
	withGet       bool   // pipeline a GET of the record
	asking        bool   // send ASKING first: the node has the record, but not yet its slot
	durableStatus string // a reply that begins so must be as safe as WaitReplicas demands; "" for none

	reply     *redis.Cmd       // of the script
	getReply  *redis.StringCmd // of the GET; nil if there was none
	waitReply *redis.Cmd       // of the WAIT or WAITAOF; nil if there was none
	argsArray [12]any          // memory for args

	// Only in a batch:
	deadline time.Time     // of the caller's context; zero if it has none
	done     chan struct{} // closed when the reply is there
}

// newQuery returns a query with the record of c as its first key. The other keys have the record's name and these suffixes.
func (s *Store) newQuery(script *script, c *driver.Claim, extraKeys ...string) *query {
	q := &query{script: script, name: s.recordName(c.Key), owner: c.Owner, fence: c.Fence}
	q.lease, q.retention = min(c.Lease, longestLease).Microseconds(), milliseconds(c.Retention)
	q.args = append(q.argsArray[:0], "evalsha", script.hash, 1+len(extraKeys), q.name)
	for _, key := range extraKeys {
		q.args = append(q.args, q.name+key)
	}
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

// enqueue adds the commands of q to a pipeline: the script, then the GET and the wait for replicas if q has them.
func (q *query) enqueue(ctx context.Context, p redis.Pipeliner, d durability) {
	q.enqueueAsking(ctx, p)
	_ = p.Process(ctx, q.newCommand(ctx))
	if q.withGet {
		q.enqueueAsking(ctx, p)
		q.getReply = p.Get(ctx, q.name)
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

// newCommand makes the command of the script. Its first key is its fourth argument, which Cluster clients need to know.
func (q *query) newCommand(ctx context.Context) *redis.Cmd {
	q.reply = redis.NewCmd(ctx, q.args...)
	q.reply.SetFirstKeyPos(3)
	return q.reply
}

// send sends q, in a batch or alone, and follows redirects. It returns the error of the script, or driver.ErrNotDurable if
// too few servers have the write. The error of a call whose time is over says why the client cannot connect, if that is known.
func (s *Store) send(ctx context.Context, q *query) error {
	began := time.Now()
	return s.dials.explain(s.sendToNode(ctx, q), began)
}

// sendToNode is send without the reason of an error.
func (s *Store) sendToNode(ctx context.Context, q *query) error {
	node, err := s.client, error(nil)
	if s.durability.enabled() || s.batches != nil {
		if node, err = s.node(ctx, q.name); err != nil {
			return err
		}
	}
	if s.batches != nil {
		err = s.batches.forNode(node).send(ctx, q)
	} else {
		err = q.roundTrip(ctx, node, s.durability)
	}
	if redis.HasErrorPrefix(err, "NOSCRIPT") || isRedirect(err) {
		err = s.resend(ctx, node, q, err)
	}
	if err != nil || q.waitReply == nil || !strings.HasPrefix(q.status(), q.durableStatus) {
		return err
	}
	return s.durability.check(q.waitReply)
}

// roundTrip sends q alone: as one command if that is all, otherwise as a pipeline.
func (q *query) roundTrip(ctx context.Context, node redis.UniversalClient, d durability) error {
	if !q.withGet && !q.asking && (q.durableStatus == "" || !d.enabled()) {
		return node.Process(ctx, q.newCommand(ctx))
	}
	p := node.Pipeline()
	q.enqueue(ctx, p, d)
	_, _ = p.Exec(ctx) // each command keeps its own error
	return q.reply.Err()
}

// status returns the reply of the script if that is one string, otherwise "".
func (q *query) status() string {
	status, _ := q.reply.Val().(string)
	return status
}

// getBytes returns the record that a GET has read, or nil if there was none.
func getBytes(found *redis.StringCmd) ([]byte, error) {
	record, err := found.Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return record, err
}
