// Package store is the skeleton of a driver.Store. docs/writing-a-store.md shows it, and says what a database needs for it.
package store

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// Table is the database. Change reads the row of a key, calls f with it and with the time of the database, and writes the row, so that
// no other change of the key comes between. It calls f again if it has to try again.
type Table interface {
	Change(ctx context.Context, key [32]byte, f func(r *Row, now time.Time)) error
}

// Row is what the table has under a key. It may be deleted when Expires and LateUntil are over.
type Row struct {
	driver.Claim                  // the last one, as Begin has granted it
	State              string     // absent, started, completed or failed
	IsFree, HadEffects bool       // another request may claim it; an earlier run of the request may have had effects
	LeaseEnd, Expires  time.Time  // by the clock of the database
	LateUntil          time.Time  // when the tombstone behind an outcome ends
	Outcome            []byte     // if completed
	Ended              [][16]byte // owners that have failed or withdrawn
}

const absent, started, completed, failed = "", "started", "completed", "failed"

// Store is a driver.Store without optional abilities.
type Store struct{ Table Table }

// change calls f with the row of a key, and returns what f returns.
func (s Store) change(ctx context.Context, key [32]byte, f func(r *Row, now time.Time) error) (result error) {
	err := s.Table.Change(ctx, key, func(r *Row, now time.Time) {
		if r.State != absent && !r.Expires.After(now) {
			*r = Row{Claim: driver.Claim{Fence: r.Fence}, LateUntil: r.LateUntil}
		}
		result = f(r, now)
	})
	if err != nil {
		return err
	}
	return result
}

// Begin implements driver.Store.
func (s Store) Begin(ctx context.Context, c driver.Claim) (e driver.Entry, err error) {
	err = s.change(ctx, c.Key, func(r *Row, now time.Time) (err error) {
		e, err = r.begin(c, now)
		return err
	})
	return e, err
}

// begin has the cases in the order that the contract gives.
func (r *Row) begin(c driver.Claim, now time.Time) (driver.Entry, error) {
	switch left := r.LeaseEnd.Sub(now); {
	case r.State == started && r.Owner == c.Owner:
		return r.entry(left), nil
	case r.State == failed && r.Owner == c.Owner, slices.Contains(r.Ended, c.Owner):
		return driver.Entry{}, driver.ErrLost
	case c.LateRetry > 0 && r.LateUntil.After(now) && (r.State == absent || r.IsFree && r.Attempt == 0):
		return driver.Entry{State: driver.Expired}, nil
	case r.State == absent:
		return r.claim(c, now, false), nil
	case r.Fingerprint != c.Fingerprint && !r.IsFree:
		return driver.Entry{State: driver.Mismatch, Fingerprint: r.Fingerprint}, nil
	case r.State == completed:
		e := driver.Entry{State: driver.Completed, Outcome: r.Outcome}
		if c.WantRemaining {
			e.Remaining = r.Expires.Sub(now)
		}
		return e, nil
	case r.State == failed:
		r.HadEffects = !r.IsFree
		r.note(r.Owner)
		return r.claim(c, now, r.Takeover && !r.IsFree), nil
	case left > 0:
		return driver.Entry{State: driver.InProgress, Remaining: left}, nil
	case c.NoTakeover && c.TakeoverFence != r.Fence:
		return driver.Entry{State: driver.Unknown, Fence: r.Fence}, nil
	}
	r.HadEffects = true
	return r.claim(c, now, true), nil
}

// claim gives the row to c under a fence above all earlier ones.
func (r *Row) claim(c driver.Claim, now time.Time, isTakeover bool) driver.Entry {
	c.Fence, c.Attempt, c.Operation, c.Takeover = max(r.Fence+1, now.UnixMicro()), r.Attempt+1, r.Operation, isTakeover
	if c.Operation == 0 || r.IsFree {
		c.Operation = c.Fence
	}
	r.Claim, r.State, r.IsFree = c, started, false
	r.renew(&c, now)
	return r.entry(c.Lease)
}

func (r *Row) renew(c *driver.Claim, now time.Time) {
	r.LeaseEnd, r.Expires = now.Add(c.Lease), now.Add(c.Retention)
}

func (r *Row) entry(left time.Duration) driver.Entry {
	return driver.Entry{
		State: driver.Claimed, Fence: r.Fence, Attempt: r.Attempt, Operation: r.Operation, Takeover: r.Takeover, Remaining: left,
	}
}

// note notes an owner that has ended: its Begin comes too late from now on.
func (r *Row) note(owner [16]byte) {
	if !slices.Contains(r.Ended, owner) {
		r.Ended = append(slices.Clone(r.Ended[max(0, len(r.Ended)-15):]), owner)
	}
}

// held returns nil if the row is that of the claim, and in one of these states.
func (r *Row) held(c *driver.Claim, states ...string) error {
	switch {
	case r.State == absent && c.Fence != 0:
		return driver.ErrGone
	case r.Owner != c.Owner || r.Fence != c.Fence || c.Fence == 0 || !slices.Contains(states, r.State):
		return driver.ErrLost
	}
	return nil
}

// Extend implements driver.Store.
func (s Store) Extend(ctx context.Context, c driver.Claim) error {
	return s.change(ctx, c.Key, func(r *Row, now time.Time) error {
		err := r.held(&c, started)
		if err == nil {
			r.renew(&c, now)
		}
		return err
	})
}

// Complete implements driver.Store.
func (s Store) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	return s.change(ctx, c.Key, func(r *Row, now time.Time) error {
		switch err := r.held(&c, started, completed); {
		case err != nil:
			return err
		case r.State == completed && !bytes.Equal(r.Outcome, outcome):
			return driver.ErrLost
		case r.State == started:
			r.State, r.Outcome, r.Ended, r.Expires = completed, bytes.Clone(outcome), nil, now.Add(c.Retention)
			r.LateUntil = r.Expires.Add(c.LateRetry)
		}
		return nil
	})
}

// Fail implements driver.Store.
func (s Store) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	return s.change(ctx, c.Key, func(r *Row, now time.Time) error {
		if c.Fence == 0 && r.State != absent && r.Owner == c.Owner {
			c.Fence = r.Fence
		}
		if c.Fence == 0 {
			return r.withdraw(&c, now)
		}
		if err := r.held(&c, started, failed); err != nil || r.State == failed {
			return err
		}
		r.State, r.IsFree, r.Expires = failed, (f.NoEffects || f.NotRun) && !r.HadEffects, now.Add(c.Retention)
		if f.NotRun {
			r.Attempt--
		}
		return nil
	})
}

// withdraw makes a Begin of c come too late that the database may still execute.
func (r *Row) withdraw(c *driver.Claim, now time.Time) error {
	switch {
	case r.State == absent:
		c.Fence = max(r.Fence+1, now.UnixMicro())
		r.Claim, r.State, r.IsFree, r.Expires = driver.Claim{Owner: c.Owner, Fence: c.Fence}, failed, true, now.Add(c.Lease)
		return nil
	case r.State != completed:
		r.note(c.Owner)
		if until := now.Add(c.Lease); r.IsFree && until.After(r.Expires) {
			r.Expires = until
		}
	}
	return driver.ErrLost
}
