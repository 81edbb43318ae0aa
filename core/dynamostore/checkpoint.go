package dynamostore

import (
	"bytes"
	"context"
	"maps"

	"github.com/go-idem/idem/core/driver"
)

// Checkpoint implements driver.Checkpointer. It returns [ErrTooLarge], which wraps errors.ErrUnsupported, if the result does
// not fit into the item beside the results of other steps.
func (s *Store) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	return s.renew(ctx, &c, func(it *item) error {
		steps := maps.Clone(it.steps)
		if steps == nil {
			steps = map[string][]byte{}
		}
		steps[step] = bytes.Clone(result)
		it.steps = steps
		if size := sizeOf(it.encode()); size > maxItem-reserve {
			return tooLarge("the record with all steps", size, maxItem-reserve, shortenSteps)
		}
		return nil
	})
}

// Checkpoints implements driver.Checkpointer.
func (s *Store) Checkpoints(ctx context.Context, c driver.Claim) (steps map[string][]byte, err error) {
	err = s.renew(ctx, &c, func(it *item) error {
		steps = it.steps
		return nil
	})
	if err != nil {
		return nil, err
	}
	return steps, nil
}

// renew starts the retention of a STARTED record anew, and calls change with its item.
func (s *Store) renew(ctx context.Context, c *driver.Claim, change func(*item) error) error {
	it, err := s.read(ctx, c.Key)
	if err != nil {
		return err
	}
	padded := s.padded(c)
	return s.change(ctx, it, func(it *item, now int64) (hasChanged bool, err error) {
		if err := it.Renew(padded, now); err != nil {
			return false, err
		}
		if err := change(it); err != nil {
			return false, err
		}
		return true, nil
	})
}
