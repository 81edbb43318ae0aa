package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// waiterLimit counts the requests of this process that wait for a run.
type waiterLimit struct {
	mu    sync.Mutex
	total int
	rooms map[[32]byte]int
	calls int // of Watch and its stop that are under way, also when their requests have left
}

func newWaiterLimit() *waiterLimit { return &waiterLimit{rooms: map[[32]byte]int{}} }

// acquire tells whether there is room for one more.
func (w *waiterLimit) acquire(key [32]byte, limits *WaitConfig) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.total >= limits.Max || w.rooms[key] >= limits.MaxPerKey {
		return false
	}
	w.total++
	w.rooms[key]++
	return true
}

func (w *waiterLimit) release(key [32]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	if w.rooms[key]--; w.rooms[key] == 0 {
		delete(w.rooms, key)
	}
}

// startCall counts a call of Watch, unless the store leaves so many unanswered that one more would only add to the pile.
func (w *waiterLimit) startCall(limits *WaitConfig) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls >= 2*limits.Max { // each waiter has one call at a time, and may leave one behind
		return false
	}
	w.calls++
	return true
}

// countCalls adds n calls to those that are under way.
func (w *waiterLimit) countCalls(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls += n
}

// firstPoll is when a waiting request asks the store although nothing woke it, for the case that a wake was lost: then
// after twice as long each time.
const firstPoll = time.Second

// waiter is one request that waits.
type waiter struct {
	key          [32]byte // of the place it holds: the claim may be one of another record when it leaves
	until        time.Time
	pollInterval time.Duration
	notified     chan struct{}

	mu   sync.Mutex
	late bool   // the watch did not stand in time
	left bool   // the request has
	stop func() // ends the watch; nil without one
}

// wait returns true when the store is to be asked again: the run in progress may have ended. It returns false when the
// request has waited long enough, or may not wait. The time counts from the Begin that found the run.
func (op *operation) wait(left time.Duration) bool {
	if op.waiter != nil {
		return op.waiter.wait(op.ctx, left)
	}
	limits := &op.engine.cfg.Wait
	if limits.Timeout <= 0 || !op.engine.waiters.acquire(op.claim.Key, limits) {
		return false
	}
	op.waiter = &waiter{key: op.claim.Key, until: op.began.Add(limits.Timeout), pollInterval: firstPoll, notified: make(chan struct{}, 1)}
	op.claim.Subscribed = true
	if err := op.watch(); err != nil && op.ctx.Err() == nil {
		op.emit(op.engine.cfg.Hooks.StoreError, 0, err)
	}
	return op.ctx.Err() == nil // what ended before the watch stood has woken nobody
}

var (
	errWatches  = errors.New("idem: the store has not answered so many calls of Watch that it is not asked for more")
	errNoAnswer = fmt.Errorf("idem: Watch has not returned: %w", context.DeadlineExceeded)
)

// watch has the store wake the request. It returns when the store has answered, when the request may wait for that no longer,
// or when its client leaves, even if the store keeps to no context: the call goes on in its own goroutine then.
func (op *operation) watch() error {
	e, w, key, client := op.engine, op.waiter, op.claim.Key, op.ctx
	deadline := time.Now().Add(e.cfg.Limits.StoreTimeout)
	if w.until.Before(deadline) {
		deadline = w.until
	}
	if !e.waiters.startCall(&e.cfg.Wait) {
		return errWatches
	}
	answered := make(chan error, 1)
	go func() {
		defer e.waiters.countCalls(-1)
		answered <- e.callUntil(client, deadline, func(ctx context.Context) error { return w.ask(ctx, e.cfg.Store.(driver.Notifier), key) })
	}()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case err := <-answered:
		return err
	case <-timer.C:
		w.giveUp()
		return errNoAnswer
	case <-client.Done():
		return client.Err()
	}
}

// ask calls Watch. A panic would end the process here, where no server recovers it, so it becomes an error.
func (w *waiter) ask(ctx context.Context, store driver.Notifier, key [32]byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("idem: Watch panicked: %v", p)
		}
	}()
	stop, err := store.Watch(ctx, key, w.notify)
	if err == nil {
		w.watched(stop)
	}
	return err
}

// watched notes how the watch ends. One that comes late may have missed something, so the request looks; one that comes when
// the request has left ends.
func (w *waiter) watched(stop func()) {
	w.mu.Lock()
	late, left := w.late, w.left
	w.stop = stop
	w.mu.Unlock()
	switch {
	case left:
		stop()
	case late:
		w.notify()
	}
}

// giveUp notes that the watch does not stand in time.
func (w *waiter) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = true
}

// leave gives the place up. The watch ends in a goroutine of its own, so that no store can keep the request.
func (op *operation) leave() {
	w, rooms := op.waiter, op.engine.waiters
	if w == nil {
		return
	}
	op.claim.Subscribed = false
	rooms.release(w.key)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = true
	if w.stop == nil {
		return
	}
	rooms.countCalls(1)
	go func() {
		defer rooms.countCalls(-1)
		defer func() { _ = recover() }() // as in ask
		w.stop()
	}()
}

func (w *waiter) notify() {
	select {
	case w.notified <- struct{}{}:
	default:
	}
}

// wait sleeps until something wakes it, the lease of the run in progress ends, or it is time to check. After the last
// moment it returns true once more, so that no wake that was lost costs more than the wait.
func (w *waiter) wait(client context.Context, left time.Duration) bool {
	rest := time.Until(w.until)
	if rest <= 0 {
		return false
	}
	timer := time.NewTimer(min(rest, left+time.Millisecond, w.pollInterval))
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
