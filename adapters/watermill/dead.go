package idem

import (
	"hash/maphash"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/go-idem/idem/core"
)

// handleDead puts a dead message aside. One that cannot be, and comes again, waits: most brokers deliver it again at once.
func (o *options) handleDead(m core.Message, msg *message.Message, cause error) error {
	err := o.dead(msg, cause)
	if err != nil && o.recent.seenLately(m) {
		sleep(msg.Context(), deadPause)
	}
	return err
}

// deadPause is how long a message that stays dead waits.
const deadPause = time.Second

// recentDead remembers the dead messages that could not be put aside lately.
type recentDead struct {
	seed maphash.Seed
	mu   sync.Mutex
	at   map[uint64]time.Time
}

// Of how many messages it remembers that they were dead, and for how long.
const (
	maxRecentDead = 10_000
	recentPeriod  = time.Minute
)

// seenLately notes that m is dead, and tells whether it was so lately; of more messages than can be remembered it says so, too.
func (r *recentDead) seenLately(m core.Message) bool {
	name, now := maphash.Comparable(r.seed, [2]string{m.Group, m.ID}), time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.at[name]
	if !ok && len(r.at) >= maxRecentDead {
		maps.DeleteFunc(r.at, func(_ uint64, at time.Time) bool { return now.Sub(at) >= recentPeriod })
		if len(r.at) >= maxRecentDead {
			return true
		}
	}
	r.at[name] = now
	return ok && now.Sub(at) < recentPeriod
}
