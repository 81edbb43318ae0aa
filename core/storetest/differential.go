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

// Differential makes one random sequence of calls from seed, sends it to two stores, and fails the test at the first result
// that differs. Three owners with two requests compete for one key. Calls are repeated, late and out of order. Leases and
// retentions end at once or never, so that both clocks agree on what is over. The same seed makes the same sequence.
func Differential(tb testing.TB, seed int64, steps int, a, b Harness) {
	tb.Helper()
	random := rand.New(rand.NewSource(seed))
	base := NewClaim(0, 0)
	left, right := newPlayer(a, base), newPlayer(b, base)
	var history []string
	for range steps {
		op := randomOp(random)
		x, y := left.play(op), right.play(op)
		history = append(history, fmt.Sprintf("%v -> %s", op, x))
		if x != y {
			tb.Fatalf("seed %d: the second store answers %q\n%s", seed, y, joinLines(history))
		}
		if op.lease == now || op.retention == now {
			a.Advance(overtime)
			b.Advance(overtime)
		}
	}
}

// duration is a lease or retention of the sequence, which is over at once or never.
type duration bool

const now duration = true

func (l duration) of(whenOver, whenNot time.Duration) time.Duration {
	if l == now {
		return whenOver
	}
	return whenNot
}

// op is one call of the sequence, by one of the owners.
type op struct {
	call                  string
	owner                 int
	run                   int64 // when not 0, the owner begins a new run, with an identity made of this number
	other                 bool  // that run is of the other request
	noEffects, noTakeover bool
	notRun                bool // a fail of who never ran
	noFence               bool // a fail of who was never answered
	takeover              bool // may take over the claim that was last reported as vanished
	lateFence             bool // with the fence of the owner's first claim
	outcome               string
	lease, retention      duration
}

// randomOp returns a random call.
func randomOp(r *rand.Rand) op {
	verbs := []string{"begin", "begin", "begin", "extend", "complete", "fail", "fail"}
	o := op{
		call:       verbs[r.Intn(len(verbs))],
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
	store    driver.Store
	claims   [3]driver.Claim // as the owner last began
	first    [3]int64        // fence of the owner's first claim
	fences   []int64
	vanished int64 // fence of the claim that was last reported as vanished
}

func newPlayer(h Harness, base driver.Claim) *player {
	p := &player{store: h.Store}
	for i := range p.claims {
		p.claims[i] = base
		p.newRun(i, int64(i)+1, false)
	}
	return p
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
	if c.Retention < c.Lease {
		c.Lease = short / 2
	}
	ctx := context.Background()
	if o.call == "begin" {
		entry, err := p.store.Begin(ctx, *c)
		return p.describe(o.owner, entry, err)
	}
	held := *c
	if o.lateFence {
		held.Fence = p.first[o.owner]
	}
	switch o.call {
	case "extend":
		return errorText(p.store.Extend(ctx, held))
	case "complete":
		return errorText(p.store.Complete(ctx, held, []byte(o.outcome)))
	}
	if o.noFence {
		held.Fence = 0
	}
	return errorText(p.store.Fail(ctx, held, driver.Failure{Cause: "test", NoEffects: o.noEffects || o.notRun, NotRun: o.notRun}))
}

func (p *player) describe(owner int, e driver.Entry, err error) string {
	if e.State == driver.Unknown {
		p.vanished = e.Fence
		return fmt.Sprintf("unknown fence %d", p.rank(e.Fence))
	}
	if err != nil || e.State != driver.Claimed {
		return fmt.Sprintf("%s %s %q left %t", errorText(err), e.State, e.Outcome, e.Remaining > 0)
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

func errorText(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, driver.ErrLost):
		return "lost"
	}
	return "error: " + err.Error()
}

func joinLines(lines []string) (s string) {
	for i, l := range lines {
		s += fmt.Sprintf("%3d  %s\n", i+1, l)
	}
	return s
}
