package retry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// givenUpAfter is for how many leases a commit is sent to a store that does not accept it.
const givenUpAfter = 10

// Commit is the last call of a run, which stores the run's outcome. It is fenced: however late it arrives, it changes nothing
// once another run has the record.
type Commit interface {
	// Send sends the commit once. It returns true when nothing more is to be sent.
	Send() (settled bool)
	// Extend extends the lease of the run's claim.
	Extend() Extension
	// Refused is called when the store has responded to other calls, and not to the commit, for a whole lease. It may be called
	// again, after each extension.
	Refused()
	// GivenUp is called when the commit was not settled within ten leases.
	GivenUp()
}

// Extension is the result of Commit.Extend.
type Extension int

// The results of Commit.Extend.
const (
	NotExtended Extension = iota // the store did not respond
	Extended
	Lost // the claim has ended; the commit may have taken effect although its response was lost
)

// Queue holds the commits that a store has not responded to. It sends them again, at a rate that the store can take. It is safe
// for concurrent use.
type Queue[C Commit] struct {
	count   atomic.Int64 // of pending commits: nearly always 0
	limiter *limiter

	mu       sync.Mutex
	byRecord map[[32]byte]*Pending[C]
}

// NewQueue returns an empty queue.
func NewQueue[C Commit]() *Queue[C] {
	return &Queue[C]{byRecord: map[[32]byte]*Pending[C]{}, limiter: newLimiter()}
}

// Claim is what the queue needs to know of the claim that a commit ends.
type Claim struct {
	Record    [32]byte
	Fence     int64
	Lease     time.Duration
	Confirmed time.Time // when the last call was sent that the store confirmed
}

// Pending is a commit in a queue.
type Pending[C Commit] struct {
	Commit C

	queue *Queue[C]
	claim Claim
	sent  time.Time     // when the commit was first sent
	done  chan struct{} // closed when the commit has left the queue

	attempts int
	hung     int           // how many calls were given up because they hung
	refused  int           // how many times the store accepted an extension and not the commit
	pause    time.Duration // after the last refusal
	extended time.Time     // when the last extension was sent that the store confirmed
}

// Add adds a commit to the queue, without sending it. Find returns it from now on. The caller must call Run or Remove.
func (q *Queue[C]) Add(claim Claim, commit C) *Pending[C] {
	p := &Pending[C]{Commit: commit, queue: q, claim: claim, done: make(chan struct{}), extended: claim.Confirmed}
	q.limiter.lowerMaxPause(claim.Lease / 6)
	q.mu.Lock()
	defer q.mu.Unlock()
	if other := q.byRecord[claim.Record]; other == nil || other.claim.Fence < claim.Fence {
		q.byRecord[claim.Record] = p
	}
	q.count.Add(1)
	return p
}

// Remove removes a commit from the queue.
func (q *Queue[C]) Remove(p *Pending[C]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.byRecord[p.claim.Record] == p {
		delete(q.byRecord, p.claim.Record)
	}
	q.count.Add(-1)
	close(p.done)
}

// Find returns the commit of a record that is in the queue, or nil. Of several, it returns the one with the highest fence.
func (q *Queue[C]) Find(record *[32]byte) *Pending[C] {
	if q.count.Load() == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.byRecord[*record]
}

// Responded reports that the store has responded to any call. The next commit is then sent at once.
func (q *Queue[C]) Responded() {
	if q.count.Load() > 0 {
		q.limiter.responded()
	}
}

// Failed reports that the store did not respond to a call that had no slot, such as the first attempt of a commit.
func (q *Queue[C]) Failed() { q.limiter.failed() }

// IsSilent reports whether the store has responded to no call for d.
func (q *Queue[C]) IsSilent(d time.Duration) bool { return q.limiter.isSilent(d) }

// Done returns a channel that is closed when the commit has left the queue.
func (p *Pending[C]) Done() <-chan struct{} { return p.done }

// Deadline returns when the commit is given up. It is valid once Run was called.
func (p *Pending[C]) Deadline() time.Time { return p.sent.Add(givenUpAfter * p.claim.Lease) }

// Call makes one call to the store. The call is given up, by the end of its context, when it hangs while the store responds to
// others. After each call that hung, the next one may last twice as long.
func (p *Pending[C]) Call(ctx context.Context, f func(context.Context) error) error {
	err, hung := p.queue.limiter.call(ctx, p.hung, f)
	if hung {
		p.hung++
	}
	return err
}

// Run sends the commit until it is settled, or until ten leases after sent, when it was first sent. Then it removes the commit
// from the queue.
func (p *Pending[C]) Run(sent time.Time) {
	p.sent = sent
	defer p.queue.Remove(p)
	for p.queue.limiter.acquire(p.attempts, p.Deadline()) {
		p.attempts++
		responded, settled := p.attempt()
		p.queue.limiter.release(responded)
		if settled {
			return
		}
		if responded {
			p.sleep()
		}
	}
	p.Commit.GivenUp()
}

// sleep waits before the next attempt, when the store is available and does not accept the commit.
func (p *Pending[C]) sleep() {
	p.pause = min(max(2*p.pause, FirstPause), MaxPause, p.claim.Lease/6)
	time.Sleep(p.pause)
}

// attempt tries once, and a second time if a call hung and the store responded to others meanwhile.
func (p *Pending[C]) attempt() (responded, settled bool) {
	hung := p.hung
	if responded, settled = p.try(); !settled && p.hung > hung {
		return p.try()
	}
	return responded, settled
}

// try sends the commit once, and extends the lease after a third of it.
func (p *Pending[C]) try() (responded, settled bool) {
	if p.Commit.Send() {
		return true, true
	}
	now := time.Now()
	if now.Sub(p.extended) < p.claim.Lease/3 {
		return false, false
	}
	switch p.Commit.Extend() {
	case Extended:
		p.extended = now
		p.countRefusal()
		return true, false
	case Lost:
		return true, p.Commit.Send()
	}
	return false, false
}

// countRefusal counts that the store accepted an extension and not the commit.
func (p *Pending[C]) countRefusal() {
	p.refused++
	if p.refused > 1 && time.Since(p.sent) >= p.claim.Lease {
		p.Commit.Refused()
	}
}
