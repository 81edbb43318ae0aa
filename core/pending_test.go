package core_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

// outage is a store that can be cut off, and that can refuse long outcomes.
type outage struct {
	driver.Store
	mu       sync.Mutex
	cut      bool
	answer   error         // to each call, if it is set
	hangs    bool          // what is sent while the store is cut off hangs; else it fails at once
	longest  int           // outcome that is taken; 0: any
	capacity chan struct{} // calls that are served at a time; nil: any number
	takes    time.Duration // a call
	flying   int
	most     int // of flying
	calls    int
	commits  int          // calls of Complete
	claim    driver.Claim // whose outcome was last refused
	refused  []byte       // that outcome
}

// during cuts the store off for a while.
func (o *outage) during(d time.Duration) {
	o.set(true)
	time.Sleep(d)
	o.set(false)
}

func (o *outage) set(cut bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cut = cut
}

// pass counts a call, and tells whether it gets through.
func (o *outage) pass(ctx context.Context) (leave func(), err error) {
	o.mu.Lock()
	cut, answer := o.cut, o.answer
	o.calls++
	o.flying++
	o.most = max(o.most, o.flying)
	o.mu.Unlock()
	leave = func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.flying--
	}
	switch {
	case cut && o.hangs:
		<-ctx.Done()
		return leave, ctx.Err()
	case cut:
		return leave, errTest
	case answer != nil:
		return leave, answer
	case o.capacity == nil:
		time.Sleep(o.takes)
		return leave, nil
	}
	select {
	case o.capacity <- struct{}{}:
		time.Sleep(o.takes)
		<-o.capacity
		return leave, ctx.Err() // who has waited too long does not hear the answer
	case <-ctx.Done():
		return leave, ctx.Err()
	}
}

func (o *outage) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	leave, err := o.pass(ctx)
	defer leave()
	if err != nil {
		return driver.Entry{}, err
	}
	return o.Store.Begin(ctx, c)
}

func (o *outage) Extend(ctx context.Context, c driver.Claim) error {
	leave, err := o.pass(ctx)
	defer leave()
	if err != nil {
		return err
	}
	return o.Store.Extend(ctx, c)
}

func (o *outage) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	leave, err := o.pass(ctx)
	defer leave()
	o.mu.Lock()
	o.commits++
	o.mu.Unlock()
	if err == nil {
		err = o.refuse(c, outcome)
	}
	if err != nil {
		return err
	}
	return o.Store.Complete(ctx, c, outcome)
}

// refuse says whether an outcome is too long, and shows it.
func (o *outage) refuse(c driver.Claim, outcome []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.longest == 0 || len(outcome) <= o.longest {
		return nil
	}
	o.claim, o.refused = c, outcome
	return errTest
}

func (o *outage) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	leave, err := o.pass(ctx)
	defer leave()
	if err != nil {
		return err
	}
	return o.Store.Fail(ctx, c, f)
}

// cutOff is a fixture whose store can be cut off, and the fixture of another process on that store.
func cutOff(t *testing.T, changes ...func(*outage)) (f, other *fixture, store *outage) {
	store = &outage{Store: memstore.New()}
	for _, change := range changes {
		change(store)
	}
	onStore := func(c *core.Config) { c.Store = store }
	f, other = newFixture(t, onStore), newFixture(t, onStore)
	other.runs = f.runs
	return f, other, store
}

// leases returns k of them.
func leases(k float64) time.Duration { return time.Duration(k * float64(lease)) }

// outages runs test for outages of many lengths, each with a store that fails and with one that hangs.
func outages(t *testing.T, test func(t *testing.T, k float64, hangs func(*outage))) {
	for _, k := range []float64{0.1, 0.5, 0.9, 1, 1.1, 1.6, 2.5, 5, 9} {
		for _, hangs := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%v leases, hangs %v", k, hangs), func(t *testing.T) {
				test(t, k, func(o *outage) { o.hangs = hangs })
			})
		}
	}
}

// LSE-16: whenever an outage begins and however long it is, the process that ran the handler does not run it again.
func TestAProcessWhoseOutcomeIsNotKeptYetNeverRunsAgain(t *testing.T) {
	for name, before := range map[string]float64{"before the handler's end": 0.2, "at the handler's end": 0} {
		t.Run(name, func(t *testing.T) {
			outages(t, func(t *testing.T, k float64, hangs func(*outage)) {
				f, _, store := cutOff(t, hangs)
				derived := f.with(func(c *core.Config) { c.Key.Required = true })
				running := f.hold(ctx, request("K", "B"), made)
				var over sync.WaitGroup
				end := time.Now().Add(leases(k))
				over.Go(func() { store.during(leases(k)) })
				time.Sleep(leases(before))
				synctest.Wait()
				first := running.finish()
				if k <= 0.5 {
					f.answered(first, 201, "made")
				}
				retry := func(f *fixture) core.Result {
					began := time.Now()
					result := f.send(request("K", "B"), made)
					assert.LessOrEqual(t, time.Since(began), storeTimeout, "who stands behind it waits no longer than for a call")
					return result
				}
				for time.Until(end) > 2*storeTimeout {
					f.refused(retry(f), 409, "in-progress")
					f.refused(derived.send(request("K", "other"), made), 422, "fingerprint-mismatch")
					time.Sleep(min(lease/4, time.Until(end)))
				}
				over.Wait()
				time.Sleep(storeTimeout + 500*time.Millisecond)
				f.replayed(retry(derived), 201, "made")
				f.replayed(retry(f), 201, "made")
				f.close()
				f.ran(1)
			})
		})
	}
}

// LSE-16: another process that asks once the owner was heard gets the outcome. The owner is heard at the latest when a call that
// hangs is given up and a pause is over.
func TestAnotherProcessGetsTheOutcomeOnceTheOwnerIsHeard(t *testing.T) {
	outages(t, func(t *testing.T, k float64, hangs func(*outage)) {
		f, other, store := cutOff(t, hangs)
		running := f.hold(ctx, request("K", "B"), made)
		store.set(true)
		running.finish()
		time.Sleep(leases(k))
		store.set(false)
		time.Sleep(storeTimeout + 501*time.Millisecond)
		other.replayed(other.send(request("K", "B"), made), 201, "made")
		f.close()
		f.ran(1)
	})
}

// LSE-16: the store is back while a handler that was told of the loss works on: the claim is held again.
func TestAHandlerThatOutlivesASilentLeaseHoldsItsClaimAgain(t *testing.T) {
	outages(t, func(t *testing.T, k float64, hangs func(*outage)) {
		if k <= 1 {
			return
		}
		f, other, store := cutOff(t, hangs)
		running := f.hold(ctx, request("K", "B"), made)
		store.during(leases(k))
		assert.Equal(t, core.ErrLost, context.Cause(running.run))
		time.Sleep(2*storeTimeout + 500*time.Millisecond)
		for range 20 {
			f.refused(f.send(request("K", "B"), made), 409, "in-progress")
			other.refused(other.send(request("K", "B"), made), 409, "in-progress")
			time.Sleep(lease / 6)
		}
		f.answered(running.finish(), 201, "made")
		other.replayed(other.send(request("K", "B"), made), 201, "made")
		f.ran(1)
	})
}

// LSE-16: the first call that the store answers, of any engine of the family and of any key, sends what is pending.
func TestTheFirstSignOfLifeSendsWhatIsPending(t *testing.T) {
	outages(t, func(t *testing.T, k float64, hangs func(*outage)) {
		f, other, store := cutOff(t, hangs)
		running := f.hold(ctx, request("K", "B"), made)
		store.set(true)
		running.finish()
		time.Sleep(leases(k) + 123*time.Millisecond)
		store.set(false)
		derived := f.with(func(c *core.Config) { c.Key.Required = true })
		derived.send(request("another", "B"), made)
		time.Sleep(100 * time.Millisecond) // a call that hangs is given up by then
		synctest.Wait()
		other.replayed(other.send(request("K", "B"), made), 201, "made")
		f.close()
	})
	for name, sign := range map[string]func(f *fixture, running *held){
		"a commit": func(_ *fixture, running *held) { running.finish() },
		"a begin":  func(f *fixture, _ *held) { f.refused(f.send(request("running", "B"), made), 409, "in-progress") },
	} {
		inBubble(t, name, func(t *testing.T) {
			f, other, store := cutOff(t)
			first, running := f.hold(ctx, request("K", "B"), made), f.hold(ctx, request("running", "B"), made)
			store.set(true)
			first.finish()
			time.Sleep(5*time.Second + 123*time.Millisecond)
			store.set(false)
			sign(f, running)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			other.replayed(other.send(request("K", "B"), made), 201, "made")
			if name != "a commit" {
				running.finish()
			}
			f.close()
		})
	}
}

// So does a call that no request has made.
func TestAnExtensionSendsWhatIsPending(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f, other, store := cutOff(t)
		first, running := f.hold(ctx, request("K", "B"), made), f.hold(ctx, request("running", "B"), made)
		time.Sleep(time.Second)
		store.set(true)
		first.finish()
		time.Sleep(lease/3 - time.Second - 50*time.Millisecond)
		store.set(false)
		time.Sleep(60 * time.Millisecond)
		synctest.Wait()
		other.replayed(other.send(request("K", "B"), made), 201, "made")
		running.finish()
		f.close()
	})
}

// An error that only a store can return is a sign of life as well.
func TestAStoreThatRefusesIsNotSilent(t *testing.T) {
	for code, c := range map[string]struct {
		status int
		answer error
	}{
		"not-durable": {503, driver.ErrNotDurable}, "record-unreadable": {503, driver.ErrUnreadable}, "claim-lost": {409, driver.ErrLost},
	} {
		inBubble(t, code, func(t *testing.T) {
			f, _, store := cutOff(t)
			running := f.hold(ctx, request("K", "B"), made)
			store.set(true)
			running.finish()
			time.Sleep(5*time.Second + 123*time.Millisecond)
			store.mu.Lock()
			sent := store.commits
			store.cut, store.answer = false, c.answer
			store.mu.Unlock()
			f.refused(f.send(request("another", "B"), made), c.status, code)
			time.Sleep(100 * time.Millisecond)
			store.mu.Lock()
			assert.Greater(t, store.commits, sent, "the pending outcome is sent at once")
			store.answer = nil
			store.mu.Unlock()
			f.close()
		})
	}
}

// patient is a store that takes its time for Complete.
type patient struct {
	driver.Store
	takes time.Duration
}

func (p patient) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	select {
	case <-time.After(p.takes):
		return p.Store.Complete(ctx, c, outcome)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A store that serves new requests first has twice Limits.StoreTimeout for what is pending, as long as it responds to any of them.
func TestAPendingOutcomeHasTimeWhileTheStoreRespondsToOthers(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) { c.Store = patient{c.Store, storeTimeout * 3 / 2} })
		running := f.hold(ctx, request("running", "B"), answers(503, ""))
		f.send(request("K", "B"), made)
		for range 50 {
			f.refused(f.send(request("running", "B"), made), 409, "in-progress")
			time.Sleep(storeTimeout / 2)
		}
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		running.finish()
		f.close()
	})
}

func TestAFailureIsPendingLikeAnOutcome(t *testing.T) {
	inBubble(t, "retried when it is taken", func(t *testing.T) {
		f, _, store := cutOff(t)
		running := f.hold(ctx, request("K", "B"), answers(500, "failed"))
		store.set(true)
		running.finish()
		for range 8 {
			f.refused(f.send(request("K", "B"), made), 409, "in-progress")
			time.Sleep(lease / 4)
		}
		store.set(false)
		time.Sleep(time.Second)
		run := f.runsAgain(request("K", "B"))
		assert.False(t, run.Takeover)
		assert.Equal(t, 2, run.Attempt)
		f.close()
	})
}

// tooLong is the handler of tests with an outcome that the store does not take.
var tooLong = answers(201, strings.Repeat("long ", 1000), core.Field{Name: "Location", Value: "/orders/1"})

// LSE-17: a server takes no more than a number of bytes. The claim is held meanwhile, also against other processes.
func TestAnOutcomeThatIsRefusedForGoodIsKeptWithoutItsBody(t *testing.T) {
	inBubble(t, "too long", func(t *testing.T) {
		f, other, _ := cutOff(t, func(o *outage) { o.longest = 1000 })
		f.sends(f.send(request("K", "B"), tooLong), 201, strings.Repeat("long ", 1000))
		for range 10 { // each stands behind it for a second
			f.refused(f.send(request("K", "B"), made), 409, "in-progress")
			other.refused(other.send(request("K", "B"), made), 409, "in-progress")
			time.Sleep(lease / 20)
		}
		time.Sleep(lease)
		for _, f := range []*fixture{f, other} {
			result := f.send(request("K", "B"), made)
			f.replayed(result, 201, "")
			assert.Equal(t, []string{"omitted"}, values(result.Response, "Idempotent-Body"))
			assert.Equal(t, []string{"/orders/1"}, values(result.Response, "Location"))
		}
		f.close()
		f.ran(1)
		assert.Contains(t, f.heard.names(), "kept")
	})
	inBubble(t, "whatever it is", func(t *testing.T) {
		f, other, _ := cutOff(t, func(o *outage) { o.longest = 1 })
		f.answered(f.send(request("K", "B"), made), 201, "made")
		for range 40 {
			f.refused(f.send(request("K", "B"), made), 409, "in-progress")
			other.refused(other.send(request("K", "B"), made), 409, "in-progress")
			time.Sleep(lease / 5)
		}
		f.close()
		f.ran(1)
		assert.Equal(t, "lost", lastOf(f.heard.take()), "it is given up after ten leases, and somebody hears of it")
	})
}

// unreadableCodec cannot read what it has written.
type unreadableCodec struct{}

func (unreadableCodec) Encode(_ [32]byte, outcome []byte) []byte { return outcome }
func (unreadableCodec) Decode([32]byte, []byte) ([]byte, error)  { return nil, driver.ErrUnreadable }

// LSE-17: the engine cannot leave out a body that it cannot read, and goes on with the whole outcome.
func TestAnOutcomeThatIsRefusedAndCannotBeReadIsSentAgainWhole(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f, other, store := cutOff(t, func(o *outage) { o.longest = 1000 })
		odd := f.with(func(c *core.Config) { c.Keep.Codecs = []driver.Codec{unreadableCodec{}} })
		odd.send(request("K", "B"), tooLong)
		time.Sleep(2 * lease)
		synctest.Wait()
		store.mu.Lock()
		store.longest = 0
		store.mu.Unlock()
		f.close()
		other.replayed(other.send(request("K", "B"), made), 201, strings.Repeat("long ", 1000))
		f.ran(1)
	})
}

// The store took the whole outcome late, when the one without its body is on its way.
func TestAnOutcomeThatWasTakenLateIsNotLost(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f, other, store := cutOff(t, func(o *outage) { o.longest = 1000 })
		f.send(request("K", "B"), tooLong)
		time.Sleep(lease - time.Second)
		synctest.Wait()
		store.mu.Lock()
		require.NoError(t, store.Store.Complete(ctx, store.claim, store.refused))
		store.longest = 0
		store.mu.Unlock()
		f.close()
		assert.Contains(t, f.heard.names(), "kept")
		other.replayed(other.send(request("K", "B"), made), 201, strings.Repeat("long ", 1000))
	})
	inBubble(t, "after the body was left out", func(t *testing.T) {
		f, other, store := cutOff(t, func(o *outage) { o.longest = 1 })
		f.send(request("K", "B"), tooLong)
		store.mu.Lock()
		claim, whole := store.claim, store.refused
		store.mu.Unlock()
		time.Sleep(2 * lease)
		synctest.Wait()
		require.NoError(t, store.Store.Complete(ctx, claim, whole))
		store.mu.Lock()
		assert.Less(t, len(store.refused), len(whole), "the outcome without its body was sent")
		store.longest = 0
		store.mu.Unlock()
		f.close()
		assert.NotContains(t, f.heard.names(), "lost")
		other.replayed(other.send(request("K", "B"), made), 201, strings.Repeat("long ", 1000))
	})
}

// An extension that finds the claim ended says that a commit may have been taken whose response was lost: it is asked at once.
func TestAnOutcomeWhoseClaimHasEndedIsSentAgainAtOnce(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		var ended, kept time.Time
		f := newFixture(t, func(c *core.Config) {
			c.Store = scripted{
				Store:  c.Store,
				extend: func(context.Context, driver.Claim) error { ended = time.Now(); return lostBecause("it was completed") },
				complete: func(driver.Claim) error {
					if ended.IsZero() {
						return errTest
					}
					kept = time.Now()
					return nil
				},
			}
		})
		f.send(request("K", "B"), made)
		f.close()
		assert.Zero(t, kept.Sub(ended))
	})
}

// The operator hears once that a body was left out, and only of an outcome that has a body.
func TestABodyThatIsLeftOutIsHeardOfOnce(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want int
	}{"an outcome with a body": {"made", 1}, "an outcome without a body": {"", 0}} {
		inBubble(t, name, func(t *testing.T) {
			f, other, store := cutOff(t, func(o *outage) { o.longest = 1 })
			f.send(request("K", "B"), answers(201, c.body))
			time.Sleep(5 * lease)
			store.mu.Lock()
			store.longest = 0
			store.mu.Unlock()
			f.close()
			heardOf := 0
			for _, e := range f.heard.take() {
				if e.Err != nil && strings.Contains(e.Err.Error(), "without its body") {
					assert.Equal(t, "store-error", e.hook)
					heardOf++
				}
			}
			assert.Equal(t, c.want, heardOf)
			result := other.send(request("K", "B"), made)
			other.replayed(result, 201, "")
			assert.Len(t, values(result.Response, "Idempotent-Body"), c.want)
		})
	}
}

// LSE-16: the lease ends while the first call of the commit is on its way. A request in this process waits for that call.
func TestACommitThatOutlastsItsLeaseIsPendingFromItsFirstCallOn(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("extend", storetest.Before, always)
		running := f.hold(ctx, request("K", "B"), made)
		time.Sleep(lease - storeTimeout/2)
		f.store.Inject("complete", storetest.Hang, 1)
		close(running.letGo)
		time.Sleep(storeTimeout * 3 / 4)
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		<-running.done
		f.refused(running.result, 503, "store-unavailable") // another process could have begun meanwhile
		f.close()
		f.ran(1)
	})
}

// The store has said that another run holds the key, and does not respond to the commit.
func TestAResponseOfARunThatHasLostItsClaimIsNotSentWhenTheCommitHasNoResponse(t *testing.T) {
	for name, h := range map[string]handler{"an outcome": answers(201, "stale"), "a failure": answers(500, "stale")} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			taken := f.with(func(c *core.Config) {
				c.Store = scripted{Store: f.store, extend: func(context.Context, driver.Claim) error { return lostBecause("another has the key") }}
			})
			running := taken.hold(ctx, request("K", "B"), h)
			time.Sleep(lease / 2)
			synctest.Wait()
			require.ErrorIs(t, context.Cause(running.run), core.ErrLost)
			f.store.Inject("complete", storetest.Before, 1)
			f.store.Inject("fail", storetest.Before, 1)
			taken.refused(running.finish(), 503, "store-unavailable")
			taken.close()
		})
	}
}

// Another request under the key of a pending commit gets what it would get from the store, and at once.
func TestAnotherRequestUnderTheKeyOfAPendingCommitIsRefusedAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		h      handler
		status int
		code   string
		after  time.Duration
	}{
		"an outcome":                {made, 422, "fingerprint-mismatch", 0},
		"a failure with effects":    {answers(500, "failed"), 422, "fingerprint-mismatch", 0},
		"a failure without effects": {answers(429, "slow down"), 409, "in-progress", storeTimeout},
	} {
		inBubble(t, name, func(t *testing.T) {
			f, _, store := cutOff(t)
			running := f.hold(ctx, request("K", "B"), c.h)
			store.set(true)
			running.finish()
			sent := time.Now()
			f.refused(f.send(request("K", "another"), made), c.status, c.code)
			assert.Equal(t, c.after, time.Since(sent))
			store.set(false)
			f.close()
			f.ran(1)
		})
	}
}

// LSE-16: many outcomes that wait for a store ask it one at a time while it is silent, and do not run it over when it is back.
func TestManyPendingOutcomesAreNoHerd(t *testing.T) {
	const many = 3000
	inBubble(t, "", func(t *testing.T) {
		f, other, store := cutOff(t)
		var runs []*held
		for i := range many {
			runs = append(runs, f.hold(ctx, request(fmt.Sprint(i), "B"), made))
		}
		store.set(true)
		for _, run := range runs {
			f.answered(run.finish(), 201, "made")
		}
		store.mu.Lock()
		store.calls, store.most = 0, 0
		store.mu.Unlock()
		time.Sleep(2 * lease)
		store.mu.Lock()
		assert.LessOrEqual(t, store.most, 2)
		assert.Less(t, store.calls, 300, "for all of them")
		store.cut, store.takes, store.most = false, time.Millisecond, 0
		store.mu.Unlock()
		assert.Less(t, elapsed(f.close), 2*time.Second)
		store.mu.Lock()
		assert.LessOrEqual(t, store.most, 256)
		store.mu.Unlock()
		for i := range many {
			other.replayed(other.send(request(fmt.Sprint(i), "B"), made), 201, "made")
		}
		f.ran(many)
	})
}

// A burst of new keys does not keep the store from hearing of the runs that go on, nor of those that end.
func TestABurstOfNewKeysStarvesNoRun(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f, other, store := cutOff(t, func(o *outage) { o.capacity = make(chan struct{}, 10) })
		var runs []*held
		for i := range 50 {
			runs = append(runs, f.hold(ctx, request(fmt.Sprint("K", i), "B"), made))
		}
		store.mu.Lock()
		store.takes = 50 * time.Millisecond // so 200 a second
		store.mu.Unlock()
		var burst sync.WaitGroup
		for i := range 100 * 60 { // 1,000 a second, for two leases
			time.Sleep(10 * time.Millisecond)
			for j := range 10 {
				burst.Go(func() { _, _ = other.do(ctx, request(fmt.Sprintf("burst-%d-%d", i, j), "B"), made) })
			}
		}
		for _, run := range runs {
			assert.NoError(t, run.run.Err(), "the lease was renewed")
			close(run.letGo)
		}
		burst.Wait()
		f.close()
		other.close()
		for i, run := range runs {
			<-run.done
			f.replayed(f.send(request(fmt.Sprint("K", i), "B"), made), 201, "made")
		}
	})
}

// CON-04: a retry that waits does so for a pending outcome, too, and from the moment when it came.
func TestARetryWaitsForAPendingOutcome(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f := newFixture(t, waiting(lease))
		f.store.Inject("complete", storetest.Before, 20)
		f.send(request("K", "B"), made)
		took := elapsed(func() { f.replayed(f.send(request("K", "B"), made), 201, "made") })
		assert.Greater(t, took, 5*storeTimeout)
		f.close()
	})
	inBubble(t, "and no longer than it may", func(t *testing.T) {
		const timeout = 5*time.Second + 500*time.Millisecond
		f := newFixture(t, waiting(timeout))
		f.store.Inject("complete", storetest.Before, always)
		f.send(request("K", "B"), made)
		assert.Equal(t, timeout, elapsed(func() { f.refused(f.send(request("K", "B"), made), 409, "in-progress") }))
		f.close()
	})
}

// CON-11: whose client leaves is gone, and asks the store nothing.
func TestAClientThatLeavesBehindAPendingOutcomeIsGone(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f := newFixture(t)
		f.store.Inject("complete", storetest.Before, 20)
		f.send(request("K", "B"), made)
		client, leave := context.WithTimeout(ctx, storeTimeout/2)
		defer leave()
		took := elapsed(func() {
			result, err := f.do(client, request("K", "B"), made)
			assert.NoError(t, err)
			f.refused(result, 409, "in-progress")
		})
		assert.Equal(t, storeTimeout/2, took)
		assert.Equal(t, 1, f.store.Calls("begin"), "that of the run")
		f.close()
	})
}

// A request that was held up by a pending outcome has the whole Limits.StoreTimeout for its own call.
func TestARequestBehindAPendingOutcomeHasTimeForItsOwnCall(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f, _, store := cutOff(t, func(o *outage) { o.capacity, o.takes = make(chan struct{}, 9), storeTimeout*7/10 })
		running := f.hold(ctx, request("K", "B"), made)
		store.set(true)
		running.finish()
		store.set(false)
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		f.close()
	})
}

// PG-01: what became of the outcome is not known, so nobody is shown it, nothing more is sent, and no blob is deleted.
func TestAnOutcomeOfWhichNothingIsKnownIsNotShown(t *testing.T) {
	for name, cause := range map[string]error{"no answer": errTest, "a claim that is lost afterwards": core.ErrLost} {
		inBubble(t, name, func(t *testing.T) {
			blobs := newShelf()
			f := newFixture(t, func(c *core.Config) {
				c.Keep.Blobs, c.Keep.BlobsFrom = blobs, 1
				c.Store = scripted{Store: c.Store, complete: func(driver.Claim) error {
					return fmt.Errorf("%w: commit: %w", core.ErrOutcomeUnknown, cause)
				}}
			})
			f.refused(f.send(request("K", "B"), made), 503, "store-unavailable")
			assert.Zero(t, elapsed(f.close), "nothing is sent again")
			assert.Len(t, blobs.ids(), 1, "the record may name it")
			assert.Equal(t, "begin unknown", f.heard.names())
		})
	}
	inBubble(t, "after the body was left out", func(t *testing.T) {
		f, sent := newFixture(t), 0
		f = f.with(func(c *core.Config) {
			c.Store = &outage{longest: 1000, Store: scripted{Store: c.Store, complete: func(driver.Claim) error {
				sent++
				return fmt.Errorf("%w: commit: %w", core.ErrOutcomeUnknown, core.ErrLost)
			}}}
		})
		f.send(request("K", "B"), tooLong)
		f.close()
		assert.Equal(t, 1, sent, "the whole outcome is not sent behind it")
		assert.Equal(t, "unknown", lastOf(f.heard.take()))
	})
}

// A record that says nothing of its earlier Complete may have been there: the blob stays, and has an end of its own.
func TestABlobIsDeletedOnlyWhenNoRecordCanNameIt(t *testing.T) {
	for name, c := range map[string]struct {
		faults int // before the claim is lost
		want   int
	}{"the first answer": {0, 0}, "an answer after one that was lost": {1, 1}} {
		inBubble(t, name, func(t *testing.T) {
			blobs, calls := newShelf(), 0
			f := newFixture(t, func(cfg *core.Config) {
				cfg.Keep.Blobs, cfg.Keep.BlobsFrom = blobs, 1
				cfg.Store = scripted{Store: cfg.Store, complete: func(driver.Claim) error {
					if calls++; calls <= c.faults {
						return errTest
					}
					return lostBecause("another has the key")
				}}
			})
			f.send(request("K", "B"), made)
			f.close()
			assert.Len(t, blobs.ids(), c.want)
		})
	}
}

// The store counts the retention from the sending that it took, which may be the first.
func TestALocalReplayEndsWithARetentionThatBeganWithTheFirstSending(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		const short = 40 * time.Second
		f := newFixture(t, func(c *core.Config) { c.Keep.LocalReplays, c.Keep.Retention = 1<<20, short })
		f.store.Inject("complete", storetest.After, 30)
		sent := time.Now()
		f.send(request("K", "B"), made)
		f.close()
		assert.Greater(t, time.Since(sent), 5*time.Second)
		time.Sleep(time.Until(sent.Add(short - time.Millisecond)))
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		time.Sleep(2 * time.Millisecond)
		f.answered(f.send(request("K", "B"), made), 201, "made")
		f.ran(2)
	})
}

// A hook that panics when the call is done leaves nothing pending that nobody sends: that would hold the key for good.
func TestAHookThatPanicsLeavesNothingPending(t *testing.T) {
	for name, c := range map[string]struct {
		h   handler
		set func(h *core.Hooks, panics core.Hook)
	}{
		"kept":           {made, func(h *core.Hooks, panics core.Hook) { h.Kept = panics }},
		"failed":         {answers(503, ""), func(h *core.Hooks, panics core.Hook) { h.Failed = panics }},
		"the store call": {made, func(h *core.Hooks, panics core.Hook) { h.StoreCall = onCall("Complete", panics) }},
	} {
		inBubble(t, name, func(t *testing.T) {
			f, _, store := cutOff(t)
			panics := f.with(func(cfg *core.Config) { c.set(&cfg.Hooks, panicsOnce()) })
			assert.PanicsWithValue(t, errTest, func() {
				panics.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
					store.during(leases(1.5))
					return c.h(ctx)
				})
			})
			f.close()
			if name == "failed" {
				f.runsAgain(request("K", "B"))
				return
			}
			f.replayed(f.send(request("K", "B"), made), 201, "made")
			f.ran(1)
		})
	}
}

// panicsOnce is a hook that panics when it is called first.
func panicsOnce() core.Hook {
	var has atomic.Bool
	return func(context.Context, core.Event) {
		if has.CompareAndSwap(false, true) {
			panic(errTest)
		}
	}
}

// A blob that is put says nothing of the store, whose commits go on at their pace.
func TestABlobStoreThatRespondsIsNotTheStore(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		f, _, store := cutOff(t)
		f = f.with(shelving(newShelf()))
		short, another := f.hold(ctx, request("A", "B"), made), f.hold(ctx, request("B", "B"), long)
		store.set(true)
		short.finish()
		time.Sleep(3 * time.Second) // the pauses have grown to half a second
		synctest.Wait()
		before := store.calls
		another.finish()
		synctest.Wait()
		assert.Equal(t, 1, store.calls-before, "that of its own commit")
		store.set(false)
		f.close()
	})
}
