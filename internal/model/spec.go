package model

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/go-idem/idem/core/driver"
)

// belief is what the answers so far allow a record to be. The record's times are those of the three phases below; when
// these begin is known as intervals.
type belief struct {
	record         Record
	highest        int64 // fence that was seen
	fenceUnknown   bool  // the record's fence is not known, only that it is higher than that
	overLo, overHi int64 // when the lease ends
	goneLo, goneHi int64 // when the retention does
}

// What a belief has as the operation of a record, beside a fence that was seen.
const (
	unseen = 0  // the fence of an earlier claim, which nobody was told
	first  = -1 // the fence of the record's own claim
)

// The phases of a record: its lease runs, its lease is over, its retention is over.
const (
	running = time.Duration(iota)
	over
	gone
)

// slack is what the clock of a server and that of the clients may differ by within one lease; its retention counts in
// whole ms of a clock that is read once a command.
const (
	slack      = 100 * time.Microsecond
	goneSlack  = 3 * time.Millisecond
	checkLimit = time.Minute
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
			next = append(next, b) // it never took effect
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

// phases are those in which the call may have found the record.
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

// resolve: a call that carries a fence may be the first to tell that of a record whose begin had no answer.
func (b belief) resolve(fence int64, owner [16]byte) []belief {
	if !b.fenceUnknown || fence <= b.highest || owner != b.record.Owner {
		return []belief{b}
	}
	known := b
	known.learn(fence)
	return []belief{b, known}
}

func (b *belief) learn(fence int64) { b.record.Fence, b.highest, b.fenceUnknown = fence, fence, false }

// step lets Step answer in the given phase and compares.
func (b belief) step(in sent, phase time.Duration, answer Answer, known bool) (belief, bool) {
	r := b.in(phase)
	next, want := Step(r, in.Call, phase)
	granted := want.Entry.State == driver.Claimed && !(r.State == Started && r.Owner == in.Claim.Owner)
	next.Operation = b.operation(r, next, granted)
	want.Entry.Operation = next.Operation
	b.fenceUnknown = b.fenceUnknown || granted // until the answer tells
	if known && !b.agrees(want, answer) {
		return b, false
	}
	if known && want.Entry.State == driver.Claimed && next.Operation == unseen {
		next.Operation = answer.Entry.Operation
	}
	withdrawn := in.Verb == Fail && r.State == Absent && next.State == Failed
	switch {
	case next.State == Absent:
		return belief{highest: b.highest}, true
	case withdrawn:
		next.Fence, b.fenceUnknown = 0, false // nobody is told
		in.Claim.Retention = in.Claim.Lease
	case b.fenceUnknown:
		next.Fence = b.highest + 1
	default:
		next.Fence = b.record.Fence
	}
	accepted := in.Verb == Extend || in.Verb != Begin && next.State != r.State
	b.record = next
	b.record.LeaseEnd, b.record.Expires = 0, 0
	if granted || want.Err == nil && accepted {
		b.schedule(in)
	}
	return b, true
}

// in is the record in a phase, as Step takes it.
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

// operation is what a belief has as that of the record after a step from r to next.
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

// agrees compares what the store answered with what Step says, and learns the fence from it.
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

// schedule: the lease and the retention begin when the call took effect, some time between its sending and its answer.
func (b *belief) schedule(in sent) {
	until := func(d, slack time.Duration) int64 {
		if in.until == never {
			return never
		}
		return in.until + int64(d+slack)
	}
	b.goneLo, b.goneHi = in.at+int64(in.Claim.Retention-goneSlack), until(in.Claim.Retention, goneSlack)
	if in.Verb == Begin || in.Verb == Extend {
		b.overLo, b.overHi = in.at+int64(in.Claim.Lease-slack), until(in.Claim.Lease, slack)
	}
}
