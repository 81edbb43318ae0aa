package sqlitestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/internal/record"
)

// errStepInTx refuses a step in a run with an InTx, whose result would wait for the end of the transaction, or be rolled back
// with it.
var errStepInTx = fmt.Errorf("sqlitestore: a step in a run with an open InTx: the transaction may be rolled back after the "+
	"step; do steps before the transaction begins: %w", errors.ErrUnsupported)

// Checkpoint implements driver.Checkpointer. In a run with an [Store.InTx] it returns an error that wraps errors.ErrUnsupported.
func (s *Store) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	if err := s.MayCheckpoint(ctx, c); err != nil {
		return err
	}
	_, err := write(ctx, s, func(t *transaction) (struct{}, error) {
		if err := t.renew(&c, 0); err != nil {
			return struct{}{}, err
		}
		const sql = "INSERT INTO idem_checkpoint VALUES (?, ?, ?) ON CONFLICT (key, step) DO UPDATE SET result = excluded.result"
		return struct{}{}, t.execute(sql, c.Key[:], []byte(step), record.NotNull(result))
	})
	return err
}

// MayCheckpoint returns the error with which [Store.Checkpoint] would refuse a step of the claim, or nil. It does not read the
// file. core.Step calls it before it runs a step.
func (s *Store) MayCheckpoint(ctx context.Context, c driver.Claim) error {
	if sessionOf(ctx, &c).isJoined() {
		return errStepInTx
	}
	return nil
}

// Checkpoints implements driver.Checkpointer.
func (s *Store) Checkpoints(ctx context.Context, c driver.Claim) (map[string][]byte, error) {
	return writeAs(ctx, s, &c, func(t *transaction) (map[string][]byte, error) {
		if err := t.renew(&c, 0); err != nil {
			return nil, err
		}
		return readSteps(t, c.Key)
	})
}

// readSteps returns the results of the steps of a key.
func readSteps(from querier, key [32]byte) (map[string][]byte, error) {
	rows, err := from.QueryContext(background, "SELECT step, result FROM idem_checkpoint WHERE key = ?", key[:])
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	steps := map[string][]byte{}
	for rows.Next() {
		var step, result []byte
		if err := rows.Scan(&step, &result); err != nil {
			return nil, err
		}
		steps[string(step)] = record.NotNull(result)
	}
	return steps, rows.Err()
}

// deleteSteps deletes the results of the steps of a key.
func (t *transaction) deleteSteps(key [32]byte) error {
	return t.execute("DELETE FROM idem_checkpoint WHERE key = ?", key[:])
}
