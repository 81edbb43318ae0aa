// Package watch keeps the watches of a store that has to look for what other processes do.
package watch

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// Set has the watches of a store. While there are any, Poll runs in a goroutine of its own. The store sets Poll before the first
// watch. A Set must not be copied.
type Set struct {
	Poll func(ctx context.Context) // returns when ctx ends

	mu     sync.Mutex
	byKey  map[[32]byte]map[*func()]bool // none is empty
	cancel context.CancelFunc            // ends the goroutine
}

// Watch lets wake be called by Notify for the key, until stop is called.
func (s *Set) Watch(key [32]byte, wake func()) (stop func()) {
	s.add(key, &wake)
	return sync.OnceFunc(func() { s.remove(key, &wake) })
}

// add adds a watch, and starts the goroutine if it is the first.
func (s *Set) add(key [32]byte, wake *func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byKey) == 0 {
		s.byKey = map[[32]byte]map[*func()]bool{}
		var ctx context.Context
		ctx, s.cancel = context.WithCancel(context.Background())
		go s.Poll(ctx)
	}
	if s.byKey[key] == nil {
		s.byKey[key] = map[*func()]bool{}
	}
	s.byKey[key][wake] = true
}

// remove removes a watch, and ends the goroutine if it was the last.
func (s *Set) remove(key [32]byte, wake *func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byKey[key], wake)
	if len(s.byKey[key]) == 0 {
		delete(s.byKey, key)
	}
	if len(s.byKey) == 0 {
		s.cancel()
	}
}

// Notify wakes the watches of a key. Each wake runs in its own goroutine, because the caller may hold a lock of the store.
func (s *Set) Notify(key [32]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for wake := range s.byKey[key] {
		go (*wake)()
	}
}

// Keys returns the keys that are watched.
func (s *Set) Keys() [][32]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.byKey))
}
