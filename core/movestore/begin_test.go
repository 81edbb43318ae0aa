package movestore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/movestore"
	"github.com/go-idem/idem/core/storetest"
	"github.com/go-idem/idem/internal/testclock"
)

const lease, retention = time.Minute, time.Hour

// move is a process in one step, and the two stores as it sees them.
type move struct {
	*testing.T
	clock      *testclock.Clock
	store      *movestore.Store
	own, other *memstore.Store
}

// inEachStep calls test with a process of each step.
func inEachStep(t *testing.T, test func(m *move)) {
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			c, from, to := newStores()
			m := &move{T: t, clock: c, store: step(from, to), own: from, other: to}
			if name == "Move" {
				m.own, m.other = to, from
			}
			test(m)
		})
	}
}

// claim claims a key in a store, and returns the claim as its owner holds it.
func (m *move) claim(store driver.Store, c driver.Claim) driver.Claim {
	m.Helper()
	entry, err := store.Begin(m.Context(), c)
	require.NoError(m, err)
	require.Equal(m, driver.Claimed, entry.State)
	c.Fence, c.Attempt, c.Operation, c.Takeover = entry.Fence, entry.Attempt, entry.Operation, entry.Takeover
	return c
}

// retry returns the claim of the same request in another run.
func retry(c driver.Claim) driver.Claim {
	n := storetest.NewClaim(lease, retention)
	n.Key, n.Fingerprint = c.Key, c.Fingerprint
	return n
}

// state returns the state of a record in one store.
func (m *move) state(store *memstore.Store, c driver.Claim) driver.State {
	m.Helper()
	seen, err := store.Look(m.Context(), c.Key)
	require.NoError(m, err)
	if seen.IsReleased() {
		return driver.Absent
	}
	return seen.State
}

// What a process of the neighbouring step has left in its store.
func TestARecordIsFoundInTheOtherStoreAndSettledThere(t *testing.T) {
	inEachStep(t, func(m *move) {
		ctx := m.Context()
		c := m.claim(m.other, storetest.NewClaim(lease, retention))
		entry, err := m.store.Begin(ctx, retry(c))
		require.NoError(m, err)
		assert.Equal(m, driver.InProgress, entry.State)
		entry, err = m.store.Begin(ctx, storetest.NewClaim(lease, retention))
		require.NoError(m, err)
		assert.Equal(m, driver.Claimed, entry.State, "another key is free")

		require.NoError(m, m.other.Checkpoint(ctx, c, "charge", []byte("1")))
		m.clock.Advance(lease)
		next := m.claim(m.store, retry(c))
		assert.True(m, next.Takeover)
		assert.Equal(m, 2, next.Attempt)
		steps, err := m.store.Checkpoints(ctx, next)
		require.NoError(m, err)
		assert.Equal(m, map[string][]byte{"charge": []byte("1")}, steps)
		require.NoError(m, m.store.Extend(ctx, next))
		assert.ErrorIs(m, m.store.Extend(ctx, c), driver.ErrLost, "the claim that was taken over")
		require.NoError(m, m.store.Complete(ctx, next, []byte("kept")))
		assert.Equal(m, driver.Completed, m.state(m.other, c))
		assert.Equal(m, driver.Absent, m.state(m.own, c))
		entry, err = m.store.Begin(ctx, retry(c))
		require.NoError(m, err)
		assert.Equal(m, "kept", string(entry.Outcome))
	})
}

func TestATombstoneIsFoundInTheOtherStore(t *testing.T) {
	inEachStep(t, func(m *move) {
		late := storetest.NewClaim(lease, retention)
		late.LateRetry = 10 * retention
		c := m.claim(m.other, late)
		require.NoError(m, m.other.Complete(m.Context(), c, []byte("kept")))
		m.clock.Advance(retention + time.Second)
		expired := retry(late)
		expired.LateRetry = late.LateRetry
		entry, err := m.store.Begin(m.Context(), expired)
		require.NoError(m, err)
		assert.Equal(m, driver.Expired, entry.State)
		require.ErrorIs(m, m.other.Fail(m.Context(), driver.Claim{Key: c.Key, Lease: lease, Owner: [16]byte{1}}, driver.Failure{}), nil)
		again := retry(expired)
		again.LateRetry = late.LateRetry
		entry, err = m.store.Begin(m.Context(), again)
		require.NoError(m, err)
		assert.Equal(m, driver.Expired, entry.State, "it lies behind the record of a withdrawal")
		assert.Equal(m, driver.Absent, m.state(m.own, c), "no claim is left")
	})
}

// between calls a function before the nth call of Look, when the claim at home is granted and the other store was not asked again.
type between struct {
	movestore.Backend
	looks int
	do    func()
}

func (b *between) Look(ctx context.Context, name [32]byte) (driver.Record, error) {
	if b.looks++; b.looks == 2 {
		b.do()
	}
	return b.Backend.Look(ctx, name)
}

// raced returns the process with an other store that gets a record while Begin claims the key at home.
func (m *move) raced(do func()) *movestore.Store {
	other := &between{Backend: m.other, do: do}
	return movestore.Prepare(m.own, other) // the own store is the first argument, whichever it is
}

func TestTwoProcessesThatClaimOneKeyInTwoStoresMeet(t *testing.T) {
	inEachStep(t, func(m *move) {
		c := storetest.NewClaim(lease, retention)
		var rival driver.Claim
		entry, err := m.raced(func() { rival = m.claim(m.other, retry(c)) }).Begin(m.Context(), c)
		require.NoError(m, err)
		assert.Equal(m, driver.InProgress, entry.State)
		assert.Equal(m, driver.Absent, m.state(m.own, c), "its claim is given back")
		require.NoError(m, m.other.Extend(m.Context(), rival))
	})
	inEachStep(t, func(m *move) {
		c := storetest.NewClaim(lease, retention)
		failed := func() {
			require.NoError(m, m.other.Fail(m.Context(), m.claim(m.other, retry(c)), driver.Failure{}))
		}
		store := m.raced(failed)
		entry, err := store.Begin(m.Context(), c)
		require.NoError(m, err)
		assert.Equal(m, 2, entry.Attempt, "the run goes on where the first one has failed")
		assert.Equal(m, driver.InProgress, m.state(m.other, c))
		assert.Equal(m, driver.Absent, m.state(m.own, c))
		again, err := store.Begin(m.Context(), c)
		require.NoError(m, err)
		assert.Equal(m, entry.Fence, again.Fence, "a repeated Begin returns the same claim")
	})
}

// A process that dies between two calls of Begin leaves a claim without a run. It hides nothing that the other store has.
func TestAClaimOfADeadProcessHidesNoOutcome(t *testing.T) {
	for _, noTakeover := range []bool{false, true} {
		inEachStep(t, func(m *move) {
			for _, stores := range [][2]*memstore.Store{{m.own, m.other}, {m.other, m.own}} {
				c := storetest.NewClaim(lease, retention)
				require.NoError(m, stores[0].Complete(m.Context(), m.claim(stores[0], c), []byte("kept")))
				m.claim(stores[1], retry(c))
				for range 2 {
					next := retry(c)
					next.NoTakeover = noTakeover
					entry, err := m.store.Begin(m.Context(), next)
					require.NoError(m, err)
					if stores[0] == m.own || entry.State != driver.InProgress { // which lasts for a lease
						assert.Equal(m, "kept", string(entry.Outcome))
					}
					m.clock.Advance(lease)
				}
			}
		})
	}
}

// Of two records of one key that both look like those of runs, that with results of steps is one.
func TestStepsSurviveAClaimOfADeadProcess(t *testing.T) {
	inEachStep(t, func(m *move) {
		for _, stores := range [][2]*memstore.Store{{m.own, m.other}, {m.other, m.own}} {
			c := m.claim(stores[0], storetest.NewClaim(lease, retention))
			require.NoError(m, stores[0].Checkpoint(m.Context(), c, "charge", []byte("1")))
			m.claim(stores[1], retry(c))
			m.clock.Advance(lease)
			next := m.claim(m.store, retry(c))
			assert.True(m, next.Takeover)
			steps, err := m.store.Checkpoints(m.Context(), next)
			require.NoError(m, err)
			assert.Len(m, steps, 1)
			again, err := m.store.Begin(m.Context(), driver.Claim{
				Key: next.Key, Owner: next.Owner, Fingerprint: next.Fingerprint, Lease: lease, Retention: retention,
			})
			require.NoError(m, err)
			assert.Equal(m, next.Fence, again.Fence, "a repeated Begin returns the same claim")
		}
	})
}

var errAway = errors.New("away")

// away is a store that does not respond.
type away struct{ movestore.Backend }

func (away) Look(context.Context, [32]byte) (driver.Record, error) { return driver.Record{}, errAway }

func (away) Begin(context.Context, driver.Claim) (driver.Entry, error) {
	return driver.Entry{}, errAway
}

func (away) Extend(context.Context, driver.Claim) error { return errAway }

func (away) Complete(context.Context, driver.Claim, []byte) error { return errAway }

func (away) Fail(context.Context, driver.Claim, driver.Failure) error { return errAway }

// While a store is unavailable no key is claimed, and runs whose claim is in the other one are settled.
func TestAStoreThatIsUnavailable(t *testing.T) {
	for name, isAway := range map[string]func(own, other movestore.Backend) (movestore.Backend, movestore.Backend){
		"the own one":   func(own, other movestore.Backend) (movestore.Backend, movestore.Backend) { return away{own}, other },
		"the other one": func(own, other movestore.Backend) (movestore.Backend, movestore.Backend) { return own, away{other} },
	} {
		t.Run(name, func(t *testing.T) {
			inEachStep(t, func(m *move) {
				has := m.own
				if name == "the own one" {
					has = m.other
				}
				c := m.claim(has, storetest.NewClaim(lease, retention))
				store := movestore.Prepare(isAway(m.own, m.other)) // the own store is the first argument
				_, err := store.Begin(m.Context(), storetest.NewClaim(lease, retention))
				assert.ErrorIs(m, err, errAway)
				lost := retry(c)
				lost.Fence = 1
				for _, claim := range []driver.Claim{retry(c), lost} {
					assert.ErrorIs(m, store.Fail(m.Context(), claim, driver.Failure{}), errAway, "it is sent again")
				}
				assert.NoError(m, store.Extend(m.Context(), c))
				assert.NoError(m, store.Complete(m.Context(), c, []byte("kept")))
				assert.Equal(m, driver.Completed, m.state(has, c))
				entry, err := store.Begin(m.Context(), retry(c))
				require.NoError(m, err)
				assert.Equal(m, "kept", string(entry.Outcome), "outcomes are replayed")
			})
		})
	}
}

// hanging is a store that responds to no call of an owner.
type hanging struct{ movestore.Backend }

func (hanging) Extend(ctx context.Context, _ driver.Claim) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hanging) Fail(ctx context.Context, _ driver.Claim, _ driver.Failure) error {
	<-ctx.Done()
	return ctx.Err()
}

// A run in the other store does not wait for the own one.
func TestARunDoesNotWaitForTheStoreThatHasNotItsClaim(t *testing.T) {
	inEachStep(t, func(m *move) {
		c := m.claim(m.other, storetest.NewClaim(lease, retention))
		m.clock.Advance(lease)
		store := movestore.Prepare(hanging{m.own}, m.other) // the own store is the first argument
		c = m.claim(store, retry(c))
		assert.NoError(m, store.Extend(m.Context(), c))
		assert.NoError(m, store.Fail(m.Context(), c, driver.Failure{}))
	})
}

// A process beside those that ask one store only leaves nothing where they do not look, whatever it does.
func TestNothingIsWrittenIntoAnEmptyStore(t *testing.T) {
	inEachStep(t, func(m *move) {
		for seed := range int64(100) {
			storetest.Differential(m, seed, 30, storetest.Harness{Store: memstore.New(memstore.Clock(m.clock.Now)), Advance: m.clock.Advance},
				storetest.Harness{Store: m.store, Advance: m.clock.Advance})
		}
		late := storetest.NewClaim(lease, retention)
		late.LateRetry = retention
		require.NoError(m, m.store.Fail(m.Context(), late, driver.Failure{NoEffects: true, NotRun: true}))
		require.NoError(m, m.other.Scan(m.Context(), driver.Filter{}, func(seen driver.Record) bool {
			assert.Fail(m, "a record", "%+v", seen)
			return true
		}))
	})
}

// Forget makes the next request new, wherever its record is.
func TestForgetForgetsWhatBothStoresHave(t *testing.T) {
	inEachStep(t, func(m *move) {
		c := storetest.NewClaim(lease, retention)
		require.NoError(m, m.other.Complete(m.Context(), m.claim(m.other, c), []byte("kept")))
		running := m.claim(m.own, retry(c))
		seen, err := m.store.Look(m.Context(), c.Key)
		require.NoError(m, err)
		assert.Equal(m, driver.Completed, seen.State)
		assert.ErrorIs(m, m.store.Forget(m.Context(), seen), driver.ErrLost, "something runs")
		require.NoError(m, m.own.Fail(m.Context(), running, driver.Failure{}))
		outcome, err := m.store.Outcome(m.Context(), c.Key)
		require.NoError(m, err)
		assert.Equal(m, "kept", string(outcome))
		require.NoError(m, m.store.Forget(m.Context(), seen))
		assert.Equal(m, 1, m.claim(m.store, retry(c)).Attempt)
	})
}

// An outcome that nobody has seen is not forgotten with a record that was seen before it, or behind it.
func TestForgetLeavesAnOutcomeThatWasNotSeen(t *testing.T) {
	inEachStep(t, func(m *move) {
		for _, store := range []*memstore.Store{m.own, m.other} {
			c := storetest.NewClaim(lease, retention)
			absent, err := m.store.Look(m.Context(), c.Key)
			require.NoError(m, err)
			require.NoError(m, store.Complete(m.Context(), m.claim(store, c), []byte("kept")))
			assert.ErrorIs(m, m.store.Forget(m.Context(), absent), driver.ErrLost)
			assert.Equal(m, driver.Completed, m.state(store, c))
		}
		c := m.claim(m.other, storetest.NewClaim(lease, retention))
		require.NoError(m, m.other.Fail(m.Context(), c, driver.Failure{NoEffects: true, NotRun: true}))
		released, err := m.store.Look(m.Context(), c.Key)
		require.NoError(m, err)
		require.True(m, released.IsReleased())
		require.NoError(m, m.store.Complete(m.Context(), m.claim(m.store, retry(c)), []byte("kept")))
		assert.ErrorIs(m, m.store.Forget(m.Context(), released), driver.ErrLost)
		seen, err := m.store.Look(m.Context(), c.Key)
		require.NoError(m, err)
		require.Equal(m, driver.Completed, seen.State)
		for range 2 {
			require.NoError(m, m.store.Forget(m.Context(), seen), "also if it is forgotten already")
			assert.ErrorIs(m, m.own.Complete(m.Context(), c, nil), driver.ErrGone)
			assert.ErrorIs(m, m.other.Complete(m.Context(), c, nil), driver.ErrGone)
		}
	})
}

// A run whose claim is in one store is told of a run that vanished in the other one.
func TestATakeoverIsReportedFromEitherStore(t *testing.T) {
	inEachStep(t, func(m *move) {
		c := m.claim(m.own, storetest.NewClaim(lease, retention))
		require.NoError(m, m.own.Fail(m.Context(), c, driver.Failure{}))
		m.claim(m.other, retry(c))
		m.clock.Advance(lease)
		for range 2 {
			next := m.claim(m.store, retry(c))
			assert.True(m, next.Takeover)
			again, err := m.store.Begin(m.Context(), next)
			require.NoError(m, err)
			assert.True(m, again.Takeover, "a repeated Begin returns the same claim")
			require.NoError(m, m.store.Fail(m.Context(), next, driver.Failure{NoEffects: true, NotRun: true}))
		}
	})
}

func TestAWithdrawalReachesTheStoreThatHasTheClaim(t *testing.T) {
	inEachStep(t, func(m *move) {
		c := m.claim(m.other, storetest.NewClaim(lease, retention))
		require.NoError(m, m.other.Fail(m.Context(), c, driver.Failure{}))
		next := m.claim(m.store, retry(c))
		require.Equal(m, driver.InProgress, m.state(m.other, c))
		next.Fence = 0
		require.NoError(m, m.store.Fail(m.Context(), next, driver.Failure{NoEffects: true, NotRun: true}))
		assert.Equal(m, driver.Failed, m.state(m.other, c))
		for _, store := range []driver.Store{m.store, m.other} {
			_, err := store.Begin(m.Context(), next)
			assert.ErrorIs(m, err, driver.ErrLost, "the Begin comes too late")
		}
	})
}

// A record of claims without a run keeps nobody from running, so it does not hide that the record of a run is gone.
func TestARecordIsGoneAlthoughAClaimWithoutARunIsThere(t *testing.T) {
	inEachStep(t, func(m *move) {
		for _, stores := range [][2]*memstore.Store{{m.own, m.other}, {m.other, m.own}} {
			c := storetest.NewClaim(lease, retention)
			released := m.claim(stores[1], retry(c))
			require.NoError(m, stores[1].Fail(m.Context(), released, driver.Failure{NoEffects: true, NotRun: true}))
			c = m.claim(stores[0], c)
			require.NoError(m, stores[0].Fail(m.Context(), c, driver.Failure{}))
			seen, err := stores[0].Look(m.Context(), c.Key)
			require.NoError(m, err)
			require.NoError(m, stores[0].Forget(m.Context(), seen))
			assert.ErrorIs(m, m.store.Extend(m.Context(), c), driver.ErrGone)
			m.claim(stores[1], retry(c))
			err = m.store.Extend(m.Context(), c)
			assert.ErrorIs(m, err, driver.ErrLost)
			assert.NotErrorIs(m, err, driver.ErrGone, "another run has the key")
		}
	})
}

// watched is a store that counts its subscriptions.
type watched struct {
	movestore.Backend
	open *int
}

func (w watched) Watch(ctx context.Context, key [32]byte, wake func()) (stop func(), err error) {
	if *w.open < 0 {
		return nil, errAway
	}
	end, err := w.Backend.Watch(ctx, key, wake)
	*w.open++
	return func() { end(); *w.open-- }, err
}

func TestWatchNotifiesOfBothStoresUntilItStops(t *testing.T) {
	inEachStep(t, func(m *move) {
		c, own, other := storetest.NewClaim(lease, retention), 0, 0
		store := movestore.Prepare(watched{m.own, &own}, watched{m.other, &other})
		woken := make(chan bool)
		stop, err := store.Watch(m.Context(), c.Key, func() { woken <- true })
		require.NoError(m, err)
		for _, store := range []*memstore.Store{m.own, m.other} {
			require.NoError(m, store.Fail(m.Context(), m.claim(store, retry(c)), driver.Failure{}))
			<-woken
		}
		assert.Equal(m, []int{1, 1}, []int{own, other})
		stop()
		assert.Equal(m, []int{0, 0}, []int{own, other})
		other = -1
		_, err = store.Watch(m.Context(), c.Key, func() {})
		assert.ErrorIs(m, err, errAway)
		assert.Zero(m, own, "no subscription is left")
	})
}
