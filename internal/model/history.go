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

// Concurrent clients use a store, and what they were answered is checked against the model: is there an order of the calls,
// each at some time between its sending and its answer, in which Step answers them all? A call whose answer was lost may
// have taken effect at any later time, or never. When leases end is known only as well as the clients can know it.

// Load is who uses a store, and how.
type Load struct {
	Clients, Keys, Calls int
	Lease, Retention     time.Duration
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
	Load
	store   driver.Store
	random  *rand.Rand
	began   time.Time
	history []porcupine.Operation
	id      int
	names   *keyNames
}

// keyNames are the keys that the clients share. A call without an answer may take effect at any later time, so each one
// doubles the orders that a check has to try: a key that has unansweredPerKey of them makes room for a new one.
type keyNames struct{ unanswered []atomic.Int64 }

const unansweredPerKey = 8

// current returns the number that key n has now.
func (k *keyNames) current(n int) int {
	return n + len(k.unanswered)*int(k.unanswered[n].Load()/unansweredPerKey)
}

// missed counts a call without an answer.
func (k *keyNames) missed(key int) { k.unanswered[key%len(k.unanswered)].Add(1) }

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
		c.names.missed(key)
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
	key := c.names.current(c.random.Intn(c.Keys))
	call := Call{Verb: Begin, Claim: driver.Claim{Lease: c.Lease, Retention: c.Retention, NoTakeover: c.chance(10)}}
	binary.BigEndian.PutUint64(call.Claim.Key[:], uint64(key)+1)
	binary.BigEndian.PutUint64(call.Claim.Owner[:], c.random.Uint64())
	call.Claim.Fingerprint[0] = 1
	if c.chance(10) {
		call.Claim.Fingerprint[0] = 2
	}
	if c.chance(5) { // the begin is on its way for so long that its fail is there first
		fail := call
		fail.Verb, fail.NoEffects, fail.NotRun = Fail, true, true
		c.sendUntilAnswered(key, fail)
	}
	answer, known := c.send(key, call)
	if !known && c.chance(50) || c.chance(5) {
		answer, known = c.send(key, call)
	}
	if c.chance(5) { // the answer does not come in time
		known = false
	}
	switch {
	case !known:
		late := call
		call.Verb, call.NoEffects, call.NotRun = Fail, true, true
		c.sendUntilAnswered(key, call)
		if c.chance(30) { // that begin is executed now
			c.send(key, late)
		}
	case answer.Entry.State == driver.Claimed:
		call.Claim.Fence, call.Claim.Attempt, call.Claim.Takeover = answer.Entry.Fence, answer.Entry.Attempt, answer.Entry.Takeover
		c.work(key, call)
	default:
		time.Sleep(c.Lease / 4)
	}
}

// work is what a run does with its claim.
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

// Record lets the clients use a store, and returns the history.
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

// seeds are those of the environment, or new ones.
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

// The loads: everybody wants one key, or one of many.
var (
	HotKey   = Load{Clients: 8, Keys: 1, Calls: 2000, Lease: 4 * time.Millisecond, Retention: 10 * time.Millisecond}
	ManyKeys = Load{Clients: 32, Keys: 1000, Calls: 4000, Lease: 5 * time.Millisecond, Retention: 50 * time.Millisecond}
)

// EachLoad runs a test with each load and a few seeds, or with longer loads and a hundred seeds where SOAK is set. IDEM_SEED
// repeats one.
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

// check tells whether a history is linearizable. That it can not be told is for the test to refuse.
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
	tb.Logf("IDEM_SEED=%d: %d calls, %d without an answer, %s in %v", seed, len(history), len(history)-answered, result, time.Since(began))
	return result
}

// IsLinearizable checks a history against the model.
func IsLinearizable(tb testing.TB, history []porcupine.Operation, seed int64) {
	tb.Helper()
	assert.Equal(tb, porcupine.CheckResult(porcupine.Ok), check(tb, history, seed), "IDEM_SEED=%d", seed)
}

// IsFoundWrong checks that of a few short histories of a store one shows a mistake. Every answer has to arrive: one that is
// missing can hide it.
func IsFoundWrong(tb testing.TB, store driver.Store) {
	tb.Helper()
	for _, seed := range seeds(tb, 10, 10) {
		if check(tb, HotKey.Record(store, seed), seed) == porcupine.Illegal {
			return
		}
	}
	tb.Error("no history shows the mistake")
}

// trusting is a client of a right store that does not listen to it.
type trusting struct{ driver.Store }

func (s trusting) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	if err := s.Store.Complete(ctx, c, outcome); !errors.Is(err, driver.ErrLost) {
		return err
	}
	return nil
}

// forgetful makes a new owner of each begin, also of one that it sends again.
type forgetful struct{ driver.Store }

func (s forgetful) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	binary.BigEndian.PutUint64(c.Owner[8:], rand.Uint64())
	return s.Store.Begin(ctx, c)
}

// Misuses make a store wrong by the way it is used.
var Misuses = map[string]func(driver.Store) driver.Store{
	"a lost complete is taken for one":      func(s driver.Store) driver.Store { return trusting{s} },
	"the owner is made anew for each begin": func(s driver.Store) driver.Store { return forgetful{s} },
}
