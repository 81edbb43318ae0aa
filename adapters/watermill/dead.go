package idem

import (
	"hash/maphash"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/go-idem/idem/core"
)

// bury puts a dead message aside. One that cannot be, and comes again, waits: most brokers deliver it again at once.
func (o *options) bury(m core.Message, msg *message.Message, cause error) error {
	err := o.dead(msg, cause)
	if err != nil && o.repeats.again(m) {
		wait(msg.Context(), deadPause)
	}
	return err
}

// deadPause is how long a message that stays dead waits.
const deadPause = time.Second

// repeats remembers the dead messages that could not be put aside lately.
type repeats struct {
	seed maphash.Seed
	mu   sync.Mutex
	at   map[uint64]time.Time
}

// Of how many messages it remembers that they were dead, and for how long.
const (
	manyRepeats = 10_000
	lately      = time.Minute
)

// again notes that m is dead, and tells whether it was so lately; of more messages than can be remembered it says so, too.
func (r *repeats) again(m core.Message) bool {
	name, now := maphash.Comparable(r.seed, [2]string{m.Group, m.ID}), time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.at[name]
	if !ok && len(r.at) >= manyRepeats {
		maps.DeleteFunc(r.at, func(_ uint64, at time.Time) bool { return now.Sub(at) >= lately })
		if len(r.at) >= manyRepeats {
			return true
		}
	}
	r.at[name] = now
	return ok && now.Sub(at) < lately
}
