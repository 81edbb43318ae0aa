package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-idem/idem/core/driver"
)

// Checkpoint implements driver.Checkpointer. The results of steps are in a hash, a key of its own beside the record. The
// script compares the claim and stores the result in one step, and restarts the retention of both keys.
func (s *Store) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	_, err := s.runStep(ctx, &c, stepField(step), result)
	return err
}

// Checkpoints implements driver.Checkpointer. It returns all results in one round trip.
func (s *Store) Checkpoints(ctx context.Context, c driver.Claim) (map[string][]byte, error) {
	pairs, err := s.runStep(ctx, &c)
	if err != nil {
		return nil, err
	}
	kept := make(map[string][]byte, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		kept[stepOf(pair[0])] = []byte(pair[1])
	}
	return kept, nil
}

// twoNULs begins the field of a step whose name is NULs alone, or empty: the fields "" and "\x00" have another meaning, see
// lua/results.lua.
const twoNULs = "\x00\x00"

// stepField returns the field in which the result of a step is stored. It is the name of the step for all but a few names.
func stepField(step string) string {
	if strings.Trim(step, "\x00") == "" {
		return twoNULs + step
	}
	return step
}

// stepOf returns the step whose result is in a field.
func stepOf(field string) string {
	if strings.Trim(field, "\x00") == "" {
		return strings.TrimPrefix(field, twoNULs)
	}
	return field
}

// runStep sends lua/step.lua and returns what follows its status. With a step and its result the script stores that; without
// them it returns all steps and results, alternating. The fence 0 is refused here, since for the scripts it matches any
// fence.
func (s *Store) runStep(ctx context.Context, c *driver.Claim, stepAndResult ...any) ([]string, error) {
	if c.Fence == 0 {
		return nil, driver.ErrLost
	}
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
