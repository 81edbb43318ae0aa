package simulation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// history is one execution of a plan. It knows what really happened, which no single process knows, and checks the promises of
// package core against that.
type history struct {
	plan     *plan
	store    backend
	newStore backend // where a move goes to
	begin    time.Time
	verbose  bool // the story is written down

	mu        sync.Mutex
	processes []*process // those that live, by slot
	all       []*process
	hasMoved  map[int]bool // by slot
	records   map[[32]byte]*record
	keys      map[int]*keyHistory
	blobs     map[string][]byte
	dos       []*do
	story     []string
	violation *violation // the first one
	calls     sync.WaitGroup

	failedOver time.Duration // when the store lost its last writes; 0: never
}

// violation is a promise that was broken.
type violation struct {
	promise string // the same for equal faults, so that a minimised plan can be compared with the original one
	detail  string
}

// keyHistory is what happened under one key, which may have a record under each secret.
type keyHistory struct {
	records []*record
	runs    []*run
}

// record is what happened to one record of the store.
type record struct {
	last      *claim
	completed *claim // nil while no outcome is stored
	claims    map[int64]*claim
	withdrawn map[[16]byte]time.Duration // until when the store refuses the claim of an owner that has withdrawn it
	hasLost   bool                       // a failover has lost its outcome
}

// claim is a claim that the store granted.
type claim struct {
	do       *do
	process  *process
	fence    int64
	owner    [16]byte
	lease    time.Duration
	leaseEnd time.Duration // by the calls of the owner
	// believedEnd is the leaseEnd that a failover has taken back, since the owner does not know that. 0: none.
	believedEnd time.Duration
	run         *run // nil if no handler was started under the claim

	hasEnded     bool                    // the store executed Complete or Fail
	hasWithdrawn bool                    // that was a Fail which said that no handler has run
	isLost       bool                    // in a failover
	hasLostEnd   bool                    // a failover has lost its Complete or Fail, which its owner does not repeat
	taken        time.Duration           // when another claim replaced it; 0: never
	wasOpen      bool                    // when another claim replaced it; a failover takes the claims back, and not what that owner knows
	next         *claim                  // the claim that replaced it
	renewed      time.Duration           // when the last extension was sent whose reply the process has got, or when the run started
	confirmed    time.Duration           // when the process got the reply to an extension that was executed after taken
	calls        map[*time.Duration]bool // when those were sent that have no reply yet
	troubleUntil time.Duration           // until then calls of the owner went wrong
}

// run is one handler under a claim.
type run struct {
	do         *do
	claim      *claim
	script     script
	start, end time.Duration // end is 0 while it goes on
	isCanceled func() bool   // its context was cancelled
	wasTold    bool          // its context was cancelled before it ended
	hadSteps   bool
	status     int
	body       string
}

// quick is how long a call to a store without faults takes at most.
const quick = 10 * time.Millisecond

// forever is longer than any history.
const forever = 1000 * time.Hour

// now returns the time since the history began.
func (h *history) now() time.Duration { return time.Since(h.begin) }

// tell adds a sentence to the story. The caller holds mu.
func (h *history) tell(format string, args ...any) {
	if h.verbose {
		h.story = append(h.story, fmt.Sprintf("%9.3fs  ", h.now().Seconds())+fmt.Sprintf(format, args...))
	}
}

// broken notes that a promise was broken. The caller holds mu.
func (h *history) broken(promise, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	h.tell("VIOLATION: %s: %s", promise, detail)
	if h.violation == nil {
		h.violation = &violation{promise, detail}
	}
}

// record returns what happened to a record of the key of d. The caller holds mu.
func (h *history) record(d *do, key [32]byte) *record {
	r := h.records[key]
	if r == nil {
		r = &record{claims: map[int64]*claim{}, withdrawn: map[[16]byte]time.Duration{}}
		h.records[key] = r
		k := h.keyOf(d)
		k.records = append(k.records, r)
	}
	return r
}

// keyOf returns what happened under the key of d. The caller holds mu.
func (h *history) keyOf(d *do) *keyHistory {
	k := h.keys[d.key]
	if k == nil {
		k = &keyHistory{}
		h.keys[d.key] = k
	}
	return k
}

// completed returns the claim whose outcome is stored under the key, or nil.
func (k *keyHistory) completed() *claim {
	for _, r := range k.records {
		if r.completed != nil {
			return r.completed
		}
	}
	return nil
}

// hasLost reports whether a failover has lost an outcome of the key.
func (k *keyHistory) hasLost() bool {
	return slices.ContainsFunc(k.records, func(r *record) bool { return r.hasLost })
}

// lasting returns the claim whose request the engines compare with others: that of the outcome, or else the last one. If the key
// has records under two names, claims that were withdrawn before a run, or lost in a failover, do not count. It returns nil if there
// is none.
func (k *keyHistory) lasting() (last *claim) {
	if c := k.completed(); c != nil {
		return c
	}
	if len(k.records) == 1 {
		return k.records[0].last
	}
	for _, r := range k.records {
		for _, c := range r.claims {
			if !c.isLost && (c.run != nil || !c.hasWithdrawn) && (last == nil || last.fence < c.fence) {
				last = c
			}
		}
	}
	return last
}

// isTorn reports whether a process has died, or has run its handler without protection, between its claim under one name and its
// look under another, where a run has left no outcome. Of two requests with different bodies, both can then be refused until the retention ends: see docs/deploys.md.
func (k *keyHistory) isTorn() bool {
	for _, r := range k.records {
		for _, c := range r.claims {
			if len(k.records) > 1 && c.run == nil && !c.hasWithdrawn {
				return k.completed() == nil
			}
		}
	}
	return false
}

// claimOf returns the claim with a fence under which the handler of d may run, or nil.
func (k *keyHistory) claimOf(d *do, fence int64) (found *claim, in *record) {
	for _, r := range k.records {
		if c := r.claims[fence]; c != nil && (found == nil || c.do == d) {
			found, in = c, r
		}
	}
	return found, in
}

// claimed notes that the store granted a claim, and checks that it took no claim away from an owner that was able to hold it. The
// caller holds mu.
func (h *history) claimed(d *do, p *process, c *driver.Claim, fence int64) {
	r := h.record(d, c.Key)
	if r.claims[fence] != nil {
		return // the call was repeated
	}
	if r.withdrawn[c.Owner] > h.now() {
		h.broken("a withdrawn claim is not granted", "%s claims %s", d, d.record())
	}
	if r.completed != nil {
		h.broken("no claim after an outcome", "%s claims %s after %s has stored an outcome", d, d.record(), r.completed.do)
	}
	next := &claim{do: d, process: p, fence: fence, owner: c.Owner, calls: map[*time.Duration]bool{}}
	next.lease, next.leaseEnd = c.Lease, h.now()+c.Lease
	if last := r.last; last != nil {
		last.taken, last.next, last.wasOpen = h.now(), next, last.wasOpen || !last.hasEnded
		if !last.hasEnded && h.couldHold(last) {
			h.broken("no takeover from an owner that can extend", "%s takes %s from %s", d, d.record(), last.do)
		}
	}
	r.last, r.claims[fence] = next, next
}

// couldHold reports whether the owner of a claim lives, wants to hold the claim, and had no trouble with the store for a lease.
func (h *history) couldHold(c *claim) bool {
	now, r := h.now(), c.run
	if r != nil && r.end != 0 && (now-c.process.troubleUntil <= c.lease+quick || h.hangs(c.process)) {
		return false // of all commits that are pending, one at a time finds out whether the store is back
	}
	if r == nil || c.hasLostEnd || c.process.dead || c.do.counts["lost"] > 0 || now-c.troubleUntil <= c.lease+quick {
		return false
	}
	for sent := range c.calls {
		if now-*sent > quick {
			return false
		}
	}
	if r.end == 0 {
		return !r.isCanceled()
	}
	return !r.wasTold && !r.isAbandoned() && now < r.end+10*c.lease
}

// hangs reports whether a call of a process for one of its claims has no reply yet.
func (h *history) hangs(p *process) bool {
	for _, r := range h.records {
		for _, c := range r.claims {
			for sent := range c.calls {
				if c.process == p && h.now()-*sent > quick {
					return true
				}
			}
		}
	}
	return false
}

// isAbandoned reports whether the engine leaves the claim of the run to the end of its lease.
func (r *run) isAbandoned() bool {
	return r.script.ending == decidedUnknown || r.script.ending == panics && r.do.process.config.Lease.OnUnknown != nil
}

// isFree reports whether the run said that it had no effects.
func (r *run) isFree() bool {
	isFreed := r.script.ending == freed && r.do.kind() != "message" // the handler of a message has no statuses
	return r.end != 0 && !r.hadSteps && (isFreed || r.script.ending == decidedRelease)
}

// extended notes that the owner of a claim got the reply to an extension, and when it was sent and executed.
func (h *history) extended(d *do, key [32]byte, fence int64, sent, executed time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.record(d, key).claims[fence]
	if c != nil {
		c.renewed = max(c.renewed, sent)
	}
	if c != nil && c.taken > 0 && executed > c.taken && c.confirmed == 0 {
		c.confirmed = h.now()
	}
}

// completed notes that the store has stored the outcome of a claim. The caller holds mu.
func (h *history) completed(d *do, key [32]byte, fence int64) {
	r, name := h.record(d, key), d.record()
	c := r.claims[fence]
	switch {
	case c == nil:
		h.broken("outcomes have claims", "an outcome of %s has the fence %d, which was never granted", name, fence)
	case c.isLost:
		h.broken("a claim that the store has lost stays lost", "%s stores an outcome of %s", c.do, name)
	case r.completed == c:
	case r.completed != nil:
		h.broken("one outcome", "%s stores an outcome of %s after %s", c.do, name, r.completed.do)
	default:
		c.hasEnded, r.completed = true, c
		if c != r.last {
			h.broken("outcomes are fenced", "%s stores an outcome of %s after %s has taken its claim", c.do, name, r.last.do)
		}
	}
}

// failed notes that the store has executed a Fail. The caller holds mu.
func (h *history) failed(d *do, c *driver.Claim, f driver.Failure, err error) {
	r := h.record(d, c.Key)
	switch {
	case c.Fence != 0, r.withdrawn[c.Owner] > 0: // a repeated withdrawal does not renew the first one
	case r.last == nil && err == nil:
		r.withdrawn[c.Owner] = h.now() + c.Lease
	case r.last != nil && (err == nil || errors.Is(err, driver.ErrLost)):
		r.withdrawn[c.Owner] = forever
	}
	if r.last != nil && r.last.owner == c.Owner && err == nil && !r.last.hasEnded { // a repeated Fail changes nothing
		r.last.hasEnded, r.last.hasWithdrawn = true, f.NotRun
	}
}

// extends notes that the store has executed and accepted an extension. The caller holds mu.
func (h *history) extends(d *do, key [32]byte, fence int64) {
	r := h.record(d, key)
	c := r.claims[fence]
	if c == nil {
		return
	}
	c.leaseEnd = h.now() + c.lease
	switch {
	case c.isLost:
		h.broken("a claim that the store has lost stays lost", "%s extends a claim of %s", c.do, d.record())
	case c != r.last:
		h.broken("extensions are fenced", "%s extends a claim of %s that %s has taken", c.do, d.record(), r.last.do)
	}
}

// foundInProgress checks that the owner of a claim that the store reports as in progress has extended it. The caller holds mu.
func (h *history) foundInProgress(d *do, key [32]byte) {
	if last := h.record(d, key).last; last == nil || last.leaseEnd+quick < h.now() {
		h.broken("leases end", "%s finds %s in progress after the lease of the last claim", d, d.record())
	}
}

// callBegins notes that the owner of a claim has sent a call. callEnds takes what it returns.
func (h *history) callBegins(d *do, key [32]byte, fence int64) (sent *time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if c, _ := h.claimOfCall(d, key, fence); c != nil {
		c.calls[&now] = true
	}
	return &now
}

// callEnds notes what became of that call. A store that refuses Complete at once leaves the owner time to extend the lease, and so
// does the other store of a move, which knows nothing of the claim.
func (h *history) callEnds(d *do, key [32]byte, fence int64, call string, sent *time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, isElsewhere := h.claimOfCall(d, key, fence)
	if c == nil {
		return
	}
	isSlow := h.now()-*sent > quick
	delete(c.calls, sent)
	if isSlow || err != nil && !isElsewhere && (call != "Complete" || !errors.Is(err, errRefused)) {
		c.troubleUntil, c.process.troubleUntil = h.now(), h.now()
	}
}

// claimOfCall returns the claim for which d makes a call, or nil. isElsewhere means that the other store of a move has granted it.
// The caller holds mu.
func (h *history) claimOfCall(d *do, key [32]byte, fence int64) (c *claim, isElsewhere bool) {
	if c := h.record(d, key).claims[fence]; c != nil {
		return c, false
	}
	if c, _ := h.keyOf(d).claimOf(d, fence); c != nil && c.do == d {
		return c, true
	}
	return nil, true
}

// started notes that a handler starts under a claim, and checks that the claim is its own. It returns nil for a handler without a
// claim.
func (h *history) started(d *do, s script, fence int64, isCanceled func() bool) *run {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.runs++
	h.tell("%s: handler of %s starts: fence %d, %s after %v", d.process.name, d, fence, s.ending, s.length)
	if fence == 0 {
		return nil
	}
	key := h.keyOf(d)
	c, rec := key.claimOf(d, fence)
	completed := key.completed()
	switch {
	case c == nil:
		h.broken("runs have claims", "the fence %d of %s was never granted", fence, d)
		return nil
	case c.run != nil && c.do != d:
		d.isInside = true
		return nil // a message inside a run of the same message
	case c.run != nil:
		h.broken("one run per claim", "%s runs twice under the fence %d", d, fence)
	case c.isLost, h.now() <= c.believedEnd: // the process does not know that yet
	case completed != nil:
		h.broken("no run after an outcome", "%s runs %s after %s has stored an outcome", d, d.record(), completed.do)
	case rec.last != c:
		h.broken("no run without a claim", "%s runs %s after %s has taken its claim", d, d.record(), rec.last.do)
	case h.now() > c.leaseEnd+quick:
		h.broken("no run without a claim", "%s runs %s after the end of its lease", d, d.record())
	}
	for _, other := range key.runs {
		h.checkAlone(c, other.claim)
		h.checkFollows(c, other)
	}
	r := &run{do: d, claim: c, script: s, start: h.now(), isCanceled: isCanceled}
	r.status, r.body = s.status(), fmt.Sprintf("body of %s, fence %d", d, fence)
	if s.isLong {
		r.body += strings.Repeat(".", longOutcome)
	}
	c.run, c.renewed, c.troubleUntil = r, h.now(), h.now() // the reply of Begin may have been slow
	key.runs = append(key.runs, r)
	return r
}

// checkAlone checks that a run may start under claim c although another claim of its key was not taken: that one is in another record,
// under another name or in another store. The caller holds mu.
func (h *history) checkAlone(c, other *claim) {
	if c != other && !c.isLost && !other.isLost && !other.hasEnded && other.next == nil && h.couldHold(other) {
		h.broken("one run of a key at a time", "%s runs beside %s, which has another record", c.do, other.do)
	}
}

// checkFollows checks that a run may start under claim c after an earlier run of its key. The caller holds mu.
func (h *history) checkFollows(c *claim, earlier *run) {
	d, cfg := c.do, &earlier.do.process.config
	if earlier.claim.isLost || c.isLost {
		return // for the store, that run never was
	}
	if !d.isSameAs(earlier.do) && !earlier.isFree() {
		h.broken("no other request after effects", "%s runs after %s, which was another request", d, earlier.do)
	}
	isUnsent := !earlier.claim.hasEnded && !earlier.claim.hasLostEnd && earlier.do.counts["lost"] == 0
	isPending := earlier.end > 0 && earlier.isKept() && !earlier.wasTold && isUnsent && earlier.claim.next == c
	isLate := d.start > earlier.end+cfg.Limits.StoreTimeout+quick && h.now() < earlier.end+9*cfg.Lease.Duration
	if isPending && isLate && earlier.do.process == d.process && !earlier.do.isDeaf {
		h.broken("a process holds the claims of pending outcomes", "%s runs while the outcome of %s is pending", d, earlier.do)
	}
}

// isKept reports whether the run has an outcome to store.
func (r *run) isKept() bool {
	switch r.script.ending {
	case created, refused, streams, later:
		return true
	}
	return false
}

// ended notes that a handler has ended, and checks that it was told if its claim was lost.
func (h *history) ended(r *run) {
	if r == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r.end, r.wasTold = h.now(), r.isCanceled()
	h.tell("%s: handler of %s ends: %s", r.do.process.name, r.do, r.script.ending)
	if confirmed := r.claim.confirmed; confirmed > 0 && r.end-confirmed > quick && !r.wasTold {
		h.broken("runs that lost their claim are told", "%s goes on after its claim was taken", r.do)
	}
	if r.end-r.claim.renewed > r.claim.lease+quick && !r.wasTold {
		h.broken("runs whose lease is not renewed are told", "%s goes on a lease after its last extension", r.do)
	}
}
