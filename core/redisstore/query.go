package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/driver"
)

// script is one of package lua, by its text and its SHA-1, both in the form of an argument.
type script struct{ text, hash any }

func newScript(text string) *script { return &script{text, redis.NewScript(text).Hash()} }

// query is one script on one record, with what goes behind it in the same round trip. It is made for one call: arguments
// point into it, since a value in an interface would be a copy on the heap.
type query struct {
	script        *script
	name          string // of the record
	owner         ownerArgument
	fingerprint   fingerprintArgument
	fence         int64
	lease         int64 // µs
	retention     int64 // of the retention, ms
	record        bytesArgument
	args          []any  // of the command: EVALSHA, the script, the number of keys, keys, and the script's own
	withGet       bool   // read the record
	asking        bool   // the node has the record, but not yet its slot
	durableStatus string // the answer's beginning that has to be as safe as WaitReplicas says; "" for none

	reply     *redis.Cmd
	getReply  *redis.StringCmd
	waitReply *redis.Cmd
	argsArray [12]any // of args

	deadline time.Time     // in a batch: until when it is worth waiting
	done     chan struct{} // in a batch: closed when it has its answer
}

// newQuery returns a query on the record of c and on the keys beside it that have these names behind theirs.
func (s *Store) newQuery(script *script, c *driver.Claim, extraKeys ...string) *query {
	q := &query{script: script, name: s.recordName(c.Key), owner: c.Owner, fence: c.Fence}
	q.lease, q.retention = min(c.Lease, longestLease).Microseconds(), milliseconds(c.Retention)
	q.args = append(q.argsArray[:0], "evalsha", script.hash, 1+len(extraKeys), q.name)
	for _, key := range extraKeys {
		q.args = append(q.args, q.name+key)
	}
	return q
}

// withOwner puts in what the arguments of every verb but begin start with.
func (q *query) withOwner() *query {
	q.args = append(q.args, &q.owner, &q.fence)
	return q
}

// A pointer to one of these is an argument that is not copied.
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

// enqueue sends the query's commands to p.
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

// enqueueAsking puts an ASKING before a command that needs one.
func (q *query) enqueueAsking(ctx context.Context, p redis.Pipeliner) {
	if q.asking {
		_ = p.Process(ctx, redis.NewCmd(ctx, "asking"))
	}
}

func (q *query) newCommand(ctx context.Context) *redis.Cmd {
	q.reply = redis.NewCmd(ctx, q.args...)
	q.reply.SetFirstKeyPos(3)
	return q.reply
}

// send sends a query and returns the error of its script.
func (s *Store) send(ctx context.Context, q *query) error {
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

// roundTrip makes a round trip for one query.
func (q *query) roundTrip(ctx context.Context, node redis.UniversalClient, d durability) error {
	if !q.withGet && !q.asking && (q.durableStatus == "" || !d.enabled()) {
		return node.Process(ctx, q.newCommand(ctx))
	}
	p := node.Pipeline()
	q.enqueue(ctx, p, d)
	_, _ = p.Exec(ctx) // each command has its own error
	return q.reply.Err()
}

// status is the script's answer where that is one string, else "".
func (q *query) status() string {
	word, _ := q.reply.Val().(string)
	return word
}

// getBytes returns a record that was read by GET, nil if there was none.
func getBytes(found *redis.StringCmd) ([]byte, error) {
	record, err := found.Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return record, err
}
