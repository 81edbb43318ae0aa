package idem

import (
	"hash/maphash"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/go-idem/idem/core/consumer"
)

// handleDead puts a dead message aside, by the function of Dead. If that fails for a message that was dead a short time ago,
// handleDead waits, because most brokers deliver the message again at once.
func (o *options) handleDead(m consumer.Message, msg *message.Message, cause error) error {
	err := o.dead(msg, cause)
	if err != nil && o.recent.seenLately(m) {
		sleep(msg.Context(), deadPause)
	}
	return err
}

// deadPause is how long handleDead waits.
const deadPause = time.Second

// recentDead remembers which dead messages could not be put aside. It is safe for concurrent use.
type recentDead struct {
	seed maphash.Seed
	mu   sync.Mutex
	at   map[uint64]time.Time // when a message was last dead, by the hash of group and ID
}

const (
	maxRecentDead = 10_000      // how many messages recentDead remembers
	recentPeriod  = time.Minute // how long it remembers a message
)

// seenLately records that m is dead, and reports whether m was dead in the last minute. If there are more dead messages than it
// can remember, it reports true, so that the middleware slows down.
func (r *recentDead) seenLately(m consumer.Message) bool {
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
