package model

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/go-idem/idem/core/driver"
)

// hold is the time for which the owner of a run certainly had its key, in ns since the history began: from the answer to its Begin
// to the last call that the store accepted from it.
type hold struct {
	owner     [16]byte
	fence     int64
	from, to  int64
	ended     int64 // when the first Complete or Fail was sent; 0: none
	completed int64 // when the answer to a Complete came; 0: none did
}

// OneHolder returns an error if a history shows two runs of one key at the same time, or a run that began within the retention of an
// outcome. That is less than a check of all answers, for stores that may refuse a claim which the model grants.
func (l Load) OneHolder(history []porcupine.Operation) error {
	byKey := map[int][]porcupine.Operation{}
	for _, op := range history {
		byKey[op.Input.(sent).key] = append(byKey[op.Input.(sent).key], op)
	}
	for key, ops := range byKey {
		runs := runsOf(ops)
		for i, next := range runs {
			for _, earlier := range runs[:i] {
				if err := l.conflict(earlier, next); err != nil {
					return fmt.Errorf("key %d: %w", key, err)
				}
			}
		}
	}
	return nil
}

// conflict returns an error if next, which began later, must not have begun.
func (l Load) conflict(earlier, next hold) error {
	switch {
	case next.from < earlier.to && next.to > next.from:
		return fmt.Errorf("%x had the key until %d ns, and %x from %d ns on", earlier.owner, earlier.to, next.owner, next.from)
	case earlier.completed > 0 && next.from > earlier.completed && next.from < earlier.ended+int64(l.Retention-goneSlack):
		return fmt.Errorf("%x completed the key at %d ns, and %x got it at %d ns", earlier.owner, earlier.completed, next.owner, next.from)
	}
	return nil
}

// runsOf returns the runs of one key, in the order in which they began.
func runsOf(ops []porcupine.Operation) (runs []hold) {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	places := map[[16]byte]int{}
	for _, op := range ops {
		in := op.Input.(sent)
		answer, known := op.Output.(Answer)
		place, hasBegun := places[in.Claim.Owner]
		switch {
		case in.Verb == Begin && answer.Entry.State == driver.Claimed && !hasBegun:
			places[in.Claim.Owner] = len(runs)
			runs = append(runs, hold{owner: in.Claim.Owner, fence: answer.Entry.Fence, from: op.Return, to: op.Return})
		case hasBegun && in.Verb != Begin && in.Claim.Fence == runs[place].fence:
			runs[place].add(in, op, known && answer.Err == nil)
		}
	}
	slices.SortFunc(runs, func(a, b hold) int { return cmp.Compare(a.from, b.from) })
	return runs
}

// add adds a call of the run. If the store has accepted the end of the run, it did so after the first call that asked for it.
func (h *hold) add(in sent, op porcupine.Operation, accepted bool) {
	if in.Verb != Extend && h.ended == 0 {
		h.ended = op.Call
	}
	switch {
	case !accepted:
	case in.Verb == Extend:
		h.to = max(h.to, op.Call)
	default:
		h.to = max(h.to, h.ended)
		if in.Verb == Complete {
			h.completed = op.Return
		}
	}
}
