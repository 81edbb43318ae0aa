package memstore

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// setCause stores the cause of a failure, cut to the length that driver.Failure allows. "" deletes the cause.
func (s *Store) setCause(r *record, cause string) {
	cause = cause[:min(len(cause), driver.MaxCauseBytes)]
	s.bytes += len(cause) - len(r.cause)
	r.cause = cause
}

// Look implements driver.Inspector.
func (s *Store) Look(ctx context.Context, name [32]byte) (seen driver.Record, err error) {
	err = s.locked(ctx, func(now time.Time) error {
		seen = s.look(name, now)
		return nil
	})
	return seen, err
}

// look is Look for a caller that holds mu.
func (s *Store) look(name [32]byte, now time.Time) driver.Record {
	if r := s.records[name]; r != nil {
		return r.inspect(now)
	}
	if r := s.tombstones[name]; r != nil {
		return driver.Record{Name: name, State: driver.Expired, Expires: r.expires.Sub(now)}
	}
	return driver.Record{Name: name, State: driver.Absent}
}

// Scan implements driver.Inspector. It holds the store's lock while it reads, and not while it calls found, so found may call the
// store. It reads all records in one step, and so finds them as they were at one time; the copies take memory until it returns.
func (s *Store) Scan(ctx context.Context, filter driver.Filter, found func(driver.Record) bool) error {
	var selected []driver.Record
	err := s.locked(ctx, func(now time.Time) error {
		for _, r := range s.expiry {
			if r.isTombstone && s.records[r.claim.Key] != nil { // look finds the record in its place
				continue
			}
			if seen := s.look(r.claim.Key, now); filter.Selects(&seen, now) {
				selected = append(selected, seen)
			}
		}
		return nil
	})
	for _, seen := range selected {
		if !found(seen) {
			break
		}
	}
	return err
}

// Forget implements driver.Inspector. A request that waits for the record is notified, because the key is free now. A tombstone
// is deleted as well, even if the caller has only seen the record in front of it.
func (s *Store) Forget(ctx context.Context, seen driver.Record) error {
	return s.locked(ctx, func(now time.Time) error {
		r, tombstone := s.records[seen.Name], s.tombstones[seen.Name]
		if r != nil && (r.version() != seen.Version || r.state == started && r.leaseEnd.After(now)) {
			return driver.ErrLost
		}
		if r != nil {
			s.remove(r)
			s.notify(seen.Name)
		}
		if tombstone != nil {
			s.remove(tombstone)
		}
		return nil
	})
}

// Steps implements driver.Inspector. A free record has no steps for the next run, although they are deleted only by its claim.
func (s *Store) Steps(ctx context.Context, name [32]byte) (steps map[string][]byte, err error) {
	err = s.locked(ctx, func(time.Time) error {
		if r := s.records[name]; r != nil && !r.free {
			steps = maps.Clone(r.steps)
		}
		return nil
	})
	return steps, err
}

// Outcome implements driver.OutcomeReader.
func (s *Store) Outcome(ctx context.Context, name [32]byte) (outcome []byte, err error) {
	err = s.locked(ctx, func(time.Time) error {
		if r := s.records[name]; r != nil && r.state == completed {
			outcome = r.outcome
		}
		return nil
	})
	return outcome, err
}

// version returns what a Record has as its Version. State and fence suffice: each claim and each Reopen has a fence of its own.
func (r *record) version() string { return fmt.Sprint(r.state, " ", r.claim.Fence) }

// inspect returns what an operator can know of r. The time of the claim is read from the fence: see nextFence. Fence and steps
// are left out for a COMPLETED record, and fingerprint and steps for a free one, since the next request does not depend on them.
func (r *record) inspect(now time.Time) driver.Record {
	c := &r.claim
	seen := driver.Record{
		Name: c.Key, Version: r.version(), Fingerprint: c.Fingerprint, Attempt: c.Attempt, Takeover: c.Takeover,
		Expires: r.expires.Sub(now), Bytes: recordBytes + len(r.outcome) + len(r.cause),
	}
	if r.state == completed {
		seen.State = driver.Completed
		return seen
	}
	seen.Fence, seen.ClaimedAt, seen.Steps = c.Fence, time.UnixMicro(c.Fence), len(r.steps)
	switch {
	case r.state == failed:
		seen.State, seen.Free, seen.Cause = driver.Failed, r.free, r.cause
		if r.free {
			seen.Fingerprint, seen.Steps = [32]byte{}, 0
		}
	case r.leaseEnd.After(now):
		seen.State, seen.Remaining = driver.InProgress, r.leaseEnd.Sub(now)
	default:
		seen.State, seen.Remaining = driver.Unknown, r.leaseEnd.Sub(now)
	}
	return seen
}
