package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-idem/idem/core/driver"
)

// errStepInTx: the step's result would stand although the transaction is rolled back.
var errStepInTx = fmt.Errorf("pgstore: a step in a run with an open InTx: its result would stand if the transaction is rolled back; do steps before the transaction begins: %w", errors.ErrUnsupported)

// Checkpoint implements driver.Checkpointer. It is refused, with an error that wraps errors.ErrUnsupported, in a run with an
// [InTx]: a result that stands when the transaction is rolled back would keep the next run from doing again what has been
// undone.
func (s *Store) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	if err := s.MayCheckpoint(ctx, c); err != nil {
		return err
	}
	return s.execute(ctx, s.checkpoint, &c, microseconds(c.Retention), []byte(step), notNull(result))
}

// MayCheckpoint returns the error that [Store.Checkpoint] would refuse the claim's steps with, and asks no server. core.Step calls
// it before it does a step.
func (s *Store) MayCheckpoint(ctx context.Context, c driver.Claim) error {
	if sessionOf(ctx, &c).isJoined() {
		return errStepInTx
	}
	return nil
}

// Checkpoints implements driver.Checkpointer.
func (s *Store) Checkpoints(ctx context.Context, c driver.Claim) (map[string][]byte, error) {
	var status string
	var steps, results [][]byte
	args := claimArguments(&c, []any{microseconds(c.Retention)})
	if err := s.query(ctx, []any{&status, &steps, &results}, s.checkpoints, args...); err != nil {
		return nil, err
	}
	if err := statusError(status); err != nil {
		return nil, err
	}
	found := make(map[string][]byte, len(steps))
	for i, step := range steps {
		found[string(step)] = results[i]
	}
	return found, nil
}
