package memstore

import (
	"context"
	"slices"
)

// waiter is one Watch. It is a pointer in the list, so that stop removes its own entry and not that of another Watch.
type waiter struct{ wake func() }

// Watch implements driver.Notifier. It does not block and returns no error. Complete, Fail and Forget wake the waiters of their
// key; the end of a lease wakes nobody, so a waiting request must ask again when the lease is over.
func (s *Store) Watch(_ context.Context, key [32]byte, wake func()) (stop func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &waiter{wake}
	s.waiters[key] = append(s.waiters[key], w)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		rest := slices.DeleteFunc(s.waiters[key], func(other *waiter) bool { return other == w })
		if s.waiters[key] = rest; len(rest) == 0 {
			delete(s.waiters, key)
		}
	}, nil
}

// notify wakes the waiters of key. Each wake runs in its own goroutine, because it may call the store, whose mutex is locked
// now.
func (s *Store) notify(key [32]byte) {
	for _, w := range s.waiters[key] {
		go w.wake()
	}
}
