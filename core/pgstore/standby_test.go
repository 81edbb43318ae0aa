package pgstore_test

import (
	"context"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/pgstore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/pgserver"
	"github.com/go-idem/idem/internal/servicetest"
)

// pair is a primary and its standby.
type pair struct {
	primary, standby *pgserver.Server
	pool             *pgxpool.Pool // connects to the one that accepts writes
	store            *pgstore.Store
}

func newPair(t *testing.T, synchronous bool) *pair {
	t.Helper()
	p := &pair{primary: pgserver.Start(t)}
	require.NoError(t, pgstore.Migrate(ctx, newPool(t, p.primary)))
	p.standby = p.primary.Standby(t, synchronous)
	p.pool = writable(t, p.primary, p.standby)
	p.store = pgstore.New(p.pool)
	return p
}

// writable returns a pool of connections to whichever of two servers accepts writes.
func writable(t *testing.T, one, other *pgserver.Server) *pgxpool.Pool {
	t.Helper()
	first, err := url.Parse(one.URL)
	require.NoError(t, err)
	second, err := url.Parse(other.URL)
	require.NoError(t, err)
	first.Host += "," + second.Host
	first.RawQuery += "&target_session_attrs=read-write"
	return newPool(t, &pgserver.Server{URL: first.String()})
}

// failOver promotes the standby after the primary has ended.
func (p *pair) failOver(t *testing.T) {
	t.Helper()
	p.standby.Promote(t)
	p.pool.Reset() // each of its connections would refuse one call
}

// acknowledged is what a store has said to clients that have written to it under load.
type acknowledged struct {
	mu       sync.Mutex
	claims   []driver.Claim // without an outcome
	outcomes []driver.Claim // with an outcome, which is the owner
	half     chan struct{}  // closed when there are enough for a failover
}

func newAcknowledged() *acknowledged { return &acknowledged{half: make(chan struct{})} }

// add makes n claims without an outcome and n with one.
func (a *acknowledged) add(t *testing.T, store driver.Store, n int) {
	t.Helper()
	for range n {
		a.note(claimed(t, store), false)
		c := claimed(t, store)
		require.NoError(t, store.Complete(ctx, c, c.Owner[:]))
		a.note(c, true)
	}
}

// note notes a claim, and with complete its outcome.
func (a *acknowledged) note(c driver.Claim, complete bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !complete {
		a.claims = append(a.claims, c)
		return
	}
	if a.outcomes = append(a.outcomes, c); len(a.outcomes) == 100 {
		close(a.half)
	}
}

// load begins and completes claims until stop is closed. Every fourth claim gets no outcome.
func (a *acknowledged) load(store driver.Store, stop <-chan struct{}) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				c := storetest.NewClaim(time.Hour, time.Hour)
				entry, err := store.Begin(ctx, c)
				if err != nil {
					continue
				}
				c.Fence = entry.Fence
				if i%4 == 0 {
					a.note(c, false)
				} else if store.Complete(ctx, c, c.Owner[:]) == nil {
					a.note(c, true)
				}
			}
		})
	}
}

// lost returns how many of the acknowledged claims and outcomes a store does not have. Those that it has must be as they were.
func (a *acknowledged) lost(t *testing.T, store driver.Store) (claims, outcomes int) {
	t.Helper()
	for _, c := range a.claims {
		if entry := begin(t, store, rival(c)); entry.State == driver.Claimed {
			claims++
		} else {
			assert.Equal(t, driver.InProgress, entry.State)
			assert.NoError(t, store.Extend(ctx, c), "the owner holds its claim")
		}
	}
	for _, c := range a.outcomes {
		switch entry := begin(t, store, rival(c)); entry.State {
		case driver.Completed:
			assert.Equal(t, c.Owner[:], entry.Outcome)
		case driver.InProgress:
			assert.NoError(t, store.Extend(ctx, c), "the claim is there and its outcome is not")
			outcomes++
		default:
			assert.Equal(t, driver.Claimed, entry.State)
			outcomes++
		}
	}
	return claims, outcomes
}

// orders are requests to an engine, and how often the handler of each has run.
type orders struct {
	mu   sync.Mutex
	runs map[string]int
	half chan struct{} // closed when there are enough for a failover
}

// send sends so many requests, each with a key of its own, and each until it has a response.
func (o *orders) send(t *testing.T, engine *core.Engine, n int) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 8 {
		wg.Go(func() {
			for range n / 8 {
				key := random()
				assert.Eventually(t, func() bool {
					result, err := engine.Do(ctx, servicetest.Order(key), func(context.Context) (*core.Response, error) { return o.handle(key, n) })
					if err == nil && result.Problem == "" {
						return assert.Equal(t, key, string(result.Response.Body))
					}
					assert.Contains(t, []string{"store-unavailable", "in-progress"}, result.Problem)
					return false
				}, time.Minute, 10*time.Millisecond)
			}
		})
	}
}

// handle is the handler of n requests.
func (o *orders) handle(key string, n int) (*core.Response, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.runs[key]++; len(o.runs) == n/2 {
		close(o.half)
	}
	return &core.Response{Status: 201, Body: []byte(key)}, nil
}

// A claim that was granted is on the synchronous standby, and an outcome that found no server is pending until there is one. So
// no handler runs twice, and nothing that was acknowledged is lost.
func TestNothingIsLostWhenASynchronousStandbyIsPromotedUnderLoad(t *testing.T) {
	t.Parallel()
	p := newPair(t, true)
	assert.Empty(t, findings(t, p.pool))
	const keys = 160
	engine := servicetest.NewEngine(t, p.store, func(c *core.Config) { c.Limits.StoreTimeout = 5 * time.Second })
	a, o := newAcknowledged(), &orders{runs: map[string]int{}, half: make(chan struct{})}
	stop := make(chan struct{})
	var loads, requests sync.WaitGroup
	loads.Go(func() { a.load(p.store, stop) })
	requests.Go(func() { o.send(t, engine, keys) })
	<-a.half
	<-o.half
	p.primary.Kill()
	close(stop)
	loads.Wait()
	p.failOver(t)
	requests.Wait()
	claims, outcomes := a.lost(t, p.store)
	t.Logf("lost: %d of %d claims, %d of %d outcomes", claims, len(a.claims), outcomes, len(a.outcomes))
	assert.Equal(t, [2]int{0, 0}, [2]int{claims, outcomes})
	assert.Len(t, o.runs, keys)
	for key, n := range o.runs {
		assert.Equal(t, 1, n, key)
	}
}

// What was acknowledged after an asynchronous standby had lost its primary is lost, and the keys are new.
func TestAnAsynchronousStandbyThatWasCutOffLosesWhatCameLater(t *testing.T) {
	t.Parallel()
	p := newPair(t, false)
	assert.Equal(t, []string{"synchronous_standby_names is empty"}, findings(t, p.pool))
	assert.Equal(t, []string{"pg_is_in_recovery is true"}, findings(t, newPool(t, p.standby)))
	earlier, later := newAcknowledged(), newAcknowledged()
	earlier.add(t, p.store, 10)
	p.primary.CatchUp(t, p.standby)
	p.standby.CutOff(t)
	later.add(t, p.store, 10)
	p.primary.Kill()
	p.failOver(t)
	claims, outcomes := earlier.lost(t, p.store)
	assert.Equal(t, [2]int{0, 0}, [2]int{claims, outcomes})
	claims, outcomes = later.lost(t, p.store)
	assert.Equal(t, [2]int{10, 10}, [2]int{claims, outcomes})
}

// How much an asynchronous standby loses depends on the moment: the test counts it, and wants the rest as it was.
func TestWhatAnAsynchronousStandbyHasIsAsItWasAcknowledged(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("SOAK is not set: ten failovers take a while")
	}
	for range 10 {
		p, a, stop := newPair(t, false), newAcknowledged(), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { a.load(p.store, stop) })
		<-a.half
		p.primary.Kill()
		close(stop)
		wg.Wait()
		p.failOver(t)
		claims, outcomes := a.lost(t, p.store)
		t.Logf("lost: %d of %d claims, %d of %d outcomes", claims, len(a.claims), outcomes, len(a.outcomes))
	}
}

// A call that ends while the primary waits for its standby returns an error, but the server then commits without the standby. So
// the next request can get a replay that a failover loses.
func TestACallThatEndsDuringTheWaitForTheStandbyIsCommittedOnThePrimary(t *testing.T) {
	t.Parallel()
	server := pgserver.Start(t, "synchronous_standby_names=nobody") // a standby that is away
	local := newPool(t, server, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["synchronous_commit"] = "local" })
	assert.Equal(t, []string{"synchronous_commit is local"}, findings(t, local))
	require.NoError(t, pgstore.Migrate(ctx, local))
	c := claimed(t, pgstore.New(local))
	store := pgstore.New(newPool(t, server))
	short, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	require.ErrorIs(t, store.Complete(short, c, []byte("made")), context.DeadlineExceeded)
	require.Eventually(t, func() bool {
		entry := begin(t, store, rival(c))
		return entry.State == driver.Completed && string(entry.Outcome) == "made"
	}, 20*time.Second, 10*time.Millisecond)
}
