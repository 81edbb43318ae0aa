// Package waiting lets requests wait until a run in progress ends. It bounds how many requests wait, and how many calls of a
// store they leave behind.
//
// An engine has one Limiter. A request that finds a run in progress gets a Waiter, subscribes once, and then calls Wait and asks
// the store in turns until the outcome is there.
package waiting

import "sync"

// Limits bound how many requests of one process wait.
type Limits struct{ Max, MaxPerKey int }

// Limiter counts waiting requests, and the calls that they have made of a store. It is safe for concurrent use.
type Limiter struct {
	mu    sync.Mutex
	total int
	keys  map[[32]byte]int
	calls int // in flight, those of requests that have left included
}

// NewLimiter returns a limiter that nobody waits at.
func NewLimiter() *Limiter { return &Limiter{keys: map[[32]byte]int{}} }

// acquire counts one more waiting request, and reports false when the limits allow no more.
func (l *Limiter) acquire(key [32]byte, limits Limits) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= limits.Max || l.keys[key] >= limits.MaxPerKey {
		return false
	}
	l.total++
	l.keys[key]++
	return true
}

// release undoes acquire. A key that nobody waits for has no entry, so that the map does not grow with each key.
func (l *Limiter) release(key [32]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.keys[key]--; l.keys[key] == 0 {
		delete(l.keys, key)
	}
}

// startCall counts one more call of the store, and reports false when so many have not returned that one more would only add to
// them: each waiting request makes one call at a time, and may leave one behind.
func (l *Limiter) startCall(limits Limits) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls >= 2*limits.Max {
		return false
	}
	l.calls++
	return true
}

// addCalls adds n to the calls in flight. Close counts its call without asking the limits: it must always be made.
func (l *Limiter) addCalls(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls += n
}
