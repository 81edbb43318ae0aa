package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/go-idem/idem/core/driver"
)

// Differential makes one random sequence of calls from seed, sends it to two stores, and fails the test at the first result that
// differs. The sequence has as many calls as steps says. The store of reference is one that is known to be right, such as that
// of package memstore with a clock that Advance moves:
//
//	now := time.Now()
//	reference := storetest.Harness{
//		Store:   memstore.New(memstore.Clock(func() time.Time { return now })),
//		Advance: func(d time.Duration) { now = now.Add(d) },
//	}
//	storetest.Differential(t, seed, 30, reference, storetest.Harness{Store: store, Advance: time.Sleep})
//
// Three owners with two requests compete for one key. Calls are repeated, late and out of order. Leases and retentions end at
// once or never, so that both clocks agree on what is over. The same seed makes the same sequence. Call Differential with some
// hundred seeds; the message of a failure names the seed and the last calls.
//
// What Differential finds is a difference: if the reference is wrong in the same way, it finds nothing. It sends Begin, Extend,
// Complete and Fail, so optional abilities and tombstones are left to [Run].
func Differential(tb testing.TB, seed int64, steps int, reference, tested Harness) {
	tb.Helper()
	random := rand.New(rand.NewSource(seed))
	base := NewClaim(0, 0)
	left, right := newPlayer(reference, base), newPlayer(tested, base)
	for call := range steps {
		op := randomOp(random)
		x, y := left.play(op), right.play(op)
		if x != y {
			tb.Fatalf("seed %d, call %d: the tested store returned %s, want %s, which is what the reference returned (both number "+
				"the fences from 0)\nThe calls of the tested store:\n%v", seed, call+1, y, x, right.story)
		}
		if op.lease == now || op.retention == now {
			left.advance(reference)
			right.advance(tested)
		}
	}
}

// duration is a lease or retention of the sequence, which is over at once or never. Anything between would make the result
// depend on how fast the two stores are.
type duration bool

const now duration = true

func (l duration) of(whenOver, whenNot time.Duration) time.Duration {
	if l == now {
		return whenOver
	}
	return whenNot
}

// op is one call of the sequence, by one of the owners. It contains no fence, because the two stores grant different ones.
type op struct {
	call                  string
	owner                 int
	run                   int64 // when not 0, the owner begins a new run, with an identity made of this number
	other                 bool  // that run is of the other request
	noEffects, noTakeover bool
	notRun                bool // a Fail of an owner that never ran
	noFence               bool // a Fail of an owner without a response to its Begin
	takeover              bool // may take over the claim that was last reported as vanished
	lateFence             bool // with the fence of the owner's first claim
	outcome               string
	lease, retention      duration
}

// randomOp returns a random call. Three in seven are a Begin, since the other calls need a claim to have an effect.
func randomOp(r *rand.Rand) op {
	calls := []string{"begin", "begin", "begin", "extend", "complete", "fail", "fail"}
	o := op{
		call:       calls[r.Intn(len(calls))],
		owner:      r.Intn(3),
		other:      r.Intn(4) == 0,
		noEffects:  r.Intn(3) == 0,
		notRun:     r.Intn(4) == 0,
		noFence:    r.Intn(4) == 0,
		noTakeover: r.Intn(3) == 0,
		takeover:   r.Intn(2) == 0,
		lateFence:  r.Intn(8) == 0,
		outcome:    []string{"one", "two"}[r.Intn(2)],
		lease:      r.Intn(4) == 0,
		retention:  r.Intn(8) == 0,
	}
	if o.call == "begin" && r.Intn(3) == 0 {
		o.run = r.Int63()
	}
	return o
}

// player runs a sequence on one store. Fences differ between stores, so results name them by the order in which they appear.
type player struct {
	story    *story          // calls the store
	claims   [3]driver.Claim // as the owner last began
	first    [3]int64        // fence of the owner's first claim
	fences   []int64
	vanished int64 // fence of the claim that was last reported as vanished
}

// newPlayer returns a player whose owners are the same in both stores, since their claims come from one base.
func newPlayer(h Harness, base driver.Claim) *player {
	p := &player{story: newStory(h.Store)}
	for i := range p.claims {
		p.claims[i] = base
		p.newRun(i, int64(i)+1, false)
	}
	return p
}

// advance lets the leases and retentions end that end at once.
func (p *player) advance(h Harness) {
	p.story.passed(overtime)
	h.Advance(overtime)
}

// newRun gives the owner a new run, whose owner bytes are made from the number run.
func (p *player) newRun(owner int, run int64, other bool) {
	c := &p.claims[owner]
	*c = driver.Claim{Key: c.Key, Fingerprint: c.Fingerprint}
	binary.BigEndian.PutUint64(c.Owner[:], uint64(run))
	c.Fingerprint[0] = 0
	if other {
		c.Fingerprint[0] = 1
	}
	p.first[owner] = 0
}

// play sends one call. It returns those parts of the result that must be equal for both stores, as text.
func (p *player) play(o op) string {
	if o.run != 0 {
		p.newRun(o.owner, o.run, o.other)
	}
	c := &p.claims[o.owner]
	c.NoTakeover, c.TakeoverFence = o.noTakeover, 0
	if o.takeover {
		c.TakeoverFence = p.vanished
	}
	c.Lease, c.Retention = o.lease.of(short/2, long), o.retention.of(short, longer)
	if c.Retention < c.Lease { // an engine refuses a lease that is longer than the retention
		c.Lease = short / 2
	}
	ctx := context.Background()
	if o.call == "begin" {
		entry, err := p.story.Begin(ctx, *c)
		return p.describe(o.owner, entry, err)
	}
	held := *c
	if o.lateFence {
		held.Fence = p.first[o.owner]
	}
	switch o.call {
	case "extend":
		return errorText(p.story.Extend(ctx, held))
	case "complete":
		return errorText(p.story.Complete(ctx, held, []byte(o.outcome)))
	}
	if o.noFence {
		held.Fence = 0
	}
	return errorText(p.story.Fail(ctx, held, driver.Failure{Cause: "test", NoEffects: o.noEffects || o.notRun, NotRun: o.notRun}))
}

// describe returns the result of a Begin as text, and notes the claim of the owner, so that later calls can send it. The rest
// of a lease is compared by its sign only, since the clocks differ.
func (p *player) describe(owner int, e driver.Entry, err error) string {
	if e.State == driver.Unknown {
		p.vanished = e.Fence
		return fmt.Sprintf("unknown fence %d", p.rank(e.Fence))
	}
	if err != nil {
		return errorText(err)
	}
	if e.State != driver.Claimed {
		return fmt.Sprintf("%s, outcome %q, remaining time %t", e.State, e.Outcome, e.Remaining > 0)
	}
	if p.first[owner] == 0 {
		p.first[owner] = e.Fence
	}
	c := &p.claims[owner]
	c.Fence, c.Attempt, c.Operation, c.Takeover = e.Fence, e.Attempt, e.Operation, e.Takeover
	fence := p.rank(e.Fence)
	return fmt.Sprintf("claimed fence %d attempt %d operation %d takeover %t", fence, e.Attempt, p.rank(e.Operation), e.Takeover)
}

// rank returns the index of a fence among those seen so far, or -1 for a new one that is lower than a seen one.
func (p *player) rank(fence int64) int {
	for i, f := range p.fences {
		if f == fence {
			return i
		}
		if f > fence {
			return -1
		}
	}
	p.fences = append(p.fences, fence)
	return len(p.fences) - 1
}

// errorText returns the text of an error in messages.
func errorText(err error) string {
	switch {
	case err == nil:
		return "no error"
	case errors.Is(err, driver.ErrGone):
		return "ErrGone"
	case errors.Is(err, driver.ErrLost):
		return "ErrLost"
	}
	return "the error " + err.Error()
}
