package pgstore

import (
	"context"
	"errors"

	"github.com/go-idem/idem/core"
)

// errStepInTx: the step's result would stand although the transaction is rolled back.
var errStepInTx = errors.New("pgstore: Checkpoint in a run with an open InTx: keep the results of steps before the transaction begins")

// Checkpoint implements core.Checkpointer. It is refused in a run with an [InTx]: a result that stands when the
// transaction is rolled back would keep the next run from doing again what has been undone.
func (s *Store) Checkpoint(ctx context.Context, c core.Claim, step string, result []byte) error {
	if attending(ctx, &c).isJoined() {
		return errStepInTx
	}
	return s.run(ctx, s.checkpoint, &c, microseconds(c.Retention), []byte(step), notNull(result))
}

// Checkpoints implements core.Checkpointer.
func (s *Store) Checkpoints(ctx context.Context, c core.Claim) (map[string][]byte, error) {
	var word string
	var steps, results [][]byte
	err := again(ctx, func() error {
		row := s.pool.QueryRow(ctx, s.checkpoints, c.Key[:], c.Owner[:], c.Fence, microseconds(c.Retention))
		return row.Scan(&word, &steps, &results)
	})
	if err := wordError(word, err); err != nil {
		return nil, err
	}
	found := make(map[string][]byte, len(steps))
	for i, step := range steps {
		found[string(step)] = results[i]
	}
	return found, nil
}
