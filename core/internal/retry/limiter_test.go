package retry

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

const ms = time.Millisecond

var errTest = errors.New("no response")

// in returns the time in d, as deadline.
func in(d time.Duration) time.Time { return time.Now().Add(d) }

// isGranted reports whether a slot is granted at once.
func (l *limiter) isGranted() bool { return l.acquire(0, in(1)) }

// waits makes an attempt wait for a slot, which it keeps. It returns whether the attempt has its slot.
func (l *limiter) waits(attempts int) (granted func() bool) {
	var is atomic.Bool
	go func() { is.Store(l.acquire(attempts, in(time.Hour))) }()
	synctest.Wait()
	return is.Load
}

// probe makes one attempt after the other without a response, and returns the pauses before each.
func probe(l *limiter, attempts int) (pauses []time.Duration) {
	for range attempts {
		began := time.Now()
		l.acquire(0, in(time.Hour))
		pauses = append(pauses, time.Since(began))
		l.release(false)
	}
	return pauses
}

func TestProbesOfASilentStoreHaveGrowingPauses(t *testing.T) {
	for name, c := range map[string]struct {
		lease time.Duration
		want  []time.Duration
	}{
		"of at most half a second": {time.Minute,
			[]time.Duration{0, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 500 * ms, 500 * ms}},
		"of at most a sixth of the lease": {600 * ms,
			[]time.Duration{0, 20 * ms, 40 * ms, 80 * ms, 100 * ms, 100 * ms, 100 * ms, 100 * ms}},
		"of at least a millisecond": {ms, []time.Duration{0, ms, ms, ms, ms, ms, ms, ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter()
				l.lowerMaxPause(time.Minute)
				l.lowerMaxPause(c.lease / 6)
				assert.Equal(t, c.want, probe(l, 8))
				assert.True(t, l.acquire(0, in(time.Second)))
				l.release(true)
				assert.Equal(t, c.want[:3], probe(l, 3), "a response starts the pauses anew")
			})
		})
	}
}

func TestOneAttemptAtATimeProbesASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		assert.True(t, l.isGranted())
		next := l.waits(0)
		assert.False(t, next())
		l.release(false)
		synctest.Wait()
		assert.False(t, next(), "during the pause")
		time.Sleep(FirstPause)
		synctest.Wait()
		assert.True(t, next())
	})
}

func TestTheLimitDoublesAndHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		for _, want := range []int{2, 4, 8, 16, 32, 64, 128, 256, 256} {
			l.acquire(0, in(time.Second))
			l.release(true)
			assert.Equal(t, want, l.limit)
		}
		slots := 0
		for l.isGranted() {
			slots++
		}
		assert.Equal(t, maxLimit, slots)
		for _, want := range []int{128, 64, 32, 16, 8, 4, 2, 1, 1} {
			l.release(false)
			assert.Equal(t, want, l.limit)
			l.release(false)
			assert.Equal(t, want, l.limit, "attempts that fail together count once")
			time.Sleep(MaxPause)
		}
		l.failed()
		assert.Equal(t, 1, l.limit)
	})
}

func TestCommitsWithFewestAttemptsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		assert.True(t, l.isGranted())
		var order []int
		for i, attempts := range []int{3, 0, 1, 0, 3, 2, 1} {
			go func() {
				l.acquire(attempts, in(time.Hour))
				order = append(order, i)
				l.release(false)
			}()
			synctest.Wait()
		}
		l.release(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []int{1, 3, 2, 6, 5, 0, 4}, order, "of equal attempts, the first that came")
	})
}

func TestAnAttemptWaitsUntilItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		assert.True(t, l.isGranted())
		began := time.Now()
		assert.False(t, l.acquire(0, in(time.Second)))
		assert.Equal(t, time.Second, time.Since(began))
		l.release(true)
		assert.False(t, l.acquire(0, time.Now()), "there is a slot, and no time to use it")
		assert.True(t, l.isGranted(), "an attempt that has given up takes no slot")
	})
}

func TestAResponseToAnyCallEndsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		probe(l, 9)
		next := l.waits(0)
		l.responded()
		synctest.Wait()
		assert.False(t, next(), "just after a failure")
		time.Sleep(FirstPause - 1)
		synctest.Wait()
		assert.False(t, next())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.True(t, next())

		l.release(false)
		next = l.waits(0)
		time.Sleep(3 * FirstPause)
		l.responded()
		synctest.Wait()
		assert.True(t, next(), "at once")
	})
}

func TestAStoreIsSilentUntilItResponds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		assert.True(t, l.isSilent(time.Hour))
		l.responded()
		time.Sleep(time.Second)
		assert.False(t, l.isSilent(time.Second))
		time.Sleep(time.Nanosecond)
		assert.True(t, l.isSilent(time.Second))
	})
}

// hang makes a call that hangs until its context ends, and returns how long that took.
func hang(ctx context.Context, l *limiter, hungBefore int) (time.Duration, bool) {
	began := time.Now()
	_, hung := l.call(ctx, hungBefore, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	return time.Since(began), hung
}

func TestACallThatHangsIsGivenUpWhenOthersHaveResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := map[int]time.Duration{0: 1, 1: 2, 5: 32, 10: 1024, 99: 1024}
		for hungBefore, factor := range times {
			want := factor * hungAfter
			l := newLimiter()
			time.AfterFunc(ms, l.responded)
			time.AfterFunc(2*ms, l.responded)
			took, hung := hang(t.Context(), l, hungBefore)
			assert.True(t, hung)
			assert.Equal(t, want, took)

			time.AfterFunc(want+time.Second, l.responded)
			took, hung = hang(t.Context(), l, hungBefore)
			assert.True(t, hung)
			assert.Equal(t, want+time.Second, took, "not before the store responds to another call")
		}
	})
}

func TestACallOfASilentStoreIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		l.responded() // before the call
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		took, hung := hang(ctx, l, 0)
		assert.False(t, hung)
		assert.Equal(t, time.Hour, took)
		assert.Empty(t, l.calls)
	})
}

func TestACallThatReturnsDidNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, want := range []error{nil, errTest} {
			l := newLimiter()
			err, hung := l.call(t.Context(), 0, func(context.Context) error {
				l.responded()
				time.Sleep(hungAfter - 1)
				return want
			})
			assert.Equal(t, want, err)
			assert.False(t, hung)
		}
	})
}

// What waits is a heap, in which each waiter knows its place.
func TestAnAttemptThatGivesUpLeavesTheOthersInTheirOrder(t *testing.T) {
	for gone := range 7 {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter()
			assert.True(t, l.isGranted())
			var order, want []int
			for i, attempts := range []int{5, 2, 6, 0, 4, 1, 3} {
				deadline := in(time.Hour)
				if i == gone {
					deadline = in(time.Minute)
				} else {
					want = append(want, attempts)
				}
				go func() {
					if l.acquire(attempts, deadline) {
						order = append(order, attempts)
						l.release(false)
					}
				}()
				synctest.Wait()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Len(t, l.waiters, 6)
			for range 6 {
				l.release(false)
				time.Sleep(time.Second)
				l.mu.Lock()
				l.inFlight++ // for the next release
				l.mu.Unlock()
			}
			synctest.Wait()
			slices.Sort(want)
			assert.Equal(t, want, order)
			assert.Empty(t, l.waiters)
		})
	}
}

func TestASlotThatWasGrantedIsNotWithdrawn(t *testing.T) {
	l := newLimiter()
	w := &waiter{granted: make(chan struct{})}
	heap.Push(&l.waiters, w)
	l.grant()
	assert.False(t, l.withdraw(w), "the attempt has its slot, and must use it")
}

func TestACallThatReturnsAfterItHungHasItsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		for _, expected := range []error{nil, errTest} {
			time.AfterFunc(time.Millisecond, l.responded)
			var inside context.Context
			err, hung := l.call(t.Context(), 0, func(ctx context.Context) error {
				inside = ctx
				<-ctx.Done()
				return expected
			})
			assert.Equal(t, expected, err)
			assert.Equal(t, expected != nil, hung)
			assert.Error(t, inside.Err())
		}
		var inside context.Context
		_, _ = l.call(t.Context(), 0, func(ctx context.Context) error { inside = ctx; return nil })
		assert.Error(t, inside.Err(), "the call leaves no context behind")
	})
}

func TestAResponseMakesNoPauseLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		l.lowerMaxPause(time.Millisecond)
		l.failed()
		l.responded()
		assert.Equal(t, in(time.Millisecond), l.nextGrant)
	})
}
