package model

import (
	"fmt"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// What the walk does: any of these calls may arrive at any moment, any number of times, whatever its owner has been
// told before. So every lost answer, retry, crash and late delivery is a path of the walk.

// Time passes in ticks.
const tick = time.Minute

// owners are two runs of each of two requests. Leases and retentions are in ticks.
var owners = []struct {
	name             string
	request          byte
	lease, retention time.Duration
}{{"a1", 1, 2, 4}, {"b1", 1, 1, 3}, {"a2", 2, 2, 4}, {"b2", 2, 1, 3}}

// knowledge is what fence a call carries.
type knowledge string

const (
	none   knowledge = ""        // 0: the answer of begin never came
	newest knowledge = "newest"  // of the latest claim of the key
	stale  knowledge = "a stale" // of an earlier one
)

func (k knowledge) fence(latest int64) int64 {
	switch {
	case latest == 0 || k == none:
		return 0
	case k == stale:
		return latest - 1
	}
	return latest
}

// move is one thing that can happen: a call, or, without a call, that a tick passes.
type move struct {
	verb          Verb
	owner         int
	fence         knowledge
	noTakeover    bool
	takeoverFence knowledge
	outcome       string
	noEffects     bool
	notRun        bool
}

// moves is everything that can happen. Only fail goes without a fence: it alone follows a begin without an answer. A
// complete always knows its fence, an extend is held to the contract all the same.
var moves = func() []move {
	all := []move{{}}
	for owner := range owners {
		all = append(all, move{verb: Begin, owner: owner})
		for _, over := range []knowledge{none, newest, stale} {
			all = append(all, move{verb: Begin, owner: owner, noTakeover: true, takeoverFence: over})
		}
		for _, fence := range []knowledge{newest, stale, none} {
			all = append(all,
				move{verb: Extend, owner: owner, fence: fence},
				move{verb: Fail, owner: owner, fence: fence},
				move{verb: Fail, owner: owner, fence: fence, noEffects: true},
				move{verb: Fail, owner: owner, fence: fence, noEffects: true, notRun: true})
			if fence != none {
				all = append(all,
					move{verb: Complete, owner: owner, fence: fence, outcome: "one"},
					move{verb: Complete, owner: owner, fence: fence, outcome: "two"})
			}
		}
	}
	return all
}()

// call is the move as a call, when latest is the fence of the latest claim.
func (m move) call(latest int64) Call {
	c := Call{Verb: m.verb, Outcome: m.outcome, NoEffects: m.noEffects, NotRun: m.notRun}
	owner := owners[m.owner]
	c.Claim = driver.Claim{
		Lease: owner.lease * tick, Retention: owner.retention * tick, Fence: m.fence.fence(latest), NoTakeover: m.noTakeover, TakeoverFence: m.takeoverFence.fence(latest),
	}
	c.Claim.Owner[0] = byte(m.owner) + 1
	c.Claim.Fingerprint[0] = owner.request
	return c
}

func (m move) String() string {
	if m.verb == "" {
		return "a tick passes"
	}
	s := fmt.Sprintf("%s %s", owners[m.owner].name, m.verb)
	switch {
	case m.noTakeover && m.takeoverFence != none:
		s += fmt.Sprintf(", taking over %s fence only", m.takeoverFence)
	case m.noTakeover:
		s += " without takeover"
	case m.verb != Begin && m.fence != newest:
		s += fmt.Sprintf(" with %s fence", map[knowledge]string{none: "no", stale: "a stale"}[m.fence])
	}
	return s + map[bool]string{true: " free"}[m.noEffects] + map[bool]string{true: " not run"}[m.notRun] + map[bool]string{true: " " + m.outcome}[m.outcome != ""]
}
