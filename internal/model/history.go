package model

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
)

// Concurrent clients use a store, and a checker compares the answers with the model. It looks for an order of the calls, each
// at some time between its start and its answer, in which Step gives the same answers. A call whose answer was lost may have
// taken effect at any later time, or never. The end of a lease is known only as precisely as the clients can know it.

// Load is the number of clients, keys and calls of a history, and the durations of its claims.
type Load struct {
	Clients, Keys, Calls int
	Lease, Retention     time.Duration
	LateEnds             bool // the store may end a lease, and a record with a run, at any later time: it only watches leases
	ClientClocks         bool // the store judges by a clock that it reads before it sends a call
	firstKey             int
}

// sent is one call with the times of its start and its answer, in ns since the history began.
type sent struct {
	Call
	Load
	key       int
	at, until int64
}

// never is the time of an answer that did not come.
const never = math.MaxInt64

// client makes one run after the other. At random it claims, extends, completes, fails, waits, vanishes, and repeats calls
// without an answer.
type client struct {
	Load
	store   driver.Store
	random  *rand.Rand
	began   time.Time
	history []porcupine.Operation
	id      int
	names   *keyNames
}

// keyNames are the keys that the clients share. A call without an answer may take effect at any later time, so each of them
// doubles the orders that the checker has to try. After unansweredPerKey of them the clients use a new key instead.
type keyNames struct{ unanswered []atomic.Int64 }

const unansweredPerKey = 8

// current returns the number that key n has now.
func (k *keyNames) current(n int) int {
	return n + len(k.unanswered)*int(k.unanswered[n].Load()/unansweredPerKey)
}

// missed counts a call without an answer.
func (k *keyNames) missed(key int) { k.unanswered[key%len(k.unanswered)].Add(1) }

// send sends a call, for at most 5 seconds, and adds it to the history. known is false if there was no answer.
func (c *client) send(key int, call Call) (Answer, bool) {
	at := time.Since(c.began).Nanoseconds()
	timeout, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	answer := apply(timeout, c.store, call)
	until := time.Since(c.began).Nanoseconds()
	known := answer.Err == nil || errors.Is(answer.Err, driver.ErrLost)
	var output any
	if known {
		output = answer
	} else {
		until = never
		c.names.missed(key - c.firstKey)
	}
	input := sent{call, c.Load, key, at, until}
	c.history = append(c.history, porcupine.Operation{ClientId: c.id, Input: input, Call: at, Output: output, Return: until})
	return answer, known
}

// sendUntilAnswered sends a call up to three times until there is an answer, as the engine does.
func (c *client) sendUntilAnswered(key int, call Call) (answer Answer, known bool) {
	for range 3 {
		if answer, known = c.send(key, call); known {
			break
		}
	}
	return answer, known
}

// chance is true with this probability.
func (c *client) chance(percent int) bool { return c.random.Intn(100) < percent }

// run makes one run: a Begin, and what follows its answer.
func (c *client) run() {
	key := c.firstKey + c.names.current(c.random.Intn(c.Keys))
	call := Call{Verb: Begin, Claim: driver.Claim{Lease: c.Lease, Retention: c.Retention, NoTakeover: c.chance(10)}}
	binary.BigEndian.PutUint64(call.Claim.Key[:], uint64(key)+1)
	binary.BigEndian.PutUint64(call.Claim.Owner[:], c.random.Uint64())
	call.Claim.Fingerprint[0] = 1
	if c.chance(10) {
		call.Claim.Fingerprint[0] = 2
	}
	if c.chance(5) { // the Begin takes so long that its Fail arrives first
		fail := call
		fail.Verb, fail.NoEffects, fail.NotRun = Fail, true, true
		c.sendUntilAnswered(key, fail)
	}
	answer, known := c.send(key, call)
	if !known && c.chance(50) || c.chance(5) {
		answer, known = c.send(key, call)
	}
	if c.chance(5) { // the answer comes too late
		known = false
	}
	switch {
	case !known:
		late := call
		call.Verb, call.NoEffects, call.NotRun = Fail, true, true
		c.sendUntilAnswered(key, call)
		if c.chance(30) { // that Begin arrives only now
			c.send(key, late)
		}
	case answer.Entry.State == driver.Claimed:
		entry := answer.Entry
		call.Claim.Fence, call.Claim.Attempt, call.Claim.Takeover = entry.Fence, entry.Attempt, entry.Takeover
		c.work(key, call)
	default:
		time.Sleep(c.Lease / 4)
	}
}

// work extends the claim some times and then ends it, or vanishes.
func (c *client) work(key int, call Call) {
	for c.chance(60) {
		time.Sleep(time.Duration(c.random.Int63n(int64(c.Lease))))
		call.Verb = Extend
		if answer, _ := c.send(key, call); answer.Err != nil && c.chance(50) {
			break
		}
	}
	if c.chance(30) { // a late end
		time.Sleep(c.Lease * 3 / 2)
	}
	if c.chance(20) { // vanished
		return
	}
	call.Verb, call.NoEffects, call.NotRun = Fail, c.chance(50), c.chance(20)
	if c.chance(50) {
		call.Verb, call.Outcome = Complete, fmt.Sprint(c.random.Int())
	}
	c.sendUntilAnswered(key, call)
	if c.chance(40) {
		c.afterthought(key, call)
	}
}

// afterthought sends a call after the end of the run. The store must cope with such calls.
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

// Record lets the clients use a store concurrently, and returns the history. seed determines what the clients do.
func (l Load) Record(store driver.Store, seed int64) (history []porcupine.Operation) {
	began := time.Now()
	names := &keyNames{unanswered: make([]atomic.Int64, l.Keys)}
	clients := make([]*client, l.Clients)
	var wg sync.WaitGroup
	for i := range clients {
		c := &client{Load: l, store: store, random: rand.New(rand.NewSource(seed + int64(i))), began: began, id: i, names: names}
		clients[i] = c
		wg.Go(func() {
			for len(c.history) < l.Calls/l.Clients {
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

// seeds returns the seed of the environment variable IDEM_SEED, or n new ones, or with SOAK that many.
func seeds(tb testing.TB, n, soak int) (list []int64) {
	if text := os.Getenv("IDEM_SEED"); text != "" {
		seed, err := strconv.ParseInt(text, 10, 64)
		require.NoError(tb, err)
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

// The loads: all clients use one key, or many keys.
var (
	HotKey   = Load{Clients: 8, Keys: 1, Calls: 2000, Lease: 4 * time.Millisecond, Retention: 10 * time.Millisecond}
	ManyKeys = Load{Clients: 32, Keys: 1000, Calls: 4000, Lease: 5 * time.Millisecond, Retention: 50 * time.Millisecond}
)

// EachLoad runs a test with each load and two seeds, or with longer loads and a hundred seeds if SOAK is set. IDEM_SEED
// repeats one seed.
func EachLoad(t *testing.T, test func(t *testing.T, l Load, seed int64)) {
	t.Parallel()
	for name, l := range map[string]Load{"one key": HotKey, "many keys": ManyKeys} {
		t.Run(name, func(t *testing.T) {
			if os.Getenv("SOAK") != "" {
				l.Calls *= 10
			}
			for _, seed := range seeds(t, 2, 100) {
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { test(t, l, seed) })
			}
		})
	}
}

// check checks whether a history is linearizable. The result is Unknown if that takes longer than checkLimit.
func check(tb testing.TB, history []porcupine.Operation, seed int64) porcupine.CheckResult {
	tb.Helper()
	answered := 0
	for _, op := range history {
		if op.Output != nil {
			answered++
		}
	}
	began := time.Now()
	result := porcupine.CheckOperationsTimeout(spec, history, checkLimit)
	tb.Logf("IDEM_SEED=%d: %d calls, %d without an answer, %s in %v",
		seed, len(history), len(history)-answered, result, time.Since(began))
	return result
}

// IsLinearizable records a history of a store and fails the test unless the model can explain it. On a slow machine so many
// calls overlap that the checker comes to no result in its time. Then a history of half as many calls, with other keys, is
// recorded and checked, and the test fails if the shortest one has no result either.
func (l Load) IsLinearizable(tb testing.TB, store driver.Store, seed int64) {
	tb.Helper()
	result := check(tb, l.Record(store, seed), seed)
	for l.Calls > shortest*l.Clients && result == porcupine.Unknown {
		l.Calls /= 2
		l.firstKey += 1 << 24
		result = check(tb, l.Record(store, seed), seed)
	}
	assert.Equal(tb, porcupine.CheckResult(porcupine.Ok), result, "IDEM_SEED=%d", seed)
}

// shortest is the number of calls of each client in the shortest history that counts.
const shortest = 30

// IsFoundWrong fails the test unless one of ten histories of a wrong store shows the mistake. Every call must have an answer,
// because a missing one can hide the mistake.
func IsFoundWrong(tb testing.TB, store driver.Store) {
	tb.Helper()
	for _, seed := range seeds(tb, 10, 10) {
		if check(tb, HotKey.Record(store, seed), seed) == porcupine.Illegal {
			return
		}
	}
	tb.Error("no history shows the mistake")
}

// trusting is a correct store behind a client that ignores ErrLost of Complete.
type trusting struct{ driver.Store }

func (s trusting) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	if err := s.Store.Complete(ctx, c, outcome); !errors.Is(err, driver.ErrLost) {
		return err
	}
	return nil
}

// forgetful is a correct store behind a client that makes a new owner for each Begin, even when it repeats one.
type forgetful struct{ driver.Store }

func (s forgetful) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	binary.BigEndian.PutUint64(c.Owner[8:], rand.Uint64())
	return s.Store.Begin(ctx, c)
}

// Misuses wrap a store so that it is used wrongly. The checker must find each of them.
var Misuses = map[string]func(driver.Store) driver.Store{
	"a lost complete is taken for one":      func(s driver.Store) driver.Store { return trusting{s} },
	"the owner is made anew for each begin": func(s driver.Store) driver.Store { return forgetful{s} },
}
