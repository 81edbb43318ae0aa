package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-idem/idem/core/driver"
)

// errStepInTx refuses a step in a run with an InTx, whose result would outlive a rollback of the transaction.
var errStepInTx = fmt.Errorf("pgstore: a step in a run with an open InTx: its result would stand if the transaction is rolled "+
	"back; do steps before the transaction begins: %w", errors.ErrUnsupported)

// Checkpoint implements driver.Checkpointer. In a run with an [InTx] it returns an error that wraps errors.ErrUnsupported. If
// the transaction were rolled back, the result of the step would remain, and the next run would not repeat what was undone.
func (s *Store) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	if err := s.MayCheckpoint(ctx, c); err != nil {
		return err
	}
	err := s.execute(ctx, s.checkpoint, &c, microseconds(c.Retention), []byte(step), notNull(result))
	return s.lostError(ctx, &c, err)
}

// MayCheckpoint returns the error with which [Store.Checkpoint] would refuse a step of the claim, or nil. It calls no server.
// core.Step calls it before it runs a step.
func (s *Store) MayCheckpoint(ctx context.Context, c driver.Claim) error {
	if sessionOf(ctx, &c).isJoined() {
		return errStepInTx
	}
	return nil
}

// Checkpoints implements driver.Checkpointer. It returns all results in one round trip.
func (s *Store) Checkpoints(ctx context.Context, c driver.Claim) (map[string][]byte, error) {
	var status string
	var steps, results [][]byte
	args := claimArguments(&c, []any{microseconds(c.Retention)})
	if err := s.query(ctx, []any{&status, &steps, &results}, s.checkpoints, args...); err != nil {
		return nil, err
	}
	if err := statusError(status); err != nil {
		return nil, s.lostError(ctx, &c, err)
	}
	found := make(map[string][]byte, len(steps))
	for i, step := range steps {
		found[string(step)] = results[i]
	}
	return found, nil
}
