package model

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/badnet"
	"github.com/go-idem/idem/internal/redistest"
)

// Concurrent clients use a store, and what they were answered is checked against the model: is there an order of the calls,
// each at some time between its sending and its answer, in which Step answers them all? A call whose answer was lost may
// have taken effect at any later time, or never. When leases end is known only as well as the clients can know it.

// load is who uses the store, and how. Answers get lost at the given share.
type load struct {
	clients, keys, calls int
	lease, retention     time.Duration
	loss                 float64
}

// sent is one call with its times, in ns since the history began. An answer that did not come is no answer.
type sent struct {
	Call
	key       int
	at, until int64
}

const never = math.MaxInt64

// client makes runs, one after the other: it claims, extends, completes, fails, dawdles, vanishes, and sends again what
// had no answer.
type client struct {
	load
	store   core.Store
	random  *rand.Rand
	began   time.Time
	history []porcupine.Operation
	id      int
}

func (c *client) send(key int, call Call) (Answer, bool) {
	at := time.Since(c.began).Nanoseconds()
	timeout, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer := apply(timeout, c.store, call)
	until := time.Since(c.began).Nanoseconds()
	known := answer.Err == nil || errors.Is(answer.Err, core.ErrLost)
	var output any
	if known {
		output = answer
	} else {
		until = never
	}
	c.history = append(c.history, porcupine.Operation{ClientId: c.id, Input: sent{call, key, at, until}, Call: at, Output: output, Return: until})
	return answer, known
}

// sendUntilAnswered sends a call again a few times, as the engine does.
func (c *client) sendUntilAnswered(key int, call Call) (answer Answer, known bool) {
	for range 3 {
		if answer, known = c.send(key, call); known {
			break
		}
	}
	return answer, known
}

func (c *client) chance(percent int) bool { return c.random.Intn(100) < percent }

func (c *client) run() {
	key := c.random.Intn(c.keys)
	call := Call{Verb: Begin, Claim: core.Claim{Lease: c.lease, Retention: c.retention, NoTakeover: c.chance(10)}}
	binary.BigEndian.PutUint64(call.Claim.Key[:], uint64(key)+1)
	binary.BigEndian.PutUint64(call.Claim.Owner[:], c.random.Uint64())
	call.Claim.Fingerprint[0] = 1
	if c.chance(10) {
		call.Claim.Fingerprint[0] = 2
	}
	answer, known := c.send(key, call)
	if !known && c.chance(50) || c.chance(5) {
		answer, known = c.send(key, call)
	}
	switch {
	case !known:
		call.Verb = Fail
		c.sendUntilAnswered(key, call)
	case answer.Entry.State == core.Claimed:
		call.Claim.Fence, call.Claim.Attempt, call.Claim.Takeover = answer.Entry.Fence, answer.Entry.Attempt, answer.Entry.Takeover
		c.work(key, call)
	default:
		time.Sleep(c.lease / 4)
	}
}

// work is what a run does with its claim.
func (c *client) work(key int, call Call) {
	for c.chance(60) {
		time.Sleep(time.Duration(c.random.Int63n(int64(c.lease))))
		call.Verb = Extend
		if answer, _ := c.send(key, call); answer.Err != nil && c.chance(50) {
			break
		}
	}
	if c.chance(30) { // a late end
		time.Sleep(c.lease * 3 / 2)
	}
	if c.chance(20) { // vanished
		return
	}
	call.Verb, call.Free = Fail, c.chance(50)
	if c.chance(50) {
		call.Verb, call.Outcome = Complete, fmt.Sprint(c.random.Int())
	}
	c.sendUntilAnswered(key, call)
	if c.chance(40) {
		c.afterthought(key, call)
	}
}

// afterthought is what should not be sent any more, and may arrive all the same.
func (c *client) afterthought(key int, call Call) {
	switch c.random.Intn(5) {
	case 0:
		call.Verb = Begin
	case 1:
		call.Verb = Extend
	case 2:
		call.Verb, call.Outcome = Complete, "another"
	case 3:
		call.Claim.Fence--
	}
	c.send(key, call)
}

// record lets the clients of a load use a store, and returns the history.
func (l load) record(store core.Store, seed int64) (history []porcupine.Operation) {
	began := time.Now()
	clients := make([]*client, l.clients)
	var wg sync.WaitGroup
	for i := range clients {
		c := &client{load: l, store: store, random: rand.New(rand.NewSource(seed + int64(i))), began: began, id: i}
		clients[i] = c
		wg.Go(func() {
			for len(c.history) < l.calls/l.clients {
				c.run()
			}
		})
	}
	wg.Wait()
	for _, c := range clients {
		history = append(history, c.history...)
	}
	return history
}

// belief is what the answers so far allow a record to be. The record's times are those of the three phases below; when
// these begin is known as intervals.
type belief struct {
	record         Record
	highest        int64 // fence that was seen
	guess          bool  // the record's fence is not known, only that it is higher than that
	overLo, overHi int64 // when the lease ends
	goneLo, goneHi int64 // when the retention does
}

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
	checkLimit = 30 * time.Second
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
	if !b.guess || fence <= b.highest || owner != b.record.Owner {
		return []belief{b}
	}
	known := b
	known.learn(fence)
	return []belief{b, known}
}

func (b *belief) learn(fence int64) { b.record.Fence, b.highest, b.guess = fence, fence, false }

// step lets Step answer in the given phase and compares.
func (b belief) step(in sent, phase time.Duration, answer Answer, known bool) (belief, bool) {
	r := b.record
	r.LeaseEnd, r.Expires = over, gone
	if r.State == Absent {
		r.Expires = 0
	}
	next, want := Step(r, in.Call, phase)
	granted := want.Entry.State == core.Claimed && !(r.State == Started && r.Owner == in.Claim.Owner && phase < gone)
	b.guess = b.guess || granted // until the answer tells
	if known && !b.agrees(want, answer) {
		return b, false
	}
	switch {
	case next.State == Absent:
		return belief{highest: b.highest}, true
	case b.guess:
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

// agrees compares what the store answered with what Step says, and learns the fence from it.
func (b *belief) agrees(want, got Answer) bool {
	fence := got.Entry.Fence
	if want.Entry.State == core.Claimed || want.Entry.State == core.Unknown {
		if b.guess && fence <= b.highest || !b.guess && fence != b.record.Fence {
			return false
		}
		b.learn(fence)
		want.Entry.Fence = fence
	}
	if got.Entry.Left > 0 || got.Entry.State == core.Claimed {
		want.Entry.Left = got.Entry.Left
	}
	return alike(got, want)
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

// seeds are those of the environment, or new ones.
func seeds(t *testing.T, n, soak int) (list []int64) {
	if text := os.Getenv("IDEM_SEED"); text != "" {
		seed, err := strconv.ParseInt(text, 10, 64)
		require.NoError(t, err)
		return []int64{seed}
	}
	if os.Getenv("SOAK") != "" {
		n = soak
	}
	first := time.Now().UnixNano()
	for i := range n {
		list = append(list, first+int64(i)*1_000_003)
	}
	return list
}

// The loads: everybody wants one key, or one of many.
var (
	hotKey   = load{clients: 8, keys: 1, calls: 2000, lease: 4 * time.Millisecond, retention: 10 * time.Millisecond}
	manyKeys = load{clients: 32, keys: 1000, calls: 4000, lease: 5 * time.Millisecond, retention: 50 * time.Millisecond}
)

// flaky loses answers of a store that needs no network.
type flaky struct {
	core.Store
	mu     sync.Mutex
	random *rand.Rand
	loss   float64
	lost   int
}

var errAway = errors.New("no answer")

func (f *flaky) loses() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	lost := f.random.Float64() < f.loss
	if lost {
		f.lost++
	}
	return lost
}

func (f *flaky) Begin(ctx context.Context, c core.Claim) (core.Entry, error) {
	entry, err := f.Store.Begin(ctx, c)
	if f.loses() {
		return core.Entry{}, errAway
	}
	return entry, err
}

func (f *flaky) after(err error) error {
	if f.loses() {
		return errAway
	}
	return err
}

func (f *flaky) Extend(ctx context.Context, c core.Claim) error {
	return f.after(f.Store.Extend(ctx, c))
}

func (f *flaky) Complete(ctx context.Context, c core.Claim, outcome []byte) error {
	return f.after(f.Store.Complete(ctx, c, outcome))
}

func (f *flaky) Fail(ctx context.Context, c core.Claim, failure core.Failure) error {
	return f.after(f.Store.Fail(ctx, c, failure))
}

func newFlaky(s core.Store, seed int64, loss float64) *flaky {
	return &flaky{Store: s, random: rand.New(rand.NewSource(seed)), loss: loss}
}

// check tells whether a history is linearizable. That it can not be told is for the test to refuse.
func check(t *testing.T, history []porcupine.Operation, seed int64) porcupine.CheckResult {
	t.Helper()
	answered := 0
	for _, op := range history {
		if op.Output != nil {
			answered++
		}
	}
	began := time.Now()
	result := porcupine.CheckOperationsTimeout(spec, history, checkLimit)
	t.Logf("IDEM_SEED=%d: %d calls, %d without an answer, %s in %v", seed, len(history), len(history)-answered, result, time.Since(began))
	return result
}

func isLinearizable(t *testing.T, history []porcupine.Operation, seed int64) {
	t.Helper()
	assert.Equal(t, porcupine.CheckResult(porcupine.Ok), check(t, history, seed), "IDEM_SEED=%d", seed)
}

// isFoundWrong: of a few short histories one shows the mistake. Every answer arrives: one that is missing can hide it.
func isFoundWrong(t *testing.T, store core.Store) {
	t.Helper()
	for _, seed := range seeds(t, 10, 10) {
		if check(t, hotKey.record(store, seed), seed) == porcupine.Illegal {
			return
		}
	}
	t.Error("no history shows the mistake")
}

func TestHistoriesOfTheMemoryStoreAreLinearizable(t *testing.T) {
	eachLoad(t, func(t *testing.T, l load, seed int64) {
		l.loss = float64(seed%5+1) / 100
		store := newFlaky(memstore.New(), seed, l.loss)
		isLinearizable(t, l.record(store, seed), seed)
		require.NotZero(t, store.lost, "no answer was lost")
	})
}

func TestHistoriesOfRedisAreLinearizable(t *testing.T) {
	eachLoad(t, func(t *testing.T, l load, seed int64) {
		store, network := lossyRedis(t, seed)
		isLinearizable(t, l.record(store, seed), seed)
		require.NotZero(t, network.Hits(), "nothing was lost")
	})
}

func eachLoad(t *testing.T, test func(*testing.T, load, int64)) {
	t.Parallel()
	for name, l := range map[string]load{"one key": hotKey, "many keys": manyKeys} {
		t.Run(name, func(t *testing.T) {
			if os.Getenv("SOAK") != "" {
				l.calls *= 10
			}
			for _, seed := range seeds(t, 2, 100) {
				test(t, l, seed)
			}
		})
	}
}

// lossyRedis is a store behind a network that loses one to five percent of the replies, and half as many requests.
func lossyRedis(t *testing.T, seed int64) (core.Store, *badnet.Net) {
	network := badnet.New(seed)
	client := redistest.Shared(t).Client(t, func(o *redis.Options) {
		o.Dialer, o.MaxRetries, o.PoolSize = network.Dial, -1, 32 // a lost reply is an error here, not another attempt
	})
	loss := float64(seed%5+1) / 100
	network.Set(badnet.Faults{LoseReplies: loss, LoseRequests: loss / 2})
	return redisstore.New(client, redisstore.Prefix(fmt.Sprintf("history:%d:", seed))), network
}

// stepStore is a store made of a step function, right or wrong.
type stepStore struct {
	do      step
	began   time.Time
	mu      sync.Mutex
	records map[[32]byte]Record
}

func newStepStore(do step) *stepStore {
	return &stepStore{do: do, began: time.Now(), records: map[[32]byte]Record{}}
}

func (s *stepStore) call(c Call) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	record, answer := s.do(s.records[c.Claim.Key], c, epoch+time.Since(s.began))
	s.records[c.Claim.Key] = record
	return answer
}

func (s *stepStore) Begin(_ context.Context, c core.Claim) (core.Entry, error) {
	a := s.call(Call{Verb: Begin, Claim: c})
	return a.Entry, a.Err
}

func (s *stepStore) Extend(_ context.Context, c core.Claim) error {
	return s.call(Call{Verb: Extend, Claim: c}).Err
}

func (s *stepStore) Complete(_ context.Context, c core.Claim, outcome []byte) error {
	return s.call(Call{Verb: Complete, Claim: c, Outcome: string(outcome)}).Err
}

func (s *stepStore) Fail(_ context.Context, c core.Claim, f core.Failure) error {
	return s.call(Call{Verb: Fail, Claim: c, Free: f.Free}).Err
}

func TestHistoriesOfAWrongStoreAreNotLinearizable(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		seed := seeds(t, 1, 1)[0]
		isLinearizable(t, hotKey.record(newStepStore(Step), seed), seed)
	})
	for _, b := range bugs {
		if b.rare {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			isFoundWrong(t, newStepStore(b.do))
		})
	}
}

// trusting is a client of a right store that does not listen to it.
type trusting struct{ core.Store }

func (s trusting) Complete(ctx context.Context, c core.Claim, outcome []byte) error {
	if err := s.Store.Complete(ctx, c, outcome); !errors.Is(err, core.ErrLost) {
		return err
	}
	return nil
}

// forgetful makes a new owner of each begin, also of one that it sends again.
type forgetful struct{ core.Store }

func (s forgetful) Begin(ctx context.Context, c core.Claim) (core.Entry, error) {
	binary.BigEndian.PutUint64(c.Owner[8:], rand.Uint64())
	return s.Store.Begin(ctx, c)
}

func TestHistoriesOfAWrongUseOfRedisAreNotLinearizable(t *testing.T) {
	for name, wrong := range map[string]func(core.Store) core.Store{
		"a lost complete is taken for one":      func(s core.Store) core.Store { return trusting{s} },
		"the owner is made anew for each begin": func(s core.Store) core.Store { return forgetful{s} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, network := lossyRedis(t, time.Now().UnixNano())
			network.Set(badnet.Faults{})
			isFoundWrong(t, wrong(store))
		})
	}
}
