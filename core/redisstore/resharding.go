package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/driver"
)

// While a slot of a Cluster moves, the record and its extra keys (tombstone, steps) may be on two nodes. A script that names
// both is then refused with TRYAGAIN until the slot has moved. The functions of this file split such a call into commands
// with one key each. The record decides what happens. Extra keys are read before it or written after it; if a write fails,
// the caller repeats the whole call, which does no harm.

// isSplitSlot reports whether err is the reply to a script whose keys are on two nodes. A server says so before the script, or in
// the middle of it if a key has expired since it began. Each call may be repeated, so what the script has done by then does no harm.
func isSplitSlot(err error) bool {
	return redis.HasErrorPrefix(err, "TRYAGAIN") || isReply(err) && strings.Contains(err.Error(), "attempted to access a non local key")
}

// runCommand runs one command, by lua/command.lua, on the key with the record's name and this suffix. It returns nil if the
// key does not exist. It is a script, and not a plain command, so that a full server accepts it too.
func (s *Store) runCommand(ctx context.Context, c *driver.Claim, suffix string, command ...any) (any, error) {
	q := s.newQuery(commandScript, c)
	q.args[3] = q.name + suffix
	q.args = append(q.args, command...)
	if command[0] == "SET" {
		q.durableStatus = "OK"
	}
	if err := s.send(ctx, q); errors.Is(err, redis.Nil) {
		return nil, nil
	} else if err != nil {
		return nil, storeError(err)
	}
	return q.reply.Val(), nil
}

// beginSplit looks for the tombstone, and then sends Begin with the record only. If another run completes the key in between,
// Begin finds its record.
func (s *Store) beginSplit(ctx context.Context, c *driver.Claim) (*query, error) {
	late, err := s.runCommand(ctx, c, tombstoneSuffix, "EXISTS")
	if err != nil {
		return nil, err
	}
	alone := *c
	alone.LateRetry, alone.WantRemaining = 0, c.WantRemaining || late == int64(1)
	q := s.beginQuery(&alone)
	if late == int64(1) {
		q.args = append(q.args, "1")
	}
	return q, s.send(ctx, q)
}

// extendSplit extends the record, and then keeps the steps alive.
func (s *Store) extendSplit(ctx context.Context, c driver.Claim) error {
	c.Steps = false
	if err := s.Extend(ctx, c); err != nil {
		return err
	}
	_, err := s.runCommand(ctx, &c, stepsSuffix, "PEXPIRE", milliseconds(c.Retention))
	return err
}

// completeSplit stores the outcome, then the tombstone, and deletes the steps last. If one of them fails, the engine repeats
// the whole call, and the script recognises its own record.
func (s *Store) completeSplit(ctx context.Context, c driver.Claim, outcome []byte) error {
	ms := tombstoneTTL(&c)
	c.Steps, c.LateRetry = false, 0
	if err := s.Complete(ctx, c, outcome); err != nil {
		return err
	}
	if ms > 0 {
		if _, err := s.runCommand(ctx, &c, tombstoneSuffix, "SET", "", "PX", ms); err != nil {
			return err
		}
	}
	_, err := s.runCommand(ctx, &c, stepsSuffix, "DEL")
	return err
}

// runStepSplit checks the claim on the record with lua/step.lua, and then reads or stores steps with lua/steps.lua. Another
// claim may begin between the two calls. The second script therefore compares the operation and the fence with those of the
// steps, and refuses a result of an earlier claim once a later one has stored a result.
func (s *Store) runStepSplit(ctx context.Context, c *driver.Claim, stepAndResult ...any) ([]string, error) {
	q := s.newQuery(stepScript, c).withOwner()
	q.args = append(q.args, &q.retention)
	if err := s.send(ctx, q); err != nil {
		return nil, err
	}
	held, err := q.reply.StringSlice()
	if len(held) != 2 {
		return held, err
	}
	q = s.newQuery(stepsScript, c)
	q.args[3] = q.name + stepsSuffix
	q.args = append(append(q.args, held[1], fmt.Sprintf("%016d", c.Fence), &q.retention), stepAndResult...)
	if err := s.send(ctx, q); err != nil {
		return nil, err
	}
	return q.reply.StringSlice()
}
