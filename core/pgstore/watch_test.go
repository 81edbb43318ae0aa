package pgstore_test

import (
	"context"
	"sync"
	"sync/atomic"
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
)

// wakes counts.
type wakes chan struct{}

func newWakes() wakes { return make(wakes, 100) }

func (w wakes) wake() { w <- struct{}{} }

// wait waits for one wake.
func (w wakes) wait(t *testing.T) {
	t.Helper()
	select {
	case <-w:
	case <-time.After(30 * time.Second):
		t.Fatal("nobody was woken")
	}
}

func watch(t *testing.T, store *pgstore.Store, key [32]byte, w wakes) {
	t.Helper()
	stop, err := store.Watch(ctx, key, w.wake)
	require.NoError(t, err)
	t.Cleanup(stop)
}

// await has somebody wait for c.
func await(t *testing.T, store *pgstore.Store, c driver.Claim) {
	t.Helper()
	waiting := rival(c)
	waiting.Subscribed = true
	require.Equal(t, driver.InProgress, begin(t, store, waiting).State)
}

func TestTheEndOfAClaimWakesTheWaitersOfItsKey(t *testing.T) {
	store, _, _ := ownStore(t)
	for name, end := range map[string]func(driver.Claim) error{
		"complete": func(c driver.Claim) error { return store.Complete(ctx, c, nil) },
		"fail":     func(c driver.Claim) error { return store.Fail(ctx, c, driver.Failure{}) },
	} {
		t.Run(name, func(t *testing.T) {
			c, another := claimed(t, store), claimed(t, store)
			one, two, others := newWakes(), newWakes(), newWakes()
			watch(t, store, c.Key, one)
			watch(t, store, c.Key, two)
			watch(t, store, another.Key, others)
			await(t, store, c)
			await(t, store, another)
			require.NoError(t, end(c))
			one.wait(t)
			two.wait(t)
			require.NoError(t, end(another))
			others.wait(t)
			assert.Empty(t, others, "another key's end is not theirs")
			assert.Empty(t, one)
		})
	}
}

func TestAnOutcomeInATransactionWakesWhenItIsCommitted(t *testing.T) {
	s := newService(t)
	woken := newWakes()
	s.send(s.ending(func(ctx context.Context) (*core.Response, error) {
		run, _ := core.FromContext(ctx)
		c := claimOf(t, s, run)
		watch(t, s.store, c.Key, woken)
		await(t, s.store, c)
		assert.Empty(t, woken)
		return created()
	}))
	woken.wait(t)
}

// A wake-up costs all who commit at that moment a lock, so there is none when nobody waits.
func TestNobodyIsNotifiedWhenNobodyWaits(t *testing.T) {
	store, _, _ := ownStore(t)
	woken := newWakes()
	c, last := claimed(t, store), claimed(t, store)
	watch(t, store, c.Key, woken)
	watch(t, store, last.Key, woken)
	require.Equal(t, driver.InProgress, begin(t, store, rival(c)).State, "does not wait")
	require.NoError(t, store.Fail(ctx, c, driver.Failure{}))
	c = rival(c)
	claim(t, store, &c)
	await(t, store, c)
	require.NoError(t, store.Fail(ctx, c, driver.Failure{}))
	c = rival(c)
	claim(t, store, &c)
	require.NoError(t, store.Complete(ctx, c, nil)) // who waited for the claim before has been woken
	await(t, store, last)
	require.NoError(t, store.Complete(ctx, last, nil))
	woken.wait(t)
	woken.wait(t)
	assert.Empty(t, woken)
}

func TestAWaiterIsRememberedThroughATakeover(t *testing.T) {
	store, pool, schema := ownStore(t)
	woken := newWakes()
	c := claimed(t, store)
	watch(t, store, c.Key, woken)
	await(t, store, c)
	execute(t, pool, "UPDATE "+schema+".record SET lease_end = 1")
	heir := rival(c)
	claim(t, store, &heir)
	require.NoError(t, store.Complete(ctx, heir, nil))
	woken.wait(t)
}

func TestEveryWaiterGetsTheOutcomeWithoutAsking(t *testing.T) {
	c := storetest.NewClaim(time.Minute, time.Hour)
	var asked atomic.Int64
	var waiting, done sync.WaitGroup
	store, _ := newStore(t)
	claim(t, store, &c)
	for range 3 {
		store, _ := newStore(t) // a process
		for range 10 {
			waiting.Add(1)
			done.Go(func() {
				woken := newWakes()
				stop, err := store.Watch(ctx, c.Key, woken.wake)
				if !assert.NoError(t, err) {
					return
				}
				defer stop()
				mine := rival(c)
				mine.Subscribed = true
				for asks := 1; ; asks++ {
					entry, err := store.Begin(ctx, mine)
					if assert.NoError(t, err) && entry.State == driver.InProgress && asks == 1 {
						waiting.Done()
						woken.wait(t)
						continue
					}
					assert.Equal(t, "kept", string(entry.Outcome))
					asked.Add(int64(asks))
					return
				}
			})
		}
	}
	waiting.Wait()
	require.NoError(t, store.Complete(ctx, c, []byte("kept")))
	done.Wait()
	assert.EqualValues(t, 60, asked.Load())
}

func acquired(t *testing.T, pool *pgxpool.Pool, want int32) {
	t.Helper()
	require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == want }, 20*time.Second, time.Millisecond)
}

func TestAllWatchersShareOneConnectionAndTheLastGivesItBack(t *testing.T) {
	store, pool := newStore(t)
	for range 2 {
		var stops []func()
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				stop, err := store.Watch(ctx, storetest.NewClaim(0, 0).Key, nothing)
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				stops = append(stops, stop)
			})
		}
		wg.Wait()
		assert.EqualValues(t, 1, pool.Stat().AcquiredConns())
		for _, stop := range stops {
			assert.EqualValues(t, 1, pool.Stat().AcquiredConns())
			stop()
			stop() // again changes nothing
		}
		acquired(t, pool, 0)
		assert.Zero(t, count(t, pool, "SELECT count(*) FROM pg_listening_channels()"), "it still listens")
	}
}

func TestAStoppedWatchIsNotWoken(t *testing.T) {
	store, _, _ := ownStore(t)
	c := claimed(t, store)
	stopped, woken := newWakes(), newWakes()
	watch(t, store, c.Key, woken)
	stop, err := store.Watch(ctx, c.Key, stopped.wake)
	require.NoError(t, err)
	stop()
	await(t, store, c)
	require.NoError(t, store.Complete(ctx, c, nil))
	woken.wait(t)
	assert.Empty(t, stopped)
}

// cutOff breaks the connection that listens.
func cutOff(t *testing.T) {
	t.Helper()
	aside := newPool(t, pgserver.Shared(t))
	require.Equal(t, 1, count(t, aside, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND application_name = $1", t.Name()))
}

func named(t *testing.T) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = t.Name() }
}

func TestALostConnectionIsMadeAnewAndAllAreWoken(t *testing.T) {
	store, pool := newStore(t, named(t))
	one, two := claimed(t, store), claimed(t, store)
	woken := []wakes{newWakes(), newWakes()}
	watch(t, store, one.Key, woken[0])
	watch(t, store, two.Key, woken[1])
	for range 2 {
		cutOff(t)
		for _, w := range woken {
			w.wait(t)
			assert.Empty(t, w, "once")
		}
	}
	await(t, store, one)
	require.NoError(t, store.Complete(ctx, one, nil))
	woken[0].wait(t)
	assert.Empty(t, woken[1])
	acquired(t, pool, 1)
}

func TestAServerThatIsAwayIsAskedAgainUntilItIsBack(t *testing.T) {
	server := pgserver.Start(t)
	pool := newPool(t, server)
	require.NoError(t, pgstore.Migrate(ctx, pool))
	store := pgstore.New(pool)
	c, woken := claimed(t, store), newWakes()
	watch(t, store, c.Key, woken)
	server.Kill()
	require.Eventually(t, func() bool {
		stop, err := store.Watch(ctx, c.Key, nothing)
		if err == nil { // the store has not noticed yet
			stop()
		}
		return err != nil
	}, 20*time.Second, time.Millisecond, "a watch that can not stand is refused")
	assert.Empty(t, woken)
	server.Restart(t)
	woken.wait(t)
	stop, err := store.Watch(ctx, c.Key, nothing)
	require.NoError(t, err)
	stop()
}

func TestAWatchThatCannotStandIsAnErrorAndLeavesNothingBehind(t *testing.T) {
	network := &network{}
	network.down.Store(true)
	pool := newPool(t, pgserver.Shared(t), network.use)
	store := pgstore.New(pool)
	key := storetest.NewClaim(0, 0).Key
	_, err := store.Watch(ctx, key, nothing)
	require.ErrorIs(t, err, errBroken)
	network.down.Store(false)
	stop, err := store.Watch(ctx, key, nothing)
	require.NoError(t, err, "the next is asked for anew")
	stop()
	acquired(t, pool, 0)
}

// TestAConnectionThatDiesSilentlyIsFoundOut: nothing says that it is gone, as after a firewall has forgotten it.
func TestAConnectionThatDiesSilentlyIsFoundOut(t *testing.T) {
	network := &network{}
	store, _ := newStore(t, network.use)
	store.SetIdleTimeout(50 * time.Millisecond)
	c, woken := claimed(t, store), newWakes()
	watch(t, store, c.Key, woken)
	network.breakAt("-- ping", unsent, nothing)
	woken.wait(t)
	network.broke(t)
	await(t, store, c)
	require.NoError(t, store.Complete(ctx, c, nil))
	woken.wait(t)
}
