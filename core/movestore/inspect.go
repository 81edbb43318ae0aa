package movestore

import (
	"context"
	"errors"
	"slices"

	"github.com/go-idem/idem/core/driver"
)

// precedence has the states of records, in the order in which one hides another one of the same name.
var precedence = []driver.State{
	driver.Unreadable, driver.Completed, driver.InProgress, driver.Unknown, driver.Failed, driver.Expired, driver.Absent,
}

// hides reports whether a record is shown, and not that which the other store has under the same name.
func hides(seen, other *driver.Record) bool {
	if seen.IsReleased() != other.IsReleased() {
		return other.IsReleased() && seen.State != driver.Absent || other.State == driver.Absent
	}
	return slices.Index(precedence, seen.State) < slices.Index(precedence, other.State)
}

// found is a record, and the store that has it.
type found struct {
	driver.Record
	in side
}

// find looks at both stores. It returns the record that is shown, and that which it hides.
func (s *Store) find(ctx context.Context, name [32]byte) (shown, hidden found, err error) {
	own, other := found{in: s.own}, found{in: s.other}
	if own.Record, err = s.own.Look(ctx, name); err != nil {
		return shown, hidden, err
	}
	if other.Record, err = s.other.Look(ctx, name); err != nil {
		return shown, hidden, err
	}
	if hides(&own.Record, &other.Record) {
		return own, other, nil
	}
	return other, own, nil
}

// Look implements driver.Inspector.
func (s *Store) Look(ctx context.Context, name [32]byte) (driver.Record, error) {
	shown, _, err := s.find(ctx, name)
	return shown.in.mark(shown.Record), err
}

// mark makes the version of a record say which store has it.
func (s side) mark(seen driver.Record) driver.Record {
	if seen.Version != "" {
		seen.Version = s.name + ":" + seen.Version
	}
	return seen
}

// Scan implements driver.Inspector. A name of which both stores have a record is found twice.
func (s *Store) Scan(ctx context.Context, filter driver.Filter, each func(driver.Record) bool) error {
	for _, in := range []side{s.other, s.own} {
		isOver := false
		err := in.Scan(ctx, filter, func(seen driver.Record) bool {
			isOver = !each(in.mark(seen))
			return !isOver
		})
		if err != nil || isOver {
			return err
		}
	}
	return nil
}

// Forget implements driver.Inspector. What the other store has under the name is forgotten, too, if nothing runs there. A record that
// hides the one that was seen is left with it, since nobody has decided to forget that.
func (s *Store) Forget(ctx context.Context, seen driver.Record) error {
	shown, hidden, err := s.find(ctx, seen.Name)
	switch {
	case err != nil:
		return err
	case shown.Version != "" && shown.in.mark(shown.Record).Version != seen.Version:
		return driver.ErrLost
	case hidden.State == driver.InProgress, hidden.State == driver.Unreadable:
		return driver.ErrLost
	}
	if err := shown.in.Forget(ctx, shown.Record); err != nil || hidden.State == driver.Absent {
		return err
	}
	return hidden.in.Forget(ctx, hidden.Record)
}

// Steps implements driver.Inspector.
func (s *Store) Steps(ctx context.Context, name [32]byte) (map[string][]byte, error) {
	shown, _, err := s.find(ctx, name)
	if err != nil {
		return nil, err
	}
	return shown.in.Steps(ctx, name)
}

// Outcome implements driver.OutcomeReader.
func (s *Store) Outcome(ctx context.Context, name [32]byte) ([]byte, error) {
	own, ownErr := s.own.Outcome(ctx, name)
	if ownErr == nil && own != nil {
		return own, nil
	}
	other, otherErr := s.other.Outcome(ctx, name)
	if otherErr == nil && other != nil {
		return other, nil
	}
	return nil, errors.Join(ownErr, otherErr)
}
