package waiting

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	key    = [32]byte{1}
	limits = Limits{Max: 3, MaxPerKey: 2}
)

func in(d time.Duration) time.Time { return time.Now().Add(d) }

func TestTheLimiterBoundsEachKeyAndAllOfThem(t *testing.T) {
	l := NewLimiter()
	first, second := l.Waiter(key, limits, in(time.Hour)), l.Waiter(key, limits, in(time.Hour))
	require.NotNil(t, second)
	assert.Nil(t, l.Waiter(key, limits, in(time.Hour)), "of one key")
	require.NotNil(t, l.Waiter([32]byte{2}, limits, in(time.Hour)))
	assert.Nil(t, l.Waiter([32]byte{3}, limits, in(time.Hour)), "in all")
	first.Close()
	second.Close()
	assert.NotNil(t, l.Waiter(key, limits, in(time.Hour)), "when others have left")
	assert.Len(t, l.keys, 2)
}

func TestAWaitEndsWithTheFirstOf(t *testing.T) {
	for name, test := range map[string]struct {
		deadline, lease, notify, leaves, after time.Duration
		retries                                bool
	}{
		"a notification":                    {time.Hour, time.Hour, time.Millisecond, time.Hour, time.Millisecond, true},
		"the end of the lease":              {time.Hour, time.Millisecond, time.Hour, time.Hour, 2 * time.Millisecond, true},
		"the first poll":                    {time.Hour, time.Hour, time.Hour, time.Hour, firstPoll, true},
		"the deadline, with one last retry": {time.Millisecond, time.Hour, time.Hour, time.Hour, time.Millisecond, true},
		"a client that leaves":              {time.Hour, time.Hour, time.Hour, time.Millisecond, time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				client, cancel := context.WithTimeout(t.Context(), test.leaves)
				defer cancel()
				w := NewLimiter().Waiter(key, limits, in(test.deadline))
				defer w.Close()
				timer := time.AfterFunc(test.notify, w.notify)
				defer timer.Stop()
				assert.Equal(t, test.retries, w.Wait(client, test.lease))
				assert.Equal(t, test.after, time.Since(began))
			})
		})
	}
}

func TestPollsComeLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := NewLimiter().Waiter(key, limits, in(10*time.Second))
		defer w.Close()
		var polls []time.Duration
		for w.Wait(t.Context(), time.Hour) {
			polls = append(polls, time.Since(began))
		}
		assert.Equal(t, []time.Duration{time.Second, 3 * time.Second, 7 * time.Second, 10 * time.Second}, polls)
	})
}

// A store that answers nothing holds neither the request nor more than twice as many goroutines as may wait.
func TestASubscriptionThatDoesNotReturnHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, release := NewLimiter(), make(chan struct{})
		hangs := func(func()) (func(), error) { <-release; return func() {}, nil }
		for range 2 * limits.Max {
			w := l.Waiter(key, limits, in(time.Hour))
			require.ErrorIs(t, w.Subscribe(t.Context(), in(time.Second), hangs), context.DeadlineExceeded)
			w.Close()
		}
		w := l.Waiter(key, limits, in(time.Hour))
		defer w.Close()
		require.ErrorIs(t, w.Subscribe(t.Context(), in(time.Second), hangs), errTooManyCalls)
		close(release)
		synctest.Wait()
		assert.Zero(t, l.calls)
		require.NoError(t, w.Subscribe(t.Context(), in(time.Second), hangs))
	})
}

func TestASubscriptionThatComesLateNotifies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewLimiter().Waiter(key, limits, in(time.Hour))
		stopped := false
		require.Error(t, w.Subscribe(t.Context(), in(time.Second), func(func()) (func(), error) {
			time.Sleep(1500 * time.Millisecond)
			return func() { stopped = true }, nil
		}))
		began := time.Now()
		assert.True(t, w.Wait(t.Context(), time.Hour))
		assert.Equal(t, 500*time.Millisecond, time.Since(began))
		w.Close()
		synctest.Wait()
		assert.True(t, stopped)
	})
}

func TestASubscriptionThatComesWhenTheRequestHasLeftEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewLimiter().Waiter(key, limits, in(time.Hour))
		client, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		stopped := false
		assert.ErrorIs(t, w.Subscribe(client, in(time.Second), func(func()) (func(), error) {
			time.Sleep(100 * time.Millisecond)
			return func() { stopped = true }, nil
		}), context.Canceled)
		w.Close()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.True(t, stopped)
	})
}

func TestAStoreThatPanicsEndsNoProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewLimiter().Waiter(key, limits, in(time.Hour))
		assert.ErrorContains(t, w.Subscribe(t.Context(), in(time.Second), func(func()) (func(), error) { panic("watch") }), "panicked")
		require.NoError(t, w.Subscribe(t.Context(), in(time.Second), func(func()) (func(), error) {
			return func() { panic("stop") }, nil
		}))
		w.Close()
		synctest.Wait()
	})
}

func TestAnErrorOfTheStoreIsThatOfTheSubscription(t *testing.T) {
	w, broken := NewLimiter().Waiter(key, limits, in(time.Hour)), errors.New("broken")
	defer w.Close()
	assert.ErrorIs(t, w.Subscribe(t.Context(), in(time.Second), func(func()) (func(), error) { return nil, broken }), broken)
}

func TestAPlaceIsFreeAsSoonAsOneOfAKeyHasLeft(t *testing.T) {
	l := NewLimiter()
	first, second := l.Waiter(key, limits, in(time.Hour)), l.Waiter(key, limits, in(time.Hour))
	first.Close()
	third := l.Waiter(key, limits, in(time.Hour))
	require.NotNil(t, third)
	assert.Nil(t, l.Waiter(key, limits, in(time.Hour)), "one place was free, and not two")
	second.Close()
	third.Close()
	assert.Empty(t, l.keys)
}

func TestASubscriptionIsNotAwaitedForLongerThanTheRequestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, hang := time.Now(), make(chan struct{})
		w := NewLimiter().Waiter(key, limits, in(time.Second))
		err := w.Subscribe(t.Context(), in(time.Hour), func(func()) (func(), error) {
			<-hang
			return nil, errors.New("too late")
		})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(began))
		close(hang)
		synctest.Wait()
		assert.Empty(t, w.notified, "a subscription that failed has missed nothing")
		w.Close()
	})
}

func TestTheCallThatEndsASubscriptionIsCountedWhileItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, hang := NewLimiter(), make(chan struct{})
		w := l.Waiter(key, limits, in(time.Hour))
		require.NoError(t, w.Subscribe(t.Context(), in(time.Hour), func(func()) (func(), error) { return func() { <-hang }, nil }))
		synctest.Wait()
		assert.Zero(t, l.calls)
		w.Close()
		synctest.Wait()
		assert.Equal(t, 1, l.calls)
		close(hang)
		synctest.Wait()
		assert.Zero(t, l.calls)
	})
}
