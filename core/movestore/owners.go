package movestore

import (
	"sync"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// owners remembers the owners of this process whose claims are in the other store. It is only a hint: a call that goes to the wrong
// store first goes to the other one next. An owner is forgotten two leases after its last call, since a run in progress extends
// its lease after each third of it.
type owners struct {
	mu    sync.Mutex
	until map[[16]byte]time.Time
}

// add remembers the owner of a claim, and forgets those whose time is over.
func (o *owners) add(c *driver.Claim) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for owner, until := range o.until {
		if until.Before(now) {
			delete(o.until, owner)
		}
	}
	if o.until == nil {
		o.until = map[[16]byte]time.Time{}
	}
	o.until[c.Owner] = now.Add(2 * c.Lease)
}

// has reports whether the owner of a claim is remembered, and prolongs that.
func (o *owners) has(c *driver.Claim) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, isKnown := o.until[c.Owner]
	if isKnown {
		o.until[c.Owner] = time.Now().Add(2 * c.Lease)
	}
	return isKnown
}
