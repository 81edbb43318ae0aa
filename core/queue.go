package core

import (
	"sync"
	"time"
)

// queue holds the keepers of one engine whose runs have not come to their first extension, in the order of that, under one
// timer. Most runs leave it again at once, so nothing is allocated for them.
type queue struct {
	mu          sync.Mutex
	first, last *keeper
	timer       *time.Timer
	at          time.Time // when it fires; zero: not at all
}

// add puts k where it belongs, which is nearly always the end.
func (q *queue) add(k *keeper) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.last
	for before != nil && before.due.After(k.due) {
		before = before.previous
	}
	k.queued, k.previous = true, before
	if before == nil {
		k.following, q.first = q.first, k
	} else {
		k.following, before.following = before.following, k
	}
	if k.following == nil {
		q.last = k
	} else {
		k.following.previous = k
	}
	if q.first == k {
		q.arm()
	}
}

// remove takes k out, if it is there.
func (q *queue) remove(k *keeper) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if k.queued {
		q.unlink(k)
	}
}

// unlink takes k out; the caller holds mu. A timer that was set for it finds the next.
func (q *queue) unlink(k *keeper) {
	if k.previous == nil {
		q.first = k.following
	} else {
		k.previous.following = k.following
	}
	if k.following == nil {
		q.last = k.previous
	} else {
		k.following.previous = k.previous
	}
	k.queued, k.previous, k.following = false, nil, nil
}

// arm sets the timer for the first keeper, unless it comes sooner anyway, and looks again then; the caller holds mu.
func (q *queue) arm() {
	due := q.first.due
	if !q.at.IsZero() && !due.Before(q.at) {
		return
	}
	q.at = due
	if q.timer == nil {
		q.timer = time.AfterFunc(time.Until(due), q.fire)
		return
	}
	q.timer.Reset(time.Until(due))
}

// fire extends what is due.
func (q *queue) fire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.at = time.Time{}
	now := time.Now()
	for q.first != nil && !q.first.due.After(now) {
		k := q.first
		q.unlink(k)
		go k.extend()
	}
	if q.first != nil {
		q.arm()
	}
}
