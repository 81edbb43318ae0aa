package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// plan is everything that happens to the engines from outside in one history. A plan is made from a seed. Each part of it can be
// removed without a change to the other parts, so that a failing plan can be minimised.
type plan struct {
	seed        uint64
	slots       []slotPlan
	clients     []clientPlan
	faults      []fault
	maxAttempts int  // how often a message is handled at most
	refusesLong bool // the store never accepts an outcome longer than longOutcome
	rotates     bool // the processes are in two neighbouring steps of a change of the secret
	failover    failoverPlan
	move        *movePlan // nil if there is one store only
}

// failoverPlan is a failover that loses what the store has acknowledged since the replica got its last write. There is none if both
// times are 0.
type failoverPlan struct{ lastWrite, promoted time.Duration }

// slotPlan is one place where a process runs. When a process dies, another one with the same options takes its place.
type slotPlan struct {
	option    int  // index in options
	step      int  // index in rotation, if the plan rotates; in the steps of a move, the lower or the upper one
	diesAt    int  // the number of the store call at which the first process of the slot dies; 0: it lives
	diesAfter bool // the store executes that call
}

// clientPlan is one client, which sends one request until it has a response that is worth keeping.
type clientPlan struct {
	key      int // keys are requests, tasks or messages: see kindOf
	variant  int // clients of one key with different variants send different requests: see do.input and do.path
	start    time.Duration
	pause    time.Duration // between two attempts
	attempts []attemptPlan
	isHTTP   bool // the transport of adapters/client sends the request, under a key of its own
}

// attemptPlan is one attempt of a client.
type attemptPlan struct {
	slot   int
	leaves time.Duration // the client leaves after this time; 0: it stays
	script script        // what the handler does if this attempt runs it
}

// script is what a handler does.
type script struct {
	length  time.Duration
	ending  ending
	steps   int
	isLong  bool // the response is longer than longOutcome
	isBatch bool // a message is delivered in a batch
	also    int  // a bit for each of the first four keys of messages: whether that message is in the batch, too
	nested  int  // the key of a request that the handler sends through the same engine; -1: none
}

// ending is how a handler ends.
type ending int

// The endings of handlers.
const (
	created        ending = iota // 201
	refused                      // 402
	failed                       // 500
	freed                        // 429
	decidedRelease               // 201, and Decide(Release)
	decidedUnknown               // 201, and Decide(LeaveUnknown)
	returnsError
	panics
	hangs    // until its context ends, or for at most its length and four leases
	streams  // 201, which is sent already
	cutShort // 201, which is sent, and whose client has left before the end
	later    // 201, whose end comes after the handler has returned
	endings
)

var endingNames = [...]string{
	"201", "402", "500", "429", "release", "unknown", "error", "panic", "hang", "stream", "cut", "later",
}

func (e ending) String() string { return endingNames[e] }

// fault makes calls to the store go wrong for a while.
type fault struct {
	from, to time.Duration
	slot     int    // -1: all
	call     string // "": all; holding: those that hold or end a claim
	kind     faultKind
	percent  int // of the calls
}

// holding names the calls of a process that has a claim. If only they go wrong, others can take the claim.
const holding = "Extend, Complete, Fail"

// hits reports whether the fault may meet a call.
func (f *fault) hits(slot int, call string, now time.Duration) bool {
	return f.from <= now && now < f.to && (f.slot < 0 || f.slot == slot) && (f.call == "" || strings.Contains(f.call, call))
}

// faultKind is what goes wrong with a call.
type faultKind int

// The kinds of faults.
const (
	noFault      faultKind = iota
	loseRequest            // the store does not get the call, and the caller gets no reply
	loseReply              // the store executes the call, and the caller gets no reply
	breakRequest           // the store does not get the call, and the caller gets an error at once
	breakReply             // the store executes the call, and the caller gets an error
	slow                   // both ways take up to two leases; the call may be executed after its caller has given up
	deaf                   // slow, and the caller does not give up at the end of its context, as if its process were paused
	refuse                 // the store responds with an error that means nothing to the engine
	repeat                 // the call reaches the store twice, and the second reply counts
	faultKinds
)

// longOutcome is the length in bytes over which an outcome is long.
const longOutcome = 1000

var faultNames = [...]string{"", "lose request", "lose reply", "break request", "break reply", "slow", "deaf", "refuse", "repeat"}

func (f fault) String() string {
	return fmt.Sprintf("%v to %v: %s %d%% of calls %q of slot %d", f.from, f.to, faultNames[f.kind], f.percent, f.call, f.slot)
}

func (s slotPlan) String() string {
	return fmt.Sprintf("option %q, step %d, dies at call %d (executed: %t)", options[s.option].name, s.step, s.diesAt, s.diesAfter)
}

// lease is the usual lease of the engines. All times of a plan are measured in it.
const lease = 3 * time.Second

// newPlan makes the plan of a seed.
func newPlan(seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 17))
	p := &plan{seed: seed, maxAttempts: 1 + r.IntN(3), refusesLong: r.IntN(8) == 0, rotates: r.IntN(4) == 0}
	step := r.IntN(len(rotation) - 1)
	for range 2 + r.IntN(2) {
		s := slotPlan{option: r.IntN(len(options)), diesAfter: r.IntN(2) == 0, step: step + r.IntN(2)}
		if r.IntN(3) == 0 {
			s.diesAt = 1 + r.IntN(12)
			if p.rotates { // most that can go wrong then is in the first calls
				s.diesAt = 1 + s.diesAt/4
			}
		}
		if r.IntN(8) == 0 {
			s.option = optionNamed("blobs")
		}
		p.slots = append(p.slots, s)
	}
	keys := 1 + r.IntN(4)
	for range 2 + r.IntN(5) {
		p.clients = append(p.clients, newClient(r, keys, len(p.slots)))
	}
	for range r.IntN(5) {
		p.faults = append(p.faults, newFault(r, len(p.slots)))
	}
	if r.IntN(10) == 0 {
		p.failover.lastWrite = upTo(r, 8*lease)
		p.failover.promoted = p.failover.lastWrite + upTo(r, 2*lease)
	}
	if !p.rotates {
		p.move = newMovePlan(p)
	}
	return p
}

func newClient(r *rand.Rand, keys, slots int) clientPlan {
	c := clientPlan{key: r.IntN(keys), start: upTo(r, 4*lease), pause: upTo(r, lease)}
	if r.IntN(4) == 0 {
		c.variant = 1 + r.IntN(2)
	}
	c.isHTTP = r.IntN(6) == 0
	for range 1 + r.IntN(4) {
		a := attemptPlan{slot: r.IntN(slots), script: newScript(r, keys)}
		if r.IntN(4) == 0 {
			a.leaves = upTo(r, 2*lease)
		}
		c.attempts = append(c.attempts, a)
	}
	return c
}

func newScript(r *rand.Rand, keys int) script {
	s := script{ending: created, nested: -1, length: upTo(r, lease/2)}
	switch r.IntN(8) {
	case 0, 1:
		s.length = upTo(r, 3*lease)
	case 2:
		s.length = upTo(r, 20*lease)
	}
	if r.IntN(2) == 0 {
		s.ending = ending(r.IntN(int(endings)))
	}
	s.isLong = r.IntN(4) == 0
	if r.IntN(5) == 0 {
		s.steps = 1 + r.IntN(3)
	}
	s.isBatch, s.also = r.IntN(3) == 0, r.IntN(16)&r.IntN(16)
	if r.IntN(8) == 0 {
		s.nested = r.IntN(keys)
	}
	return s
}

// calls are the calls that a fault may meet.
var calls = []string{"", "", "Begin", "Extend", "Complete", "Fail", "Checkpoint", "Watch", "Watch", "Get", "Put", holding}

func newFault(r *rand.Rand, slots int) fault {
	f := fault{
		from: upTo(r, 8*lease), slot: r.IntN(slots+1) - 1, kind: 1 + faultKind(r.IntN(int(faultKinds)-1)),
		call: calls[r.IntN(len(calls))],
	}
	if f.call == "Watch" && r.IntN(2) == 0 { // a subscription that hangs does the most
		f.kind = deaf
	}
	f.to = f.from + upTo(r, 4*lease)
	f.percent = []int{30, 70, 100}[r.IntN(3)]
	return f
}

// upTo returns a random duration below d. It counts nanoseconds, so that hardly two things happen at the same time, and the
// order of events does not depend on the scheduler.
func upTo(r *rand.Rand, d time.Duration) time.Duration { return 1 + time.Duration(r.Int64N(int64(d))) }
