package core

import (
	"context"
	"sync"
	"time"
)

// waitingRooms counts the requests of this process that wait for a run.
type waitingRooms struct {
	mu    sync.Mutex
	total int
	rooms map[[32]byte]int
}

func newWaitingRooms() *waitingRooms { return &waitingRooms{rooms: map[[32]byte]int{}} }

// enter tells whether there is room for one more.
func (w *waitingRooms) enter(key [32]byte, limits *WaitConfig) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.total >= limits.Max || w.rooms[key] >= limits.MaxPerKey {
		return false
	}
	w.total++
	w.rooms[key]++
	return true
}

func (w *waitingRooms) leave(key [32]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	if w.rooms[key]--; w.rooms[key] == 0 {
		delete(w.rooms, key)
	}
}

// firstCheck is when a waiting request asks the store although nothing woke it, for the case that a wake was lost: then
// after twice as long each time.
const firstCheck = time.Second

// waiter is one request that waits.
type waiter struct {
	until time.Time
	check time.Duration
	woken chan struct{}
	stop  func() // ends the watch; nil without one
}

// wait returns true when the store is to be asked again: the run in progress may have ended. It returns false when the
// request has waited long enough, or may not wait.
func (op *operation) wait(left time.Duration) bool {
	if op.waiter != nil {
		return op.waiter.wait(op.ctx, left)
	}
	limits := &op.engine.cfg.Wait
	if limits.Timeout <= 0 || !op.engine.rooms.enter(op.claim.Key, limits) {
		return false
	}
	op.waiter = &waiter{until: time.Now().Add(limits.Timeout), check: firstCheck, woken: make(chan struct{}, 1)}
	op.claim.Waits = true
	err := op.engine.call(op.ctx, func(ctx context.Context) (err error) {
		op.waiter.stop, err = op.engine.cfg.Store.(Notifier).Watch(ctx, op.claim.Key, op.waiter.wake)
		return err
	})
	if err != nil && op.ctx.Err() == nil {
		op.hear(op.engine.cfg.Hooks.StoreError, 0, err)
	}
	return op.ctx.Err() == nil // what ended before the watch stood has woken nobody
}

// leave gives the place up.
func (op *operation) leave() {
	if op.waiter == nil {
		return
	}
	if op.waiter.stop != nil {
		op.waiter.stop()
	}
	op.claim.Waits = false
	op.engine.rooms.leave(op.claim.Key)
}

func (w *waiter) wake() {
	select {
	case w.woken <- struct{}{}:
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
	timer := time.NewTimer(min(rest, left+time.Millisecond, w.check))
	defer timer.Stop()
	select {
	case <-w.woken:
		return true
	case <-timer.C:
		w.check *= 2
		return true
	case <-client.Done():
		return false
	}
}
