// Package lease renews the lease of one claim while the work under the claim goes on. It knows neither the engine nor the stores.
package lease

import (
	"sync"
	"time"

	"github.com/go-idem/idem/core/internal/deadline"
	"github.com/go-idem/idem/core/internal/inflight"
	"github.com/go-idem/idem/core/internal/retry"
)

// Reason says why the work under a claim is to stop.
type Reason int

// The reasons of a Renewer.
const (
	Lost    Reason = iota // the store reports that the claim is lost
	Silent                // no extension was confirmed for a whole lease; the claim may still be held
	Overdue               // the work has lasted longer than Config.MaxRun
)

// Holder holds a claim. It is an interface and not a list of functions, so that a Renewer allocates nothing.
type Holder interface {
	// Extend sends one extension to the store. isLost is whether err says that the claim is lost.
	Extend() (isLost bool, err error)
	// Cancel tells the work to stop. The Renewer calls it while it is locked, so Cancel must not call the Renewer. It may be called
	// again with another reason.
	Cancel(why Reason)
	// Report reports what Cancel was called for, after it. err is that of Extend, or nil. The Renewer calls it once for each
	// claim that is lost or silent, and once for each that is overdue.
	Report(why Reason, err error)
	// ReportFailure reports an extension that failed although the claim is not known to be lost.
	ReportFailure(err error)
}

// Config is what a Renewer needs to know of a claim.
type Config struct {
	Holder   Holder
	Timers   *deadline.Queue
	Inflight *inflight.Group // counts the extensions under way
	Began    time.Time       // when the call was sent by which the store granted the claim
	Lease    time.Duration
	MaxRun   time.Duration // from Began on; 0: unlimited
}

// Renewer extends a claim after each third of its lease, until Stop. A failed extension is sent again after a tenth of the lease.
// Work that ends within the first third causes no extension. If the store reports that the claim is lost, if no extension was
// confirmed for a whole lease, or if the work takes longer than MaxRun, the Renewer cancels the work. After a lease without a
// confirmed extension it goes on extending, since the claim may still be held when the store is back. All methods are safe for
// concurrent use. A Renewer must not be copied or started again.
type Renewer struct {
	holder   Holder
	timers   *deadline.Queue
	inflight *inflight.Group
	lease    time.Duration

	mu        sync.Mutex
	isStopped bool           // nothing is left to do
	isLost    bool           // the work was told to stop
	isOverdue bool           // the work has lasted longer than MaxRun
	confirmed time.Time      // when the last call was sent that the store confirmed; the lease lasts from then on, at least
	renewal   deadline.Timer // sends the next extension
	expiry    *time.Timer    // ends a silent lease; nil before the first extension, which few runs come to
	limit     *time.Timer    // fires after MaxRun; nil without it
}

// Start starts the renewal. It must be called once, before all other methods.
func (r *Renewer) Start(c Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holder, r.timers, r.inflight, r.lease, r.confirmed = c.Holder, c.Timers, c.Inflight, c.Lease, c.Began
	r.scheduleExtension(c.Began.Add(c.Lease / 3))
	if c.MaxRun > 0 {
		r.limit = time.AfterFunc(time.Until(c.Began.Add(c.MaxRun)), r.markOverdue)
	}
}

// scheduleExtension has the next extension sent at due. The caller holds mu.
func (r *Renewer) scheduleExtension(due time.Time) {
	r.timers.At(&r.renewal, due, (*renewal)(r))
}

// scheduleExpiry sets the timer for the end of the lease that was confirmed last. The caller holds mu.
func (r *Renewer) scheduleExpiry() {
	left := time.Until(r.confirmed.Add(r.lease))
	if r.expiry == nil {
		r.expiry = time.AfterFunc(left, func() { r.markLost(Silent, nil) })
		return
	}
	r.expiry.Reset(left)
}

// Stop ends the renewal. It returns when the lease ends at the earliest, by the confirmed calls, and whether the work was told to
// stop before. An extension may still be under way; what it returns changes nothing.
func (r *Renewer) Stop() (leaseEnd time.Time, isLost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop()
	return r.confirmed.Add(r.lease), r.isLost
}

// stop stops the timers. The caller holds mu.
func (r *Renewer) stop() {
	r.isStopped = true
	r.renewal.Stop()
	for _, t := range []*time.Timer{r.expiry, r.limit} {
		if t != nil {
			t.Stop()
		}
	}
}

// Confirmed returns when the last call was sent that the store has confirmed.
func (r *Renewer) Confirmed() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.confirmed
}

// IsOverdue reports whether the work was told to stop because it lasted longer than MaxRun.
func (r *Renewer) IsOverdue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isOverdue
}

// renewal is the Renewer as the Func of its timer.
type renewal Renewer

// Fire sends an extension.
func (t *renewal) Fire() { (*Renewer)(t).extend() }

// markOverdue tells work that has lasted too long to stop, and leaves the claim to the end of its lease.
func (r *Renewer) markOverdue() {
	r.mu.Lock()
	isFirst := !r.isStopped
	if isFirst {
		r.isOverdue, r.isLost = true, true
		r.holder.Cancel(Overdue)
		r.stop()
	}
	r.mu.Unlock()
	if isFirst {
		r.holder.Report(Overdue, nil)
	}
}

// extend sends one extension and schedules the next.
func (r *Renewer) extend() {
	if !r.beginExtension() {
		return
	}
	defer r.inflight.Done()
	sent := time.Now()
	isLost, err := r.holder.Extend()
	if isLost {
		r.markLost(Lost, err)
		return
	}
	if err != nil && !r.wasLost() {
		r.holder.ReportFailure(err)
	}
	r.renewed(sent, err)
}

// beginExtension counts an extension as under way, before Stop can return. It reports false if the renewal was stopped.
func (r *Renewer) beginExtension() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isStopped {
		return false
	}
	if r.expiry == nil {
		r.scheduleExpiry()
	}
	r.inflight.Add()
	return true
}

// wasLost reports whether the work was told to stop.
func (r *Renewer) wasLost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isLost
}

// renewed schedules what follows an extension that was sent at sent. A confirmed extension starts the lease anew.
func (r *Renewer) renewed(sent time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.isStopped:
	case err != nil:
		pause := r.lease / 10
		if r.isLost { // the first claim that reaches the store when the store is back gets the key
			pause = min(pause, retry.MaxPause)
		}
		rest := max(time.Until(sent.Add(pause)), retry.FirstPause)
		r.scheduleExtension(time.Now().Add(rest))
	default:
		r.confirmed = sent
		r.scheduleExtension(sent.Add(r.lease / 3))
		r.scheduleExpiry()
	}
}

// markLost tells the work to stop, and reports why, unless the work was told before.
func (r *Renewer) markLost(why Reason, err error) {
	r.mu.Lock()
	wasTold := r.isStopped || r.isLost
	if !r.isStopped {
		r.isLost = true
		r.holder.Cancel(why)
		if why == Lost {
			r.stop()
		}
	}
	r.mu.Unlock()
	if !wasTold {
		r.holder.Report(why, err)
	}
}
