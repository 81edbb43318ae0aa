package memstore

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// mutant is a memory store with one defect. A nil function means that the call has none.
type mutant struct {
	*Store
	defect defect
	waking *atomic.Bool // a wake is being called
}

// defect is what one mutant does in place of the calls of the store.
type defect struct {
	check       string // the test of storetest that finds it
	begin       func(*Store, driver.Claim) (driver.Entry, error)
	extend      func(*Store, driver.Claim) error
	complete    func(*Store, driver.Claim, []byte) error
	fail        func(*Store, driver.Claim, driver.Failure) error
	checkpoint  func(s *Store, c driver.Claim, step string, result []byte) error
	checkpoints func(*Store, driver.Claim) (map[string][]byte, error)
	look        func(*Store, driver.Record) driver.Record // changes what Look returns
	forget      func(*Store, driver.Record) error
	outcome     func(s *Store, name [32]byte) []byte
	steps       func(s *Store, name [32]byte) map[string][]byte
	found       func(driver.Filter) driver.Filter              // changes what Scan looks for
	context     func(context.Context) (context.Context, error) // changes the context of each call, or refuses the call
	locksWake   bool                                           // the store calls wake under its lock
}

// errDeadlock is what a call returns that would wait for a lock forever.
var errDeadlock = errors.New("the lock of the store is held")

// enter returns the context with which the mutant makes a call.
func (m mutant) enter(ctx context.Context) (context.Context, error) {
	if m.waking.Load() {
		return nil, errDeadlock
	}
	if m.defect.context == nil {
		return ctx, nil
	}
	return m.defect.context(ctx)
}

func (m mutant) Watch(ctx context.Context, key [32]byte, wake func()) (stop func(), err error) {
	return m.Store.Watch(ctx, key, func() {
		m.waking.Store(m.defect.locksWake)
		defer m.waking.Store(false)
		wake()
	})
}

func (m mutant) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	ctx, err := m.enter(ctx)
	if err != nil {
		return driver.Entry{}, err
	}
	if m.defect.begin == nil || ctx.Err() != nil {
		return m.Store.Begin(ctx, c)
	}
	return m.defect.begin(m.Store, c)
}

func (m mutant) Extend(ctx context.Context, c driver.Claim) error {
	ctx, err := m.enter(ctx)
	if err != nil {
		return err
	}
	if m.defect.extend == nil || ctx.Err() != nil {
		return m.Store.Extend(ctx, c)
	}
	return m.defect.extend(m.Store, c)
}

func (m mutant) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	ctx, err := m.enter(ctx)
	if err != nil {
		return err
	}
	if m.defect.complete == nil || ctx.Err() != nil {
		return m.Store.Complete(ctx, c, outcome)
	}
	return m.defect.complete(m.Store, c, outcome)
}

func (m mutant) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	ctx, err := m.enter(ctx)
	if err != nil {
		return err
	}
	if m.defect.fail == nil || ctx.Err() != nil {
		return m.Store.Fail(ctx, c, f)
	}
	return m.defect.fail(m.Store, c, f)
}

func (m mutant) Checkpoint(ctx context.Context, c driver.Claim, step string, result []byte) error {
	ctx, err := m.enter(ctx)
	if err != nil {
		return err
	}
	if m.defect.checkpoint == nil || ctx.Err() != nil {
		return m.Store.Checkpoint(ctx, c, step, result)
	}
	return m.defect.checkpoint(m.Store, c, step, result)
}

func (m mutant) Checkpoints(ctx context.Context, c driver.Claim) (map[string][]byte, error) {
	ctx, err := m.enter(ctx)
	if err != nil {
		return nil, err
	}
	if m.defect.checkpoints == nil || ctx.Err() != nil {
		return m.Store.Checkpoints(ctx, c)
	}
	return m.defect.checkpoints(m.Store, c)
}

func (m mutant) Outcome(ctx context.Context, name [32]byte) ([]byte, error) {
	outcome, err := m.Store.Outcome(ctx, name)
	if m.defect.outcome != nil && err == nil {
		outcome = m.defect.outcome(m.Store, name)
	}
	return outcome, err
}

func (m mutant) Look(ctx context.Context, name [32]byte) (driver.Record, error) {
	seen, err := m.Store.Look(ctx, name)
	if m.defect.look != nil && err == nil {
		seen = m.defect.look(m.Store, seen)
	}
	return seen, err
}

func (m mutant) Scan(ctx context.Context, filter driver.Filter, found func(driver.Record) bool) error {
	if m.defect.found != nil {
		filter = m.defect.found(filter)
	}
	return m.Store.Scan(ctx, filter, found)
}

func (m mutant) Steps(ctx context.Context, name [32]byte) (map[string][]byte, error) {
	if m.defect.steps != nil && ctx.Err() == nil {
		return m.defect.steps(m.Store, name), nil
	}
	return m.Store.Steps(ctx, name)
}

func (m mutant) Forget(ctx context.Context, seen driver.Record) error {
	if m.defect.forget != nil {
		return m.defect.forget(m.Store, seen)
	}
	return m.Store.Forget(ctx, seen)
}

var background = context.Background()

// change calls f with the record of c, if there is one and it is owned by c.
func (s *Store) change(c driver.Claim, f func(*record)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[c.Key]; r != nil && r.claim.Owner == c.Owner {
		s.bytes -= r.size()
		f(r)
		s.bytes += r.size()
	}
}

// failWithExpiry is a Fail after which a free record that notes the caller expires at another time. The time is computed from its
// expiry before the call.
func (s *Store) failWithExpiry(c driver.Claim, f driver.Failure, expiry func(before time.Time) time.Time) error {
	s.mu.Lock()
	r := s.records[c.Key]
	if r == nil {
		r = &record{}
	}
	before := r.expires
	s.mu.Unlock()
	err := s.Fail(background, c, f)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && r.free && c.Fence == 0 {
		s.setExpiry(r, expiry(before))
	}
	return err
}

// fenced returns c, with the fence of its record if it has none.
func (s *Store) fenced(c driver.Claim) driver.Claim {
	s.change(c, func(r *record) {
		if c.Fence == 0 {
			c.Fence = r.claim.Fence
		}
	})
	return c
}

// renew starts the retention of the record of c anew.
func (s *Store) renew(c driver.Claim) {
	s.change(c, func(r *record) { s.setExpiry(r, s.now().Add(c.Retention)) })
}

// buffers are the buffers of mutants, by their stores.
var buffers sync.Map

// mutants are stores with one defect each. storetest.Run must find all of them.
var mutants = map[string]defect{
	"a resent Begin renews the lease": {
		check: "a repeated Begin does not renew the lease",
		begin: func(s *Store, c driver.Claim) (driver.Entry, error) {
			entry, err := s.Begin(background, c)
			if entry.State == driver.Claimed {
				s.change(c, func(r *record) { r.leaseEnd = s.now().Add(c.Lease) })
			}
			return entry, err
		},
	},
	"a resent Begin renews the retention": {
		check: "a repeated call does not renew the retention",
		begin: func(s *Store, c driver.Claim) (driver.Entry, error) {
			entry, err := s.Begin(background, c)
			if entry.State == driver.Claimed {
				s.renew(c)
			}
			return entry, err
		},
	},
	"a resent Complete renews the retention": {
		check: "a repeated call does not renew the retention",
		complete: func(s *Store, c driver.Claim, outcome []byte) error {
			err := s.Complete(background, c, outcome)
			if err == nil {
				s.renew(c)
			}
			return err
		},
	},
	"a resent Fail renews the retention": {
		check: "a repeated call does not renew the retention",
		fail: func(s *Store, c driver.Claim, f driver.Failure) error {
			err := s.Fail(background, c, f)
			if err == nil && c.Fence != 0 {
				s.renew(c)
			}
			return err
		},
	},
	"a resent withdrawal renews its record": {
		check: "a repeated call does not renew the retention",
		fail: func(s *Store, c driver.Claim, f driver.Failure) error {
			err := s.Fail(background, c, f)
			if err == nil && c.Fence == 0 {
				s.change(c, func(r *record) { s.setExpiry(r, s.now().Add(c.Lease)) })
			}
			return err
		},
	},
	"a withdrawal that a free record notes ends with that record": {
		check: "a withdrawal that a free record notes lasts for a lease",
		fail: func(s *Store, c driver.Claim, f driver.Failure) error {
			return s.failWithExpiry(c, f, func(before time.Time) time.Time { return before })
		},
	},
	"a withdrawal shortens a free record": {
		check: "a shorter withdrawal does not shorten a free record",
		fail: func(s *Store, c driver.Claim, f driver.Failure) error {
			return s.failWithExpiry(c, f, func(time.Time) time.Time { return s.now().Add(c.Lease) })
		},
	},
	"the owner of a COMPLETED record is Claimed again": {
		check: "a Begin of the owner after its own Complete returns the outcome",
		begin: func(s *Store, c driver.Claim) (entry driver.Entry, err error) {
			entry, err = s.Begin(background, c)
			s.change(c, func(r *record) {
				if r.state == completed {
					entry = r.claimedEntry(0)
				}
			})
			return entry, err
		},
	},
	"the owner of a COMPLETED record is lost": {
		check: "a Begin of the owner after its own Complete returns the outcome",
		begin: func(s *Store, c driver.Claim) (entry driver.Entry, err error) {
			entry, err = s.Begin(background, c)
			s.change(c, func(r *record) {
				if r.state == completed {
					entry, err = driver.Entry{}, driver.ErrLost
				}
			})
			return entry, err
		},
	},
	"Checkpoints does not renew the retention": {
		check: "Checkpoint and Checkpoints renew the retention",
		checkpoints: func(s *Store, c driver.Claim) (map[string][]byte, error) {
			var expires time.Time
			s.change(c, func(r *record) { expires = r.expires })
			steps, err := s.Checkpoints(background, c)
			s.change(c, func(r *record) { s.setExpiry(r, expires) })
			return steps, err
		},
	},
	"Checkpoint does not renew the retention": {
		check: "Checkpoint and Checkpoints renew the retention",
		checkpoint: func(s *Store, c driver.Claim, step string, result []byte) error {
			var expires time.Time
			s.change(c, func(r *record) { expires = r.expires })
			err := s.Checkpoint(background, c, step, result)
			s.change(c, func(r *record) { s.setExpiry(r, expires) })
			return err
		},
	},
	"Extend accepts the fence 0": {
		check:  "a claim without a fence is lost although the owner is right, except for Fail",
		extend: func(s *Store, c driver.Claim) error { return s.Extend(background, s.fenced(c)) },
	},
	"Complete accepts the fence 0": {
		check: "a claim without a fence is lost although the owner is right, except for Fail",
		complete: func(s *Store, c driver.Claim, outcome []byte) error {
			return s.Complete(background, s.fenced(c), outcome)
		},
	},
	"Checkpoint accepts the fence 0": {
		check: "a claim without a fence neither stores nor reads steps",
		checkpoint: func(s *Store, c driver.Claim, step string, result []byte) error {
			return s.Checkpoint(background, s.fenced(c), step, result)
		},
	},
	"Checkpoints accepts the fence 0": {
		check: "a claim without a fence neither stores nor reads steps",
		checkpoints: func(s *Store, c driver.Claim) (map[string][]byte, error) {
			return s.Checkpoints(background, s.fenced(c))
		},
	},
	"Complete keeps the slice of its caller": {
		check: "the caller may change an outcome after Complete",
		complete: func(s *Store, c driver.Claim, outcome []byte) error {
			err := s.Complete(background, c, outcome)
			s.change(c, func(r *record) { r.outcome = outcome })
			return err
		},
	},
	"Begin returns a buffer that the next Begin uses": {
		check: "an outcome that Begin returned does not change",
		begin: func(s *Store, c driver.Claim) (driver.Entry, error) {
			entry, err := s.Begin(background, c)
			buffer, _ := buffers.LoadOrStore(s, make([]byte, 2<<20))
			if entry.State == driver.Completed {
				entry.Outcome = buffer.([]byte)[:copy(buffer.([]byte), entry.Outcome)]
			}
			return entry, err
		},
	},
	"Checkpoint keeps the slice of its caller": {
		check: "the caller may change a result after Checkpoint",
		checkpoint: func(s *Store, c driver.Claim, step string, result []byte) error {
			err := s.Checkpoint(background, c, step, result)
			if err == nil {
				s.change(c, func(r *record) { r.steps[step] = result })
			}
			return err
		},
	},
	"Checkpoint writes over the result that was returned": {
		check: "what Checkpoints returned does not change with a later Checkpoint",
		checkpoint: func(s *Store, c driver.Claim, step string, result []byte) error {
			s.change(c, func(r *record) {
				if earlier := r.steps[step]; len(earlier) == len(result) {
					copy(earlier, result)
				}
			})
			return s.Checkpoint(background, c, step, result)
		},
	},
	"Checkpoints returns the map of the store": {
		check: "the map that Checkpoints returns belongs to the caller",
		checkpoints: func(s *Store, c driver.Claim) (steps map[string][]byte, err error) {
			_, err = s.Checkpoints(background, c)
			s.change(c, func(r *record) { steps = r.steps })
			return steps, err
		},
	},
	"a call with an ended context takes effect": {
		check:   "a call whose context has ended is an error and changes nothing",
		context: func(ctx context.Context) (context.Context, error) { return context.WithoutCancel(ctx), nil },
	},
	"a call with an ended context is lost": {
		check: "a call whose context has ended is an error and changes nothing",
		context: func(ctx context.Context) (context.Context, error) {
			if ctx.Err() != nil {
				return nil, driver.ErrLost
			}
			return ctx, nil
		},
	},
	"a retention below a millisecond is refused": {
		check: "the shortest durations are accepted",
		extend: func(s *Store, c driver.Claim) error {
			if c.Retention < time.Millisecond {
				return errors.New("invalid expire time")
			}
			return s.Extend(background, c)
		},
	},
	"a tombstone hides the outcome": {
		check: "a tombstone is not seen before the retention of its outcome is over",
		begin: func(s *Store, c driver.Claim) (driver.Entry, error) {
			entry, err := s.Begin(background, c)
			if entry.State == driver.Completed && c.LateRetry > 0 {
				entry = driver.Entry{State: driver.Expired}
			}
			return entry, err
		},
	},
	"a tombstone lasts from Complete": {
		check: "a tombstone lasts from the end of the retention, and not from Complete",
		complete: func(s *Store, c driver.Claim, outcome []byte) error {
			if c.LateRetry <= c.Retention {
				c.LateRetry = 0
			}
			return s.Complete(background, c, outcome)
		},
	},
	"wake is called under the lock of the store": {
		check:     "wake may call the store",
		locksWake: true,
	},
	"Forget deletes whatever is there": {
		check: "OPR-04 nothing is forgotten that has changed since it was seen",
		forget: func(s *Store, seen driver.Record) error {
			now, _ := s.Look(background, seen.Name)
			return s.Forget(background, now)
		},
	},
	"Forget breaks a lease": {
		check: "OPR-04 a run in progress is not forgotten",
		forget: func(s *Store, seen driver.Record) error {
			s.mu.Lock()
			if r := s.records[seen.Name]; r != nil && r.version() == seen.Version {
				r.leaseEnd = s.now()
			}
			s.mu.Unlock()
			return s.Forget(background, seen)
		},
	},
	"Forget leaves the tombstone": {
		check: "a tombstone is forgotten with its record, and alone",
		forget: func(s *Store, seen driver.Record) error {
			s.mu.Lock()
			tombstone := s.tombstones[seen.Name]
			delete(s.tombstones, seen.Name)
			s.mu.Unlock()
			err := s.Forget(background, seen)
			if tombstone != nil {
				s.mu.Lock()
				s.tombstones[seen.Name] = tombstone
				s.mu.Unlock()
			}
			return err
		},
	},
	"Look changes the record": {
		check: "OPR-01 Look says what became of a key, and changes nothing",
		look: func(s *Store, seen driver.Record) driver.Record {
			s.mu.Lock()
			defer s.mu.Unlock()
			if r := s.records[seen.Name]; r != nil {
				r.claim.Fence++
			}
			return seen
		},
	},
	"Outcome starts the retention anew": {
		check: "OPR-07 Outcome returns what a completed record has, and nothing of any other",
		outcome: func(s *Store, name [32]byte) []byte {
			s.mu.Lock()
			defer s.mu.Unlock()
			r := s.records[name]
			if r == nil {
				return nil
			}
			s.setExpiry(r, s.now().Add(1000*time.Hour))
			return r.outcome
		},
	},
	"Outcome returns an empty outcome where there is none": {
		check:   "OPR-07 Outcome returns what a completed record has, and nothing of any other",
		outcome: func(*Store, [32]byte) []byte { return []byte{} },
	},
	"Look starts the retention anew": {
		check: "OPR-01 Look says what became of a key, and changes nothing",
		look: func(s *Store, seen driver.Record) driver.Record {
			s.mu.Lock()
			defer s.mu.Unlock()
			if r := s.records[seen.Name]; r != nil {
				s.setExpiry(r, s.now().Add(r.claim.Retention))
			}
			return seen
		},
	},
	"Look starts the lease anew": {
		check: "OPR-01 Look says what became of a key, and changes nothing",
		look: func(s *Store, seen driver.Record) driver.Record {
			s.mu.Lock()
			defer s.mu.Unlock()
			if r := s.records[seen.Name]; r != nil {
				r.leaseEnd = s.now().Add(r.claim.Lease)
			}
			return seen
		},
	},
	"Steps lists those of an earlier operation": {
		check: "OPR-08 steps of an earlier operation are not listed",
		steps: func(s *Store, name [32]byte) map[string][]byte {
			s.mu.Lock()
			defer s.mu.Unlock()
			if r := s.records[name]; r != nil {
				return r.steps
			}
			return nil
		},
	},
	"Steps starts the retention anew": {
		check: "OPR-08 Steps lists the steps that the next run would find, and changes nothing",
		steps: func(s *Store, name [32]byte) map[string][]byte {
			s.mu.Lock()
			if r := s.records[name]; r != nil {
				s.setExpiry(r, s.now().Add(r.claim.Retention))
			}
			s.mu.Unlock()
			steps, _ := s.Steps(background, name)
			return steps
		},
	},
	"Scan finds the records of other scopes too": {
		check: "OPR-03 Scan finds all records of a scope, and nobody else's",
		found: func(f driver.Filter) driver.Filter {
			f.Scope = nil
			return f
		},
	},
	"Scan does not look at the age": {
		check: "OPR-02 Scan selects by the age of the claim",
		found: func(f driver.Filter) driver.Filter {
			f.MinAge = 0
			return f
		},
	},
	"a Fail with NoEffects deletes the steps of earlier runs": {
		check: "steps stay when a run without effects follows one that may have had effects",
		fail: func(s *Store, c driver.Claim, f driver.Failure) error {
			err := s.Fail(background, c, f)
			if f.NoEffects && !f.NotRun {
				s.change(c, func(r *record) { r.steps = nil })
			}
			return err
		},
	},
}

// mutantVariable names the mutant that TestMutant runs the suite on.
const mutantVariable = "MEMSTORE_MUTANT"

// TestMutant runs the suite on one mutant. TestTheSuiteFindsEachMutant starts it in a process of its own, where it must fail.
func TestMutant(t *testing.T) {
	defect, ok := mutants[os.Getenv(mutantVariable)]
	if !ok {
		t.Skip("TestTheSuiteFindsEachMutant runs this test")
	}
	storetest.Run(t, func(testing.TB) storetest.Harness {
		var mu sync.Mutex
		now := time.Now()
		clock := func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
		advance := func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(d)
		}
		return storetest.Harness{Store: mutant{New(Clock(clock)), defect, new(atomic.Bool)}, Advance: advance}
	})
}

func TestTheSuiteFindsEachMutant(t *testing.T) {
	for name, defect := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := strings.ReplaceAll(defect.check, " ", "_")
			run := exec.Command(os.Args[0], "-test.run=^TestMutant$/^"+regexp.QuoteMeta(check)+"$")
			run.Env = append(os.Environ(), mutantVariable+"="+name)
			output, err := run.CombinedOutput()
			require.Error(t, err, "the suite passes:\n%s", output)
			assert.Contains(t, string(output), "--- FAIL: TestMutant/"+check, "another test has found it")
			t.Logf("%s", output)
		})
	}
}
