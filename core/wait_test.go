package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// waiting lets requests wait for as long as timeout.
func waiting(timeout time.Duration) func(*core.Config) {
	return func(c *core.Config) { c.Wait.Timeout = timeout }
}

// listeners is a store that counts who watches it now. A deaf one wakes nobody.
type listeners struct {
	driver.Store
	deaf bool
	now  atomic.Int64
}

func (l *listeners) Watch(ctx context.Context, key [32]byte, wake func()) (func(), error) {
	if l.deaf {
		wake = func() {}
	}
	stop, err := l.Store.(driver.Notifier).Watch(ctx, key, wake)
	if err != nil {
		return nil, err
	}
	l.now.Add(1)
	return func() {
		l.now.Add(-1)
		stop()
	}, nil
}

// watching is how many watches there are, when those that are to end have ended: they do so behind their requests' backs.
func (l *listeners) watching() int64 {
	synctest.Wait()
	return l.now.Load()
}

// listened is a fixture whose requests wait, and its store.
func listened(t *testing.T, timeout time.Duration, changes ...func(*core.Config)) (*fixture, *listeners) {
	l := &listeners{}
	return newFixture(t, append([]func(*core.Config){waiting(timeout), func(c *core.Config) {
		l.Store = c.Store
		c.Store = l
	}}, changes...)...), l
}

// late is an answer that comes later.
type late struct {
	core.Result
	after time.Duration
}

// later sends r, lets it come as far as it can, and returns where its answer will be.
func (f *fixture) later(ctx context.Context, r core.Request, h handler) <-chan late {
	answer, began := make(chan late, 1), time.Now()
	go func() {
		result, err := f.do(ctx, r, h)
		assert.NoError(f.tb, err)
		answer <- late{result, time.Since(began)}
	}()
	synctest.Wait()
	return answer
}

// CON-04.
func TestARetryWaitsForTheRunInProgressAndGetsItsOutcome(t *testing.T) {
	for runs, begins := range map[time.Duration]int{
		900 * time.Millisecond:  4, // the run's own, and of the retry: at first, when it watches, when it is woken
		4900 * time.Millisecond: 6, // besides, after 1 s and after 3 s
	} {
		inBubble(t, fmt.Sprint("CON-04 without asking the store all the time ", runs), func(t *testing.T) {
			f, l := listened(t, 10*time.Second)
			running := f.hold(ctx, request("K", "B"), made)
			retry := f.later(ctx, request("K", "B"), answers(500, "must not run"))
			assert.EqualValues(t, 1, l.watching())
			time.Sleep(runs)
			f.answered(running.finish(), 201, "made")
			result := <-retry
			f.replayed(result.Result, 201, "made")
			assert.Equal(t, runs, result.after, "as soon as the run has ended")
			f.ran(1)
			assert.Equal(t, begins, f.store.Calls("begin"))
			assert.Contains(t, []string{"begin kept replay", "begin replay kept"}, f.heard.names(), "a request that waits is in no conflict")
			assert.Zero(t, l.watching(), "watches that are left")
		})
	}
}

// CON-05.
func TestARetryThatHasWaitedLongEnoughIsRefused(t *testing.T) {
	inBubble(t, "CON-05", func(t *testing.T) {
		f, l := listened(t, 2500*time.Millisecond)
		running := f.hold(ctx, request("K", "B"), made)
		before := goroutines(t)
		refused := <-f.later(ctx, request("K", "B"), made)
		f.refused(refused.Result, 409, "in-progress")
		assert.Regexp(t, `^[1-9][0-9]*$`, value(refused.Response, "Retry-After"))
		assert.Equal(t, 2500*time.Millisecond, refused.after)
		assert.Equal(t, before, goroutines(t), "goroutines that are left")
		assert.Zero(t, l.watching(), "watches that are left")
		assert.Equal(t, "begin conflict", f.heard.names())
		f.answered(running.finish(), 201, "made")
		f.ran(1)
	})
}

// CON-10.
func TestAWaiterWhoseClientLeavesIsFreedAtOnce(t *testing.T) {
	inBubble(t, "CON-10 while it sleeps", func(t *testing.T) {
		f, l := listened(t, time.Hour, func(c *core.Config) { c.Wait.MaxPerKey = 1 })
		running := f.hold(ctx, request("K", "B"), made)
		client, leave := context.WithCancel(ctx)
		before := goroutines(t)
		gone := f.later(client, request("K", "B"), made)
		time.Sleep(1500 * time.Millisecond)
		leave()
		assert.Equal(t, 1500*time.Millisecond, (<-gone).after)
		assert.Equal(t, before, goroutines(t), "goroutines that are left")
		assert.Zero(t, l.watching(), "watches that are left")
		assert.NoError(t, running.run.Err(), "the run is unaffected")

		next := f.later(ctx, request("K", "B"), made) // there is room again
		f.answered(running.finish(), 201, "made")
		f.replayed((<-next).Result, 201, "made")
		f.ran(1)
	})
	inBubble(t, "CON-10 while the store is asked to watch", func(t *testing.T) {
		f := newFixture(t, waiting(time.Hour))
		running := f.hold(ctx, request("K", "B"), made)
		f.store.Inject("watch", storetest.Hang, 1)
		client, leave := context.WithCancel(ctx)
		gone := f.later(client, request("K", "B"), made)
		leave()
		assert.Zero(t, (<-gone).after)
		assert.Equal(t, "begin conflict", f.heard.names(), "it is the client that left, not the store")
		running.finish()
		f.ran(1)
	})
}

func TestOneOfManyWaitersTakesOverARunThatFailed(t *testing.T) {
	inBubble(t, "and the others get its outcome", func(t *testing.T) {
		f, l := listened(t, 10*time.Second)
		running := f.hold(ctx, request("K", "B"), answers(500, "failed"))
		var answers []<-chan late
		for range 10 {
			answers = append(answers, f.later(ctx, request("K", "B"), func(ctx context.Context) (*core.Response, error) {
				assert.Equal(t, 2, f.seen(ctx).Attempt)
				time.Sleep(time.Second)
				return made(ctx)
			}))
		}
		assert.EqualValues(t, 10, l.watching())
		time.Sleep(500 * time.Millisecond)
		f.answered(running.finish(), 500, "failed")
		first := 0
		for _, answer := range answers {
			result := <-answer
			f.sends(result.Result, 201, "made")
			assert.Equal(t, 1500*time.Millisecond, result.after)
			if !result.Replayed {
				first++
			}
		}
		assert.Equal(t, 1, first)
		f.ran(2)
		assert.Zero(t, l.watching())
	})
	inBubble(t, "one after the other when each fails", func(t *testing.T) {
		f, _ := listened(t, time.Minute)
		var inside atomic.Int64
		fails := func(context.Context) (*core.Response, error) {
			assert.EqualValues(t, 1, inside.Add(1), "runs at a time")
			defer inside.Add(-1)
			time.Sleep(time.Second)
			return &core.Response{Status: 503}, nil
		}
		var answers []<-chan late
		for range 6 {
			answers = append(answers, f.later(ctx, request("K", "B"), fails))
		}
		for _, answer := range answers {
			assert.Equal(t, 503, (<-answer).Response.Status)
		}
		f.ran(6)
	})
}

func TestAWaiterTakesOverWhenTheLeaseEnds(t *testing.T) {
	inBubble(t, "of a run that vanished", func(t *testing.T) {
		f, _ := listened(t, 10*lease)
		f.store.Inject("extend", storetest.Before, always)
		running := f.hold(ctx, request("K", "B"), made)
		began := time.Now()
		var heir core.Run
		retry := f.later(ctx, request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			heir = f.seen(ctx)
			return answers(200, "heir")(ctx)
		})
		f.answered((<-retry).Result, 200, "heir")
		assert.True(t, heir.Takeover)
		assert.GreaterOrEqual(t, time.Since(began), lease)
		assert.Less(t, time.Since(began), lease+100*time.Millisecond, "not at the next slow check")
		f.refused(running.finish(), 409, "claim-lost")
		f.ran(2)
	})
}

// crowd sends n requests under key that wait.
func (f *fixture) crowd(key string, n int) (answers []<-chan late) {
	for range n {
		answers = append(answers, f.later(ctx, request(key, "B"), made))
	}
	return answers
}

func TestWaitersAreBoundedPerKeyAndInAll(t *testing.T) {
	inBubble(t, "also over derived engines, and places are given back", func(t *testing.T) {
		f, l := listened(t, 10*time.Second, func(c *core.Config) { c.Wait.MaxPerKey, c.Wait.Max = 2, 3 })
		derived := f.with(func(c *core.Config) { c.Keep.MaxBody = 1000 })
		for range 3 {
			k, m := f.hold(ctx, request("K", "B"), answers(429, "")), f.hold(ctx, request("M", "B"), answers(429, ""))
			waiters := append(f.crowd("K", 1), derived.crowd("K", 1)...)
			for _, engine := range []*fixture{f, derived} {
				full := <-engine.later(ctx, request("K", "B"), made)
				f.refused(full.Result, 409, "in-progress")
				assert.Zero(t, full.after, "MaxPerKey: refused at once")
			}
			waiters = append(waiters, derived.crowd("M", 1)...)
			full := <-f.later(ctx, request("M", "B"), made)
			f.refused(full.Result, 409, "in-progress")
			assert.Zero(t, full.after, "Max: refused at once")
			assert.EqualValues(t, 3, l.watching())

			close(k.letGo)
			close(m.letGo)
			for _, waiter := range waiters {
				assert.Equal(t, 201, (<-waiter).Response.Status)
			}
			<-k.done
			<-m.done
			assert.Zero(t, l.watching())
			time.Sleep(retention) // the keys are new in the next round
		}
	})
	inBubble(t, "and a place is given back when OnUnknown panics", func(t *testing.T) {
		f, l := listened(t, 10*lease, func(c *core.Config) { c.Wait.MaxPerKey, c.Wait.Max = 1, 1 },
			onUnknown(func(context.Context, *core.Request) (*core.Response, error) { panic(errTest) }))
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, core.LeaveUnknown)
			return &core.Response{Status: 504}, nil
		})
		passes(t, errTest, func() { f.send(request("K", "B"), made) })
		assert.Zero(t, l.watching())
		running := f.hold(ctx, request("L", "B"), made)
		retry := f.later(ctx, request("L", "B"), made)
		f.answered(running.finish(), 201, "made")
		f.replayed((<-retry).Result, 201, "made")
	})
}

func TestALostWakeCostsOneSlowCheck(t *testing.T) {
	for name, silence := range map[string]func(*fixture, *listeners){
		"the store wakes nobody": func(_ *fixture, l *listeners) { l.deaf = true },
		"the watch fails":        func(f *fixture, _ *listeners) { f.store.Inject("watch", storetest.Before, 1) },
		"its answer is lost":     func(f *fixture, _ *listeners) { f.store.Inject("watch", storetest.After, 1) },
	} {
		for runs, want := range map[time.Duration]time.Duration{
			500 * time.Millisecond:  time.Second,
			1500 * time.Millisecond: 3 * time.Second,
			3500 * time.Millisecond: 5 * time.Second, // the last moment, before the next check
		} {
			inBubble(t, fmt.Sprint(name, " and the run takes ", runs), func(t *testing.T) {
				f, l := listened(t, 5*time.Second)
				silence(f, l)
				running := f.hold(ctx, request("K", "B"), made)
				retry := f.later(ctx, request("K", "B"), made)
				time.Sleep(runs)
				running.finish()
				result := <-retry
				f.replayed(result.Result, 201, "made")
				assert.Equal(t, want, result.after)
				f.ran(1)
				assert.Zero(t, l.watching())
				assert.Equal(t, 1, f.store.Calls("watch"), "one is enough")
			})
		}
	}
	inBubble(t, "and a watch that fails is heard of", func(t *testing.T) {
		f := newFixture(t, waiting(5*time.Second))
		f.store.Inject("watch", storetest.Hang, 1)
		running := f.hold(ctx, request("K", "B"), made)
		retry := f.later(ctx, request("K", "B"), made)
		time.Sleep(storeTimeout / 2)
		running.finish()
		result := <-retry
		f.replayed(result.Result, 201, "made")
		assert.Equal(t, storeTimeout, result.after)
		assert.Equal(t, "begin kept store-error replay", f.heard.names())
	})
}

// What ends between the first Begin of a retry and its watch wakes nobody: the retry asks once more.
func TestARunThatEndsBeforeTheWatchStandsIsNotMissed(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f, l := listened(t, time.Minute)
		running := f.hold(ctx, request("K", "B"), made)
		slow := f.with(func(c *core.Config) { c.Store = slowWatch{l} })
		retry := slow.later(ctx, request("K", "B"), made)
		running.finish()
		result := <-retry
		f.replayed(result.Result, 201, "made")
		assert.Equal(t, storeTimeout/2, result.after)
	})
}

// Some stores wake only those whose Begin has asked for it, so each Begin behind the watch must.
func TestAWatcherAsksToBeWoken(t *testing.T) {
	inBubble(t, "CON-04", func(t *testing.T) {
		f, l := listened(t, time.Minute)
		running := f.hold(ctx, request("K", "B"), answers(500, "failed"))
		store := &asked{listeners: l}
		retry := f.with(func(c *core.Config) { c.Store = store }).later(ctx, request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			time.Sleep(lease / 2)
			return made(ctx)
		})
		time.Sleep(1500 * time.Millisecond)
		running.finish()
		f.answered((<-retry).Result, 201, "made")
		assert.Equal(t, []bool{false, true, true, true}, store.waits, "at first, when it watches, when it checks, when it is woken")
		assert.Equal(t, []bool{false, false}, store.runs, "its extension and its outcome are no questions")
	})
}

// asked notes which calls come from a claim that waits.
type asked struct {
	*listeners
	waits, runs []bool
}

func (a *asked) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	a.waits = append(a.waits, c.Subscribed)
	return a.listeners.Begin(ctx, c)
}

func (a *asked) Extend(ctx context.Context, c driver.Claim) error {
	a.runs = append(a.runs, c.Subscribed)
	return a.listeners.Extend(ctx, c)
}

func (a *asked) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	a.runs = append(a.runs, c.Subscribed)
	return a.listeners.Complete(ctx, c, outcome)
}

// slowWatch takes its time to watch.
type slowWatch struct{ *listeners }

func (s slowWatch) Watch(ctx context.Context, key [32]byte, wake func()) (func(), error) {
	time.Sleep(storeTimeout / 2)
	return s.listeners.Watch(ctx, key, wake)
}

func TestAWaiterNeverFailsOpen(t *testing.T) {
	inBubble(t, "it knows of a run", func(t *testing.T) {
		f, l := listened(t, time.Minute, func(c *core.Config) { c.DangerouslyFailOpen = true })
		running := f.hold(ctx, request("K", "B"), made)
		retry := f.later(ctx, request("K", "B"), made)
		f.store.Inject("begin", storetest.Before, 1)
		f.refused(f.healed().send(request("K", "other"), made), 422, "fingerprint-mismatch")
		running.finish()
		f.refused((<-retry).Result, 503, "store-unavailable")
		f.close()
		f.ran(1)
		assert.Zero(t, l.watching())
		f.replayed(f.send(request("K", "B"), made), 201, "made")
	})
}

// CON-06.
func TestARequestThatCannotGetTheOutcomeDoesNotWait(t *testing.T) {
	for name, c := range map[string]struct {
		change change
		code   string
	}{
		"CON-06 another request": {body("B'", nil), "fingerprint-mismatch"},
		"another scope":          {scope(""), "scope-missing"},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t, waiting(time.Minute))
			running := f.hold(ctx, request("K", "B"), made)
			refused := <-f.later(ctx, changed(c.change), made)
			assert.Equal(t, c.code, refused.Problem)
			assert.Zero(t, refused.after)
			assert.Zero(t, f.store.Calls("watch"))
			running.finish()
		})
	}
	inBubble(t, "CON-01 nor does anybody by default", func(t *testing.T) {
		f := newFixture(t)
		running := f.hold(ctx, request("K", "B"), made)
		refused := <-f.later(ctx, request("K", "B"), made)
		f.refused(refused.Result, 409, "in-progress")
		assert.Zero(t, refused.after)
		assert.Zero(t, f.store.Calls("watch"))
		running.finish()
	})
}

// CON-07: who waits for one key holds nobody up who comes with another.
// deafStore is a store that can notify nobody at the moment.
type deafStore struct {
	driver.Store
	driver.Checkpointer
}

func (deafStore) Watch(context.Context, [32]byte, func()) (func(), error) { return nil, errTest }

// TEL-01: a hook is told once that a request waits, and that nobody will notify it, if that is so. Then it polls.
func TestAWaitIsReportedOnce(t *testing.T) {
	for name, deaf := range map[string]bool{"notified": false, "polling": true} {
		inBubble(t, name, func(t *testing.T) {
			waits := 0
			f := newFixture(t, waiting(10*lease), func(c *core.Config) {
				c.Hooks.Wait = func(context.Context, core.Event) { waits++ }
				if deaf {
					c.Store = deafStore{c.Store, c.Store.(driver.Checkpointer)}
				}
			})
			running := f.hold(ctx, request("K", "B"), made)
			waiter := f.later(ctx, request("K", "B"), made)
			time.Sleep(lease / 2)
			f.answered(running.finish(), 201, "made")
			f.replayed((<-waiter).Result, 201, "made")
			assert.Equal(t, 1, waits)
			errs := 0
			for _, e := range f.heard.take() {
				if e.hook == "store-error" {
					assert.ErrorIs(t, e.Err, errTest)
					errs++
				}
			}
			assert.Equal(t, map[bool]int{false: 0, true: 1}[deaf], errs)
			f.ran(1)
		})
	}
}

func TestAHookThatPanicsLeavesNoSubscription(t *testing.T) {
	inBubble(t, "polling", func(t *testing.T) {
		f, l := listened(t, time.Minute, func(c *core.Config) {
			c.Hooks.StoreCall = onCall("Watch", func(context.Context, core.Event) { panic(errTest) })
		})
		running := f.hold(ctx, request("K", "B"), made)
		waiter := f.later(ctx, request("K", "B"), made)
		running.finish()
		f.replayed((<-waiter).Result, 201, "made")
		assert.Zero(t, l.watching())
	})
}

func TestKeysAreWaitedForApart(t *testing.T) {
	inBubble(t, "CON-07", func(t *testing.T) {
		f, l := listened(t, time.Minute)
		k, m := f.hold(ctx, request("K", "B"), answers(200, "K")), f.hold(ctx, request("M", "B"), answers(200, "M"))
		forK, forM := f.later(ctx, request("K", "B"), made), f.later(ctx, request("M", "B"), made)
		m.finish()
		f.replayed((<-forM).Result, 200, "M")
		assert.EqualValues(t, 1, l.watching())
		k.finish()
		f.replayed((<-forK).Result, 200, "K")
	})
}

// A request that waits when the service stops is not left alone: its own context ends it.
func TestAWaitersOwnDeadlineEndsItsWait(t *testing.T) {
	inBubble(t, "deadline", func(t *testing.T) {
		f, l := listened(t, time.Hour)
		running := f.hold(ctx, request("K", "B"), made)
		hurried, cancel := context.WithTimeoutCause(ctx, 2*time.Second, errors.New("shutting down"))
		defer cancel()
		refused := <-f.later(hurried, request("K", "B"), made)
		f.refused(refused.Result, 409, "in-progress")
		assert.Equal(t, 2*time.Second, refused.after)
		assert.Zero(t, l.watching())
		running.finish()
	})
}

// rude is a store whose Watch, or what ends it, keeps to no context.
type rude struct {
	driver.Store
	watch, stop func()
	calls       atomic.Int64
}

func (r *rude) Watch(ctx context.Context, key [32]byte, wake func()) (func(), error) {
	r.calls.Add(1)
	r.watch()
	stop, err := r.Store.(driver.Notifier).Watch(context.WithoutCancel(ctx), key, wake)
	return func() { r.stop(); stop() }, err
}

// CON-11.
func TestNoStoreHoldsAWaiterBeyondItsBounds(t *testing.T) {
	nothing := func() {}
	for name, c := range map[string]struct {
		watch, stop func(release <-chan struct{})
		heard       string
	}{
		"Watch never returns":    {func(r <-chan struct{}) { <-r }, func(<-chan struct{}) {}, "begin store-error conflict"},
		"stop never returns":     {func(<-chan struct{}) {}, func(r <-chan struct{}) { <-r }, "begin conflict"},
		"Watch panics":           {func(<-chan struct{}) { panic(errTest) }, func(<-chan struct{}) {}, "begin store-error conflict"},
		"stop panics":            {func(<-chan struct{}) {}, func(<-chan struct{}) { panic(errTest) }, "begin conflict"},
		"Watch and then stop do": {func(r <-chan struct{}) { <-r }, func(r <-chan struct{}) { <-r }, "begin store-error conflict"},
	} {
		for _, timeout := range []time.Duration{storeTimeout / 4, 5 * storeTimeout} {
			inBubble(t, fmt.Sprint("CON-11 ", name, " and the wait is ", timeout), func(t *testing.T) {
				release := make(chan struct{})
				store := &rude{watch: nothing, stop: nothing}
				f := newFixture(t, waiting(timeout), func(c *core.Config) { store.Store, c.Store = c.Store, store })
				store.watch, store.stop = func() { c.watch(release) }, func() { c.stop(release) }
				running := f.hold(ctx, request("K", "B"), made)
				refused := <-f.later(ctx, request("K", "B"), made)
				f.refused(refused.Result, 409, "in-progress")
				assert.Equal(t, timeout, refused.after)
				assert.Equal(t, c.heard, f.heard.names())

				client, leave := context.WithCancel(ctx)
				gone := f.later(client, request("K", "B"), made)
				time.Sleep(timeout / 2)
				leave()
				assert.Equal(t, timeout/2, (<-gone).after, "whose client leaves is gone at once")
				close(release)
				f.answered(running.finish(), 201, "made")
			})
		}
	}
}

// silent is a store whose Watch returns when its context ends.
type silent struct {
	driver.Store
	took time.Duration
}

func (s *silent) Watch(ctx context.Context, _ [32]byte, _ func()) (func(), error) {
	s.took = elapsed(func() { <-ctx.Done() })
	return nil, ctx.Err()
}

// CON-11: a call of Watch ends with the wait that it is for.
func TestAWatchEndsWithItsWait(t *testing.T) {
	for name, c := range map[string]struct{ timeout, want time.Duration }{
		"a short wait": {storeTimeout / 4, storeTimeout / 4}, "a long wait": {5 * storeTimeout, storeTimeout},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := &silent{}
			f := newFixture(t, waiting(c.timeout), func(c *core.Config) { store.Store, c.Store = c.Store, store })
			running := f.hold(ctx, request("K", "B"), made)
			f.refused(f.send(request("K", "B"), made), 409, "in-progress")
			time.Sleep(storeTimeout)
			synctest.Wait()
			assert.Equal(t, c.want, store.took)
			running.finish()
		})
	}
}

// A begin that takes its time is part of the bound: Wait.Timeout counts from it, and the last one has a store timeout.
func TestABeginThatIsSlowDoesNotMakeTheWaitLonger(t *testing.T) {
	inBubble(t, "CON-11", func(t *testing.T) {
		f := newFixture(t, waiting(5*storeTimeout))
		running := f.hold(ctx, request("K", "B"), made)
		slow := scripted{Store: f.inner, begin: func(c driver.Claim) (driver.Entry, error) {
			time.Sleep(storeTimeout)
			return f.inner.Begin(ctx, c)
		}}
		refused := <-f.with(func(c *core.Config) { c.Store = notifying{slow, f.inner.(driver.Notifier)} }).later(ctx, request("K", "B"), made)
		f.refused(refused.Result, 409, "in-progress")
		assert.LessOrEqual(t, refused.after, 5*storeTimeout+storeTimeout)
		running.finish()
	})
}

// notifying is a store with the Watch of another.
type notifying struct {
	driver.Store
	driver.Notifier
}

// A watch that stands too late is of use all the same, and has missed what ended before.
func TestAWatchThatStandsLateIsUsed(t *testing.T) {
	for _, end := range []time.Duration{21 * storeTimeout / 10, 25 * storeTimeout / 10} { // behind the first slow check, long before the next
		inBubble(t, fmt.Sprint("CON-11 the run ends after ", end), func(t *testing.T) {
			store := &rude{watch: func() { time.Sleep(2*storeTimeout + storeTimeout/4) }, stop: func() {}}
			f := newFixture(t, waiting(20*storeTimeout), func(c *core.Config) { store.Store, c.Store = c.Store, store })
			running := f.hold(ctx, request("K", "B"), made)
			retry := f.later(ctx, request("K", "B"), made)
			time.Sleep(end)
			running.finish()
			result := <-retry
			f.replayed(result.Result, 201, "made")
			assert.LessOrEqual(t, result.after, max(end, 2*storeTimeout+storeTimeout/4))
		})
	}
}

// What a store never answers does not pile up: once twice as many calls as may wait are under way, no other is made.
func TestCallsOfWatchThatNeverReturnDoNotPileUp(t *testing.T) {
	inBubble(t, "CON-11", func(t *testing.T) {
		release := make(chan struct{})
		store := &rude{watch: func() { <-release }, stop: func() {}}
		f := newFixture(t, waiting(time.Second), func(c *core.Config) {
			c.Wait.Max, c.Wait.MaxPerKey = 3, 3
			store.Store, c.Store = c.Store, store
		})
		running := f.hold(ctx, request("K", "B"), made)
		for range 20 {
			refused := <-f.later(ctx, request("K", "B"), made)
			f.refused(refused.Result, 409, "in-progress")
			assert.Equal(t, time.Second, refused.after)
		}
		assert.EqualValues(t, 6, store.calls.Load())
		close(release)
		synctest.Wait()
		store.watch = func() {}
		retry := f.later(ctx, request("K", "B"), made)
		assert.EqualValues(t, 7, store.calls.Load(), "when they have returned, it is asked again")
		running.finish()
		f.replayed((<-retry).Result, 201, "made")
	})
}
