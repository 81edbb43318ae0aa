package waiting

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

var (
	errTooManyCalls = errors.New("idem: the store has not answered so many calls of Watch that it is not asked for more")
	errNoAnswer     = fmt.Errorf("idem: Watch has not returned: %w", context.DeadlineExceeded)
)

// firstPoll is when a waiting request asks the store for the first time although nothing notified it, in case a notification was
// lost. The interval doubles from there.
const firstPoll = time.Second

// Waiter is one request that waits for the run of one record. Only Close may be called from another goroutine than the rest.
type Waiter struct {
	limiter      *Limiter
	limits       Limits
	key          [32]byte
	deadline     time.Time
	pollInterval time.Duration
	notified     chan struct{}

	mu     sync.Mutex
	isLate bool   // the subscription was not there in time
	isLeft bool   // the request waits no more
	stop   func() // ends the subscription; nil without one
}

// Waiter returns a waiter for the record of key that waits until deadline at most, nil when the limits allow no more.
func (l *Limiter) Waiter(key [32]byte, limits Limits, deadline time.Time) *Waiter {
	if !l.acquire(key, limits) {
		return nil
	}
	return &Waiter{
		limiter: l, limits: limits, key: key, deadline: deadline, pollInterval: firstPoll, notified: make(chan struct{}, 1),
	}
}

// Deadline is when the request waits no more.
func (w *Waiter) Deadline() time.Time { return w.deadline }

// Subscribe has watch call notify when the run ends. It returns when watch has returned, at deadline, or when client ends,
// even if watch does not: then watch goes on in its own goroutine. The error says why the request is not subscribed.
func (w *Waiter) Subscribe(client context.Context, deadline time.Time, watch func(notify func()) (stop func(), err error)) error {
	if w.deadline.Before(deadline) {
		deadline = w.deadline
	}
	if !w.limiter.startCall(w.limits) {
		return errTooManyCalls
	}
	returned := make(chan error, 1)
	go func() {
		defer w.limiter.addCalls(-1)
		returned <- w.call(watch)
	}()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case err := <-returned:
		return err
	case <-timer.C:
		w.giveUp()
		return errNoAnswer
	case <-client.Done():
		return client.Err()
	}
}

// call calls watch. A panic of a store would end the process here, where no server recovers it, so it becomes an error.
func (w *Waiter) call(watch func(func()) (func(), error)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("idem: Watch panicked: %v", p)
		}
	}()
	stop, err := watch(w.notify)
	if err == nil {
		w.subscribed(stop)
	}
	return err
}

// subscribed notes how the subscription ends. A late one may have missed the end of the run, so the request is notified; one that
// comes after the request has left ends at once.
func (w *Waiter) subscribed(stop func()) {
	w.mu.Lock()
	isLate, isLeft := w.isLate, w.isLeft
	w.stop = stop
	w.mu.Unlock()
	switch {
	case isLeft:
		stop()
	case isLate:
		w.notify()
	}
}

// giveUp notes that the subscription is not there in time.
func (w *Waiter) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isLate = true
}

// notify notes that the run may have ended. It does not block: one note is enough, however many notifications come before the
// next Wait. The store may call it at any time, also after Close.
func (w *Waiter) notify() {
	select {
	case w.notified <- struct{}{}:
	default:
	}
}

// Wait blocks until the run may have ended: something notified the request, the rest of the run's lease is over, or it is time to
// poll. It reports false when the client has left, or the deadline was over before. At the deadline it reports true once, so that
// a lost notification costs no more than the wait.
func (w *Waiter) Wait(client context.Context, leaseRemaining time.Duration) (retry bool) {
	rest := time.Until(w.deadline)
	if rest <= 0 {
		return false
	}
	timer := time.NewTimer(min(rest, leaseRemaining+time.Millisecond, w.pollInterval))
	defer timer.Stop()
	select {
	case <-w.notified:
		return true
	case <-timer.C:
		w.pollInterval *= 2
		return true
	case <-client.Done():
		return false
	}
}

// Close ends the wait and the subscription. The store's stop runs in a goroutine of its own, so that no store can hold the
// request.
func (w *Waiter) Close() {
	w.limiter.release(w.key)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isLeft = true
	if w.stop == nil {
		return
	}
	w.limiter.addCalls(1)
	go func() {
		defer w.limiter.addCalls(-1)
		defer func() { _ = recover() }() // as in call
		w.stop()
	}()
}
