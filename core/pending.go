package core

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/retry"
)

const (
	longestPause = 500 * time.Millisecond // of a store that is silent
	mostFlying   = 256
)

// pendings are the final verbs that the store of some engines has not answered, each with the right to the next call of the
// store in its turn. While the store is silent, one of them asks it, with pauses between. When it answers, the others follow:
// twice as many at a time with each answer, and half as many after a failure. So a store that comes back is not run over.
type pendings struct {
	some atomic.Int64 // how many there are: nearly always none

	mu      sync.Mutex
	of      map[[32]byte]*pending // by record
	waiting turns
	arrived int // turns that were asked for so far
	flying  int // calls under way
	limit   int // of flying
	calls   map[*pending]*flight
	timer   *time.Timer

	pause   time.Duration // after the last failure; 0 when the store has answered since
	longest time.Duration // that pause may be
	failed  time.Time     // when the last call that counts failed
	next    time.Time     // no turn before
	sign    time.Time     // when the store last answered anybody
}

// pending is one final verb without an answer. Its claim is held: the verb is sent again, and the lease is extended, until the
// store takes the verb, or says that the claim is lost, or for ten leases.
type pending struct {
	op   *operation
	done chan struct{} // closed at the end
	lost bool          // the handler was told so

	attempts int
	hung     int           // how often a call was given up because the store answered others
	refused  int           // how often the store took an extension and not the verb
	pause    time.Duration // after the last of these
	extended time.Time     // when the last extension was sent
}

func newPendings() *pendings {
	return &pendings{of: map[[32]byte]*pending{}, calls: map[*pending]*flight{}, limit: 1, longest: longestPause}
}

// add makes op's final verb a pending one: a Begin of its record in this process stands behind it from now on.
func (s *pendings) add(op *operation, lost bool) *pending {
	p := &pending{op: op, done: make(chan struct{}), lost: lost, extended: op.keeper.confirmed}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest = max(min(s.longest, op.claim.Lease/6), time.Millisecond)
	if other := s.of[op.claim.Key]; other == nil || other.op.claim.Fence < op.claim.Fence {
		s.of[op.claim.Key] = p
	}
	s.some.Add(1)
	return p
}

// end is for a verb that is not pending any more.
func (s *pendings) end(p *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[p.op.claim.Key] == p {
		delete(s.of, p.op.claim.Key)
	}
	s.some.Add(-1)
	close(p.done)
}

// find returns what is pending for a record, nil without it.
func (s *pendings) find(key *[32]byte) *pending {
	if s.some.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[*key]
}

// flight is a call under way.
type flight struct {
	hangs  time.Time // when it has lasted so long that it hangs, if the store answers others
	doomed bool      // the store has answered others: it is given up then
	giveUp context.CancelFunc
}

// fly does one call. It is given up when it hangs while the store answers others; the next may take twice as long.
func (s *pendings) fly(ctx context.Context, p *pending, verb func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	patience := firstLook << (2 + min(p.hung, 10))
	s.mu.Lock()
	s.calls[p] = &flight{hangs: time.Now().Add(patience), giveUp: cancel}
	s.mu.Unlock()
	err := verb(ctx)
	s.mu.Lock()
	delete(s.calls, p)
	s.mu.Unlock()
	if err != nil && ctx.Err() == context.Canceled {
		p.hung++
	}
	return err
}

// heard takes err of any call of the store for what it is: an answer is a sign of life, and the next turn comes at once.
func (s *pendings) heard(err error) {
	if s.some.Load() == 0 || !isAnswered(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sign = time.Now()
	if soonest := s.failed.Add(retry.FirstPause); soonest.Before(s.next) { // some shards may be silent while others answer
		s.next = soonest
	}
	for _, f := range s.calls {
		if !f.doomed {
			f.doomed = true
			time.AfterFunc(time.Until(f.hangs), f.giveUp)
		}
	}
	s.grant()
}

// isSilent tells whether the store has answered nobody for d.
func (s *pendings) isSilent(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.sign) > d
}

// isAnswered tells whether err, nil included, is a store's answer to a verb.
func isAnswered(err error) bool {
	return err == nil || errors.Is(err, ErrLost) || errors.Is(err, driver.ErrUnreadable) || errors.Is(err, driver.ErrNotDurable)
}

// turn waits for p's turn. It returns false when the time is up.
func (s *pendings) turn(p *pending, until time.Time) bool {
	t := &turn{granted: make(chan struct{}), attempts: p.attempts}
	s.mu.Lock()
	s.arrived++
	t.order = s.arrived
	heap.Push(&s.waiting, t)
	s.grant()
	s.mu.Unlock()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-t.granted:
		return true
	case <-timer.C:
		return !s.withdraw(t)
	}
}

// withdraw takes a turn back, unless it has been granted.
func (s *pendings) withdraw(t *turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.place < 0 {
		return false
	}
	heap.Remove(&s.waiting, t.place)
	return true
}

// over ends a turn, in which the store has answered or not.
func (s *pendings) over(answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying--
	if answered {
		s.limit, s.pause, s.next = min(2*s.limit, mostFlying), 0, time.Time{}
	} else {
		s.fail()
	}
	s.grant()
}

// missed is for a call without an answer that needed no turn.
func (s *pendings) missed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail()
}

// fail lets the next turn wait; the caller holds mu. Calls that fail together count once.
func (s *pendings) fail() {
	now := time.Now()
	if now.Before(s.next) {
		return
	}
	s.limit = max(s.limit/2, 1)
	s.pause = min(max(2*s.pause, retry.FirstPause), s.longest)
	s.failed, s.next = now, now.Add(s.pause)
}

// grant gives turns to those who wait, as many as may fly; the caller holds mu.
func (s *pendings) grant() {
	for len(s.waiting) > 0 && s.flying < s.limit {
		if wait := time.Until(s.next); wait > 0 {
			s.arm(wait)
			return
		}
		t := heap.Pop(&s.waiting).(*turn)
		s.flying++
		close(t.granted)
	}
}

// arm looks again later; the caller holds mu.
func (s *pendings) arm(wait time.Duration) {
	if s.timer != nil {
		s.timer.Reset(wait)
		return
	}
	s.timer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.grant()
	})
}

// turn is the right to one call. Those go first who have had the fewest, so that records of a shard that is dead do not keep
// others waiting.
type turn struct {
	granted  chan struct{}
	attempts int
	order    int
	place    int // in turns; -1: granted
}

type turns []*turn

func (t turns) Len() int { return len(t) }
func (t turns) Less(i, j int) bool {
	return t[i].attempts < t[j].attempts || t[i].attempts == t[j].attempts && t[i].order < t[j].order
}
func (t turns) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].place, t[j].place = i, j
}
func (t *turns) Push(x any) {
	x.(*turn).place = len(*t)
	*t = append(*t, x.(*turn))
}
func (t *turns) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	(*t)[last], *t = nil, (*t)[:last]
	x.place = -1
	return x
}

// leasesAway is for how many leases a final verb is sent to a store that does not take it. It is fenced: however late, it
// changes nothing once another run has the key.
const leasesAway = 10

// settle sends the verb until it is answered, or for ten leases.
func (p *pending) settle() {
	op, s := p.op, p.op.engine.pendings
	defer s.end(p)
	for s.turn(p, p.until()) {
		p.attempts++
		answered, done := p.attempt()
		s.over(answered)
		if done {
			return
		}
		if answered { // the store is there and refuses this verb
			p.pause = min(max(2*p.pause, retry.FirstPause), longestPause, op.claim.Lease/6)
			time.Sleep(p.pause)
		}
	}
	op.emit(op.engine.cfg.Hooks.Lost, op.commit.status, errAway)
}

// until is when the verb is given up.
func (p *pending) until() time.Time { return p.op.commit.sent.Add(leasesAway * p.op.claim.Lease) }

// attempt tries once, and once more when the store was heard meanwhile.
func (p *pending) attempt() (answered, done bool) {
	hung := p.hung
	if answered, done = p.try(); !done && p.hung > hung {
		return p.try()
	}
	return answered, done
}

// try sends the verb once, and extends the lease when that is due.
func (p *pending) try() (answered, done bool) {
	if p.send() {
		return true, true
	}
	if time.Since(p.extended) < p.op.claim.Lease/3 {
		return false, false
	}
	switch err := p.extend(); {
	case err == nil:
		p.refuse()
		return true, false
	case errors.Is(err, ErrLost): // the verb may have taken effect, without an answer
		return true, p.send()
	}
	return false, false
}

// send sends the verb, and tells whether that is settled.
func (p *pending) send() bool {
	err := p.call(p.op.sendCommit)
	p.op.emitCommit(p.lost, err)
	return isSettled(err)
}

// isSettled tells whether nothing more is to be sent after err of a final verb.
func isSettled(err error) bool {
	return err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrOutcomeUnknown)
}

// extend keeps the claim until the verb is taken.
func (p *pending) extend() error {
	sent := time.Now()
	claim := p.op.commitClaim()
	err := p.call(func(ctx context.Context) error { return p.op.engine.cfg.Store.Extend(ctx, claim) })
	if err == nil {
		p.extended = sent
	}
	return err
}

// call is for calls that must not stand behind those of new requests: while the store answers these, it waits longer than they
// do.
func (p *pending) call(verb func(context.Context) error) error {
	e := p.op.engine
	bound := e.patience()
	if e.pendings.isSilent(bound) {
		bound = e.cfg.Limits.StoreTimeout
	}
	return e.callUntil(p.op.keeper.detached(), earlier(time.Now().Add(bound), p.until()), func(ctx context.Context) error {
		return e.pendings.fly(ctx, p, verb)
	})
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// refuse notes that the store is there, and does not take the verb. When that has gone on for a lease, the outcome is sent
// without its body: that may be more than the store can take.
func (p *pending) refuse() {
	p.refused++
	if f := &p.op.commit; p.refused > 1 && time.Since(f.sent) >= p.op.claim.Lease {
		p.op.giveUpBody()
	}
}

// standBehind waits while a final verb of the record is pending in this process, for as long as a call of the store may last.
// Then it returns what is known of the record, true with it.
func (op *operation) standBehind() (driver.Entry, bool) {
	e := op.engine
	p := e.pendings.find(&op.claim.Key)
	if p == nil {
		return driver.Entry{}, false
	}
	if entry := p.entry(op); entry.State == driver.Mismatch {
		return entry, true
	}
	bound := e.cfg.Limits.StoreTimeout
	if op.waiter != nil { // it has waited, or stood here, before
		bound = min(bound, time.Until(op.waiter.Deadline()))
	}
	timer := time.NewTimer(bound)
	defer timer.Stop()
	for ; p != nil; p = e.pendings.find(&op.claim.Key) {
		select {
		case <-p.done:
		case <-timer.C:
			return p.entry(op), true
		case <-op.ctx.Done():
			return p.entry(op), true
		}
	}
	return driver.Entry{}, false
}

// entry is what a Begin of op's claim would find while p is pending.
func (p *pending) entry(op *operation) driver.Entry {
	held := &p.op.claim
	opens := p.op.commit.failure != nil && p.op.commit.failure.NoEffects
	if held.Fingerprint != op.claim.Fingerprint && !opens {
		return driver.Entry{State: driver.Mismatch, Fingerprint: held.Fingerprint}
	}
	return driver.Entry{State: driver.InProgress, Remaining: op.engine.cfg.Limits.StoreTimeout}
}
