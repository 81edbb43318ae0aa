package core

import (
	"maps"
	"sync"
	"time"
)

// sightings remembers since when records of messages cannot be read.
type sightings struct {
	mu sync.Mutex
	of map[[32]byte]sighting
}

type sighting struct{ first, last time.Time }

// manySightings is how many records are remembered. One more is not, so its message is Busy until there is room.
const manySightings = 10_000

// since notes that the record of key cannot be read, and returns for how long that has been so. What nobody has seen for as
// long as a record lives is forgotten.
func (s *sightings) since(key [32]byte, life time.Duration) time.Duration {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.of[key]
	if !ok || now.Sub(seen.last) >= life {
		seen.first = now
	}
	if !ok && len(s.of) >= manySightings {
		maps.DeleteFunc(s.of, func(_ [32]byte, other sighting) bool { return now.Sub(other.last) >= life })
	}
	if seen.last = now; ok || len(s.of) < manySightings {
		s.of[key] = seen
	}
	return now.Sub(seen.first)
}
