package core_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

var (
	anyFault  = []storetest.Fault{storetest.Before, storetest.After, storetest.Hang}
	noEffect  = []storetest.Fault{storetest.Before, storetest.Hang}
	faultName = map[storetest.Fault]string{storetest.Before: "before", storetest.After: "after", storetest.Hang: "hang"}
)

// eachFault runs test in a bubble for each of the ways in which a call of the store goes wrong.
func eachFault(t *testing.T, faults []storetest.Fault, test func(t *testing.T, fault storetest.Fault)) {
	t.Helper()
	for _, fault := range faults {
		inBubble(t, faultName[fault], func(t *testing.T) { test(t, fault) })
	}
}

// passes runs f and checks that it panics with the very value.
func passes(t *testing.T, value any, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		assert.True(t, recover() == value, "another value came through")
	}()
	f()
}

// ERR-06, LSE-14: whichever way a handler ends without an answer, the key is free at once and open to the same request.
func TestRunThatEndsWithoutAnAnswerFreesItsKey(t *testing.T) {
	value := &struct{ text string }{"anything"}
	panics := func(value any) handler {
		return func(context.Context) (*core.Response, error) { panic(value) }
	}
	for name, end := range map[string]func(t *testing.T, f *fixture){
		"panic": func(t *testing.T, f *fixture) {
			passes(t, value, func() { _, _ = f.do(ctx, request("K", "B"), panics(value)) })
		},
		"panic of net/http": func(t *testing.T, f *fixture) {
			passes(t, http.ErrAbortHandler, func() { _, _ = f.do(ctx, request("K", "B"), panics(http.ErrAbortHandler)) })
		},
		"Goexit": func(t *testing.T, f *fixture) {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = f.do(ctx, request("K", "B"), func(context.Context) (*core.Response, error) {
					runtime.Goexit()
					return nil, nil
				})
				t.Error("Do came back")
			}()
			<-ended
		},
		"error": func(t *testing.T, f *fixture) {
			result, err := f.do(ctx, request("K", "B"), func(context.Context) (*core.Response, error) { return nil, errTest })
			assert.Equal(t, errTest, err)
			assert.Equal(t, core.Result{}, result)
		},
		"error beside an answer": func(t *testing.T, f *fixture) {
			result, err := f.do(ctx, request("K", "B"), func(context.Context) (*core.Response, error) {
				return &core.Response{Status: 200}, errTest
			})
			assert.Equal(t, errTest, err)
			assert.Equal(t, core.Result{}, result)
		},
		"error beside an answer that ends later": func(t *testing.T, f *fixture) {
			result, err := f.do(ctx, request("K", "B"), func(context.Context) (*core.Response, error) {
				return &core.Response{Status: 200, Later: func(func(*core.Response, error)) {}}, errTest
			})
			assert.Equal(t, errTest, err)
			assert.Equal(t, core.Result{}, result)
		},
		"neither answer nor error": func(t *testing.T, f *fixture) {
			result, err := f.do(ctx, request("K", "B"), func(context.Context) (*core.Response, error) { return nil, nil })
			assert.ErrorContains(t, err, "neither")
			assert.Equal(t, core.Result{}, result)
		},
		"panic of the policy": func(t *testing.T, f *fixture) {
			broken := f.with(func(c *core.Config) {
				c.Keep.Policy = func(*core.Response) core.Disposition { panic(value) }
			})
			passes(t, value, func() { _, _ = broken.do(ctx, request("K", "B"), made) })
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			end(t, f)
			assert.Zero(t, f.store.Calls("complete"))
			assert.Equal(t, 1, f.store.Calls("fail"))
			f.refused(f.send(request("K", "B'"), made), 422, "fingerprint-mismatch")
			again := f.runsAgain(request("K", "B"))
			assert.Equal(t, 2, again.Attempt)
			assert.False(t, again.Takeover)
			f.ran(2)
		})
	}
}

func TestAResponseHasAStatusOfThreeDigitsOrWasHijacked(t *testing.T) {
	for name, c := range map[string]struct {
		response core.Response
		isValid  bool
	}{
		"99":       {core.Response{Status: 99}, false},
		"100":      {core.Response{Status: 100}, true},
		"999":      {core.Response{Status: 999}, true},
		"1000":     {core.Response{Status: 1000}, false},
		"hijacked": {core.Response{Hijacked: true, Sent: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			_, err := f.do(ctx, request("K", "B"), func(context.Context) (*core.Response, error) { return &c.response, nil })
			if c.isValid {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, "neither")
			}
		})
	}
}

func TestFailThatHasNoAnswerIsSentAgain(t *testing.T) {
	for name, h := range map[string]handler{
		"5xx":   answers(500, "failed"),
		"429":   answers(429, "slow down"),
		"panic": func(context.Context) (*core.Response, error) { panic(errTest) },
	} {
		t.Run(name, func(t *testing.T) {
			eachFault(t, anyFault, func(t *testing.T, fault storetest.Fault) {
				f := newFixture(t)
				f.store.Inject("fail", fault, 3)
				func() {
					defer func() { _ = recover() }()
					assert.Empty(t, f.send(request("K", "B"), h).Problem, "the client gets the real answer")
				}()
				assert.Less(t, elapsed(f.close), lease)
				assert.Equal(t, 4, f.store.Calls("fail"))
				again := f.runsAgain(request("K", "B"))
				assert.Equal(t, 2, again.Attempt)
				assert.False(t, again.Takeover)
			})
		})
	}
}

// LSE-07, LSE-10.
func TestStoreThatDoesNotAnswerBeginIsARefusal(t *testing.T) {
	eachFault(t, anyFault, func(t *testing.T, fault storetest.Fault) {
		f := newFixture(t)
		f.store.Inject("begin", fault, 1)
		took := elapsed(func() {
			result := f.send(request("K", "B"), made)
			f.refused(result, 503, "store-unavailable")
			assert.Equal(t, []string{"1"}, values(result.Response, "Retry-After"))
		})
		assert.LessOrEqual(t, took, storeTimeout)
		f.ran(0)
		f.close()
		assert.Equal(t, 1, f.store.Calls("fail"), "the claim may have been given")

		again := f.runsAgain(request("K", "B"))
		assert.False(t, again.Takeover)
		assert.Equal(t, 1, again.Attempt, "EVT-08: attempts are runs, and a claim that is given back is none")
	})
}

func TestBeginWhoseFailIsLostTooIsFreedByItsLease(t *testing.T) {
	inBubble(t, "lease", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("begin", storetest.After, 1)
		f.store.Inject("fail", storetest.Before, always)
		f.refused(f.send(request("K", "B"), made), 503, "store-unavailable")
		f.refused(f.send(request("K", "B"), made), 409, "in-progress")
		f.close()
		assert.Less(t, f.store.Calls("fail"), 50, "it is sent again, with pauses between, for a lease")
		time.Sleep(time.Second)
		assert.True(t, f.runsAgain(request("K", "B")).Takeover)
	})
}

// The claim is freed although the client, whose context Begin ran under, has left.
func TestClientThatLeavesDuringBeginFreesItsKey(t *testing.T) {
	inBubble(t, "leaves", func(t *testing.T) {
		client, leave := context.WithCancel(ctx)
		f := newFixture(t, func(c *core.Config) {
			store := c.Store
			c.Store = scripted{Store: store, begin: func(c driver.Claim) (driver.Entry, error) {
				entry, err := store.Begin(ctx, c)
				if client.Err() != nil {
					return entry, err
				}
				leave()
				return driver.Entry{}, client.Err()
			}}
		})
		result, err := f.do(client, request("K", "B"), made)
		assert.NoError(t, err)
		f.refused(result, 503, "store-unavailable")
		f.close()
		f.ran(0)
		assert.Equal(t, 1, f.runsAgain(request("K", "B")).Attempt, "EVT-08")
	})
}

// A client that leaves is not a store that is away: whoever hangs up does not get a run without protection.
func TestFailOpenIsNotForClientsThatLeft(t *testing.T) {
	inBubble(t, "left", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) { c.DangerouslyFailOpen = true })
		client, leave := context.WithCancel(ctx)
		leave()
		result, err := f.do(client, request("K", "B"), made)
		assert.NoError(t, err)
		f.refused(result, 503, "store-unavailable")
		f.close()
		f.ran(0)
	})
}

// beginAnswers is a store whose Begin always answers the same.
func beginAnswers(entry driver.Entry, err error) func(*core.Config) {
	return func(c *core.Config) {
		c.Store = scripted{Store: c.Store, begin: func(driver.Claim) (driver.Entry, error) { return entry, err }}
	}
}

func TestWhatBeginFindsIsRefusedWithItsOwnCode(t *testing.T) {
	kept := func(outcome string) driver.Entry {
		return driver.Entry{State: driver.Completed, Outcome: []byte(outcome)}
	}
	for name, c := range map[string]struct {
		entry  driver.Entry
		err    error
		status int
		code   string
	}{
		"unreadable record":         {driver.Entry{}, fmt.Errorf("%w: format 9", driver.ErrUnreadable), 503, "record-unreadable"},
		"damaged outcome":           {kept("1\x00\xc8\x01\x00\x00bodyXXXX"), nil, 503, "record-unreadable"},
		"outcome of another format": {kept("2\x00\xc8\x01\x00\x00body"), nil, 503, "record-unreadable"},
		"outcome of nothing":        {kept(""), nil, 503, "record-unreadable"},
		"LSE-02 unknown outcome":    {driver.Entry{State: driver.Unknown}, nil, 409, "outcome-unknown"},
		"state from the future":     {driver.Entry{State: "paused"}, nil, 409, "outcome-unknown"},
		"lost":                      {driver.Entry{}, lostBecause("its own fail came first"), 409, "claim-lost"},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t, beginAnswers(c.entry, c.err))
			f.refused(f.send(request("K", "B"), made), c.status, c.code)
			f.close()
			f.ran(0)
			assert.Zero(t, f.calls(), "no other call is sent")
		})
	}
}

func TestConflictSaysWhenToAskAgain(t *testing.T) {
	for left, want := range map[time.Duration]string{0: "1", 300 * time.Millisecond: "1", 2 * time.Second: "1", 30 * time.Second: "3", time.Hour: "5"} {
		f := newFixture(t, beginAnswers(driver.Entry{State: driver.InProgress, Remaining: left}, nil))
		assert.Equal(t, []string{want}, values(f.send(request("K", "B"), made).Response, "Retry-After"), "%v left", left) // CON-02
	}
}

// LSE-09: the client gets the real answer, and the outcome is kept behind its back.
func TestCompleteThatHasNoAnswerIsSentAgain(t *testing.T) {
	eachFault(t, anyFault, func(t *testing.T, fault storetest.Fault) {
		for _, times := range []int{1, 5} {
			f := newFixture(t)
			f.store.Inject("complete", fault, times)
			took := elapsed(func() { f.answered(f.send(request("K", "B"), made), 201, "made") })
			assert.LessOrEqual(t, took, storeTimeout)

			// It stands behind the outcome that is yet to be kept, for as long as a call of the store may last.
			began := time.Now()
			if meanwhile := f.send(request("K", "B"), made); times == 1 || fault != storetest.Hang {
				f.replayed(meanwhile, 201, "made")
			} else {
				f.refused(meanwhile, 409, "in-progress")
			}
			assert.NotZero(t, time.Since(began), "a store that has just failed gets a pause")
			assert.Less(t, elapsed(f.close), lease)
			assert.Equal(t, times+1, f.store.Calls("complete"))
			f.replayed(f.send(request("K", "B"), made), 201, "made")
			f.ran(1)
		}
	})
}

// The lease that counts is the one that the last extension has given.
func TestOutcomeOfALongRunIsSentAgainToo(t *testing.T) {
	eachFault(t, anyFault, func(t *testing.T, fault storetest.Fault) {
		f := newFixture(t)
		running := f.hold(ctx, request("K", "B"), made)
		time.Sleep(5 * lease)
		f.store.Inject("complete", fault, 3)
		f.answered(running.finish(), 201, "made")
		f.close()
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		f.ran(1)
	})
}

func TestStoreThatIsAwayForTenLeasesIsGivenUp(t *testing.T) {
	eachFault(t, noEffect, func(t *testing.T, fault storetest.Fault) {
		f := newFixture(t)
		f.store.Inject("complete", fault, always)
		took := elapsed(func() {
			f.answered(f.send(request("K", "B"), made), 201, "made")
			f.close()
		})
		assert.Equal(t, 10*lease, took, "it is sent again for ten leases")
		assert.Less(t, f.store.Calls("complete"), 800, "with pauses between")

		events := f.heard.take()
		last := events[len(events)-1]
		assert.Equal(t, "lost", last.hook, "a client has an answer that is not kept: somebody must hear of it")
		assert.ErrorIs(t, last.Err, core.ErrLost)

		f.refused(f.healed().send(request("K", "B"), made), 409, "in-progress") // the store took extensions
		time.Sleep(lease + storeTimeout)
		assert.True(t, f.healed().runsAgain(request("K", "B")).Takeover)
	})
}

// A store that comes back behind the end of the lease still learns the outcome, if nobody has asked for it meanwhile.
func TestOutcomeIsKeptBehindTheEndOfTheLease(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("complete", storetest.Before, 120)
		f.store.Inject("extend", storetest.Before, always)
		f.answered(f.send(request("K", "B"), made), 201, "made")
		began := time.Now()
		f.close()
		assert.Greater(t, time.Since(began), lease)
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		f.ran(1)
	})
}

// silenced is a fixture and its run, of which the store has not heard for a whole lease.
func silenced(t *testing.T, h handler) (*fixture, *held) {
	f := newFixture(t)
	f.store.Inject("extend", storetest.Before, always)
	running := f.hold(ctx, request("K", "B"), h)
	time.Sleep(lease)
	synctest.Wait()
	assert.Equal(t, core.ErrLost, context.Cause(running.run))
	return f, running
}

func TestAnswerThatMayNotBeTheOutcomeIsNotShown(t *testing.T) {
	for name, h := range map[string]handler{"kept": made, "retried": answers(500, "failed"), "released": answers(429, "slow down")} {
		inBubble(t, name, func(t *testing.T) {
			f, running := silenced(t, h)
			f.store.Inject("complete", storetest.Before, always)
			f.store.Inject("fail", storetest.Before, always)
			f.refused(running.finish(), 503, "store-unavailable")
			assert.True(t, f.healed().runsAgain(request("K", "B")).Takeover)
			f.close()
			events := f.heard.take()
			assert.Equal(t, "store-error", lastOf(events), "its late commits come to nothing")
			losses := 0
			for _, e := range events {
				if e.hook == "lost" {
					losses++
				}
			}
			assert.Equal(t, 1, losses, "Hooks.Lost is called once for a run: when its lease ended, and not again when it is given up")
		})
	}
}

func lastOf(events []heard) string { return events[len(events)-1].hook }

// Nobody has taken the key while the store was away: the outcome is not lost with the lease.
func TestAnswerThatWasNotShownIsKeptAllTheSame(t *testing.T) {
	inBubble(t, "the store is back", func(t *testing.T) {
		f, running := silenced(t, made)
		f.store.Inject("complete", storetest.Before, 3)
		f.refused(running.finish(), 503, "store-unavailable")
		f.close()
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		f.ran(1)
	})
}

func TestAnswerThatIsKeptAfterAllIsShown(t *testing.T) {
	inBubble(t, "nobody took over", func(t *testing.T) {
		f, running := silenced(t, made)
		f.answered(running.finish(), 201, "made")
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		f.ran(1)
	})
}

// LSE-04, LSE-05: whatever the old owner answers, the heir's outcome stands and is the only one that clients see.
func TestLateAnswerIsNeverTheOutcome(t *testing.T) {
	late := func(r core.Response) handler {
		return func(context.Context) (*core.Response, error) { return &r, nil }
	}
	for name, c := range map[string]struct {
		h       handler
		problem string
	}{
		"kept":     {late(core.Response{Status: 201, Body: []byte("stale")}), "claim-lost"},
		"retried":  {late(core.Response{Status: 500, Body: []byte("stale")}), "claim-lost"},
		"released": {late(core.Response{Status: 429, Body: []byte("stale")}), "claim-lost"},
		"streamed": {late(core.Response{Status: 200, Body: []byte("stale"), Sent: true}), ""},
	} {
		inBubble(t, name, func(t *testing.T) {
			f, running := silenced(t, c.h)
			f.answered(f.send(request("K", "B"), answers(200, "heir")), 200, "heir")
			result := running.finish()
			if c.problem == "" {
				assert.Equal(t, core.Result{}, result, "it is out already")
			} else {
				f.refused(result, 409, c.problem)
				assert.Equal(t, []string{"1"}, values(result.Response, "Retry-After"))
				assert.NotContains(t, string(result.Response.Body), "stale")
			}
			f.replayed(f.send(request("K", "B"), made), 200, "heir")
			f.ran(2)
		})
	}
}

func TestHeirIsToldThatItTakesOver(t *testing.T) {
	inBubble(t, "heir", func(t *testing.T) {
		f, running := silenced(t, made)
		heir := f.runsAgain(request("K", "B"))
		assert.True(t, heir.Takeover)
		assert.Equal(t, 2, heir.Attempt)
		assert.Greater(t, heir.Fence, f.seen(running.run).Fence)
		running.finish()
	})
}

// losesComplete is a store whose Complete fails once and then says that the claim is lost.
func losesComplete(c *core.Config) {
	var calls atomic.Int64
	c.Store = scripted{Store: c.Store, complete: func(driver.Claim) error {
		if calls.Add(1) == 1 {
			return errTest
		}
		return lostBecause("somebody took over")
	}}
}

func TestOutcomeThatIsLostInTheBackgroundIsNotSentAgain(t *testing.T) {
	inBubble(t, "lost", func(t *testing.T) {
		f := newFixture(t, losesComplete)
		f.answered(f.send(request("K", "B"), made), 201, "made")
		assert.Less(t, elapsed(f.close), time.Second)
		assert.Equal(t, "begin store-error lost", f.heard.names())
	})
}

func TestCloseWaitsForWhatIsStillWritten(t *testing.T) {
	reason := errors.New("no time left")
	inBubble(t, "until its context ends", func(t *testing.T) {
		f := newFixture(t)
		assert.Zero(t, elapsed(f.close), "nothing is written")
		f.store.Inject("complete", storetest.Before, always)
		derived := f.with(func(c *core.Config) { c.Key.Required = true })
		derived.send(request("K", "B"), made)

		for _, engine := range []*fixture{f, derived} {
			hurried, cancel := context.WithTimeoutCause(ctx, 3*time.Second, reason)
			assert.Equal(t, 3*time.Second, elapsed(func() { assert.Equal(t, reason, engine.Close(hurried)) }))
			cancel()
		}
		assert.Positive(t, elapsed(f.close), "also for what a derived engine writes")
		assert.Zero(t, elapsed(derived.close))
	})
	inBubble(t, "while more is added", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("complete", storetest.Before, 4)
		f.send(request("K1", "B"), made)
		f.send(request("K2", "B"), made)
		f.close()
		f.replayed(f.send(request("K1", "B"), made), 201, "made")
		f.replayed(f.send(request("K2", "B"), made), 201, "made")
	})
	inBubble(t, "also for an extension", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("extend", storetest.Hang, 1)
		running := f.hold(ctx, request("K", "B"), made)
		time.Sleep(lease/3 + storeTimeout/2)
		running.finish()
		f.close()
		f.heard.take()
		time.Sleep(storeTimeout)
		assert.Empty(t, f.heard.names(), "something was under way")
	})
}

// forgetting returns a fixture with a store that loses all its records when forget is called: their retention is over.
func forgetting(t *testing.T) (f *fixture, forget func()) {
	var ahead atomic.Int64
	clock := memstore.Clock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
	return newFixture(t, func(cfg *core.Config) { cfg.Store = memstore.New(clock) }), func() { ahead.Add(int64(retention)) }
}

// LSE-21: whatever becomes of the run, its response is not the outcome, and no client is asked to send the request again.
func TestARunWhoseRecordVanishesEndsAsRecordLost(t *testing.T) {
	for name, c := range map[string]struct {
		decision core.Disposition
		takes    time.Duration // after the record has vanished
	}{
		"kept":                               {core.Keep, 0},
		"kept, after an extension":           {core.Keep, lease},
		"retried":                            {core.Retry, 0},
		"released":                           {core.Release, 0},
		"left unknown, after an extension":   {core.LeaveUnknown, lease},
		"retried long after it was told off": {core.Retry, 20 * lease},
	} {
		inBubble(t, name, func(t *testing.T) {
			f, forget := forgetting(t)
			var run context.Context
			result := f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
				run = ctx
				core.Decide(ctx, c.decision)
				forget()
				time.Sleep(c.takes)
				if c.takes > 0 {
					assert.Equal(t, driver.ErrGone, context.Cause(ctx))
				}
				return &core.Response{Status: 201, Body: []byte("stale")}, nil
			})
			f.refused(result, 409, "record-lost")
			assert.Empty(t, values(result.Response, "Retry-After"))
			assert.NotContains(t, string(result.Response.Body), "stale")
			events := f.heard.take()
			assert.Equal(t, []string{"begin", "lost"}, []string{events[0].hook, events[1].hook})
			assert.ErrorIs(t, events[1].Err, driver.ErrGone)
			assert.Len(t, events, 2)
			_, err := core.Step(run, "too late", func(context.Context) (int, error) { return 1, nil })
			assert.ErrorIs(t, err, core.ErrLost)
			f.close()
		})
	}
}

// LSE-21: once another request has the key, its outcome counts, and a client gets it by sending the same request again.
func TestARunWhoseRecordVanishesAndIsTakenByAnotherLosesItsClaim(t *testing.T) {
	inBubble(t, "heir", func(t *testing.T) {
		f, forget := forgetting(t)
		first := f.hold(ctx, request("K", "B"), made)
		forget()
		f.answered(f.send(request("K", "B"), answers(200, "heir")), 200, "heir")
		result := first.finish()
		f.refused(result, 409, "claim-lost")
		assert.Equal(t, []string{"1"}, values(result.Response, "Retry-After"))
		f.replayed(f.send(request("K", "B"), made), 200, "heir")
	})
}
