package model

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/go-idem/idem/core/driver"
)

// belief is one record that is possible after the answers so far. Its times are those of the three phases below. When a phase
// begins is known only as an interval, because a client cannot know when the store executed a call.
type belief struct {
	record         Record
	highest        int64 // highest fence in an answer
	fenceUnknown   bool  // the record's fence is unknown, but higher than highest
	overLo, overHi int64 // interval in which the lease ends
	goneLo, goneHi int64 // interval in which the retention ends
}

// Values for the operation of a record in a belief, besides fences of answers.
const (
	unseen = 0  // the fence of an earlier claim that was in no answer
	first  = -1 // the fence of the record's own claim
)

// The phases of a record: its lease runs, its lease is over, its retention is over. A phase serves as a time for Step.
const (
	running = time.Duration(iota)
	over
	gone
)

// slack is how much the clocks of server and clients may differ within one lease, and lateSlack how much later a store may end
// one: see driver.Claim. goneSlack is more, because a server counts the retention in whole ms and reads that clock once for each
// command.
const (
	slack      = 100 * time.Microsecond
	lateSlack  = slack + time.Millisecond
	goneSlack  = 3 * time.Millisecond
	checkLimit = 20 * time.Second
)

// spec is the model that histories are checked with.
var spec = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		byKey := map[int][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(sent).key
			byKey[key] = append(byKey[key], op)
		}
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []any { return []any{belief{}} },
	Step: func(state, input, output any) (next []any) {
		b, in := state.(belief), input.(sent)
		answer, known := output.(Answer)
		if !known {
			next = append(next, b) // perhaps the call never took effect
		}
		for _, phase := range b.phases(in) {
			for _, b := range b.resolve(in.Claim.Fence, in.Claim.Owner) {
				if after, ok := b.step(in, phase, answer, known); ok {
					next = append(next, after)
				}
			}
		}
		return next
	},
	Hash: func(state any) uint64 { return maphash.Comparable(hashSeed, state.(belief)) },
	DescribeOperation: func(input, output any) string {
		in := input.(sent)
		return fmt.Sprintf("%s %x fence %d: %v", in.Verb, in.Claim.Owner[:4], in.Claim.Fence, output)
	},
}).ToModel()

var hashSeed = maphash.MakeSeed()

// phases returns the phases in which the call may have found the record.
func (b belief) phases(in sent) (phases []time.Duration) {
	if b.record.State == Absent {
		return []time.Duration{gone}
	}
	if in.at < b.overHi && in.at < b.goneHi {
		phases = append(phases, running)
	}
	if in.until >= b.overLo && in.at < b.goneHi {
		phases = append(phases, over)
	}
	if in.until >= b.goneLo {
		phases = append(phases, gone)
	}
	return phases
}

// resolve returns the belief, and a second one if the call may reveal the record's unknown fence: the fence of the call may
// be that of a Begin without an answer.
func (b belief) resolve(fence int64, owner [16]byte) []belief {
	if !b.fenceUnknown || fence <= b.highest || owner != b.record.Owner {
		return []belief{b}
	}
	known := b
	known.learn(fence)
	return []belief{b, known}
}

// learn sets the record's fence.
func (b *belief) learn(fence int64) { b.record.Fence, b.highest, b.fenceUnknown = fence, fence, false }

// step applies Step in the given phase. It reports false if the store's answer differs from that of Step.
func (b belief) step(in sent, phase time.Duration, answer Answer, known bool) (belief, bool) {
	r := b.in(phase)
	next, want := Step(r, in.Call, phase)
	granted := want.Entry.State == driver.Claimed && !(r.State == Started && r.Owner == in.Claim.Owner)
	next.Operation = b.operation(r, next, granted)
	want.Entry.Operation = next.Operation
	b.fenceUnknown = b.fenceUnknown || granted // until the answer is compared
	if known && !b.agrees(want, answer) {
		return b, false
	}
	if known && want.Entry.State == driver.Claimed && next.Operation == unseen {
		next.Operation = answer.Entry.Operation
	}
	withdrawn := in.Verb == Fail && r.State == Absent && next.State == Failed
	switch {
	case next.State == Absent && in.ClientClocks:
		return b, true // a call whose clock was read earlier may come later, and find the record
	case next.State == Absent:
		return belief{highest: b.highest}, true
	case withdrawn:
		next.Fence, b.fenceUnknown = 0, false // it is in no answer
		in.Claim.Retention = in.Claim.Lease
	case b.fenceUnknown:
		next.Fence = b.highest + 1
	default:
		next.Fence = b.record.Fence
	}
	if in.Verb == Fail && r.Free && next.Noted != r.Noted {
		b.prolong(in)
	}
	accepted := in.Verb == Extend || in.Verb != Begin && next.State != r.State
	b.record = next
	b.record.LeaseEnd, b.record.Expires = 0, 0
	if granted || want.Err == nil && accepted {
		b.schedule(in)
	}
	return b, true
}

// in returns the record in a phase, as an argument for Step.
func (b belief) in(phase time.Duration) Record {
	if phase == gone {
		return Record{}
	}
	r := b.record
	r.LeaseEnd, r.Expires = over, gone
	if r.Operation == first {
		r.Operation = r.Fence
	}
	return r
}

// operation returns the operation that a belief has for the record after a step from r to next.
func (b belief) operation(r, next Record, granted bool) int64 {
	switch {
	case granted && next.Operation == next.Fence:
		return first
	case granted && b.record.Operation == first && b.fenceUnknown:
		return unseen
	case granted || next.Operation != r.Operation:
		return next.Operation
	}
	return b.record.Operation
}

// agrees reports whether the store's answer is the one that Step wants, and learns the fence from it.
func (b *belief) agrees(want, got Answer) bool {
	fence := got.Entry.Fence
	if want.Entry.State == driver.Claimed || want.Entry.State == driver.Unknown {
		if b.fenceUnknown && fence <= b.highest || !b.fenceUnknown && fence != b.record.Fence {
			return false
		}
		b.learn(fence)
		want.Entry.Fence = fence
	}
	switch operation := got.Entry.Operation; {
	case want.Entry.State != driver.Claimed:
		want.Entry.Operation = 0
	case want.Entry.Operation == first:
		want.Entry.Operation = fence
	case want.Entry.Operation == unseen && 0 < operation && operation < fence:
		want.Entry.Operation = operation
	}
	if got.Entry.Remaining > 0 || got.Entry.State == driver.Claimed {
		want.Entry.Remaining = got.Entry.Remaining
	}
	return equalAnswers(got, want)
}

// prolong computes when the retention ends of a free record that has noted a withdrawal. It lives for at least one lease.
func (b *belief) prolong(in sent) {
	b.goneLo = max(b.goneLo, in.at+int64(in.Claim.Lease-goneSlack))
	if in.until == never {
		b.goneHi = never
		return
	}
	b.goneHi = max(b.goneHi, in.until+int64(in.Claim.Lease+goneSlack))
}

// schedule computes when lease and retention end. They begin when the call took effect, at some time between its start and its
// answer.
func (b *belief) schedule(in sent) {
	until := func(d, slack time.Duration) int64 {
		if in.until == never || in.LateEnds && in.Verb != Complete && in.Verb != Fail {
			return never
		}
		return in.until + int64(d+slack)
	}
	b.goneLo, b.goneHi = in.at+int64(in.Claim.Retention-goneSlack), until(in.Claim.Retention, goneSlack)
	if in.Verb == Begin || in.Verb == Extend {
		b.overLo, b.overHi = in.at+int64(in.Claim.Lease-slack), until(in.Claim.Lease, lateSlack)
	}
}
