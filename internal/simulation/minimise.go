package simulation

import (
	"fmt"
	"slices"
	"strings"
)

// minimise returns a plan that breaks the same promise with fewer clients, attempts, deaths and faults. broken reports which
// promise a plan breaks, or "".
func minimise(p *plan, promise string, broken func(*plan) string) *plan {
	for isSmaller := true; isSmaller; {
		isSmaller = false
		for _, smaller := range p.smaller() {
			if broken(smaller) == promise {
				p, isSmaller = smaller, true
				break
			}
		}
	}
	return p
}

// smaller returns the plans that lack one thing that p has.
func (p *plan) smaller() (plans []*plan) {
	add := func(change func(*plan)) {
		q := p.clone()
		change(q)
		plans = append(plans, q)
	}
	for i, c := range p.clients {
		if c.isHTTP {
			add(func(q *plan) { q.clients[i].isHTTP = false })
		}
		if len(c.attempts) > 0 {
			add(func(q *plan) { q.clients[i].attempts = nil })
			add(func(q *plan) { q.clients[i].attempts = q.clients[i].attempts[:len(c.attempts)-1] })
		}
		for j, a := range c.attempts {
			plain := attemptPlan{slot: a.slot, script: script{length: a.script.length, nested: -1}}
			if a != plain {
				add(func(q *plan) { q.clients[i].attempts[j] = plain })
			}
			if a.leaves > 0 {
				add(func(q *plan) { q.clients[i].attempts[j].leaves = 0 })
			}
		}
	}
	if p.refusesLong {
		add(func(q *plan) { q.refusesLong = false })
	}
	if p.failover.promoted > 0 {
		add(func(q *plan) { q.failover = failoverPlan{} })
	}
	p.lessMoves(add)
	for i := range p.faults {
		add(func(q *plan) { q.faults = slices.Delete(q.faults, i, i+1) })
	}
	for i, s := range p.slots {
		if s.diesAt > 0 {
			add(func(q *plan) { q.slots[i].diesAt = 0 })
		}
		if s.option > 0 {
			add(func(q *plan) { q.slots[i].option = 0 })
		}
	}
	return plans
}

// clone returns a plan that shares nothing with p.
func (p *plan) clone() *plan {
	q := *p
	q.slots, q.clients, q.faults = slices.Clone(p.slots), slices.Clone(p.clients), slices.Clone(p.faults)
	q.move = p.move.clone()
	for i := range q.clients {
		q.clients[i].attempts = slices.Clone(q.clients[i].attempts)
	}
	return &q
}

// text returns what a reader of a failed history wants to know: the options, the faults, and what happened.
func (h *history) text() string {
	var b strings.Builder
	for i, s := range h.plan.slots {
		fmt.Fprintf(&b, "slot %d: %s\n", i, s)
	}
	fmt.Fprintf(&b, "messages are handled %d times at most\n", h.plan.maxAttempts)
	fmt.Fprintf(&b, "the store refuses long outcomes: %t\n", h.plan.refusesLong)
	if f := h.plan.failover; f.promoted > 0 {
		fmt.Fprintf(&b, "failover after %v; writes after %v are lost\n", f.promoted, f.lastWrite)
	}
	if m := h.plan.move; m != nil {
		fmt.Fprintf(&b, "the store moves: a deploy between the steps %d and %d\n", m.steps[0], m.steps[1])
	}
	for _, f := range h.plan.faults {
		fmt.Fprintf(&b, "fault: %s\n", f)
	}
	for _, line := range h.story {
		b.WriteString(line + "\n")
	}
	return b.String()
}
