package operator_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/operator"
)

const (
	lease     = 30 * time.Second
	retention = time.Hour
)

var (
	ctx     = context.Background()
	errTest = errors.New("test")
	alice   = operator.By{Who: "alice", Why: "ticket 7"}
)

// desk is an operator with the engine and the store of its records, and the acts that it has audited and reported.
type desk struct {
	*operator.Operator
	t       *testing.T
	engine  *core.Engine
	audited []operator.Act
	done    []error
	refuses error // of Audit
}

// newDesk returns the operator of an engine whose callers say who they are.
func newDesk(t *testing.T, store driver.Store, changes ...func(*core.Config)) *desk {
	d := &desk{t: t}
	cfg := core.Config{Store: store, Scope: core.ScopeByAdapter}
	cfg.Lease.Duration, cfg.Keep.Retention, cfg.Lease.OnUnknown = lease, retention, core.RefuseUnknown
	for _, change := range changes {
		change(&cfg)
	}
	var err error
	d.engine, err = core.New(cfg)
	require.NoError(t, err)
	d.Operator, err = operator.New(d.engine, operator.Config{
		Audit: func(_ context.Context, act operator.Act) error {
			d.audited = append(d.audited, act)
			return d.refuses
		},
		Done: func(_ context.Context, _ operator.Act, err error) { d.done = append(d.done, err) },
	})
	require.NoError(t, err)
	return d
}

// send sends a request, whose handler is run.
func (d *desk) send(scope, key string, run func(context.Context) (*core.Response, error)) core.Result {
	d.t.Helper()
	result, _ := d.engine.Do(ctx, core.Request{
		Method: "POST", Path: "/refunds", Scope: func() string { return scope },
		Header: func(name string) []string {
			if name == "Idempotency-Key" {
				return []string{key}
			}
			return nil
		},
		Body: func(int64) ([]byte, error) { return []byte("{}"), nil },
	}, run)
	return result
}

// respond returns a handler with this response.
func respond(status int) func(context.Context) (*core.Response, error) {
	return func(context.Context) (*core.Response, error) {
		return &core.Response{Status: status, Body: []byte("made")}, nil
	}
}

// vanish is a handler whose outcome stays unknown.
func vanish(ctx context.Context) (*core.Response, error) {
	core.Decide(ctx, core.LeaveUnknown)
	return respond(201)(ctx)
}

// look is Look for a request, without an error.
func (d *desk) look(scope, key string) driver.Record {
	d.t.Helper()
	seen, err := d.Look(ctx, core.Task{Scope: scope, Key: key})
	require.NoError(d.t, err)
	return seen
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func TestAnOperatorSeesWhatBecameOfARequest(t *testing.T) {
	inBubble(t, "OPR-01", func(t *testing.T) {
		d := newDesk(t, memstore.New())
		assert.Equal(t, driver.Absent, d.look("ann", "K").State)
		d.send("ann", "K", func(ctx context.Context) (*core.Response, error) {
			seen := d.look("ann", "K")
			assert.Equal(t, driver.InProgress, seen.State)
			assert.Equal(t, lease, seen.Remaining)
			return respond(500)(ctx)
		})
		seen := d.look("ann", "K")
		assert.Equal(t, driver.Failed, seen.State)
		assert.Equal(t, "status 500", seen.Cause)
		d.send("ann", "K", vanish)
		time.Sleep(lease + time.Minute)
		seen = d.look("ann", "K")
		assert.Equal(t, driver.Unknown, seen.State)
		assert.Equal(t, -time.Minute, seen.Remaining)
		assert.Equal(t, 2, seen.Attempt)
		assert.Equal(t, driver.Absent, d.look("bob", "K").State)
		d.send("bob", "K", respond(201))
		assert.Equal(t, driver.Completed, d.look("bob", "K").State)
	})
}

func TestAnOperatorFindsRecordsUnderEarlierNames(t *testing.T) {
	store := memstore.New()
	old, perRoute := []byte("0123456789abcdef"), core.Task{Kind: "POST /refunds", Scope: "ann", Key: "R"}
	before := newDesk(t, store, func(c *core.Config) { c.Secret = old })
	before.send("ann", "K", respond(201))
	now := newDesk(t, store, func(c *core.Config) {
		c.Secret, c.PreviousSecrets = []byte("fedcba9876543210"), [][]byte{old}
		c.Key.PerRoute, c.Key.PerRouteChanged = true, true
	})
	now.send("ann", "R", respond(201))
	assert.Equal(t, driver.Completed, now.look("ann", "K").State)
	seen, err := now.Look(ctx, perRoute)
	require.NoError(t, err)
	assert.Equal(t, driver.Completed, seen.State)
	found := 0
	require.NoError(t, now.Scan(ctx, operator.Filter{Scope: "ann", States: []driver.State{driver.Completed}}, func(driver.Record) bool {
		found++
		return true
	}))
	assert.Equal(t, 2, found, "under both secrets")
	found = 0
	require.NoError(t, now.Scan(ctx, operator.Filter{Scope: "ann", States: []driver.State{driver.Completed}}, func(driver.Record) bool {
		found++
		return false
	}))
	assert.Equal(t, 1, found, "until found returns false")

	only := newDesk(t, store, func(c *core.Config) { c.Key.PerRoute = true })
	_, err = only.Look(ctx, core.Task{Scope: "ann", Key: "R"})
	assert.ErrorContains(t, err, "Task.Kind must be the method and path")
}

func TestNoKeyIsCalledNewWithoutItsRoute(t *testing.T) {
	d := newDesk(t, memstore.New(), func(c *core.Config) { c.Key.PerRoute, c.Key.PerRouteChanged = true, true })
	for _, key := range []string{"never sent", "K"} {
		_, err := d.Look(ctx, core.Task{Scope: "ann", Key: key})
		assert.ErrorContains(t, err, "Task.Kind must be the method and path", key)
		d.send("ann", "K", respond(201))
	}
}

func TestAReleasedClaimHidesNoRecordUnderAnEarlierName(t *testing.T) {
	for _, test := range []struct {
		run  func(context.Context) (*core.Response, error)
		want driver.State
	}{{respond(201), driver.Completed}, {vanish, driver.Unknown}} {
		inBubble(t, "OPR-01", func(t *testing.T) {
			store, old := memstore.New(), []byte("0123456789abcdef")
			before := newDesk(t, store, func(c *core.Config) { c.Secret = old })
			before.send("ann", "K", test.run)
			time.Sleep(lease)
			now := newDesk(t, store, func(c *core.Config) { c.Secret, c.PreviousSecrets = []byte("fedcba9876543210"), [][]byte{old} })
			now.send("ann", "K", respond(500)) // claims its own name, finds the earlier record, and releases that claim
			assert.Equal(t, before.look("ann", "K"), now.look("ann", "K"))
			assert.Equal(t, test.want, now.look("ann", "K").State)
		})
	}
}

func TestAnOperatorSettlesWhatItHasSeen(t *testing.T) {
	inBubble(t, "LSE-02", func(t *testing.T) {
		d := newDesk(t, memstore.New())
		d.send("ann", "K", vanish)
		time.Sleep(lease)
		assert.Equal(t, "outcome-unknown", d.send("ann", "K", respond(201)).Problem)
		seen, task := d.look("ann", "K"), core.Task{Scope: "ann", Key: "K"}
		outcome := &core.Response{Status: 201, Body: []byte("refunded")}
		require.NoError(t, d.Resolve(ctx, alice, task, seen, outcome))
		retry := d.send("ann", "K", respond(500))
		assert.True(t, retry.Replayed)
		assert.Equal(t, "refunded", string(retry.Response.Body))
		task.Fence = seen.Fence
		assert.Equal(t, []operator.Act{{
			Kind: operator.Resolve, Who: "alice", Why: "ticket 7", Task: task, Seen: seen, Outcome: outcome,
		}}, d.audited)
		assert.Equal(t, []error{nil}, d.done)
		assert.ErrorIs(t, d.Resolve(ctx, alice, task, seen, nil), core.ErrNotUnknown)
	})
}

func TestAnOperatorSettlesNoLaterRun(t *testing.T) {
	inBubble(t, "OPR-04", func(t *testing.T) {
		d := newDesk(t, memstore.New())
		d.send("ann", "K", vanish)
		time.Sleep(lease)
		task, seen := core.Task{Scope: "ann", Key: "K"}, d.look("ann", "K")
		require.NoError(t, d.Resolve(ctx, alice, task, seen, nil), "a colleague is faster")
		d.send("ann", "K", vanish)
		assert.ErrorIs(t, d.Resolve(ctx, alice, task, seen, respondWith(201)), core.ErrNotUnknown, "while the next run is in progress")
		time.Sleep(lease)
		err := d.Resolve(ctx, alice, task, seen, respondWith(201))
		assert.ErrorIs(t, err, core.ErrNotUnknown)
		assert.ErrorContains(t, err, "another run has vanished")
		assert.Equal(t, driver.Unknown, d.look("ann", "K").State)
		assert.ErrorIs(t, d.Forget(ctx, alice, task, seen), operator.ErrChanged)
		assert.Equal(t, driver.Unknown, d.look("ann", "K").State)
		assert.ErrorIs(t, d.Resolve(ctx, alice, task, driver.Record{State: driver.Failed}, nil), core.ErrNotUnknown)
	})
}

// job is a task.
var job = core.Task{Kind: "JOB", Scope: "ann", Key: "J"}

// work runs job.
func (d *desk) work(run func(context.Context) (*core.Response, error)) {
	d.t.Helper()
	_, err := d.engine.DoTask(ctx, job, run)
	require.NoError(d.t, err)
}

// die is a handler after which its task is dead.
func die(ctx context.Context) (*core.Response, error) {
	core.Decide(ctx, core.Keep)
	return respond(500)(ctx)
}

func TestAnOperatorRevivesNothingButWhatWasSeenDead(t *testing.T) {
	for name, test := range map[string]struct {
		first, second func(context.Context) (*core.Response, error)
		colleague     *core.Response
		want          driver.State
	}{
		"revived, and vanished":      {first: die, second: vanish, want: driver.Unknown},
		"revived, and dead again":    {first: die, second: die, want: driver.Completed},
		"unknown, and settled since": {first: vanish, colleague: respondWith(500), want: driver.Completed},
		"unknown, and dead since":    {first: vanish, second: die, want: driver.Completed},
	} {
		for _, outcome := range []*core.Response{nil, respondWith(201)} {
			inBubble(t, "OPR-04 "+name, func(t *testing.T) {
				d := newDesk(t, memstore.New())
				d.work(test.first)
				time.Sleep(lease)
				seen, err := d.Look(ctx, job)
				require.NoError(t, err)
				require.NoError(t, d.Resolve(ctx, alice, job, seen, test.colleague), "a colleague is faster")
				if test.second != nil {
					d.work(test.second)
				}
				time.Sleep(lease)
				before, err := d.Look(ctx, job)
				require.NoError(t, err)
				assert.Equal(t, test.want, before.State)
				assert.ErrorIs(t, d.Resolve(ctx, alice, job, seen, outcome), core.ErrNotUnknown)
				after, err := d.Look(ctx, job)
				require.NoError(t, err)
				assert.Equal(t, before, after)
			})
		}
	}
}

func TestAnActIsOfTheRecordThatWasSeen(t *testing.T) {
	inBubble(t, "OPR-04", func(t *testing.T) {
		d := newDesk(t, memstore.New())
		d.send("ann", "A", respond(201))
		d.send("ann", "B", vanish)
		time.Sleep(lease)
		taskB, seenA, seenB := core.Task{Scope: "ann", Key: "B"}, d.look("ann", "A"), d.look("ann", "B")
		for _, outcome := range []*core.Response{nil, respondWith(201)} {
			assert.ErrorContains(t, d.Resolve(ctx, alice, taskB, seenA, outcome), "not that of the task")
		}
		assert.ErrorContains(t, d.Forget(ctx, alice, taskB, seenA), "not that of the task")
		assert.ErrorContains(t, d.Forget(ctx, alice, taskB, driver.Record{}), "no record was seen")
		assert.Equal(t, seenA, d.look("ann", "A"))
		assert.Equal(t, seenB, d.look("ann", "B"))
		assert.Empty(t, d.audited)
		require.NoError(t, d.Forget(ctx, alice, core.Task{}, seenA))
		assert.Equal(t, driver.Absent, d.look("ann", "A").State)
	})
}

// respondWith returns a response with this status.
func respondWith(status int) *core.Response { return &core.Response{Status: status} }

func TestNothingIsDoneThatIsNotAudited(t *testing.T) {
	inBubble(t, "OPR-05", func(t *testing.T) {
		d := newDesk(t, memstore.New())
		d.send("ann", "K", vanish)
		time.Sleep(lease)
		task, seen := core.Task{Scope: "ann", Key: "K"}, d.look("ann", "K")
		acts := map[operator.Kind]func(operator.By) error{
			operator.Resolve: func(by operator.By) error { return d.Resolve(ctx, by, task, seen, nil) },
			operator.Forget:  func(by operator.By) error { return d.Forget(ctx, by, task, seen) },
			operator.ForgetScope: func(by operator.By) error {
				_, err := d.ForgetScope(ctx, by, "ann", nil)
				return err
			},
		}
		for kind, act := range acts {
			d.refuses, d.audited = errTest, nil
			assert.ErrorIs(t, act(alice), errTest, kind)
			require.Len(t, d.audited, 1, kind)
			assert.Equal(t, kind, d.audited[0].Kind)
			d.refuses, d.audited = nil, nil
			for _, by := range []operator.By{{}, {Who: "alice"}, {Why: "ticket 7"}} {
				assert.ErrorContains(t, act(by), "By.Who and By.Why", kind)
			}
			assert.Empty(t, d.audited, kind)
			assert.Equal(t, seen, d.look("ann", "K"), kind)
		}
		assert.Empty(t, d.done)
	})
}

func TestAllRecordsOfACallerAreForgotten(t *testing.T) {
	inBubble(t, "OPR-03", func(t *testing.T) {
		d := newDesk(t, memstore.New())
		for _, scope := range []string{"ann", "bob"} {
			d.send(scope, "completed", respond(201))
			d.send(scope, "failed", respond(500))
			d.send(scope, "unknown", vanish)
		}
		time.Sleep(lease)
		d.send("ann", "in-progress", func(context.Context) (*core.Response, error) {
			var seen []operator.Forgotten
			done, err := d.ForgetScope(ctx, alice, "ann", func(f operator.Forgotten) { seen = append(seen, f) })
			require.NoError(t, err)
			assert.Equal(t, operator.Forgotten{Records: 3, InProgress: 1}, done)
			require.Len(t, seen, 4)
			assert.Equal(t, done, seen[3])
			return respondWith(201), nil
		})
		states := map[driver.State]int{}
		require.NoError(t, d.Scan(ctx, operator.Filter{}, func(r driver.Record) bool {
			states[r.State]++
			return true
		}))
		assert.Equal(t, map[driver.State]int{driver.Completed: 2, driver.Failed: 1, driver.Unknown: 1}, states)
		assert.Equal(t, driver.Completed, d.look("ann", "in-progress").State)
		assert.False(t, d.send("ann", "completed", respond(201)).Replayed, "the key is new")
		assert.True(t, d.send("bob", "completed", respond(201)).Replayed)
		_, err := d.ForgetScope(ctx, alice, "", nil)
		assert.ErrorContains(t, err, "the scope is empty")
	})
}

// blind is a store that no operator can look into.
type blind struct{ driver.Store }

func TestAStoreThatNobodyCanLookIntoIsRefused(t *testing.T) {
	engine, err := core.New(core.Config{Store: blind{memstore.New()}, Scope: core.SingleTenant})
	require.NoError(t, err)
	_, err = operator.New(engine, operator.Config{})
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "operator_test.blind")
	_, err = operator.New(nil, operator.Config{})
	assert.ErrorContains(t, err, "needs an engine")
}

func TestARecordThatCannotBeReadIsLeft(t *testing.T) {
	d := newDesk(t, memstore.New())
	err := d.Forget(ctx, alice, core.Task{}, driver.Record{State: driver.Unreadable})
	assert.ErrorIs(t, err, driver.ErrUnreadable)
	assert.Empty(t, d.audited)
}
