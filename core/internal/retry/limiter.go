package retry

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// MaxPause bounds the pauses between the calls to a store that does not respond.
	MaxPause = 500 * time.Millisecond

	maxLimit = 256 // of calls in flight

	// hungAfter is how long a call may last while the store responds to others.
	hungAfter    = 80 * time.Millisecond
	maxDoublings = 10 // of hungAfter
)

// limiter limits how many commits are in flight. While the store does not respond, one commit at a time probes it, with growing
// pauses between. When the store responds, the limit doubles with each response, and a failure halves it. So a store that has
// just come back is not overloaded.
type limiter struct {
	mu       sync.Mutex
	waiters  waiters
	arrived  int // waiters so far
	inFlight int // slots in use
	limit    int // of inFlight
	calls    map[*call]struct{}
	timer    *time.Timer // grants slots after a pause; nil before the first

	pause         time.Duration // after the last failure; 0 if the store has responded since
	maxPause      time.Duration
	lastFailure   time.Time // that counted
	nextGrant     time.Time // no slot is granted before
	lastResponded time.Time // to any call
}

// call is one call in flight.
type call struct {
	hungAt    time.Time          // when the call has lasted so long that it hangs
	isLimited bool               // the store has responded to another call, so this one is cancelled at hungAt
	cancel    context.CancelFunc // of its context
}

func newLimiter() *limiter {
	return &limiter{calls: map[*call]struct{}{}, limit: 1, maxPause: MaxPause}
}

// lowerMaxPause makes maxPause at most d, and at least a millisecond.
func (l *limiter) lowerMaxPause(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maxPause = max(min(l.maxPause, d), time.Millisecond)
}

// call calls f, whose context ends when the call hangs while the store responds to others. hungBefore is how many calls of the
// same commit hung before this one; each of them doubles the time after which this call hangs.
func (l *limiter) call(ctx context.Context, hungBefore int, f func(context.Context) error) (err error, hung bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &call{hungAt: time.Now().Add(hungAfter << min(hungBefore, maxDoublings)), cancel: cancel}
	l.mu.Lock()
	l.calls[c] = struct{}{}
	l.mu.Unlock()
	err = f(ctx)
	l.mu.Lock()
	delete(l.calls, c)
	l.mu.Unlock()
	return err, err != nil && errors.Is(ctx.Err(), context.Canceled)
}

// responded notes that the store has responded to a call. It ends the pause, and the calls that hang.
func (l *limiter) responded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastResponded = time.Now()
	if earliest := l.lastFailure.Add(FirstPause); earliest.Before(l.nextGrant) { // some shards may be silent while others respond
		l.nextGrant = earliest
	}
	for c := range l.calls {
		if !c.isLimited {
			c.isLimited = true
			time.AfterFunc(time.Until(c.hungAt), c.cancel)
		}
	}
	l.grant()
}

// isSilent reports whether the store has responded to no call for d.
func (l *limiter) isSilent(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.lastResponded) > d
}

// acquire waits for a slot, for the attempt of a commit that has had so many before. It returns false when the deadline comes
// first, or has passed.
func (l *limiter) acquire(attempts int, deadline time.Time) bool {
	if !time.Now().Before(deadline) {
		return false
	}
	w := &waiter{granted: make(chan struct{}), attempts: attempts}
	l.mu.Lock()
	l.arrived++
	w.order = l.arrived
	heap.Push(&l.waiters, w)
	l.grant()
	l.mu.Unlock()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-w.granted:
		return true
	case <-timer.C:
		return !l.withdraw(w)
	}
}

// withdraw removes a waiter. It returns false if the waiter has its slot already.
func (l *limiter) withdraw(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.index < 0 {
		return false
	}
	heap.Remove(&l.waiters, w.index)
	return true
}

// release gives a slot back. responded is whether the store responded to the attempt.
func (l *limiter) release(responded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	if responded {
		l.limit, l.pause, l.nextGrant = min(2*l.limit, maxLimit), 0, time.Time{}
	} else {
		l.backOff()
	}
	l.grant()
}

// failed notes a failure of a call that had no slot.
func (l *limiter) failed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backOff()
}

// backOff halves the limit and doubles the pause. Calls that fail together count once: those that fail during a pause do not
// count. The caller holds mu.
func (l *limiter) backOff() {
	now := time.Now()
	if now.Before(l.nextGrant) {
		return
	}
	l.limit = max(l.limit/2, 1)
	l.pause = min(max(2*l.pause, FirstPause), l.maxPause)
	l.lastFailure, l.nextGrant = now, now.Add(l.pause)
}

// grant gives slots to waiters, up to the limit. During a pause it sets the timer instead. The caller holds mu.
func (l *limiter) grant() {
	for len(l.waiters) > 0 && l.inFlight < l.limit {
		if pause := time.Until(l.nextGrant); pause > 0 {
			l.grantAfter(pause)
			return
		}
		w := heap.Pop(&l.waiters).(*waiter)
		l.inFlight++
		close(w.granted)
	}
}

// grantAfter calls grant after a pause. The caller holds mu.
func (l *limiter) grantAfter(pause time.Duration) {
	if l.timer != nil {
		l.timer.Reset(pause)
		return
	}
	l.timer = time.AfterFunc(pause, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.grant()
	})
}
