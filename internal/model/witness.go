package model

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// The promises, as the walk names them when one is broken.
const (
	oneRun     = "one run under a living lease"
	noStale    = "no stale writer"
	fencesGrow = "fences grow"
	itself     = "an owner recognises itself"
	keptStays  = "what is kept stays and is replayed"
	noMixing   = "requests are not mixed"
	pastKnown  = "a run knows its past"
	noTakeover = "no takeover against the claim's will"
	neverStuck = "a key is never stuck"
)

// broken is a promise that an answer breaks.
type broken struct{ promise, how string }

func (b *broken) Error() string { return b.promise + ": " + b.how }

// witness is what someone knows of a key who sees the calls and their answers, and never the record.
type witness struct {
	state       State // as the accepted calls have left it
	owner       [16]byte
	fence       int64 // the highest that was granted, ever
	attempt     int
	operation   int64
	fingerprint [32]byte
	until       time.Duration // the lease of the latest claim
	expires     time.Duration
	vanished    bool
	effects     bool
	free        bool
	withdrawn   bool   // FAILED, and the owner never had a fence
	noted       string // who else has failed or withdrawn since the key was absent or completed
	outcome     string
}

// sees returns the witness after one call, and the promise that its answer breaks.
func (w witness) sees(c Call, a Answer, now time.Duration) (witness, error) {
	if w.expires <= now {
		w = witness{fence: w.fence}
	}
	mine := w.state != Absent && c.Claim.Owner == w.owner
	if c.Verb == Begin {
		return w.seesBegin(c.Claim, a, mine, now)
	}
	mine = mine && (c.Claim.Fence == 0 && c.Verb == Fail || c.Claim.Fence == w.fence && !w.withdrawn)
	allowed := map[Verb]bool{
		Extend:   w.state == Started,
		Complete: w.state == Started || w.state == Completed && w.outcome == c.Outcome,
		Fail:     w.state == Started || w.state == Failed,
	}[c.Verb]
	if withdraws := c.Verb == Fail && c.Claim.Fence == 0 && !mine; withdraws {
		return w.seesWithdrawal(c.Claim, a, now)
	}
	switch {
	case a.Err == nil && !mine:
		return w, &broken{noStale, "accepted from another claim than the latest"}
	case a.Err == nil && !allowed:
		return w, &broken{keptStays, fmt.Sprintf("accepted in %s", w.state)}
	case a.Err != nil && mine && allowed:
		return w, &broken{itself, "refused to the claim that holds the record"}
	case a.Err != nil && !errors.Is(a.Err, driver.ErrLost):
		return w, &broken{neverStuck, a.Err.Error()}
	case a.Err != nil && errors.Is(a.Err, driver.ErrGone) != (w.state == Absent && c.Claim.Fence != 0):
		return w, &broken{pastKnown, fmt.Sprintf("%v in %q", a.Err, w.state)}
	case a.Err == nil && w.state == Started:
		return w.accepted(c, now), nil
	}
	return w, nil
}

func (w witness) accepted(c Call, now time.Duration) witness {
	w.expires = now + c.Claim.Retention
	switch c.Verb {
	case Extend:
		w.until = now + c.Claim.Lease
	case Complete:
		w.state, w.outcome, w.noted = Completed, c.Outcome, ""
	case Fail:
		w.state, w.free = Failed, (c.NoEffects || c.NotRun) && !w.effects
		if c.NotRun {
			w.attempt--
		}
	}
	return w
}

// seesWithdrawal: an owner that does not hold the record says that it wants no claim any more.
func (w witness) seesWithdrawal(c driver.Claim, a Answer, now time.Duration) (witness, error) {
	if absent := w.state == Absent; absent != (a.Err == nil) || !absent && !errors.Is(a.Err, driver.ErrLost) {
		return w, &broken{itself, fmt.Sprintf("a withdrawal is answered %v in %s", a.Err, w.state)}
	}
	switch w.state {
	case Absent:
		return witness{state: Failed, owner: c.Owner, fence: w.fence, free: true, withdrawn: true, expires: now + c.Lease}, nil
	case Started, Failed:
		if w.free && !isNoted(w.noted, c.Owner) {
			w.expires = max(w.expires, now+c.Lease)
		}
		w.noted = note(w.noted, c.Owner)
	}
	return w, nil
}

func (w witness) seesBegin(c driver.Claim, a Answer, mine bool, now time.Duration) (witness, error) {
	same := w.state != Absent && w.fingerprint == c.Fingerprint
	if a.Err != nil {
		if errors.Is(a.Err, driver.ErrLost) && (mine && w.state == Failed || isNoted(w.noted, c.Owner)) {
			return w, nil
		}
		return w, &broken{neverStuck, "begin is refused without a reason"}
	}
	if isNoted(w.noted, c.Owner) || mine && w.state == Failed {
		return w, &broken{itself, fmt.Sprintf("begin says %s to an owner that has failed or withdrawn", a.Entry.State)}
	}
	if other := w.state != Absent && !same && !w.free; other != (a.Entry.State == driver.Mismatch) {
		return w, &broken{noMixing, fmt.Sprintf("begin says %s, another request: %t", a.Entry.State, other)}
	}
	holds := func(promise string, ok bool) (witness, error) {
		if !ok {
			return w, &broken{promise, fmt.Sprintf("begin says %s in %s", a.Entry.State, w.state)}
		}
		return w, nil
	}
	switch e := a.Entry; e.State {
	case driver.Mismatch:
		return w, nil
	case driver.Completed:
		return holds(keptStays, w.state == Completed && string(e.Outcome) == w.outcome)
	case driver.InProgress:
		promise := neverStuck
		if mine {
			promise = itself
		}
		return holds(promise, w.state == Started && !mine && w.until > now && e.Remaining == w.until-now)
	case driver.Unknown:
		return holds(neverStuck, w.state == Started && w.until <= now && c.NoTakeover && c.TakeoverFence != w.fence && e.Fence == w.fence)
	}
	if mine && w.state == Started {
		e := driver.Entry{State: driver.Claimed, Fence: w.fence, Attempt: w.attempt, Operation: w.operation, Takeover: w.vanished, Remaining: w.until - now}
		return holds(itself, equalAnswers(a, Answer{Entry: e}))
	}
	return w.seesGrant(c, a.Entry, now)
}

// seesGrant: a new claim was given.
func (w witness) seesGrant(c driver.Claim, e driver.Entry, now time.Duration) (witness, error) {
	left := w.state == Started // by an owner that said nothing more
	switch {
	case left && w.until > now:
		return w, &broken{oneRun, "claimed before the lease was over"}
	case w.state == Completed:
		return w, &broken{keptStays, "claimed although an outcome is kept"}
	case e.Fence <= w.fence:
		return w, &broken{fencesGrow, fmt.Sprintf("fence %d after %d", e.Fence, w.fence)}
	case left && c.NoTakeover && c.TakeoverFence != w.fence:
		return w, &broken{noTakeover, "claimed over a run that may have had effects"}
	}
	vanished, effects := left || w.vanished, left || w.effects || w.state == Failed && !w.free
	operation, noted := w.operation, w.noted
	if w.state == Absent || w.free {
		operation = e.Fence
	}
	if w.state == Failed {
		noted = note(noted, w.owner)
	}
	if e.Operation != operation {
		return w, &broken{pastKnown, fmt.Sprintf("operation %d, not %d", e.Operation, operation)}
	}
	if e.Attempt != w.attempt+1 || e.Takeover != vanished || e.Remaining != c.Lease {
		return w, &broken{pastKnown, fmt.Sprintf("%+v after attempt %d", e, w.attempt)}
	}
	return witness{
		state: Started, owner: c.Owner, fence: e.Fence, attempt: e.Attempt, operation: operation, fingerprint: c.Fingerprint,
		until: now + c.Lease, expires: now + c.Retention, vanished: vanished, effects: effects, noted: noted,
	}, nil
}
