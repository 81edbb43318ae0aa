package core_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
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

// The child key follows scope and key, because everything else may change between two runs of one operation. A provider then
// refuses a mended request rather than charging twice; who wants to ask anew names the operation in the step.
func TestChildKeyOfAMendedRequestIsTheSame(t *testing.T) {
	f := newFixture(t)
	child := func(body string, d core.Disposition) (key string) {
		f.send(request("K", body), func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, d)
			key = core.ChildKey(ctx, "charge")
			return made(ctx)
		})
		return key
	}
	assert.Equal(t, child("pay 100", core.Release), child("pay 50", core.Keep))
}

// Run.Operation is the handler's way to tell a run that follows a release from one that follows a failure.
func TestAReleaseBeginsAnotherOperation(t *testing.T) {
	f := newFixture(t)
	var runs []core.Run
	for _, status := range []int{401, 500, 500, 201} {
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			runs = append(runs, f.seen(ctx))
			return &core.Response{Status: status}, nil
		})
	}
	assert.Equal(t, runs[0].Fence, runs[0].Operation)
	assert.Equal(t, runs[1].Fence, runs[1].Operation, "the 401 has released the key")
	assert.Equal(t, runs[1].Operation, runs[2].Operation)
	assert.Equal(t, runs[1].Operation, runs[3].Operation)
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
	for name, set := range map[string]func(c *core.Config, panics core.Hook){
		"begin":           func(c *core.Config, panics core.Hook) { c.Hooks.Begin = panics },
		"kept":            func(c *core.Config, panics core.Hook) { c.Hooks.Kept = panics },
		"each store call": func(c *core.Config, panics core.Hook) { c.Hooks.StoreCall = panics },
		"a look under another name": func(c *core.Config, panics core.Hook) {
			c.PreviousSecrets = [][]byte{bytes.Repeat([]byte("s"), 32)}
			c.Hooks.StoreCall = onCall("Look", panics)
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			broken := f.with(func(c *core.Config) { set(c, func(context.Context, core.Event) { panic("hook") }) })
			assert.Panics(t, func() { broken.send(request("K", "B"), made) })
			assert.Empty(t, f.send(request("K", "B"), made).Problem)
			time.Sleep(2 * lease)
			assert.Zero(t, f.store.Calls("extend"))
		})
	}
}

// onCall is a Hooks.StoreCall that calls hook for this call alone.
func onCall(name string, hook core.Hook) core.Hook {
	return func(ctx context.Context, e core.Event) {
		if e.Call == name {
			hook(ctx, e)
		}
	}
}

// broken is f with a hook that panics, once it has been heard.
func (f *fixture) broken(on func(*core.Hooks) *core.Hook) *fixture {
	return f.with(func(c *core.Config) {
		hook := on(&c.Hooks)
		heard := *hook
		*hook = func(ctx context.Context, e core.Event) {
			heard(ctx, e)
			panic(errTest)
		}
	})
}

// Nothing has run when a hook before the handler panics: not even who asks about unknown outcomes has anything to ask.
func TestAHookThatPanicsBeforeTheHandlerFreesTheKey(t *testing.T) {
	begin := func(h *core.Hooks) *core.Hook { return &h.Begin }
	for name, change := range map[string]func(*core.Config){
		"by default":         func(*core.Config) {},
		"also for who asks":  onUnknown(core.RefuseUnknown),
		"also when it waits": waiting(time.Minute),
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t, change)
			passes(t, errTest, func() { f.broken(begin).send(request("K", "B"), made) })
			assert.Equal(t, "begin failed", f.heard.names())
			f.ran(0)
			assert.False(t, f.runsAgain(request("K", "B'")).Takeover, "any request may have the key")
		})
	}
	inBubble(t, "but not what an earlier run may have done", func(t *testing.T) {
		f := newFixture(t)
		f.vanish(t)
		passes(t, errTest, func() { f.broken(func(h *core.Hooks) *core.Hook { return &h.Takeover }).send(request("K", "B"), made) })
		f.refused(f.send(request("K", "B'"), made), 422, "fingerprint-mismatch")
		assert.True(t, f.runsAgain(request("K", "B")).Takeover)
	})
}

// What is kept stays kept, and nobody hears that it was lost.
func TestAHookThatPanicsBehindTheHandlerChangesNothing(t *testing.T) {
	for name, change := range map[string]func(*core.Config){"by default": func(*core.Config) {}, "for who asks": onUnknown(core.RefuseUnknown)} {
		inBubble(t, "kept, "+name, func(t *testing.T) {
			f := newFixture(t, change)
			passes(t, errTest, func() { f.broken(func(h *core.Hooks) *core.Hook { return &h.Kept }).send(request("K", "B"), made) })
			assert.Equal(t, "begin kept", f.heard.names())
			assert.Zero(t, f.store.Calls("fail"))
			f.replayed(f.send(request("K", "B"), made), 201, "made")
			f.ran(1)
		})
		inBubble(t, "failed, "+name, func(t *testing.T) {
			f := newFixture(t, change)
			passes(t, errTest, func() {
				f.broken(func(h *core.Hooks) *core.Hook { return &h.Failed }).send(request("K", "B"), answers(500, ""))
			})
			assert.Equal(t, "begin failed", f.heard.names())
			assert.Equal(t, 1, f.store.Calls("fail"))
			assert.False(t, f.runsAgain(request("K", "B")).Takeover)
		})
	}
	inBubble(t, "store error", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("complete", storetest.Before, 1)
		passes(t, errTest, func() {
			f.broken(func(h *core.Hooks) *core.Hook { return &h.StoreError }).send(request("K", "B"), made)
		})
		f.close()
		time.Sleep(2 * lease)
		assert.Zero(t, f.store.Calls("extend"), "no timer is left")
		f.runsAgain(request("K", "B"))
	})
}

// MTH-07: a handler that takes the connection over may know what becomes of its key.
func TestADecisionCountsForAHijackedConnection(t *testing.T) {
	hijacks := func(d core.Disposition) handler {
		return func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, d)
			return &core.Response{Status: 101, Hijacked: true, Sent: true}, nil
		}
	}
	inBubble(t, "MTH-07 there is no answer to keep", func(t *testing.T) {
		f := newFixture(t)
		f.send(request("K", "B"), hijacks(core.Keep))
		f.runsAgain(request("K", "B'"))
	})
	inBubble(t, "MTH-07 there is no answer to keep after a decision that is none", func(t *testing.T) {
		f := newFixture(t)
		f.send(request("K", "B"), hijacks(7))
		f.runsAgain(request("K", "B'"))
	})
	inBubble(t, "MTH-07 it is retried", func(t *testing.T) {
		f := newFixture(t)
		f.send(request("K", "B"), hijacks(core.Retry))
		f.refused(f.send(request("K", "B'"), made), 422, "fingerprint-mismatch")
		f.runsAgain(request("K", "B"))
	})
	inBubble(t, "MTH-07 it is unknown", func(t *testing.T) {
		f := newFixture(t, onUnknown(core.RefuseUnknown))
		f.send(request("K", "B"), hijacks(core.LeaveUnknown))
		f.refused(f.send(request("K", "B"), made), 409, "in-progress")
		time.Sleep(lease)
		f.refused(f.send(request("K", "B"), made), 409, "outcome-unknown")
	})
}

// A store that does not watch its context may answer when the lease is over.
func TestABeginThatIsAnsweredAfterItsLeaseDoesNotRun(t *testing.T) {
	inBubble(t, "late", func(t *testing.T) {
		f := newFixture(t)
		slow := f.with(func(c *core.Config) {
			c.Store = scripted{Store: f.store, begin: func(claim driver.Claim) (driver.Entry, error) {
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

// notFinal are responses that can be no outcome: net/http would send 200 for a status below 200, and there is no connection to take
// over.
var notFinal = []core.Response{{}, {Status: 99}, {Status: 103}, {Status: 1000}, {Status: 200, Hijacked: true}}

func TestAnOutcomeThatNoHandlerHasWrittenNeedsAStatus(t *testing.T) {
	for _, response := range notFinal {
		inBubble(t, fmt.Sprintf("OnUnknown/%+v", response), func(t *testing.T) {
			f := newFixture(t, onUnknown(func(context.Context, *core.Request) (*core.Response, error) { return &response, nil }))
			f.vanish(t)
			f.refused(f.send(request("K", "B"), made), 409, "outcome-unknown")
			f.ran(1)
		})
		inBubble(t, fmt.Sprintf("Resolve/%+v", response), func(t *testing.T) {
			f := newFixture(t, onUnknown(core.RefuseUnknown))
			f.vanish(t)
			assert.ErrorContains(t, f.Resolve(ctx, k, &response), "status from 200 to 999")
			f.refused(f.send(request("K", "B"), made), 409, "outcome-unknown")
			f.ran(1)
		})
	}
}
