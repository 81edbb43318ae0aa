package core

import (
	"sync"
	"time"
)

// appointment is the next time at which something is to be done for an operation, or for one call of the store. Few come to
// that time. So one that is cancelled or put off keeps its place in its queue, and is looked at when its turn comes.
type appointment struct {
	mu   sync.Mutex
	host host      // whom to come to; nil: nobody
	due  time.Time // when
	home *queue    // of appointments that are so far ahead
	in   *queue    // where it is; nil: nowhere
	at   time.Time // its turn there

	queued              bool // guarded by the mutex of in, as what follows
	previous, following *appointment
}

// host is who has an appointment.
type host interface{ come() }

// set is for a host that is to be come to, in a goroutine, in place of any other. home is for appointments so far ahead.
func (a *appointment) set(home *queue, h host, due time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.home, a.host, a.due = home, h, due
	if a.in == nil || a.at.After(due) {
		a.leave()
		a.enter()
	}
}

// cancel is for a host that is not to be come to any more. The place in the queue stays, for the next.
func (a *appointment) cancel() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.host = nil
}

// end cancels, and gives the place up.
func (a *appointment) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.host = nil
	a.leave()
}

// enter takes a place in the queue; the caller holds mu.
func (a *appointment) enter() {
	a.in, a.at = a.home, a.due
	a.in.add(a)
}

// leave gives the place up, if there is one; the caller holds mu.
func (a *appointment) leave() {
	if a.in != nil {
		a.in.remove(a)
		a.in = nil
	}
}

// turn is when a queue has let the appointment go, because its time came there.
func (a *appointment) turn() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.in == nil || a.in.has(a) { // it has no place meanwhile, or another
		return
	}
	a.in = nil
	switch {
	case a.host == nil:
	case time.Now().Before(a.due):
		a.enter()
	default:
		go a.host.come()
		a.host = nil
	}
}

// queue holds appointments in the order of their turns, under one timer. Nothing is allocated for them.
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
	for before != nil && before.at.After(a.at) {
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

// has tells whether a is there.
func (q *queue) has(a *appointment) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return a.queued
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
	at := q.first.at
	if !q.at.IsZero() && !at.Before(q.at) {
		return
	}
	q.at = at
	if q.timer == nil {
		q.timer = time.AfterFunc(time.Until(at), q.fire)
		return
	}
	q.timer.Reset(time.Until(at))
}

// fire lets go whose turn it is. That is done without mu, which who has an appointment takes behind its own.
func (q *queue) fire() {
	for _, a := range q.take() {
		a.turn()
	}
}

// take takes those out whose turn it is, and sets the timer for the others.
func (q *queue) take() (due []*appointment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.at = time.Time{}
	now := time.Now()
	for q.first != nil && !q.first.at.After(now) {
		due = append(due, q.first)
		q.unlink(q.first)
	}
	if q.first != nil {
		q.arm()
	}
	return due
}
