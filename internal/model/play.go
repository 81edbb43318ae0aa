package model

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
)

// Clocked is a store whose clock stands still until it is moved. Times are those since 1970.
type Clocked struct {
	driver.Store
	Now     func() time.Duration
	Advance func(time.Duration) // lets time pass
	jump    func(time.Duration) // sets the clock, while no time passes; nil if no test needs that
}

// Epoch is the time at which the clock of a Clocked should begin.
const Epoch = epoch

// PlayWays plays the ways through all situations of the walk, and fails the test at the first answer in which the store differs from
// the model.
func (s *Clocked) PlayWays(tb testing.TB) {
	tb.Helper()
	for _, way := range ways() {
		require.NoError(tb, s.play(0, way))
		s.Advance(10 * tick) // whatever there is expires
	}
}

// PlaySample is PlayWays for a store that takes long for a call: it plays each nth way, beginning with a random one.
func (s *Clocked) PlaySample(tb testing.TB, n int) {
	tb.Helper()
	all, from := ways(), rand.IntN(n)
	tb.Logf("each %dth of %d ways, from %d on", n, len(all), from)
	for i := from; i < len(all); i += n {
		require.NoError(tb, s.play(0, all[i]))
		s.Advance(10 * tick) // whatever there is expires
	}
}

// play makes moves on a store and on the model, and returns the first answer in which they differ.
func (s *Clocked) play(key byte, way []move) error {
	var record Record
	var latest int64
	for i, m := range way {
		if m.verb == "" {
			s.Advance(tick)
			continue
		}
		call := m.call(latest)
		call.Claim.Key[0] = key
		var want Answer
		record, want = Step(record, call, s.Now())
		latest = max(latest, want.Entry.Fence)
		if got := apply(context.Background(), s.Store, call); !equalAnswers(got, want) {
			return fmt.Errorf("%v: the store answers %v, the model %v", way[:i+1], got, want)
		}
	}
	return nil
}

// The ways to look at a record from outside: what it answers, who may have it next, how long it lives.
var looks = func() [][]move {
	a1, b1, a2 := 0, 1, 2
	pass := move{}
	ask := func(owner int) move { return move{verb: Begin, owner: owner, noTakeover: true} }
	return [][]move{
		{ask(a2), ask(b1), pass, ask(b1), pass, {verb: Begin, owner: a1}, {verb: Fail, owner: a1, fence: newest, noEffects: true}, ask(a2)},
		{pass, ask(a2), ask(a1), pass, ask(a2), ask(a1), pass, ask(a2), ask(a1), pass, ask(a2), ask(a1)},
	}
}()

// ways leads to each record of the walk, makes every call there that changes nothing, and ends with a look; and leads
// over each change to a look.
var ways = sync.OnceValue(func() (all [][]move) {
	w := rightWalk()
	seen := map[any]bool{}
	for i, p := range w.places {
		situation := [2]any{p.record, p.witness.fence > 0}
		if seen[situation] {
			continue
		}
		seen[situation] = true
		var idle []move
		for _, m := range moves {
			next, _ := p.after(Step, m)
			if next == p.situation && m.verb != "" {
				idle = append(idle, m)
				continue
			}
			all = append(all, looked(w.to(i), m)...)
		}
		all = append(all, looked(w.to(i), idle...)...)
	}
	return all
})

// looked returns a way with each look at its end.
func looked(way []move, then ...move) (all [][]move) {
	for _, look := range looks {
		all = append(all, slices.Concat(way, then, look))
	}
	return all
}

// oneLookEach returns each way with one of its looks.
func oneLookEach(all [][]move) (some [][]move) {
	for i := 0; i < len(all); i += len(looks) {
		some = append(some, all[i+i/len(looks)%len(looks)])
	}
	return some
}
