package consumer

import (
	"maps"
	"sync"
	"time"
)

// name identifies a message.
type name struct{ group, id string }

func (m *Message) name() name { return name{m.Group, m.ID} }

// unreadable remembers since when the records of messages cannot be read.
type unreadable struct {
	mu sync.Mutex
	of map[name]sighting
}

// sighting is when a record was first and last found unreadable.
type sighting struct{ first, last time.Time }

// maxSightings is how many records are remembered. While there is no room for another one, its message is Busy. Those whose messages
// are Dead make room.
const maxSightings = 10_000

func newUnreadable() unreadable { return unreadable{of: map[name]sighting{}} }

// since notes that the record of m cannot be read, and returns for how long that has been so; from bound on the message is Dead. A
// record that has not been seen for as long as records live is forgotten.
func (u *unreadable) since(m name, life, bound time.Duration) time.Duration {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	seen, ok := u.of[m]
	if !ok || now.Sub(seen.last) >= life {
		seen.first = now
	}
	if !ok && len(u.of) >= maxSightings {
		maps.DeleteFunc(u.of, func(_ name, other sighting) bool {
			return now.Sub(other.last) >= life || other.last.Sub(other.first) >= bound
		})
	}
	if seen.last = now; ok || len(u.of) < maxSightings {
		u.of[m] = seen
	}
	return now.Sub(seen.first)
}
