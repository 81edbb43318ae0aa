package simulation

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// skipping makes the deploy of a plan leave out a step.
func skipping(p *plan, lower int) *plan {
	p.move.steps = [2]int{lower, lower + 2}
	return p
}

// A deploy that leaves out a step of a move makes a handler run twice, and the simulation finds that. The test also guards the
// simulation of moves: without it, a check that never fails would go unnoticed.
func TestALeftOutStepOfAMoveIsFound(t *testing.T) {
	for lower := range 2 {
		found := map[string]bool{}
		for seed := uint64(0); seed < withinSeeds && !found["one run of a key at a time"]; seed++ {
			p := newPlan(seed)
			if p.move == nil {
				continue
			}
			if v := execute(t, skipping(p, lower), nil, false).violation; v != nil {
				found[v.promise] = true
			}
		}
		assert.Contains(t, found, "one run of a key at a time", "from step %d to step %d", lower, lower+2)
		t.Logf("from step %d to step %d: %v", lower, lower+2, found)
	}
}
