// Package deadline has timers and contexts that behave like those of the standard library and cost less when they end early,
// as nearly all timeouts do. The timers of a Queue share one runtime timer, which is not set again when a timer stops. A
// Context allocates nothing but its channel if it is a field of another value.
package deadline

import (
	"container/heap"
	"sync"
	"time"
)

// Queue runs timers under one runtime timer. The zero value is ready to use. Its methods are safe for concurrent use.
type Queue struct {
	mu     sync.Mutex
	timers timerHeap
	timer  *time.Timer // calls fire at wake; nil before the first use
	wake   time.Time   // when timer fires; zero: not at all
}

// Func is what a Timer calls. It is an interface so that a method needs no allocation for its receiver.
type Func interface{ Fire() }

// Timer calls a Func once, in a goroutine of its own, like a timer of time.AfterFunc. The zero value is a stopped timer. Calls of
// At and Stop for one Timer must not overlap each other; they may overlap its Func.
type Timer struct {
	queue *Queue // nil before the first use
	f     Func
	due   time.Time
	index int // in queue.timers, counted from 1; 0: stopped
}

// At starts t, or starts it again if it is running: it calls f.Fire when due is reached, in a goroutine of its own. It takes a time
// and not a duration, because callers know the time and reading the clock costs more than the rest. A Timer must be used with one
// queue only.
func (q *Queue) At(t *Timer, due time.Time, f Func) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.queue, t.f, t.due = q, f, due
	if t.index == 0 {
		heap.Push(&q.timers, t)
	} else {
		heap.Fix(&q.timers, t.index-1)
	}
	q.setWake()
}

// Stop stops t. It reports false if t was not running: then its Func has been called, or t was stopped or never started. Stop does
// not wait for the Func to return.
func (t *Timer) Stop() bool {
	if t.queue == nil {
		return false
	}
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	isRunning := t.index != 0
	if isRunning {
		heap.Remove(&t.queue.timers, t.index-1)
	}
	return isRunning
}

// Len returns the number of running timers.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.timers)
}

// setWake sets the runtime timer for the first timer, unless the runtime timer fires earlier anyway. The caller holds mu.
func (q *Queue) setWake() {
	if len(q.timers) == 0 || !q.wake.IsZero() && !q.timers[0].due.Before(q.wake) {
		return
	}
	q.wake = q.timers[0].due
	if q.timer == nil {
		q.timer = time.AfterFunc(time.Until(q.wake), q.fire)
		return
	}
	q.timer.Reset(time.Until(q.wake))
}

// fire runs the timers that are due.
func (q *Queue) fire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wake = time.Time{}
	for now := time.Now(); len(q.timers) > 0 && !q.timers[0].due.After(now); {
		t := heap.Pop(&q.timers).(*Timer)
		go t.f.Fire()
	}
	q.setWake()
}

// timerHeap implements heap.Interface: the first timer is the next that is due.
type timerHeap []*Timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *timerHeap) Push(x any) {
	*h = append(*h, x.(*Timer))
	x.(*Timer).index = len(*h)
}

func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	t.index = 0
	return t
}
