package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/movestore"
)

// movePlan is a deploy during a move to another store: the processes of some slots go from one step to another.
type movePlan struct {
	steps [2]int // the lower and the upper one: see storeOf
	slots []moveOfSlot
}

// moveOfSlot is when the process of a slot goes to the other step. 0: it stays.
type moveOfSlot struct {
	at    time.Duration
	kills bool // the process dies, and another one takes its place; otherwise it ends the requests that it has
}

// newMovePlan returns a move for about a quarter of all plans that do not change a secret. What it decides changes nothing else in p.
func newMovePlan(p *plan) *movePlan {
	r := rand.New(rand.NewPCG(p.seed, 19))
	if r.IntN(4) > 0 {
		return nil
	}
	lower := []int{0, 1, 1, 1, 2}[r.IntN(5)]
	m := &movePlan{steps: [2]int{lower, lower + 1}}
	p.failover = failoverPlan{}
	for i := range p.slots {
		p.slots[i].step = r.IntN(2)
		move := moveOfSlot{kills: r.IntN(3) == 0}
		if r.IntN(2) == 0 {
			move.at = upTo(r, 6*lease)
		}
		m.slots = append(m.slots, move)
	}
	if r.IntN(2) == 0 { // two processes claim a key at almost the same time
		for i := range p.clients {
			p.clients[i].start = p.clients[0].start + upTo(r, 2*time.Millisecond)
		}
	}
	return m
}

// clone returns a move that shares nothing with m.
func (m *movePlan) clone() *movePlan {
	if m == nil {
		return nil
	}
	return &movePlan{steps: m.steps, slots: slices.Clone(m.slots)}
}

// lessMoves adds the plans in which one process less goes to another step.
func (p *plan) lessMoves(add func(change func(*plan))) {
	if p.move == nil {
		return
	}
	for i, s := range p.move.slots {
		if s.at > 0 {
			add(func(q *plan) { q.move.slots[i].at = 0 })
		}
	}
}

// storeOf returns the store of a process, through connections that can fail.
func (h *history) storeOf(p *process) driver.Store {
	old := &link{history: h, process: p}
	if h.plan.move == nil {
		return old
	}
	step := h.plan.slots[p.slot].step
	if p.hasMoved {
		step = 1 - step
	}
	moved := &link{history: h, process: p, isNew: true}
	switch h.plan.move.steps[step] {
	case 0:
		return old
	case 1:
		return movestore.Prepare(endpoint{link: old}, endpoint{link: moved})
	case 2:
		return movestore.Move(endpoint{link: old}, endpoint{link: moved})
	}
	return moved
}

// startMoves makes the processes of slots go to the other step at their times.
func (h *history) startMoves() {
	if h.plan.move == nil {
		return
	}
	for i, move := range h.plan.move.slots {
		if move.at > 0 {
			h.calls.Go(func() {
				time.Sleep(move.at)
				h.moveSlot(i, move.kills)
			})
		}
	}
}

// moveSlot starts a process of the other step in a slot.
func (h *history) moveSlot(slot int, kills bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hasMoved[slot] = true
	p := h.processes[slot]
	h.tell("%s is to go to the other step of the move", p.name)
	if kills {
		h.kill(p)
		return
	}
	h.processes[slot] = h.newProcess(slot, h.plan.slots[slot].option, p.name+"-moved")
	h.processes[slot].isReplacement = true
}

// endpoint is a link with the methods of a store that no engine calls.
type endpoint struct {
	*link
	unused
}

type unused struct{ movestore.Backend }
