package core_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/storetest"
)

// What an earlier run may have done is not forgotten by a later one.

func TestAReleasedKeyIsNotFreeWhenAnEarlierRunMayHaveHadEffects(t *testing.T) {
	f := newFixture(t)
	f.send(request("K", "pay 100"), answers(500, "charged, then failed"))
	f.send(request("K", "pay 100"), answers(429, "slow down"))
	f.refused(f.send(request("K", "pay 50"), made), 422, "fingerprint-mismatch")
	f.sends(f.send(request("K", "pay 100"), made), 201, "made")
}

func TestARunKnowsOfATakeoverBeforeItsPredecessor(t *testing.T) {
	inBubble(t, "takeover, 5xx, run", func(t *testing.T) {
		f := newFixture(t)
		f.vanish(t)
		f.send(request("K", "B"), answers(503, "try again"))
		assert.True(t, f.runsAgain(request("K", "B")).Takeover)
	})
}

func TestChildKeyOfAMendedRequestIsAnother(t *testing.T) {
	f := newFixture(t)
	child := func(body string, d core.Disposition) (key string) {
		f.send(request("K", body), func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, d)
			key = core.ChildKey(ctx, "charge")
			return made(ctx)
		})
		return key
	}
	assert.NotEqual(t, child("pay 100", core.Release), child("pay 50", core.Keep), "a provider would refuse the second, or replay the first")
}

func TestChildKeyIsThereWhenTheEngineFailsOpen(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.DangerouslyFailOpen = true })
	var keys []string
	charge := func(ctx context.Context) (*core.Response, error) {
		keys = append(keys, core.ChildKey(ctx, "charge"))
		return made(ctx)
	}
	f.store.Inject("begin", storetest.Before, 1)
	f.send(request("K", "B"), charge)
	f.close()
	f.send(request("K", "B"), charge)
	assert.Len(t, keys, 2)
	assert.NotEmpty(t, keys[0])
	assert.Equal(t, keys[0], keys[1])
}

// A middleware on all routes and another on one.
func TestAnEngineInsideTheRunOfAnotherStandsAside(t *testing.T) {
	f := newFixture(t)
	inner := f.With(func(c *core.Config) { c.Key.Required = true })
	nested := func(ctx context.Context) (*core.Response, error) {
		result, err := inner.Do(ctx, request("K", "B"), made)
		assert.True(t, result.Bypassed)
		assert.NoError(t, err)
		return made(ctx)
	}
	f.sends(f.send(request("K", "B"), nested), 201, "made")
	f.replayed(f.send(request("K", "B"), nested), 201, "made")
	f.ran(1)
}

func TestAHookThatPanicsLeavesNoClaimAndNoTimer(t *testing.T) {
	for name, on := range map[string]func(*core.Hooks, core.Hook){
		"begin": func(h *core.Hooks, p core.Hook) { h.Begin = p },
		"kept":  func(h *core.Hooks, p core.Hook) { h.Kept = p },
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			broken := f.with(func(c *core.Config) { on(&c.Hooks, func(context.Context, core.Event) { panic("hook") }) })
			assert.Panics(t, func() { broken.send(request("K", "B"), made) })
			assert.Empty(t, f.send(request("K", "B"), made).Problem)
			time.Sleep(2 * lease)
			assert.Zero(t, f.store.Calls("extend"))
		})
	}
}

// A store that does not watch its context may answer when the lease is over.
func TestABeginThatIsAnsweredAfterItsLeaseDoesNotRun(t *testing.T) {
	inBubble(t, "late", func(t *testing.T) {
		f := newFixture(t)
		slow := f.with(func(c *core.Config) {
			c.Store = scripted{Store: f.store, begin: func(claim core.Claim) (core.Entry, error) {
				entry, err := f.store.Begin(ctx, claim)
				time.Sleep(lease)
				return entry, err
			}}
		})
		slow.refused(slow.send(request("K", "B"), made), 409, "claim-lost")
		f.close()
		f.ran(0)
		f.sends(f.send(request("K", "B"), made), 201, "made")
	})
}

// While one request looks a vanished run up, another takes over and vanishes too: what was found is about the first.
func TestAFindingIsAboutTheRunThatWasLookedUp(t *testing.T) {
	inBubble(t, "stale", func(t *testing.T) {
		var asked atomic.Int64
		f := newFixture(t, onUnknown(func(context.Context, *core.Request) (*core.Response, error) {
			if asked.Add(1) == 1 {
				time.Sleep(3 * lease)
			}
			return nil, nil // it had no effect
		}))
		f.vanish(t)
		slow := make(chan core.Result)
		go func() { slow <- f.send(request("K", "B"), made) }()
		time.Sleep(time.Second)
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, core.LeaveUnknown) // this one may have had an effect
			return &core.Response{Status: 504}, nil
		})
		f.refused(<-slow, 409, "outcome-unknown")
		f.ran(2)
	})
}

func TestAResolversOutcomeNeedsAStatus(t *testing.T) {
	inBubble(t, "no status", func(t *testing.T) {
		f := newFixture(t, onUnknown(func(context.Context, *core.Request) (*core.Response, error) { return &core.Response{}, nil }))
		f.vanish(t)
		f.refused(f.send(request("K", "B"), made), 409, "outcome-unknown")
		f.ran(1)
	})
}
