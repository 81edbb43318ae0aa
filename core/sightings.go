package core

import (
	"maps"
	"sync"
	"time"
)

// sightings remembers since when the records of messages cannot be read.
type sightings struct {
	mu sync.Mutex
	of map[[2]string]sighting // by group and ID
}

type sighting struct{ first, last time.Time }

// manySightings is how many records are remembered. One more is not, so its message is Busy until there is room.
const manySightings = 10_000

// since notes that the record of a message cannot be read, and returns for how long that has been so. What nobody has seen for as
// long as a record lives is forgotten.
func (s *sightings) since(message [2]string, life time.Duration) time.Duration {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.of[message]
	if !ok || now.Sub(seen.last) >= life {
		seen.first = now
	}
	if !ok && len(s.of) >= manySightings {
		maps.DeleteFunc(s.of, func(_ [2]string, other sighting) bool { return now.Sub(other.last) >= life })
	}
	if seen.last = now; ok || len(s.of) < manySightings {
		s.of[message] = seen
	}
	return now.Sub(seen.first)
}
