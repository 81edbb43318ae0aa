package simulation

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
)

// report notes that a Do has broken a promise.
func (h *history) report(promise string, d *do) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken(promise, "%s under %s, in %s: hooks %v", d, d.record(), d.process.name, d.counts)
}

// checkPanic checks that a panic that left the engine is one of a handler. Other panics are defects of the engine, or of this
// package, and go on.
func (h *history) checkPanic(d *do, cause any) {
	if err, ok := cause.(error); !ok || !errors.Is(err, errHandler) {
		h.report("only handlers panic", d)
		panic(cause)
	}
}

// checkBound checks that a Do did not take longer than its wait, its handler and a few calls to the store.
func (h *history) checkBound(d *do) {
	h.mu.Lock()
	defer h.mu.Unlock()
	limits := &d.process.config
	own := h.now() - d.start - d.busy
	calls := time.Duration(8)
	if h.plan.rotates { // each of four tries looks under the other name, and waits for what it finds
		calls = 40
	}
	if bound := limits.Wait.Timeout + calls*limits.Limits.StoreTimeout + 10*quick; own > bound && !d.isDeaf {
		h.broken("every Do ends within its bound", "%s took %v without its handler, and not %v", d, own, bound)
	}
}

// expect checks that a hook was called as often as the result says.
func (h *history) expect(d *do, hook string, isExpected bool) {
	expected := 0
	if isExpected {
		expected = 1
	}
	if d.counts[hook] != expected {
		h.broken("hooks count what results say", "%s: %s %d times, and not %d", d, hook, d.counts[hook], expected)
	}
}

// checkResult checks the result of a request or a task, and reports whether the client has a response to keep.
func (h *history) checkResult(d *do, result *core.Result, err error) (satisfied bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tell("%s gets: problem %q, replayed %t, error %v", d, result.Problem, result.Replayed, err)
	if !d.isFound {
		h.expect(d, "replay", result.Replayed)
	}
	h.expect(d, "conflict", result.Problem == "in-progress")
	h.expect(d, "mismatch", result.Problem == "fingerprint-mismatch")
	runs := d.counts["begin"] + d.counts["unprotected"]
	hasFound := d.isFound && d.runs == 0
	if runs != d.runs && !result.Bypassed && !hasFound || runs > 1 {
		h.broken("hooks count what results say", "%s: %d runs, and hooks counted %d", d, d.runs, runs)
	}
	switch {
	case result.Problem == "in-progress":
		h.checkConflict(d)
	case result.Replayed && !hasFound:
		h.checkReplay(d, result.Response.Status, string(result.Response.Body), result.Response.Omitted)
	}
	return err == nil && result.Problem == "" && (result.Response == nil || result.Response.Status < 429)
}

// checkReplay checks that a replay is what the run has responded whose outcome the store holds. The caller holds mu.
func (h *history) checkReplay(d *do, status int, body string, isOmitted bool) {
	c := h.keyOf(d).completed()
	switch {
	case h.keyOf(d).hasLost(): // a process may remember the outcome that the store has lost
	case c == nil:
		h.broken("replays are outcomes", "%s gets a replay, and no outcome was stored", d)
	case c.run == nil:
	case !d.isSameAs(c.run.do):
		h.broken("replays belong to their requests", "%s gets the outcome of %s", d, c.run.do)
	case isOmitted && !c.run.do.mayOmitBody && !(d.hasNoBlob && d.kind() == "request"):
		h.broken("an outcome that was kept reaches every retry", "%s gets the outcome of %s without its body", d, c.run.do)
	case status != c.run.status || !isOmitted && body != c.run.body:
		h.broken("replays are outcomes", "%s gets %d %q, and %s responded %d %q", d, status, body, c.run.do, c.run.status, c.run.body)
	}
}

// checkConflict checks that a request was refused because of the claim of another one. The caller holds mu.
func (h *history) checkConflict(d *do) {
	for _, r := range h.keyOf(d).records {
		for _, c := range r.claims {
			if c.do != d {
				return
			}
		}
	}
	h.broken("conflicts are with others", "%s is refused, and nobody else has claimed its key", d)
}

// checkDelivery checks what became of a message, and reports whether the broker may forget it.
func (h *history) checkDelivery(d *do, delivery *consumer.Delivery[string]) (satisfied bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tell("%s gets: %s %v", d, delivery.Verdict, delivery.Err)
	h.checkHooksOf(d, delivery)
	isDuplicate := delivery.Verdict == consumer.Duplicate
	switch {
	case isDuplicate && d.isFound && d.counts["replay"] == 0:
		if delivery.Result != "found" {
			h.broken("found outcomes reach their messages", "%s gets the result %q", d, delivery.Result)
		}
	case isDuplicate:
		h.checkReplay(d, 201, delivery.Result, delivery.Omitted)
		h.expect(d, "replay", true)
	case delivery.Verdict == consumer.Busy && delivery.Err == nil:
		h.expect(d, "conflict", true)
		h.checkConflict(d)
	case delivery.Verdict == consumer.Done:
		h.expect(d, "replay", false)
		if d.runs == 0 {
			h.broken("messages that are done were handled", "%s was not handled", d)
		}
	case delivery.Verdict == consumer.Dead:
		h.checkDead(d, delivery.Err)
	}
	return isDuplicate || delivery.Verdict == consumer.Done || delivery.Verdict == consumer.Dead
}

// checkHooksOf checks that the hooks count what became of a delivery. The caller holds mu.
func (h *history) checkHooksOf(d *do, delivery *consumer.Delivery[string]) {
	// A claim without a handler stores what OnUnknown has found, or that the message is dead. A message of a batch can lose its
	// claim, or have been about to run without one, before all others are there. It is not handled either if the batch is cancelled
	// before its call.
	wasLost := d.script.isBatch && d.counts["lost"]+d.counts["unknown"]+d.counts["unprotected"] > 0
	wasCancelled := d.script.isBatch && delivery.Verdict == consumer.Busy && delivery.Err != nil
	wasNotHandled := d.runs == 0 && (d.isFound || d.attempt > h.plan.maxAttempts || wasLost || wasCancelled)
	if runs := d.counts["begin"] + d.counts["unprotected"]; runs > 1 || runs != d.runs && !d.isInside && !wasNotHandled {
		h.broken("hooks count what results say", "%s: %d runs, and hooks counted %d", d, d.runs, runs)
	}
	h.expect(d, "conflict", delivery.Verdict == consumer.Busy && delivery.Err == nil)
	h.expect(d, "mismatch", delivery.Err != nil && strings.Contains(delivery.Err.Error(), "another payload"))
	if wasDead := delivery.Verdict == consumer.Dead && d.runs == 0; !wasDead && !d.isFound {
		h.expect(d, "replay", delivery.Verdict == consumer.Duplicate)
	}
}

// checkDead checks that a message that is dead had all its attempts. A claim that its owner had not ended when another one replaced
// it counts, and so does a delivery that was about to run without protection (see consumer.Config.MaxAttempts). The caller holds mu.
func (h *history) checkDead(d *do, why error) {
	isUnhandled := strings.Contains(why.Error(), "another payload") || errors.Is(why, core.ErrOutcomeUnknown)
	attempts := 0
	for _, r := range h.keyOf(d).records {
		for _, c := range r.claims {
			isFree := c.run != nil && c.run.isFree()
			wasUnprotected := c.do.counts["unprotected"] > 0
			if !c.hasEnded || c.wasOpen || c.do.runs > 0 && !isFree || wasUnprotected {
				attempts++
			}
		}
	}
	if !isUnhandled && attempts < h.plan.maxAttempts {
		h.broken("dead messages had their attempts", "%s is dead after %d attempts: %v", d, attempts, why)
	}
}

// checkEnd checks what holds when nothing goes on any more. The caller holds mu.
func (h *history) checkEnd() {
	for _, d := range h.dos {
		if d.process.dead {
			continue
		}
		h.expect(d, "done", true)
		ends := d.counts["kept"] + d.counts["failed"]
		if ends > 1 {
			h.broken("a run ends once", "%s: hooks %v", d, d.counts)
		}
		if d.counts["begin"] > 0 && ends+d.counts["unknown"]+d.counts["lost"] == 0 {
			h.broken("hooks say how each run ends", "%s: hooks %v", d, d.counts)
		}
	}
}

// settles checks that a fresh request for each key gets an outcome when no fault has happened for a while.
func (h *history) settles() {
	h.mu.Lock()
	fresh := h.newProcess(0, 0, "fresh process")
	anyBody := h.newProcess(0, optionNamed("any body"), "fresh process for any body")
	fresh.isReplacement, anyBody.isReplacement = true, true
	seen := map[int]*do{} // the last request under each key
	for _, d := range h.dos {
		seen[d.key] = d
		if last := h.keyOf(d).lasting(); last != nil {
			seen[d.key] = last.do
		}
	}
	h.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(seen)) {
		last := seen[key]
		p := fresh
		if last.process.config.Fingerprint.Off { // no other engine may compare with the record
			p = anyBody
		}
		short := script{ending: created, nested: -1, length: time.Millisecond}
		d := h.newDo("fresh request", key, last.variant, short, p)
		if !h.attempt(d, 0) && d.counts["replay"] == 0 && !h.keyOf(d).isTorn() {
			h.report("every key can be settled", d)
		}
	}
}
