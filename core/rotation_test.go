package core_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// SKW-01: secrets change while keys live.

// secrets sets the secret and the previous ones; "" is none.
func secrets(current string, previous ...string) func(*core.Config) {
	return func(c *core.Config) {
		c.Secret, c.PreviousSecrets = []byte(current), nil
		for _, p := range previous {
			c.PreviousSecrets = append(c.PreviousSecrets, []byte(p))
		}
	}
}

// routes sets whether a key is one per route, and whether it was otherwise before.
func routes(perRoute, changed bool) func(*core.Config) {
	return func(c *core.Config) {
		secrets("")(c)
		c.Key.PerRoute, c.Key.PerRouteChanged = perRoute, changed
	}
}

// onlyCurrent is the last step of a rotation.
func onlyCurrent(c *core.Config) { c.PreviousSecrets, c.Key.PerRouteChanged = nil, false }

// rotations are secrets, or names with and without a route, before a change and after it.
var rotations = map[string][2]func(*core.Config){
	"another secret":           {secrets(oneSecret), secrets(anotherSecret, oneSecret)},
	"the first secret":         {secrets(""), secrets(oneSecret, "")},
	"no secret any more":       {secrets(oneSecret), secrets("", oneSecret)},
	"the third secret":         {secrets(oneSecret), secrets(anotherSecret, "0123456789abcdeh", oneSecret)},
	"the new one made known":   {secrets(anotherSecret), secrets(oneSecret, anotherSecret)},
	"the new one made current": {secrets(oneSecret, anotherSecret), secrets(anotherSecret, oneSecret)},
	"a key per route":          {routes(false, false), routes(true, true)},
	"no key per route":         {routes(true, false), routes(false, true)},
	"a key per route, known":   {routes(true, false), routes(false, true)},
	"a key per route, current": {routes(false, true), routes(true, true)},
	"a secret and a key per route": {secrets(oneSecret), func(c *core.Config) {
		secrets(anotherSecret, oneSecret)(c)
		c.Key.PerRoute, c.Key.PerRouteChanged = true, true
	}},
	"a secret and a fingerprint": {secrets(oneSecret), func(c *core.Config) {
		secrets(anotherSecret, oneSecret)(c)
		c.Fingerprint = core.FingerprintConfig{SortQuery: true, Previous: &core.FingerprintConfig{}}
	}},
}

// unlooked is a store that is no driver.Inspector.
type unlooked struct {
	driver.Store
	driver.Notifier
	driver.Checkpointer
}

func cannotLook(c *core.Config) {
	faulty := c.Store.(*storetest.Faulty)
	c.Store = unlooked{faulty, faulty, faulty}
}

// eachRotation runs test for each rotation, on a store that engines can look into, and on one into which they cannot.
func eachRotation(t *testing.T, test func(t *testing.T, before, after *fixture)) {
	for name, r := range rotations {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t, r[0])
			test(t, f, f.with(r[1]))
			f.close()
		})
		inBubble(t, name+", unlooked", func(t *testing.T) {
			f := newFixture(t, r[0], cannotLook)
			test(t, f, f.with(r[1]))
			f.close()
		})
	}
}

func TestARecordIsFoundUnderAPreviousSecret(t *testing.T) {
	eachRotation(t, func(t *testing.T, before, after *fixture) {
		before.answered(before.send(request("K", "B"), made), 201, "made")
		for range 2 {
			after.replayed(after.send(request("K", "B"), made), 201, "made")
			after.refused(after.send(request("K", "B'"), made), 422, "fingerprint-mismatch")
			before.replayed(before.send(request("K", "B"), made), 201, "made")
		}
		after.ran(1)

		after.answered(after.send(request("L", "B"), made), 201, "made")
		after.replayed(after.send(request("L", "B"), made), 201, "made")
		other := after.send(request("L", "B'"), made)
		after.refused(other, 422, "fingerprint-mismatch")
		last := after.with(onlyCurrent)
		assert.Equal(t, last.send(request("L", "B'"), made).Response.Body, other.Response.Body, "the instance is the record's own name")
	})
}

func TestARunInProgressIsFoundUnderAPreviousSecret(t *testing.T) {
	eachRotation(t, func(t *testing.T, before, after *fixture) {
		running := before.hold(ctx, request("K", "B"), made)
		after.refused(after.send(request("K", "B"), made), 409, "in-progress")
		waiter := after.with(waiting(lease)).later(ctx, request("K", "B"), made)
		before.answered(running.finish(), 201, "made")
		after.replayed((<-waiter).Result, 201, "made")
		after.ran(1)
	})
}

func TestAFailedRunGoesOnUnderAPreviousSecretWithItsSteps(t *testing.T) {
	eachRotation(t, func(t *testing.T, before, after *fixture) {
		steps := 0
		failing := func(status int) handler {
			return func(ctx context.Context) (*core.Response, error) {
				_, err := core.Step(ctx, "charge", func(context.Context) (int, error) { steps++; return steps, nil })
				require.NoError(t, err)
				return &core.Response{Status: status, Body: []byte("charged")}, nil
			}
		}
		before.send(request("K", "B"), failing(503))
		after.send(request("K", "B"), failing(503))
		after.answered(after.send(request("K", "B"), failing(201)), 201, "charged")
		before.replayed(before.send(request("K", "B"), made), 201, "charged")
		after.replayed(after.send(request("K", "B"), made), 201, "charged")
		assert.Equal(t, 1, steps)
		after.ran(3)
	})
}

func TestALateRetryIsRefusedUnderAPreviousSecret(t *testing.T) {
	eachRotation(t, func(t *testing.T, before, after *fixture) {
		remember := func(c *core.Config) { c.Keep.LateRetry = retention }
		before.with(remember).send(request("K", "B"), made)
		time.Sleep(retention)
		for range 2 {
			after.with(remember).refused(after.with(remember).send(request("K", "B"), made), 410, "retention-over")
		}
		after.ran(1)
		after.answered(after.send(request("K", "B"), made), 201, "made")
		after.answered(after.with(remember).send(request("L", "B"), made), 201, "made")
		after.replayed(after.with(remember).send(request("L", "B"), made), 201, "made")
	})
}

// holdsAndGivesBack has a process that knows one secret claim a key, and returns what gives the claim back.
func (f *fixture) holdsAndGivesBack(t *testing.T) (running *held, giveBack func()) {
	var claim driver.Claim
	earlier := f.with(secrets(oneSecret)).with(func(c *core.Config) {
		c.Store = scripted{Store: f.store, begin: func(c driver.Claim) (driver.Entry, error) {
			claim = c
			entry, err := f.store.Begin(ctx, c)
			claim.Fence = entry.Fence
			return entry, err
		}}
	})
	running = earlier.hold(ctx, request("K", "B"), made)
	return running, func() {
		require.NoError(t, f.store.Fail(ctx, claim, driver.Failure{NoEffects: true, NotRun: true}))
	}
}

// A claim that another process gives back, while this one is about to go on under its name, leaves nothing to go on with.
func TestAClaimThatIsGivenBackMeanwhileLeavesTheOwnName(t *testing.T) {
	inBubble(t, "given back", func(t *testing.T) {
		f := newFixture(t, secrets(anotherSecret, oneSecret))
		running, giveBack := f.holdsAndGivesBack(t)
		store := &interrupted{Faulty: f.store, before: map[string]func(){"fail 1": giveBack}}
		f.answered(f.with(func(c *core.Config) { c.Store = store }).send(request("K", "B"), made), 201, "made")
		last := f.with(secrets(anotherSecret))
		last.replayed(last.send(request("K", "B"), made), 201, "made")
		running.finish()
		f.close()
	})
	inBubble(t, "given back and completed, when another request has the own name", func(t *testing.T) {
		f := newFixture(t, secrets(anotherSecret, oneSecret))
		running, giveBack := f.holdsAndGivesBack(t)
		var other *held
		store := &interrupted{Faulty: f.store, before: map[string]func(){"fail 1": giveBack, "begin 3": func() {
			first := f.with(secrets(oneSecret))
			first.answered(first.send(request("K", "B"), answers(201, "kept")), 201, "kept")
			other = f.with(secrets(anotherSecret)).hold(ctx, request("K", "another"), made)
		}}}
		f.replayed(f.with(func(c *core.Config) { c.Store = store }).send(request("K", "B"), made), 201, "kept")
		other.finish()
		running.finish()
		f.close()
	})
}

// The record under the earlier name is another's meanwhile, and the own name too: what was found there counts.
func TestAnOutcomeUnderAPreviousSecretCountsWhoeverHasTheOwnNameMeanwhile(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f := newFixture(t, secrets(oneSecret))
		f.send(request("K", "B"), made)
		var other *held
		store := &interrupted{Faulty: f.store, before: map[string]func(){"begin 2": func() {
			other = f.with(secrets(anotherSecret)).hold(ctx, request("K", "B"), answers(201, "twice"))
		}}}
		after := f.with(secrets(anotherSecret, oneSecret))
		after.replayed(after.with(func(c *core.Config) { c.Store = store }).send(request("K", "B"), made), 201, "made")
		other.finish()
	})
}

// everFailed is a store in which each record has failed when it is looked at, and is gone when it is claimed.
type everFailed struct{ *storetest.Faulty }

func (everFailed) Look(context.Context, [32]byte) (driver.Record, error) {
	return driver.Record{State: driver.Failed, Attempt: 1}, nil
}

func TestARequestDoesNotFollowItsRecordForEver(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f := newFixture(t, secrets(anotherSecret, oneSecret), func(c *core.Config) { c.Store = everFailed{c.Store.(*storetest.Faulty)} })
		f.refused(f.send(request("K", "B"), made), 409, "in-progress")
		f.ran(0)
		assert.Equal(t, 6, f.store.Calls("begin"), "it is found three times")
	})
}

// calls are how often an engine has called its store.
type calls struct{ begins, looks, fails int }

func (f *fixture) called() calls {
	return calls{f.store.Calls("begin"), f.store.Calls("look"), f.store.Calls("fail")}
}

// A key without a record under Secret costs one more call for each previous secret, and another claim if there is a record.
func TestWhatAKeyCostsUnderPreviousSecrets(t *testing.T) {
	for name, c := range map[string]struct {
		earlier func(before, after *fixture)
		body    string
		want    calls
	}{
		"a new key":         {func(_, _ *fixture) {}, "B", calls{1, 2, 0}},
		"a replay":          {func(_, after *fixture) { after.send(request("K", "B"), made) }, "B", calls{1, 0, 0}},
		"an earlier record": {func(before, _ *fixture) { before.send(request("K", "B"), made) }, "B", calls{2, 1, 1}},
		"another request":   {func(before, _ *fixture) { before.send(request("K", "B"), made) }, "another", calls{2, 1, 1}},
		"an earlier failure, whose rivals are looked for": {
			func(before, _ *fixture) { before.send(request("K", "B"), answers(503, "")) }, "B", calls{2, 3, 1},
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			before := newFixture(t, secrets(oneSecret), comparing(core.FingerprintConfig{Func: v1}))
			after := before.with(secrets(anotherSecret, oneSecret, "0123456789abcdeh"))
			c.earlier(before, after)
			earlier := before.called()
			after.send(request("K", c.body), made)
			after.close()
			got := before.called()
			assert.Equal(t, c.want, calls{got.begins - earlier.begins, got.looks - earlier.looks, got.fails - earlier.fails})
		})
	}
}

// A release whose response is lost leaves a claim under the own name for a while, which is no rival of the run that goes on.
func TestARunGoesOnUnderAPreviousSecretAlthoughItsOwnNameCannotBeReleased(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		before := newFixture(t, secrets(oneSecret))
		before.send(request("K", "B"), answers(503, ""))
		after := before.with(secrets(anotherSecret, oneSecret))
		after.store.Inject("fail", storetest.Before, 5)
		assert.Equal(t, 2, after.runsAgain(request("K", "B")).Attempt)
		after.close()
	})
}

// lookFails is a store of which one call of Look fails.
type lookFails struct {
	*storetest.Faulty
	left int // calls before that one
}

func (s *lookFails) Look(ctx context.Context, name [32]byte) (driver.Record, error) {
	if s.left--; s.left == -1 {
		return driver.Record{}, errTest
	}
	return s.Faulty.Look(ctx, name)
}

// Nothing runs if it cannot be seen whether another process runs the key, and nothing stays claimed.
func TestALookThatFailsBeforeARunReleasesTheKey(t *testing.T) {
	for looks := range 2 {
		inBubble(t, fmt.Sprint("after look ", looks), func(t *testing.T) {
			f := newFixture(t, secrets(oneSecret))
			f.send(request("K", "B"), answers(503, ""))
			store := &lookFails{Faulty: f.store, left: looks}
			after := f.with(secrets(anotherSecret, oneSecret)).with(func(c *core.Config) { c.Store = store })
			after.refused(after.send(request("K", "B"), made), 503, "store-unavailable")
			after.ran(1)
			synctest.Wait() // what was claimed is released in the background
			run := after.runsAgain(request("K", "B"))
			assert.Equal(t, 2, run.Attempt, "the one that was refused is no attempt")
			f.replayed(f.send(request("K", "B"), made), 201, "made")
			after.close()
		})
	}
}

func TestAVanishedRunIsFoundUnderAPreviousSecret(t *testing.T) {
	eachRotation(t, func(t *testing.T, before, after *fixture) {
		before.vanish(t)
		refusing := after.with(func(c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown })
		refusing.refused(refusing.send(request("K", "B"), made), 409, "outcome-unknown")
		require.NoError(t, refusing.Resolve(ctx, core.Task{Scope: "single-tenant", Key: "K", Kind: "POST /orders"}, nil))
		assert.True(t, after.runsAgain(request("K", "B")).Takeover)
	})
}

// Two vanished claims are two unknown outcomes: what OnUnknown says of the first is not about the second.
func TestAVanishedRunIsFoundUnderAPreviousSecretBehindAVanishedClaim(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		before := newFixture(t, secrets(oneSecret))
		before.vanish(t)
		asked := 0
		after := before.with(secrets(anotherSecret, oneSecret)).with(func(c *core.Config) {
			c.Lease.OnUnknown = func(context.Context, *core.Request) (*core.Response, error) { asked++; return nil, nil }
		})
		after.dieInBegin(request("K", "B"))
		assert.True(t, after.runsAgain(request("K", "B")).Takeover)
		assert.Equal(t, 2, asked)
	})
}

func TestAMessageIsFoundUnderAPreviousSecret(t *testing.T) {
	eachRotation(t, func(t *testing.T, before, after *fixture) {
		assert.Equal(t, consumer.Done, before.consume(message, before.numbered).Verdict)
		d := after.consume(message, after.numbered)
		assert.Equal(t, consumer.Duplicate, d.Verdict, d.Err)
		assert.Equal(t, receipt{1}, d.Result)
		other := message
		other.Payload = []byte("another")
		assert.Equal(t, consumer.Dead, after.consume(other, after.numbered).Verdict)
	})
}

// A dead task that was revived under a previous secret takes over there: its earlier runs may have had effects.
func TestARevivedMessageIsFoundUnderAPreviousSecret(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		before := consuming(t, two, secrets(oneSecret))
		before.dies(t)
		require.NoError(t, before.Resolve(ctx, dead, nil))
		after := before.with(secrets(anotherSecret, oneSecret))
		d := after.consume(message, func(ctx context.Context) (receipt, error) {
			assert.True(t, after.seen(ctx).Takeover)
			return receipt{}, nil
		})
		assert.Equal(t, consumer.Done, d.Verdict, d.Err)
	})
}

// Tasks are compared by their input, whatever requests are compared by.
func TestAMessageIsComparedUnderAPreviousSecretWhateverRequestsAreComparedBy(t *testing.T) {
	for name, config := range map[string]core.FingerprintConfig{"route": {Off: true}, "function": {Func: v1}} {
		inBubble(t, name, func(t *testing.T) {
			before := newFixture(t, secrets(oneSecret), comparing(config))
			after := before.with(secrets(anotherSecret, oneSecret))
			assert.Equal(t, consumer.Done, before.consume(message, before.numbered).Verdict)
			assert.Equal(t, consumer.Duplicate, after.consume(message, after.numbered).Verdict)
			other := message
			other.Payload = []byte("another")
			assert.Equal(t, consumer.Dead, after.consume(other, after.numbered).Verdict)
		})
	}
}

// A process that dies after its claim, and before it has looked under the other name, hides no outcome that is stored there.
func TestAClaimThatVanishedHidesNoOutcomeUnderAnotherName(t *testing.T) {
	for name, r := range map[string][2]func(*core.Config){
		"secrets":      {secrets(oneSecret, anotherSecret), secrets(anotherSecret, oneSecret)},
		"secrets back": {secrets(anotherSecret, oneSecret), secrets(oneSecret, anotherSecret)},
		"routes":       {routes(false, true), routes(true, true)},
	} {
		for _, body := range []string{"B", "another"} {
			inBubble(t, name+", "+body, func(t *testing.T) {
				before := newFixture(t, r[0])
				after := before.with(r[1])
				after.answered(after.send(request("K", "B"), made), 201, "made")
				before.dieInBegin(request("K", body))
				for _, f := range []*fixture{before, after} {
					f = f.with(func(c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown })
					f.replayed(f.send(request("K", "B"), made), 201, "made")
					assert.NotEmpty(t, f.send(request("K", "another"), made).Problem) // 422, or 409 for its own vanished claim
				}
				after.ran(1)
				before.close()
			})
		}
	}
}

// A process that dies during a rotation, after any of its calls, leaves no claim under the earlier name. Later processes would
// go on under that name, where processes of the last step do not look.
func TestAProcessThatDiesLeavesNoClaimUnderAnEarlierName(t *testing.T) {
	for calls := 1; calls <= 4; calls++ {
		inBubble(t, fmt.Sprint("after call ", calls), func(t *testing.T) {
			f := newFixture(t, secrets(anotherSecret, oneSecret))
			f.foundAfterADeath(calls)
			f.close()
		})
	}
}

// foundAfterADeath has a process handle a request, and die after some calls to the store. The request is sent again until it has run.
// A process of the last step, which knows no previous secret, must replay its outcome then.
func (f *fixture) foundAfterADeath(calls int) {
	f.tb.Helper()
	f.dieAfter(calls, request("K", "B"))
	for f.send(request("K", "B"), made).Problem != "" {
		time.Sleep(lease)
	}
	last := f.with(secrets(anotherSecret))
	last.replayed(last.send(request("K", "B"), made), 201, "made")
}

// blindStore is a store whose records nobody can look at.
type blindStore struct{ *storetest.Faulty }

func (blindStore) Look(context.Context, [32]byte) (driver.Record, error) {
	return driver.Record{}, errTest
}

// A request that could not look at the other name has sent nothing under that name, and withdraws nothing there. Otherwise a
// process that dies while it finds out what the withdrawn record hides would leave a claim under that name, and the next run would
// be hidden from a process that knows its own name alone.
func TestALookThatFailedLeavesNothingUnderTheOtherName(t *testing.T) {
	for _, lateRetry := range []time.Duration{0, time.Hour} {
		for calls := 1; calls <= 4; calls++ {
			inBubble(t, fmt.Sprintf("dead after call %d, LateRetry %v", calls, lateRetry), func(t *testing.T) {
				f := newFixture(t, secrets(anotherSecret, oneSecret), func(c *core.Config) { c.Keep.LateRetry = lateRetry })
				blind := f.with(func(c *core.Config) { c.Store = blindStore{f.store} })
				blind.refused(blind.send(request("K", "B"), made), 503, "store-unavailable")
				blind.close()
				f.foundAfterADeath(calls)
				f.close()
			})
		}
	}
}

// A released claim under the other name is no record, so a request without a LateRetry does not claim it to look behind it.
func TestAReleasedClaimUnderTheOtherNameIsNotClaimed(t *testing.T) {
	inBubble(t, "dead after each call", func(t *testing.T) {
		for calls := 1; calls <= 4; calls++ {
			f := newFixture(t, secrets(anotherSecret, oneSecret))
			earlier := f.with(secrets(oneSecret)).with(func(c *core.Config) { c.Store = scripted{Store: f.store, begin: noReply} })
			earlier.refused(earlier.send(request("K", "B"), made), 503, "store-unavailable")
			earlier.close()
			f.foundAfterADeath(calls)
			f.close()
		}
	})
	inBubble(t, "a tombstone, dead after each call", func(t *testing.T) {
		for calls := 1; calls <= 4; calls++ {
			f := newFixture(t, secrets(anotherSecret, oneSecret))
			earlier := f.with(secrets(oneSecret)).with(func(c *core.Config) { c.Keep.LateRetry = 10 * retention })
			earlier.send(request("K", "B"), made)
			time.Sleep(retention)
			f.foundAfterADeath(calls)
			f.close()
		}
	})
	inBubble(t, "with a LateRetry it is claimed, and given back", func(t *testing.T) {
		f := newFixture(t, secrets(anotherSecret, oneSecret), func(c *core.Config) { c.Keep.LateRetry = retention })
		earlier := f.with(secrets(oneSecret)).with(func(c *core.Config) { c.Store = scripted{Store: f.store, begin: noReply} })
		earlier.send(request("K", "B"), made)
		earlier.close()
		f.answered(f.send(request("K", "B"), made), 201, "made")
		last := f.with(secrets(anotherSecret))
		last.replayed(last.send(request("K", "B"), made), 201, "made")
	})
}

// noReply is a Begin whose call does not reach the store.
func noReply(driver.Claim) (driver.Entry, error) { return driver.Entry{}, errTest }

// dieInBegin has a process claim a key, and die before it makes another call.
func (f *fixture) dieInBegin(req core.Request) { f.dieAfter(1, req) }

// dieAfter has a process handle a request, and die after some calls to the store.
func (f *fixture) dieAfter(calls int, req core.Request) {
	dying := f.with(func(c *core.Config) { c.Store = &fewCalls{Store: c.Store.(*storetest.Faulty), left: calls} })
	dying.send(req, made)
	dying.close()
	time.Sleep(2 * lease)
}

// fewCalls is a store that gets some calls.
type fewCalls struct {
	Store *storetest.Faulty
	mu    sync.Mutex
	left  int
}

// gets reports whether the store gets one more call.
func (s *fewCalls) gets(err *error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left--
	*err = errTest
	return s.left >= 0
}

func (s *fewCalls) Begin(ctx context.Context, c driver.Claim) (entry driver.Entry, err error) {
	if s.gets(&err) {
		return s.Store.Begin(ctx, c)
	}
	return entry, err
}

func (s *fewCalls) Extend(ctx context.Context, c driver.Claim) (err error) {
	if s.gets(&err) {
		return s.Store.Extend(ctx, c)
	}
	return err
}

func (s *fewCalls) Complete(ctx context.Context, c driver.Claim, outcome []byte) (err error) {
	if s.gets(&err) {
		return s.Store.Complete(ctx, c, outcome)
	}
	return err
}

func (s *fewCalls) Fail(ctx context.Context, c driver.Claim, f driver.Failure) (err error) {
	if s.gets(&err) {
		return s.Store.Fail(ctx, c, f)
	}
	return err
}

func (s *fewCalls) Look(ctx context.Context, name [32]byte) (seen driver.Record, err error) {
	if s.gets(&err) {
		return s.Store.Look(ctx, name)
	}
	return seen, err
}

// A run that goes on under a previous name is still a run of its record for what is inside of it.
func TestARunUnderAPreviousSecretIsStoodAsideFor(t *testing.T) {
	eachRotation(t, func(t *testing.T, before, after *fixture) {
		before.send(request("K", "B"), answers(503, ""))
		after.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			last := after.with(onlyCurrent)
			for _, inner := range []*fixture{after, last} {
				result, err := inner.Do(ctx, request("K", "B"), made)
				require.NoError(t, err)
				assert.True(t, result.Bypassed)
			}
			result, err := after.Do(ctx, request("another", "B"), made)
			require.NoError(t, err)
			assert.False(t, result.Bypassed, "another key is another record")
			return made(ctx)
		})
	})
}

// So it is for an engine that knows the run's record by a previous name only.
func TestARunUnderAPreviousSecretIsStoodAsideForByAnEngineOfTheNext(t *testing.T) {
	eachRotation(t, func(t *testing.T, before, after *fixture) {
		if after.Config().Fingerprint.SortQuery {
			return // an engine that compares otherwise is refused inside of another
		}
		result := before.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			result, err := after.Do(ctx, request("K", "B"), made)
			require.NoError(t, err)
			assert.True(t, result.Bypassed, "%+v", result)
			return made(ctx)
		})
		before.answered(result, 201, "made")
		d := before.consume(message, func(ctx context.Context) (receipt, error) {
			inner := consumer.Consume(ctx, after.consumer, message, after.numbered)
			assert.Equal(t, consumer.Done, inner.Verdict, inner.Err)
			return inner.Result, inner.Err
		})
		assert.Equal(t, consumer.Done, d.Verdict, d.Err)
		after.ran(2)
	})
}

// Neighbouring deploys of a rotation run a key once, however their calls of the store interleave.
func TestNeighboursInARotationRunAKeyOnce(t *testing.T) {
	for name, phases := range map[string][]func(*core.Config){
		"secrets":    {secrets(oneSecret), secrets(oneSecret, anotherSecret), secrets(anotherSecret, oneSecret), secrets(anotherSecret)},
		"routes":     {routes(false, false), routes(false, true), routes(true, true), routes(true, false)},
		"routes off": {routes(true, false), routes(true, true), routes(false, true), routes(false, false)},
	} {
		t.Run(name, func(t *testing.T) { neighboursRunOnce(t, phases) })
	}
}

func neighboursRunOnce(t *testing.T, phases []func(*core.Config)) {
	for i := range phases[1:] {
		for range 50 {
			before := newFixture(t, phases[i])
			after := before.with(phases[i+1])
			for key := range strings.SplitSeq("a b c d e f g h", " ") {
				var both sync.WaitGroup
				for _, f := range []*fixture{before, after, before, after} {
					both.Go(func() {
						for f.send(request(key, "B"), made).Problem != "" {
						}
					})
				}
				both.Wait()
			}
			after.ran(8)
			before.close()
		}
	}
}

// A store that is away while a previous name is looked at refuses the request, and leaves nothing behind.
func TestAStoreThatIsAwayDuringALookRefusesTheRequest(t *testing.T) {
	eachFault(t, anyFault, func(t *testing.T, fault storetest.Fault) {
		f := newFixture(t, secrets(anotherSecret, oneSecret), cannotLook)
		f.store.Inject("begin", 0, 1)
		f.store.Inject("begin", fault, 1)
		f.refused(f.send(request("K", "B"), made), 503, "store-unavailable")
		f.ran(0)
		f.close()
		f.answered(f.send(request("K", "B"), made), 201, "made")
		f.replayed(f.send(request("K", "B"), made), 201, "made")
	})
}

func TestPreviousSecretsAreChecked(t *testing.T) {
	for name, change := range map[string]func(*core.Config){
		"short":           secrets(oneSecret, "short"),
		"of zeros":        secrets(oneSecret, strings.Repeat("\x00", 16)),
		"the secret":      secrets(oneSecret, oneSecret),
		"twice":           secrets(oneSecret, anotherSecret, anotherSecret),
		"none, and still": secrets("", ""),
	} {
		cfg := validConfig()
		change(&cfg)
		_, err := core.New(cfg)
		assert.Equal(t, []string{"PreviousSecrets"}, badFields(t, err), name)
	}
}

// CON-07: whose record is found under a previous name gives back the place in which it has waited for the other.
func TestAWaiterWhoseRecordHasAPreviousNameGivesItsPlaceBack(t *testing.T) {
	inBubble(t, "one place", func(t *testing.T) {
		before := newFixture(t, secrets(oneSecret))
		before.answered(before.send(request("K", "B"), made), 201, "made")
		after := before.with(func(c *core.Config) {
			secrets(anotherSecret, oneSecret)(c)
			c.Wait.Timeout, c.Wait.MaxPerKey = lease, 1
		})
		for range 3 {
			after.store.Inject("begin", 0, 1) // under its own name,
			after.store.Inject("begin", storetest.Hang, 1)
			looks := after.later(ctx, request("K", "B"), made)
			waits := after.later(ctx, request("K", "B"), made)
			after.refused((<-looks).Result, 503, "store-unavailable")
			after.replayed((<-waits).Result, 201, "made")
			after.close()
		}
		after.ran(1)
	})
}

// interrupted is a store that somebody else uses between two calls of an engine.
type interrupted struct {
	*storetest.Faulty
	before map[string]func() // such as "fail 2": called before the second Fail
	mu     sync.Mutex
	calls  map[string]int
}

func (s *interrupted) interrupt(verb string) {
	s.mu.Lock()
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	s.calls[verb]++
	do := s.before[fmt.Sprint(verb, " ", s.calls[verb])]
	s.mu.Unlock()
	if do != nil {
		do()
	}
}

func (s *interrupted) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	s.interrupt("begin")
	return s.Faulty.Begin(ctx, c)
}

func (s *interrupted) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	s.interrupt("fail")
	return s.Faulty.Fail(ctx, c, f)
}

// Two neighbours in a rotation can move to each other's name of a record at the same time: one releases the claim under its own name
// so late that its lease has ended, and the other takes that claim over.
func TestProcessesThatMoveInOppositeDirectionsRunAKeyOnce(t *testing.T) {
	inBubble(t, "a release is late", func(t *testing.T) {
		before := newFixture(t, secrets(oneSecret, anotherSecret))
		first := before.hold(ctx, request("K", "B"), answers(503, ""))
		var second *held
		store := &interrupted{Faulty: before.store, before: map[string]func(){"fail 1": func() {
			first.finish()
			time.Sleep(2 * lease)
			second = before.hold(ctx, request("K", "B"), made)
		}}}
		after := before.with(secrets(anotherSecret, oneSecret)).with(func(c *core.Config) { c.Store = store })
		after.refused(after.send(request("K", "B"), answers(201, "made twice")), 409, "in-progress")
		before.answered(second.finish(), 201, "made")
		after.replayed(after.send(request("K", "B"), made), 201, "made")
		before.ran(2)
		after.close()
		before.close()
	})
}
