package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core/internal/deadline"
	"github.com/go-idem/idem/core/internal/inflight"
)

const second = time.Second

// lasts is the lease of the tests.
const lasts = 30 * second

var (
	errTest = errors.New("no connection")
	errLost = errors.New("lost")
)

// holder writes down what a Renewer calls, with the seconds since its start.
type holder struct {
	began   time.Time
	takes   time.Duration // how long an extension lasts
	failing func(n int) error
	sent    int

	mu  sync.Mutex
	log []string
}

func (h *holder) note(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, fmt.Sprintf("%v %s", time.Since(h.began), text))
}

func (h *holder) Extend() (isLost bool, err error) {
	h.note("extend")
	h.sent++
	time.Sleep(h.takes)
	if h.failing != nil {
		err = h.failing(h.sent)
	}
	return err == errLost, err
}

func (h *holder) Cancel(why Reason) { h.note([]string{"lost", "silent", "overdue"}[why]) }

func (h *holder) Report(why Reason, err error) {
	h.note(fmt.Sprintf("report %s: %v", []string{"lost", "silent", "overdue"}[why], err))
}

func (h *holder) ReportFailure(err error) { h.note("failed: " + err.Error()) }

// renewing is a Renewer of a test.
type renewing struct {
	Renewer
	*holder
	timers   deadline.Queue
	inflight *inflight.Group
}

// start starts a Renewer whose n-th extension fails with failing(n), in a bubble with a clock of its own.
func start(t *testing.T, h *holder, maxRun time.Duration, test func(r *renewing)) {
	synctest.Test(t, func(*testing.T) {
		h.began = time.Now()
		r := &renewing{holder: h, inflight: inflight.New()}
		r.Start(Config{Holder: h, Timers: &r.timers, Inflight: r.inflight, Began: h.began, Lease: lasts, MaxRun: maxRun})
		test(r)
		r.Stop()
		assert.Zero(t, r.timers.Len(), "a Renewer that was stopped leaves nothing behind")
		assert.NoError(t, r.inflight.Wait(context.Background()))
	})
}

// pass lets time pass, and returns when all that was due has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAShortRunSendsNoExtension(t *testing.T) {
	start(t, &holder{}, 0, func(r *renewing) {
		pass(lasts/3 - 1)
		end, isLost := r.Stop()
		assert.Equal(t, lasts, end.Sub(r.began))
		assert.False(t, isLost)
		pass(10 * lasts)
		assert.Empty(t, r.log)
	})
}

func TestAnExtensionFollowsEachThirdOfTheLease(t *testing.T) {
	start(t, &holder{takes: second}, 0, func(r *renewing) {
		pass(35 * second)
		assert.Equal(t, []string{"10s extend", "20s extend", "30s extend"}, r.log)
		assert.Equal(t, 30*second, r.Confirmed().Sub(r.began))
		end, isLost := r.Stop()
		assert.Equal(t, 60*second, end.Sub(r.began), "the lease is counted from when the last extension was sent")
		assert.False(t, isLost)
	})
}

func TestALostClaimEndsTheRenewal(t *testing.T) {
	start(t, &holder{failing: func(int) error { return errLost }}, 0, func(r *renewing) {
		pass(10 * lasts)
		assert.Equal(t, []string{"10s extend", "10s lost", "10s report lost: lost"}, r.log)
		_, isLost := r.Stop()
		assert.True(t, isLost)
	})
}

func TestAFailedExtensionIsSentAgain(t *testing.T) {
	failing := func(n int) error {
		if n <= 2 {
			return errTest
		}
		return nil
	}
	start(t, &holder{failing: failing}, 0, func(r *renewing) {
		pass(20 * second)
		assert.Equal(t, []string{"10s extend", "10s failed: no connection", "13s extend", "13s failed: no connection", "16s extend"}, r.log)
		assert.Equal(t, 16*second, r.Confirmed().Sub(r.began))
	})
}

// After a silent lease the extensions go on, since the claim may be held when the store is back. Nothing is reported twice.
func TestASilentStoreCancelsTheWorkOnceAndIsAskedOn(t *testing.T) {
	failing := func(n int) error {
		if n == 12 {
			return errLost
		}
		return errTest
	}
	start(t, &holder{failing: failing, takes: 100 * time.Millisecond}, 0, func(r *renewing) {
		pass(10 * lasts)
		assert.Contains(t, r.log, "30s silent")
		assert.Contains(t, r.log, "30s report silent: <nil>")
		want := []string{"31s extend", "31.5s extend", "32s extend", "32.5s extend", "33s extend", "33.1s lost"}
		assert.Equal(t, want, r.log[len(r.log)-len(want):], "the second reason is not reported")
		assert.Equal(t, 12, r.sent)
	})
}

func TestWorkThatLastsTooLongIsCancelled(t *testing.T) {
	start(t, &holder{}, 15*second, func(r *renewing) {
		assert.False(t, r.IsOverdue())
		pass(10 * lasts)
		assert.Equal(t, []string{"10s extend", "15s overdue", "15s report overdue: <nil>"}, r.log)
		assert.True(t, r.IsOverdue())
		_, isLost := r.Stop()
		assert.True(t, isLost)
	})
}

// What an extension under way returns after Stop is of no interest, except that it failed.
func TestAnExtensionUnderWayChangesNothingAfterStop(t *testing.T) {
	for _, err := range []error{nil, errLost, errTest} {
		start(t, &holder{takes: 5 * second, failing: func(int) error { return err }}, 0, func(r *renewing) {
			pass(12 * second)
			end, _ := r.Stop()
			assert.Equal(t, lasts, end.Sub(r.began))
			pass(10 * lasts)
			want := []string{"10s extend"}
			if err == errTest {
				want = append(want, "15s failed: no connection")
			}
			assert.Equal(t, want, r.log)
			assert.False(t, r.wasLost())
		})
	}
}

// A timer that fires when Stop is called comes too late.
func TestATimerThatFiresAfterStopChangesNothing(t *testing.T) {
	start(t, &holder{}, 15*second, func(r *renewing) {
		pass(12 * second)
		r.Stop()
		assert.False(t, r.limit.Stop(), "no timer runs on")
		assert.False(t, r.expiry.Stop())
		r.markOverdue()
		r.markLost(Silent, nil)
		r.extend()
		assert.Equal(t, []string{"10s extend"}, r.log)
		assert.False(t, r.IsOverdue())
		assert.False(t, r.wasLost())
	})
}

func TestARenewerAllocatesNothingBeforeItsFirstExtension(t *testing.T) {
	const runs = 100
	var timers deadline.Queue
	renewers, h, group := make([]Renewer, runs+1), &holder{}, inflight.New()
	next := 0
	assert.Zero(t, testing.AllocsPerRun(runs, func() {
		r := &renewers[next]
		next++
		r.Start(Config{Holder: h, Timers: &timers, Inflight: group, Began: time.Now(), Lease: time.Hour})
		r.Stop()
	}))
}
