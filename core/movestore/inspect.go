package movestore

import (
	"context"
	"errors"
	"slices"
	"strings"

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

// find looks at both stores. It returns the record that is shown, and the store that has it.
func (s *Store) find(ctx context.Context, name [32]byte) (seen driver.Record, in side, err error) {
	own, err := s.own.Look(ctx, name)
	if err != nil {
		return seen, in, err
	}
	other, err := s.other.Look(ctx, name)
	if err != nil {
		return seen, in, err
	}
	if hides(&own, &other) {
		return own, s.own, nil
	}
	return other, s.other, nil
}

// Look implements driver.Inspector.
func (s *Store) Look(ctx context.Context, name [32]byte) (driver.Record, error) {
	seen, in, err := s.find(ctx, name)
	return in.mark(seen), err
}

// mark makes the version of a record say which store has it.
func (s side) mark(seen driver.Record) driver.Record {
	if seen.Version != "" {
		seen.Version = s.name + ":" + seen.Version
	}
	return seen
}

// Scan implements driver.Inspector. A name of which both stores have a record is found twice.
func (s *Store) Scan(ctx context.Context, filter driver.Filter, found func(driver.Record) bool) error {
	for _, in := range []side{s.other, s.own} {
		isOver := false
		err := in.Scan(ctx, filter, func(seen driver.Record) bool {
			isOver = !found(in.mark(seen))
			return !isOver
		})
		if err != nil || isOver {
			return err
		}
	}
	return nil
}

// Forget implements driver.Inspector. What the other store has under the name is forgotten, too, if nothing runs there.
func (s *Store) Forget(ctx context.Context, seen driver.Record) error {
	store, version, isMarked := strings.Cut(seen.Version, ":")
	in, other := s.own, s.other
	switch {
	case !isMarked && seen.Version != "":
		return driver.ErrLost
	case store == s.other.name:
		in, other = s.other, s.own
	}
	hidden, err := other.Look(ctx, seen.Name)
	if err != nil {
		return err
	}
	if hidden.State == driver.InProgress || hidden.State == driver.Unreadable {
		return driver.ErrLost
	}
	seen.Version = version
	if err := in.Forget(ctx, seen); err != nil || hidden.State == driver.Absent {
		return err
	}
	return other.Forget(ctx, hidden)
}

// Steps implements driver.Inspector.
func (s *Store) Steps(ctx context.Context, name [32]byte) (map[string][]byte, error) {
	_, in, err := s.find(ctx, name)
	if err != nil {
		return nil, err
	}
	return in.Steps(ctx, name)
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
