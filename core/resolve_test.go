package core_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// Engine.Resolve: what an operator says of an operation whose outcome is unknown.

// k is the operation of request("K", ...).
var k = core.Task{Scope: core.SingleTenant(ctx, nil), Key: "K"}

// found is what an operator has found out.
func found() *core.Response {
	return &core.Response{Status: 201, Header: []core.Field{line("Location", "/orders/7"), line("Set-Cookie", "a=b")}, Body: []byte("found")}
}

// nothingIsUnknown: err says that there is nothing to settle.
func nothingIsUnknown(t *testing.T, err error, found string) {
	t.Helper()
	require.ErrorIs(t, err, core.ErrNotUnknown)
	assert.ErrorContains(t, err, found)
}

// LSE-02.
func TestAnOperatorSettlesAnUnknownOutcome(t *testing.T) {
	for name, change := range map[string]func(*core.Config){
		"of an engine that refuses": onUnknown(core.RefuseUnknown),
		"of one that runs again":    func(*core.Config) {},
	} {
		inBubble(t, "LSE-02 it happened, "+name, func(t *testing.T) {
			f := newFixture(t, change)
			f.vanish(t)
			require.NoError(t, f.Resolve(ctx, k, found()))
			again := f.send(request("K", "B"), made)
			f.replayed(again, 201, "found")
			assert.Equal(t, []string{"/orders/7"}, values(again.Response, "Location"))
			assert.Empty(t, values(again.Response, "Set-Cookie"), "RPL-15")
			f.refused(f.send(request("K", "B'"), made), 422, "fingerprint-mismatch")
			f.ran(1)
			nothingIsUnknown(t, f.Resolve(ctx, k, found()), "completed")
			nothingIsUnknown(t, f.Resolve(ctx, k, nil), "completed")
			f.replayed(f.send(request("K", "B"), made), 201, "found")
			time.Sleep(retention)
			f.runsAgain(request("K", "B'"))
		})
		inBubble(t, "LSE-02 it did not happen, "+name, func(t *testing.T) {
			f := newFixture(t, change)
			f.vanish(t)
			require.NoError(t, f.Resolve(ctx, k, nil))
			nothingIsUnknown(t, f.Resolve(ctx, k, nil), "no record of a run")
			f.refused(f.send(request("K", "B'"), made), 422, "fingerprint-mismatch")
			run := f.runsAgain(request("K", "B"))
			assert.True(t, run.Takeover, "an operator may be wrong: the handler should look")
			f.ran(2)
		})
	}
}

// onBothStores runs test with fixtures on a store that engines can look into, and with fixtures on one into which they cannot.
func onBothStores(t *testing.T, name string, test func(t *testing.T, new func(...func(*core.Config)) *fixture)) {
	inBubble(t, name, func(t *testing.T) {
		test(t, func(changes ...func(*core.Config)) *fixture { return newFixture(t, changes...) })
	})
	inBubble(t, name+", unlooked", func(t *testing.T) {
		test(t, func(changes ...func(*core.Config)) *fixture { return newFixture(t, append(changes, cannotLook)...) })
	})
}

// A look that fails has changed nothing, and the operator may say it again.
func TestAnOperatorMaySayItAgainAfterALookThatFailed(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f := newFixture(t, onUnknown(core.RefuseUnknown))
		f.vanish(t)
		blind := f.with(func(c *core.Config) { c.Store = blindStore{f.store} })
		assert.ErrorIs(t, blind.Resolve(ctx, k, found()), errTest)
		f.store.Inject("begin", storetest.Before, 1)
		assert.ErrorIs(t, f.Resolve(ctx, k, found()), storetest.ErrInjected)
		require.NoError(t, f.Resolve(ctx, k, found()))
		f.replayed(f.send(request("K", "B"), made), 201, "found")
	})
}

// Between the operator's look and the operator's word the run that seemed to have vanished ends.
func TestAnOperatorDoesNotSettleARunThatHasEndedMeanwhile(t *testing.T) {
	for name, outcome := range map[string]*core.Response{"it happened": found(), "it did not": nil} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			f.store.Inject("extend", storetest.Before, always)
			running := f.hold(ctx, request("K", "B"), answers(503, ""))
			time.Sleep(lease)
			store := &interrupted{Faulty: f.store, before: map[string]func(){"begin 1": func() { running.finish() }}}
			resolving := f.with(func(c *core.Config) { c.Store = store })
			nothingIsUnknown(t, resolving.Resolve(ctx, k, outcome), "no record of a run")
			again := f.runsAgain(request("K", "B"))
			assert.Equal(t, 2, again.Attempt)
			assert.False(t, again.Takeover)
			f.close()
		})
	}
}

// RPL-27, RPL-30: what need not be left out is kept.
func TestABodyThatAnOperatorFoundIsKept(t *testing.T) {
	for name, change := range map[string]func(*core.Config){
		"as long as it may be": func(c *core.Config) { c.Keep.MaxBody = len("found") },
		"of a kind that stays": func(c *core.Config) { c.Keep.OmitBody = func(r *core.Response) bool { return r.Status != 201 } },
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t, change)
			f.vanish(t)
			require.NoError(t, f.Resolve(ctx, k, found()))
			f.replayed(f.send(request("K", "B"), made), 201, "found")
		})
	}
}

// Between the operator's look and the operator's word another run has taken over and vanished.
func TestAnOperatorSettlesOnlyTheRunThatWasLookedAt(t *testing.T) {
	for name, outcome := range map[string]*core.Response{"it happened": found(), "it did not": nil} {
		onBothStores(t, name, func(t *testing.T, new func(...func(*core.Config)) *fixture) {
			f := new()
			vanish := func() (fence int64) {
				f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
					core.Decide(ctx, core.LeaveUnknown)
					fence = f.seen(ctx).Fence
					return made(ctx)
				})
				time.Sleep(lease)
				return fence
			}
			looked, latest := k, k
			looked.Fence, latest.Fence = vanish(), vanish()
			nothingIsUnknown(t, f.Resolve(ctx, looked, outcome), "another run has vanished since then")
			assert.NoError(t, f.Resolve(ctx, latest, outcome), "the refused call has changed nothing")
			f.ran(2)
		})
	}
}

func TestAnOperatorCannotSettleWhatIsNotUnknown(t *testing.T) {
	for name, outcome := range map[string]*core.Response{"it happened": found(), "it did not": nil} {
		onBothStores(t, "absent, "+name, func(t *testing.T, new func(...func(*core.Config)) *fixture) {
			f, seen := new(), k
			seen.Fence = 7
			nothingIsUnknown(t, f.Resolve(ctx, k, outcome), "no record of a run")
			nothingIsUnknown(t, f.Resolve(ctx, seen, outcome), "no record of a run")
			assert.False(t, f.runsAgain(request("K", "B")).Takeover, "any request may have the key")
		})
		onBothStores(t, "running, "+name, func(t *testing.T, new func(...func(*core.Config)) *fixture) {
			f := new()
			running := f.hold(ctx, request("K", "B"), made)
			nothingIsUnknown(t, f.Resolve(ctx, k, outcome), "in-progress")
			f.answered(running.finish(), 201, "made")
			f.replayed(f.send(request("K", "B"), made), 201, "made")
			f.ran(1)
		})
		onBothStores(t, "failed, "+name, func(t *testing.T, new func(...func(*core.Config)) *fixture) {
			f := new()
			f.send(request("K", "B"), answers(500, ""))
			nothingIsUnknown(t, f.Resolve(ctx, k, outcome), "no record of a run")
			f.refused(f.send(request("K", "B'"), made), 422, "fingerprint-mismatch")
			assert.False(t, f.runsAgain(request("K", "B")).Takeover)
		})
		onBothStores(t, "released, "+name, func(t *testing.T, new func(...func(*core.Config)) *fixture) {
			f := new()
			f.send(request("K", "B"), answers(429, ""))
			nothingIsUnknown(t, f.Resolve(ctx, k, outcome), "no record of a run")
			assert.False(t, f.runsAgain(request("K", "B'")).Takeover)
		})
		onBothStores(t, "completed, "+name, func(t *testing.T, new func(...func(*core.Config)) *fixture) {
			f := new()
			f.send(request("K", "B"), made)
			nothingIsUnknown(t, f.Resolve(ctx, k, outcome), "completed")
			f.replayed(f.send(request("K", "B"), made), 201, "made")
		})
		onBothStores(t, "over, "+name, func(t *testing.T, new func(...func(*core.Config)) *fixture) {
			f := new(func(c *core.Config) { c.Keep.LateRetry = retention })
			f.send(request("K", "B"), made)
			time.Sleep(retention)
			nothingIsUnknown(t, f.Resolve(ctx, k, outcome), "expired")
			f.refused(f.send(request("K", "B"), made), 410, "retention-over")
		})
	}
}

func TestAnOperatorNamesTheOperation(t *testing.T) {
	inBubble(t, "by its scope and key", func(t *testing.T) {
		f := newFixture(t, secret(oneSecret))
		f.vanish(t)
		nothingIsUnknown(t, f.Resolve(ctx, core.Task{Scope: "other", Key: "K"}, found()), "no record")
		nothingIsUnknown(t, f.Resolve(ctx, core.Task{Scope: k.Scope, Key: "k"}, found()), "no record")
		require.NoError(t, f.Resolve(ctx, core.Task{Scope: k.Scope, Key: "K", Kind: "GET /of/no/interest"}, found()))
		f.replayed(f.send(request("K", "B"), made), 201, "found")
	})
	inBubble(t, "FPR-03 and by its route", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) { c.Key.PerRoute = true })
		f.vanish(t)
		nothingIsUnknown(t, f.Resolve(ctx, k, found()), "no record")
		nothingIsUnknown(t, f.Resolve(ctx, core.Task{Scope: k.Scope, Key: "K", Kind: "POST /refunds"}, found()), "no record")
		require.NoError(t, f.Resolve(ctx, core.Task{Scope: k.Scope, Key: "K", Kind: "POST /orders"}, found()))
		f.replayed(f.send(request("K", "B"), made), 201, "found")
	})
}

// Whatever goes wrong: the operation is settled in the end, by the operator or by nobody.
func TestAnOperatorMaySayItAgainAfterAnErrorOfTheStore(t *testing.T) {
	for _, verb := range []string{"begin", "complete", "fail"} {
		eachFault(t, anyFault, func(t *testing.T, fault storetest.Fault) {
			for _, outcome := range []*core.Response{found(), nil} {
				for nth := range 3 {
					f := newFixture(t, onUnknown(core.RefuseUnknown))
					f.vanish(t)
					store := &nthFails{Store: f.inner, verb: verb, fault: fault, left: nth}
					resolve := f.with(func(c *core.Config) { c.Store = store })
					hurried, cancel := context.WithTimeout(ctx, storeTimeout)
					err := resolve.Resolve(hurried, k, outcome)
					cancel()
					if err == nil {
						assert.GreaterOrEqual(t, store.left, 0, "the error of the store was swallowed")
						continue // so many calls are not made
					}
					assert.NotErrorIs(t, err, core.ErrNotUnknown)
					f.refused(f.healed().send(request("K", "B'"), made), 422, "fingerprint-mismatch")
					time.Sleep(lease)
					if err := f.Resolve(ctx, k, outcome); err != nil {
						assert.ErrorIs(t, err, core.ErrNotUnknown, "it has been said")
					}
					if outcome == nil {
						f.answered(f.send(request("K", "B"), made), 201, "made")
						f.ran(2)
					} else {
						f.replayed(f.send(request("K", "B"), made), 201, "found")
						f.ran(1)
					}
				}
			}
		})
	}
}

// nthFails is a store whose calls of one kind fail after the first n of them.
type nthFails struct {
	driver.Store
	verb  string
	fault storetest.Fault
	left  int
}

func (n *nthFails) next(verb string) driver.Store {
	if verb == n.verb {
		if n.left--; n.left == -1 {
			faulty := storetest.NewFaulty(n.Store)
			faulty.Inject(verb, n.fault, 1)
			return faulty
		}
	}
	return n.Store
}

func (n *nthFails) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	return n.next("begin").Begin(ctx, c)
}

func (n *nthFails) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	return n.next("complete").Complete(ctx, c, outcome)
}

func (n *nthFails) Fail(ctx context.Context, c driver.Claim, failure driver.Failure) error {
	return n.next("fail").Fail(ctx, c, failure)
}

// An operator who mistypes a key while the store is shaky must not spoil it for the one whose key it is.
func TestAnOperatorCannotSpoilAKeyThatIsNotUnknown(t *testing.T) {
	eachFault(t, anyFault, func(t *testing.T, fault storetest.Fault) {
		for _, verb := range []string{"begin", "fail"} {
			f := newFixture(t, onUnknown(core.RefuseUnknown))
			resolve := f.with(func(c *core.Config) { c.Store = &nthFails{Store: f.inner, verb: verb, fault: fault} })
			hurried, cancel := context.WithTimeout(ctx, storeTimeout)
			err := resolve.Resolve(hurried, k, found())
			cancel()
			assert.Error(t, err)
			assert.NotErrorIs(t, err, core.ErrNotUnknown)
			time.Sleep(2 * lease)
			assert.ErrorIs(t, f.Resolve(ctx, k, found()), core.ErrNotUnknown)
			assert.False(t, f.runsAgain(request("K", "B")).Takeover)
		}
	})
}

func TestAnOperatorsOutcomeIsKeptLikeAHandlers(t *testing.T) {
	inBubble(t, "it needs a status", func(t *testing.T) {
		f := newFixture(t)
		f.vanish(t)
		calls := f.calls()
		for _, status := range []int{0, 99, 1000} {
			err := f.Resolve(ctx, k, &core.Response{Status: status})
			assert.Error(t, err)
			assert.NotErrorIs(t, err, core.ErrNotUnknown)
		}
		assert.Equal(t, calls, f.calls())
	})
	inBubble(t, "whatever the status", func(t *testing.T) {
		f := newFixture(t)
		f.vanish(t)
		require.NoError(t, f.Resolve(ctx, k, &core.Response{Status: 503, Body: []byte("final")}))
		f.replayed(f.send(request("K", "B"), made), 503, "final")
	})
	inBubble(t, "by the engine's codecs", func(t *testing.T) {
		var log []string
		f := newFixture(t, coded(&log))
		f.vanish(t)
		require.NoError(t, f.Resolve(ctx, k, found()))
		f.replayed(f.send(request("K", "B"), made), 201, "found")
		assert.Equal(t, []string{"encode zip", "encode seal", "decode seal", "decode zip"}, log)
	})
	inBubble(t, "in a blob", func(t *testing.T) {
		s := newShelf()
		f := newFixture(t, shelving(s))
		f.vanish(t)
		require.NoError(t, f.Resolve(ctx, k, found()))
		assert.Len(t, s.ids(), 1)
		f.replayed(f.send(request("K", "B"), made), 201, "found")
	})
	for name, c := range map[string]struct {
		change func(*core.Config)
		body   string
		cut    bool
	}{
		"RPL-27 over the limit":  {func(c *core.Config) { c.Keep.MaxBody = 4 }, "12345", false},
		"RPL-30 of a route":      {func(c *core.Config) { c.Keep.OmitBody = func(*core.Response) bool { return true } }, "1234", false},
		"RPL-27 not known whole": {func(*core.Config) {}, "part", true},
	} {
		inBubble(t, name+" without its body", func(t *testing.T) {
			f := newFixture(t, c.change)
			f.vanish(t)
			require.NoError(t, f.Resolve(ctx, k, &core.Response{Status: 201, Header: []core.Field{length}, Body: []byte(c.body), Omitted: c.cut}))
			f.omitted(f.send(request("K", "B"), made))
		})
	}
}

// CON-04: who waits is told by the operator, too.
func TestAWaiterGetsTheOutcomeThatTheOperatorSettles(t *testing.T) {
	inBubble(t, "CON-04", func(t *testing.T) {
		f := newFixture(t, waiting(time.Hour), onUnknown(core.RefuseUnknown))
		f.vanish(t)
		slow := &nthFails{Store: f.inner}
		resolve := f.with(func(c *core.Config) { c.Wait.Timeout, c.Store = 0, slowComplete{slow} })
		done := make(chan error)
		go func() { done <- resolve.Resolve(ctx, k, found()) }()
		time.Sleep(100 * time.Millisecond)
		retry := f.later(ctx, request("K", "B"), made)
		assert.NoError(t, <-done)
		f.replayed((<-retry).Result, 201, "found")
		f.ran(1)
	})
}

// slowComplete takes half a second to complete.
type slowComplete struct{ driver.Store }

func (s slowComplete) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	time.Sleep(500 * time.Millisecond)
	return s.Store.Complete(ctx, c, outcome)
}

// blind is a store that looks at nothing.
type blind struct{ driver.Store }

func TestAKeyThatAnOperatorMistypedLeavesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*core.Config)
		note   int // how many records a store has that must be asked by a claim, for as long as a call may last
	}{
		"LSE-02":                             {func(*core.Config) {}, 0},
		"LSE-02 in a store that cannot look": {func(c *core.Config) { c.Store = blind{c.Store} }, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t, test.change)
			nothingIsUnknown(t, f.Resolve(ctx, k, nil), "no record of a run")
			records := func() (n int) {
				require.NoError(t, f.inner.(driver.Inspector).Scan(ctx, driver.Filter{}, func(driver.Record) bool {
					n++
					return true
				}))
				return n
			}
			assert.Equal(t, test.note, records())
			time.Sleep(storeTimeout)
			assert.Zero(t, records())
			f.send(request("K", "B"), answers(500, ""))
			nothingIsUnknown(t, f.Resolve(ctx, k, nil), "no record of a run")
			time.Sleep(storeTimeout)
			assert.Equal(t, 1, records(), "the record of a run that failed stays")
		})
	}
}

// An operator settles a vanished run with one write: what the store was asked before changes nothing.
func TestResolveIsOneStepOfTheStore(t *testing.T) {
	inBubble(t, "LSE-02", func(t *testing.T) {
		f := newFixture(t, onUnknown(core.RefuseUnknown))
		f.vanish(t)
		before := f.store.Calls("begin")
		require.NoError(t, f.Resolve(ctx, k, &core.Response{Status: 201, Body: []byte("found")}))
		assert.Equal(t, 1, f.store.Calls("begin")-before)
		f.replayed(f.send(request("K", "B"), made), 201, "found")
	})
}
