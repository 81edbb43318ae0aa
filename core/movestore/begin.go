package movestore

import (
	"context"
	"errors"

	"github.com/go-idem/idem/core/driver"
)

// Begin implements driver.Store. The package comment says why no key runs twice.
func (s *Store) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	away, err := s.other.Look(ctx, c.Key)
	if err != nil {
		return s.beginAlone(ctx, c, err)
	}
	if !isHome(&away, &c) {
		return s.claim(ctx, s.own, s.other, c)
	}
	entry, err := s.claim(ctx, s.other, s.own, c)
	if err != nil && !errors.Is(err, driver.ErrLost) || entry.State == driver.Claimed || entry.State == driver.Completed {
		return entry, err
	}
	own, lookErr := s.own.Look(ctx, c.Key)
	if lookErr != nil {
		return driver.Entry{}, lookErr
	}
	hasEnded := err != nil // in the other store, perhaps because an earlier Begin of this claim has kept the own one
	if own.State == driver.Completed || hasEnded && (own.State == driver.InProgress || own.State == driver.Unknown) {
		return s.claim(ctx, s.own, s.other, c)
	}
	return entry, err
}

// beginAlone is Begin while the other store is unavailable, which is why nothing can be claimed: it only finds an outcome of the own
// store, which is final.
func (s *Store) beginAlone(ctx context.Context, c driver.Claim, unavailable error) (driver.Entry, error) {
	seen, err := s.own.Look(ctx, c.Key)
	if err != nil || seen.State != driver.Completed {
		return driver.Entry{}, unavailable
	}
	entry, err := s.own.Begin(ctx, c)
	if err == nil && entry.State == driver.Claimed { // the outcome has expired since then; the caller withdraws the claim
		return driver.Entry{}, unavailable
	}
	return entry, err
}

// isHome reports whether the other store has a record for which a key is claimed there. A record of claims without a run is none.
func isHome(seen *driver.Record, c *driver.Claim) bool { return !seen.IsReleased() && counts(seen, c) }

// counts reports whether Begin has to claim a record that it has seen before it may run under a claim elsewhere. A tombstone, which
// may lie behind a released record, counts if the claim asks for tombstones.
func counts(seen *driver.Record, c *driver.Claim) bool {
	switch {
	case seen.State == driver.Absent:
		return false
	case seen.State == driver.Expired, seen.IsReleased():
		return c.LateRetry > 0
	}
	return true
}

// claim claims the key in one of two stores, and remembers a claim that is held in the other one.
func (s *Store) claim(ctx context.Context, home, away side, c driver.Claim) (driver.Entry, error) {
	entry, in, err := claim(ctx, home, away, c)
	if err != nil {
		return driver.Entry{}, err
	}
	if entry.State == driver.Claimed && in.name == s.other.name {
		s.away.add(&c)
	}
	return entry, nil
}

// claim claims the key at home. The claim holds if there is no record away, or if the claim gets that record, too. in is the store that
// has returned the entry.
func claim(ctx context.Context, home, away side, c driver.Claim) (entry driver.Entry, in side, err error) {
	entry, err = home.Begin(ctx, c)
	if err != nil || entry.State != driver.Claimed {
		return entry, home, err
	}
	seen, err := away.Look(ctx, c.Key)
	if err != nil || !counts(&seen, &c) {
		return entry, home, err
	}
	rival, err := away.Begin(ctx, c)
	if errors.Is(err, driver.ErrLost) && seen.State == driver.Failed { // an earlier Begin of this claim has given the record back
		entry.Takeover = entry.Takeover || seen.Takeover
		return entry, home, nil
	}
	if err == nil && rival.State == driver.Claimed && keepsHome(entry, rival, &seen) {
		entry.Takeover = entry.Takeover || rival.Takeover
		return entry, home, release(ctx, away, c, rival)
	}
	if releaseErr := release(ctx, home, c, entry); releaseErr != nil {
		err = releaseErr
	}
	return rival, away, err
}

// keepsHome decides under which of two claims of one key the run goes on: under that whose record has had runs. If both look like
// that, one of them was left by a process that died in Begin, and cannot have results of steps.
func keepsHome(home, away driver.Entry, seen *driver.Record) bool {
	return isFresh(away) || !isFresh(home) && seen.Steps == 0
}

// isFresh reports whether a claim found no earlier run.
func isFresh(e driver.Entry) bool { return e.Attempt <= 1 && !e.Takeover }

// release gives a claim back under which nothing has run. An error says that the store did not respond; the caller of Begin then
// withdraws its claim from both stores.
func release(ctx context.Context, from side, c driver.Claim, granted driver.Entry) error {
	c.Fence = granted.Fence
	err := from.Fail(ctx, c, driver.Failure{Cause: "the record is in the other store", NoEffects: true, NotRun: true})
	if errors.Is(err, driver.ErrLost) {
		return nil
	}
	return err
}
