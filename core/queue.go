package core

import (
	"sync"
	"time"
)

// appointment is a time at which something is to be done, unless it is cancelled before.
type appointment struct {
	due time.Time
	of  interface{ come() } // is called then, in a goroutine

	queued              bool // guarded by the mutex of the queue, as what follows
	previous, following *appointment
}

// queue holds appointments in the order of their times, under one timer. Most are cancelled, so nothing is allocated for
// them.
type queue struct {
	mu          sync.Mutex
	first, last *appointment
	timer       *time.Timer
	at          time.Time // when it fires; zero: not at all
}

// add puts a where it belongs, which is nearly always the end.
func (q *queue) add(a *appointment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.last
	for before != nil && before.due.After(a.due) {
		before = before.previous
	}
	a.queued, a.previous = true, before
	if before == nil {
		a.following, q.first = q.first, a
	} else {
		a.following, before.following = before.following, a
	}
	if a.following == nil {
		q.last = a
	} else {
		a.following.previous = a
	}
	if q.first == a {
		q.arm()
	}
}

// remove takes a out, if it is there.
func (q *queue) remove(a *appointment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.queued {
		q.unlink(a)
	}
}

// unlink takes a out; the caller holds mu. A timer that was set for it finds the next.
func (q *queue) unlink(a *appointment) {
	if a.previous == nil {
		q.first = a.following
	} else {
		a.previous.following = a.following
	}
	if a.following == nil {
		q.last = a.previous
	} else {
		a.following.previous = a.previous
	}
	a.queued, a.previous, a.following = false, nil, nil
}

// arm sets the timer for the first appointment, unless it comes sooner anyway, and looks again then; the caller holds mu.
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

// fire comes to what is due.
func (q *queue) fire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.at = time.Time{}
	now := time.Now()
	for q.first != nil && !q.first.due.After(now) {
		a := q.first
		q.unlink(a)
		go a.of.come()
	}
	if q.first != nil {
		q.arm()
	}
}
