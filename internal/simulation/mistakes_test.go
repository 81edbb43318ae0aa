package simulation

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
)

// withinSeeds is how many histories a mistake may survive.
const withinSeeds = 10_000

// mistaken is a store with one mistake.
type mistaken struct {
	*memstore.Store
	begin    func(context.Context, driver.Claim) (driver.Entry, error)
	extend   func(context.Context, driver.Claim) error
	complete func(context.Context, driver.Claim, []byte) error
	fail     func(context.Context, driver.Claim, driver.Failure) error
}

func newMistaken(s *memstore.Store) *mistaken {
	return &mistaken{Store: s, begin: s.Begin, extend: s.Extend, complete: s.Complete, fail: s.Fail}
}

func (m *mistaken) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	return m.begin(ctx, c)
}

func (m *mistaken) Extend(ctx context.Context, c driver.Claim) error { return m.extend(ctx, c) }

func (m *mistaken) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	return m.complete(ctx, c, outcome)
}

func (m *mistaken) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	return m.fail(ctx, c, f)
}

// mistakes are what the simulation must find.
var mistakes = map[string]func(*mistaken){
	"a claim does not recognise itself": func(m *mistaken) {
		owners := map[[16]byte]bool{}
		m.begin = func(ctx context.Context, c driver.Claim) (driver.Entry, error) {
			entry, err := m.Store.Begin(ctx, c)
			if entry.State != driver.Claimed {
				return entry, err
			}
			if owners[c.Owner] {
				return driver.Entry{State: driver.InProgress, Remaining: entry.Remaining}, nil
			}
			owners[c.Owner] = true
			return entry, nil
		}
	},
	"Extend brings a record back that a failover has lost": func(m *mistaken) {
		m.extend = func(ctx context.Context, c driver.Claim) error {
			err := m.Store.Extend(ctx, c)
			if seen, _ := m.Store.Look(ctx, c.Key); errors.Is(err, driver.ErrLost) && seen.State == driver.Absent {
				_, err = m.Store.Begin(ctx, c)
			}
			return err
		}
	},
	"Extend is not fenced": func(m *mistaken) {
		last := map[[32]byte]driver.Claim{}
		m.begin = func(ctx context.Context, c driver.Claim) (driver.Entry, error) {
			entry, err := m.Store.Begin(ctx, c)
			if entry.State == driver.Claimed {
				c.Fence = entry.Fence
				last[c.Key] = c
			}
			return entry, err
		}
		m.extend = func(ctx context.Context, c driver.Claim) error { return m.Store.Extend(ctx, last[c.Key]) }
	},
	"Extend does not extend": func(m *mistaken) {
		m.extend = func(context.Context, driver.Claim) error { return nil }
	},
	"Fail frees the key after effects": func(m *mistaken) {
		m.fail = func(ctx context.Context, c driver.Claim, f driver.Failure) error {
			f.NoEffects = true
			return m.Store.Fail(ctx, c, f)
		}
	},
	"an outcome is replayed to another request": func(m *mistaken) {
		m.begin = func(ctx context.Context, c driver.Claim) (driver.Entry, error) {
			entry, err := m.Store.Begin(ctx, c)
			if entry.State == driver.Mismatch {
				c.Fingerprint = entry.Fingerprint
				return m.Store.Begin(ctx, c)
			}
			return entry, err
		}
	},
	"outcomes are not stored": func(m *mistaken) {
		m.complete = func(ctx context.Context, c driver.Claim, _ []byte) error {
			return m.Store.Fail(ctx, c, driver.Failure{Cause: "mistake"})
		}
	},
	"a withdrawn Begin claims nevertheless": func(m *mistaken) {
		m.fail = func(ctx context.Context, c driver.Claim, f driver.Failure) error {
			if c.Fence == 0 {
				return nil
			}
			return m.Store.Fail(ctx, c, f)
		}
	},
}

// Each mistake is found within ten thousand histories. The test guards the simulation: without it, a check that never fails would
// go unnoticed.
func TestMistakesAreFound(t *testing.T) {
	for name, mistake := range mistakes {
		t.Run(name, func(t *testing.T) {
			wrap := func(s *memstore.Store) backend {
				m := newMistaken(s)
				mistake(m)
				return m
			}
			for seed := range uint64(withinSeeds) {
				if v := execute(t, newPlan(seed), wrap, false).violation; v != nil {
					t.Logf("seed %d: %s", seed, v.promise)
					return
				}
			}
			assert.Fail(t, "nothing was found")
		})
	}
}
