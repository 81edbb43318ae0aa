package redisstore

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// query is one script on one record, with what goes behind it in the same round trip.
type query struct {
	script  *redis.Script
	keys    []string
	args    []any
	get     bool   // read the record
	durable string // the answer's beginning that has to be as safe as WaitReplicas says; "" for none

	eval   *redis.Cmd
	record *redis.StringCmd
	wait   *redis.Cmd
}

// put sends the query's commands to p. run is redis.Script's EvalSha or Eval.
func (q *query) put(ctx context.Context, p redis.Pipeliner, run runner, d durability) {
	q.eval = run(q.script, ctx, p, q.keys, q.args...)
	if q.get {
		q.record = p.Get(ctx, q.keys[0])
	}
	if d.on() && q.durable != "" {
		q.wait = d.send(ctx, p)
	}
}

type runner = func(*redis.Script, context.Context, redis.Scripter, []string, ...any) *redis.Cmd

// send sends a query and returns the error of its script. A server that does not know the script, such as a replica that
// was just promoted, gets its text in a second round trip.
func (s *Store) send(ctx context.Context, q *query) error {
	node, err := s.client, error(nil)
	if s.wait.on() || s.batches != nil {
		if node, err = s.node(ctx, q.keys[0]); err != nil {
			return err
		}
	}
	if s.batches != nil {
		err = s.batches.of(node).send(ctx, q)
	} else {
		s.sendAlone(ctx, node, q, (*redis.Script).EvalSha)
		err = q.eval.Err()
	}
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		s.sendAlone(ctx, node, q, (*redis.Script).Eval)
		err = q.eval.Err()
	}
	if err != nil || q.wait == nil || !strings.HasPrefix(q.word(), q.durable) {
		return err
	}
	return s.wait.reached(q.wait)
}

func (s *Store) sendAlone(ctx context.Context, node redis.UniversalClient, q *query, run runner) {
	if !q.get && q.durable == "" {
		q.eval = run(q.script, ctx, node, q.keys, q.args...)
		return
	}
	p := node.Pipeline()
	q.put(ctx, p, run, s.wait)
	_, _ = p.Exec(ctx) // each command has its own error
}

// word is the script's answer where that is one string, else "".
func (q *query) word() string {
	word, _ := q.eval.Val().(string)
	return word
}

// read returns the record that the GET found, nil if there was none.
func (q *query) read() ([]byte, error) {
	record, err := q.record.Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return record, err
}
