package movestore

import (
	"context"
	"errors"

	"github.com/go-idem/idem/core/driver"
)

// Backend is a store that keys can move from or to. All stores of this project are backends.
type Backend interface {
	driver.Store
	driver.Notifier
	driver.Checkpointer
	driver.Reopener
	driver.Inspector
	driver.OutcomeReader
}

// Store is a driver.Store over an old and a new one. It is safe for concurrent use.
type Store struct {
	own   side // where new keys are claimed
	other side
	away  owners
}

// side is one of the two stores. Its name marks the versions of its records, which are the same in both steps.
type side struct {
	Backend
	name string
}

// Prepare returns the store of the first step of a move: it claims new keys in the old store, from, and finds what processes of the step Move have
// claimed in the new one, to.
func Prepare(from, to Backend) *Store {
	return &Store{own: side{from, "old"}, other: side{to, "new"}}
}

// Move returns the store of the second step: it claims new keys in the new store, to, and finds what the old one, from, has.
func Move(from, to Backend) *Store {
	return &Store{own: side{to, "new"}, other: side{from, "old"}}
}

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, c driver.Claim) error {
	return s.settle(ctx, &c, func(b Backend) error { return b.Extend(ctx, c) })
}

// Complete implements driver.Store.
func (s *Store) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	return s.settle(ctx, &c, func(b Backend) error { return b.Complete(ctx, c, outcome) })
}

// Checkpoint implements driver.Checkpointer.
func (s *Store) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	return s.settle(ctx, &c, func(b Backend) error { return b.Checkpoint(ctx, c, step, result) })
}

// Checkpoints implements driver.Checkpointer.
func (s *Store) Checkpoints(ctx context.Context, c driver.Claim) (steps map[string][]byte, err error) {
	err = s.settle(ctx, &c, func(b Backend) (err error) {
		steps, err = b.Checkpoints(ctx, c)
		return err
	})
	return steps, err
}

// Reopen implements driver.Reopener.
func (s *Store) Reopen(ctx context.Context, c driver.Claim, outcome []byte) error {
	return s.settle(ctx, &c, func(b Backend) error { return b.Reopen(ctx, c, outcome) })
}

// settle makes a call that only the store accepts which has granted the claim. That store gets the call first, as far as this process
// remembers, so that the call does not wait for the other one.
func (s *Store) settle(ctx context.Context, c *driver.Claim, call func(Backend) error) error {
	isAway := s.away.has(c)
	first, second := s.own, s.other
	if isAway {
		first, second = second, first
	}
	own := call(first.Backend)
	if own == nil {
		return nil
	}
	other := call(second.Backend)
	if other == nil {
		return nil
	}
	if isAway {
		own, other = other, own
	}
	return s.refusal(ctx, c, own, other)
}

// refusal returns the error of a call that no store has accepted. A store that did not respond may have the claim. The record is gone
// if one store has none, and the other one has at most what claims without a run have left there: in the own store, before this claim.
func (s *Store) refusal(ctx context.Context, c *driver.Claim, own, other error) error {
	isGone, isOtherGone := errors.Is(own, driver.ErrGone), errors.Is(other, driver.ErrGone)
	switch {
	case !errors.Is(own, driver.ErrLost):
		return own
	case !errors.Is(other, driver.ErrLost):
		return other
	case isGone == isOtherGone:
		return own
	}
	in := s.own
	if isGone {
		in = s.other
	}
	seen, err := in.Look(ctx, c.Key)
	if err == nil && seen.IsReleased() && (isGone || seen.Fence < c.Fence) {
		return driver.ErrGone
	}
	return driver.ErrLost
}

// Fail implements driver.Store.
func (s *Store) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	if c.Fence == 0 {
		return s.withdraw(ctx, c, f)
	}
	return s.settle(ctx, &c, func(b Backend) error { return b.Fail(ctx, c, f) })
}

// withdraw is Fail without a fence. Begin may have claimed the key in either store, and its call may come to either later, so both note
// the owner. The store at which Begin would claim the key decides what withdraw returns. The other store gets no call if it has nothing
// under the name: Begin has not called it then, and it must stay empty beside processes that do not look at it.
func (s *Store) withdraw(ctx context.Context, c driver.Claim, f driver.Failure) error {
	err := s.own.Fail(ctx, c, f)
	seen, lookErr := s.other.Look(ctx, c.Key)
	if lookErr != nil {
		return lookErr
	}
	if seen.State == driver.Absent {
		return err
	}
	otherErr := s.other.Fail(ctx, c, f)
	if isHome(&seen, &c) {
		err, otherErr = otherErr, err
	}
	if otherErr != nil && !errors.Is(otherErr, driver.ErrLost) {
		return otherErr
	}
	return err
}

// Watch implements driver.Notifier.
func (s *Store) Watch(ctx context.Context, key [32]byte, wake func()) (stop func(), err error) {
	stopOwn, err := s.own.Watch(ctx, key, wake)
	if err != nil {
		return nil, err
	}
	stopOther, err := s.other.Watch(ctx, key, wake)
	if err != nil {
		stopOwn()
		return nil, err
	}
	return func() { stopOwn(); stopOther() }, nil
}
