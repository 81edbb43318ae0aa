package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
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

// testOperator is an operator with the engine and the store of its records, and the acts that it has audited and reported.
type testOperator struct {
	*operator.Operator
	t       *testing.T
	engine  *core.Engine
	audited []operator.Act
	done    []error
	refuses error // of Audit
}

// newOperator returns the operator of an engine whose callers say who they are.
func newOperator(t *testing.T, store driver.Store, changes ...func(*core.Config)) *testOperator {
	o := &testOperator{t: t}
	cfg := core.Config{Store: store, Scope: core.ScopeByAdapter}
	cfg.Lease.Duration, cfg.Keep.Retention, cfg.Lease.OnUnknown = lease, retention, core.RefuseUnknown
	for _, change := range changes {
		change(&cfg)
	}
	var err error
	o.engine, err = core.New(cfg)
	require.NoError(t, err)
	o.Operator, err = operator.New(o.engine, operator.Config{
		Audit: func(_ context.Context, act operator.Act) error {
			o.audited = append(o.audited, act)
			return o.refuses
		},
		Done: func(_ context.Context, _ operator.Act, err error) { o.done = append(o.done, err) },
	})
	require.NoError(t, err)
	return o
}

// send sends a request, whose handler is run.
func (o *testOperator) send(scope, key string, run func(context.Context) (*core.Response, error)) core.Result {
	o.t.Helper()
	result, _ := o.engine.Do(ctx, core.Request{
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
func (o *testOperator) look(scope, key string) driver.Record {
	o.t.Helper()
	seen, err := o.Look(ctx, core.Task{Scope: scope, Key: key})
	require.NoError(o.t, err)
	return seen
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func TestAnOperatorSeesWhatBecameOfARequest(t *testing.T) {
	inBubble(t, "OPR-01", func(t *testing.T) {
		o := newOperator(t, memstore.New())
		assert.Equal(t, driver.Absent, o.look("ann", "K").State)
		o.send("ann", "K", func(ctx context.Context) (*core.Response, error) {
			seen := o.look("ann", "K")
			assert.Equal(t, driver.InProgress, seen.State)
			assert.Equal(t, lease, seen.Remaining)
			return respond(500)(ctx)
		})
		seen := o.look("ann", "K")
		assert.Equal(t, driver.Failed, seen.State)
		assert.Equal(t, "status 500", seen.Cause)
		o.send("ann", "K", vanish)
		time.Sleep(lease + time.Minute)
		seen = o.look("ann", "K")
		assert.Equal(t, driver.Unknown, seen.State)
		assert.Equal(t, -time.Minute, seen.Remaining)
		assert.Equal(t, 2, seen.Attempt)
		assert.Equal(t, driver.Absent, o.look("bob", "K").State)
		o.send("bob", "K", respond(201))
		assert.Equal(t, driver.Completed, o.look("bob", "K").State)
	})
}

func TestAnOperatorFindsRecordsUnderEarlierNames(t *testing.T) {
	store := memstore.New()
	old, perRoute := []byte("0123456789abcdef"), core.Task{Kind: "POST /refunds", Scope: "ann", Key: "R"}
	before := newOperator(t, store, func(c *core.Config) { c.Secret = old })
	before.send("ann", "K", respond(201))
	now := newOperator(t, store, func(c *core.Config) {
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

	only := newOperator(t, store, func(c *core.Config) { c.Key.PerRoute = true })
	_, err = only.Look(ctx, core.Task{Scope: "ann", Key: "R"})
	assert.ErrorContains(t, err, "Task.Kind must be the method and path")
}

func TestAnOperatorFindsTheRecordOfAProblem(t *testing.T) {
	inBubble(t, "PRB-06", func(t *testing.T) {
		store, old := memstore.New(), []byte("0123456789abcdef")
		before := newOperator(t, store, func(c *core.Config) { c.Secret = old })
		now := newOperator(t, store, func(c *core.Config) { c.Secret, c.PreviousSecrets = []byte("fedcba9876543210"), [][]byte{old} })
		var instances []string
		for _, o := range []*testOperator{before, now} {
			key := string(o.engine.Config().Secret)
			o.send("ann", key, func(ctx context.Context) (*core.Response, error) {
				var problem core.Problem
				require.NoError(t, json.Unmarshal(o.send("ann", key, respond(201)).Response.Body, &problem))
				instances = append(instances, problem.Instance)
				return respond(201)(ctx)
			})
		}
		find := func(scope, instance string) driver.Record {
			seen, err := now.Find(ctx, scope, instance)
			require.NoError(t, err)
			return seen
		}
		for i, o := range []*testOperator{before, now} {
			record := o.look("ann", string(o.engine.Config().Secret))
			assert.Equal(t, record, find("ann", instances[i]))
			assert.Equal(t, record, find("", instances[i]))
			assert.Equal(t, record, find("ann", strings.TrimPrefix(instances[i], "urn:idem:")))
			assert.Equal(t, driver.Absent, find("bob", instances[i]).State, "PRB-06: it belongs to one caller")
		}
		unknown := "urn:idem:" + strings.Repeat("A", 32)
		assert.Equal(t, driver.Absent, find("", unknown).State)
		for _, bad := range []string{"", "urn:idem:", unknown + "A", unknown[:40], unknown[:40] + "\n", unknown[:40] + "=", "urn:uuid:" + unknown[9:]} {
			_, err := now.Find(ctx, "", bad)
			assert.ErrorIs(t, err, operator.ErrNotInstance, bad)
		}
	})
}

func TestNoKeyIsCalledNewWithoutItsRoute(t *testing.T) {
	o := newOperator(t, memstore.New(), func(c *core.Config) { c.Key.PerRoute, c.Key.PerRouteChanged = true, true })
	for _, key := range []string{"never sent", "K"} {
		_, err := o.Look(ctx, core.Task{Scope: "ann", Key: key})
		assert.ErrorContains(t, err, "Task.Kind must be the method and path", key)
		o.send("ann", "K", respond(201))
	}
}

func TestAReleasedClaimHidesNoRecordUnderAnEarlierName(t *testing.T) {
	for _, test := range []struct {
		run  func(context.Context) (*core.Response, error)
		want driver.State
	}{{respond(201), driver.Completed}, {vanish, driver.Unknown}} {
		inBubble(t, "OPR-01", func(t *testing.T) {
			store, old := memstore.New(), []byte("0123456789abcdef")
			before := newOperator(t, store, func(c *core.Config) { c.Secret = old })
			before.send("ann", "K", test.run)
			time.Sleep(lease)
			now := newOperator(t, store, func(c *core.Config) { c.Secret, c.PreviousSecrets = []byte("fedcba9876543210"), [][]byte{old} })
			now.send("ann", "K", respond(500)) // claims its own name, finds the earlier record, and releases that claim
			assert.Equal(t, before.look("ann", "K"), now.look("ann", "K"))
			assert.Equal(t, test.want, now.look("ann", "K").State)
		})
	}
}

func TestAnOperatorSettlesWhatItHasSeen(t *testing.T) {
	inBubble(t, "LSE-02", func(t *testing.T) {
		o := newOperator(t, memstore.New())
		o.send("ann", "K", vanish)
		time.Sleep(lease)
		assert.Equal(t, "outcome-unknown", o.send("ann", "K", respond(201)).Problem)
		seen, task := o.look("ann", "K"), core.Task{Scope: "ann", Key: "K"}
		outcome := &core.Response{Status: 201, Body: []byte("refunded")}
		require.NoError(t, o.Resolve(ctx, alice, task, seen, outcome))
		retry := o.send("ann", "K", respond(500))
		assert.True(t, retry.Replayed)
		assert.Equal(t, "refunded", string(retry.Response.Body))
		task.Fence = seen.Fence
		assert.Equal(t, []operator.Act{{
			Action: operator.Resolve, Who: "alice", Why: "ticket 7", Task: task, Seen: seen, Outcome: outcome,
		}}, o.audited)
		assert.Equal(t, []error{nil}, o.done)
		assert.ErrorIs(t, o.Resolve(ctx, alice, task, seen, nil), core.ErrNotUnknown)
	})
}

func TestAnOperatorSettlesNoLaterRun(t *testing.T) {
	inBubble(t, "OPR-04", func(t *testing.T) {
		o := newOperator(t, memstore.New())
		o.send("ann", "K", vanish)
		time.Sleep(lease)
		task, seen := core.Task{Scope: "ann", Key: "K"}, o.look("ann", "K")
		require.NoError(t, o.Resolve(ctx, alice, task, seen, nil), "a colleague is faster")
		o.send("ann", "K", vanish)
		assert.ErrorIs(t, o.Resolve(ctx, alice, task, seen, respondWith(201)), core.ErrNotUnknown, "while the next run is in progress")
		time.Sleep(lease)
		err := o.Resolve(ctx, alice, task, seen, respondWith(201))
		assert.ErrorIs(t, err, core.ErrNotUnknown)
		assert.ErrorContains(t, err, "another run has vanished")
		assert.Equal(t, driver.Unknown, o.look("ann", "K").State)
		assert.ErrorIs(t, o.Forget(ctx, alice, task, seen), operator.ErrChanged)
		assert.ErrorIs(t, o.Release(ctx, alice, task, seen), operator.ErrChanged)
		assert.Equal(t, driver.Unknown, o.look("ann", "K").State)
		assert.ErrorIs(t, o.Resolve(ctx, alice, task, driver.Record{State: driver.Failed}, nil), core.ErrNotUnknown)
	})
}

// The outcome of a run that was seen in progress is unknown when its process has died since. That is for somebody to settle who has
// seen it.
func TestWhatWasSeenInProgressIsNotForgotten(t *testing.T) {
	inBubble(t, "OPR-04", func(t *testing.T) {
		o := newOperator(t, memstore.New())
		o.send("ann", "K", vanish)
		task, seen := core.Task{Scope: "ann", Key: "K"}, o.look("ann", "K")
		time.Sleep(lease)
		assert.ErrorIs(t, o.Forget(ctx, alice, task, seen), operator.ErrChanged)
		assert.ErrorIs(t, o.Release(ctx, alice, task, seen), operator.ErrChanged)
		assert.Equal(t, driver.Unknown, o.look("ann", "K").State)
		assert.Empty(t, o.audited)
	})
}

func TestAReleasedKeyIsFreeForAnotherRequest(t *testing.T) {
	for name, run := range map[string]func(context.Context) (*core.Response, error){"failed": respond(500), "unknown": vanish} {
		inBubble(t, "OPR-04 "+name, func(t *testing.T) {
			o := newOperator(t, memstore.New())
			o.send("ann", "K", run)
			task := core.Task{Scope: "ann", Key: "K"}
			if name == "unknown" {
				assert.ErrorIs(t, o.Release(ctx, alice, task, o.look("ann", "K")), operator.ErrChanged, "its lease runs")
			}
			time.Sleep(lease)
			seen := o.look("ann", "K")
			assert.ErrorContains(t, o.Release(ctx, alice, core.Task{Scope: "ann", Key: "L"}, seen), "not that of the task")
			require.NoError(t, o.Release(ctx, alice, task, seen))
			assert.Equal(t, operator.Release, o.audited[len(o.audited)-1].Action)
			assert.False(t, o.send("ann", "K", respond(201)).Replayed)
			assert.ErrorIs(t, o.Release(ctx, alice, task, seen), operator.ErrChanged, "an outcome is there by now")
			err := o.Release(ctx, alice, task, o.look("ann", "K"))
			assert.ErrorIs(t, err, operator.ErrNotStuck)
			assert.ErrorContains(t, err, "completed")
			assert.True(t, o.send("ann", "K", respond(500)).Replayed, "the outcome is left")
		})
	}
}

// job is a task.
var job = core.Task{Kind: "JOB", Scope: "ann", Key: "J"}

// work runs job.
func (o *testOperator) work(run func(context.Context) (*core.Response, error)) {
	o.t.Helper()
	_, err := o.engine.DoTask(ctx, job, run)
	require.NoError(o.t, err)
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
				o := newOperator(t, memstore.New())
				o.work(test.first)
				time.Sleep(lease)
				seen, err := o.Look(ctx, job)
				require.NoError(t, err)
				require.NoError(t, o.Resolve(ctx, alice, job, seen, test.colleague), "a colleague is faster")
				if test.second != nil {
					o.work(test.second)
				}
				time.Sleep(lease)
				before, err := o.Look(ctx, job)
				require.NoError(t, err)
				assert.Equal(t, test.want, before.State)
				assert.ErrorIs(t, o.Resolve(ctx, alice, job, seen, outcome), core.ErrNotUnknown)
				after, err := o.Look(ctx, job)
				require.NoError(t, err)
				assert.Equal(t, before, after)
			})
		}
	}
}

func TestAnActIsOfTheRecordThatWasSeen(t *testing.T) {
	inBubble(t, "OPR-04", func(t *testing.T) {
		o := newOperator(t, memstore.New())
		o.send("ann", "A", respond(201))
		o.send("ann", "B", vanish)
		time.Sleep(lease)
		taskB, seenA, seenB := core.Task{Scope: "ann", Key: "B"}, o.look("ann", "A"), o.look("ann", "B")
		for _, outcome := range []*core.Response{nil, respondWith(201)} {
			assert.ErrorContains(t, o.Resolve(ctx, alice, taskB, seenA, outcome), "not that of the task")
		}
		assert.ErrorContains(t, o.Forget(ctx, alice, taskB, seenA), "not that of the task")
		assert.ErrorContains(t, o.Forget(ctx, alice, taskB, driver.Record{}), "no record was seen")
		assert.Equal(t, seenA, o.look("ann", "A"))
		assert.Equal(t, seenB, o.look("ann", "B"))
		assert.Empty(t, o.audited)
		require.NoError(t, o.Forget(ctx, alice, core.Task{}, seenA))
		assert.Equal(t, driver.Absent, o.look("ann", "A").State)
	})
}

// respondWith returns a response with this status.
func respondWith(status int) *core.Response { return &core.Response{Status: status} }

func TestNothingIsDoneThatIsNotAudited(t *testing.T) {
	inBubble(t, "OPR-05", func(t *testing.T) {
		o := newOperator(t, memstore.New())
		o.send("ann", "K", vanish)
		time.Sleep(lease)
		task, seen := core.Task{Scope: "ann", Key: "K"}, o.look("ann", "K")
		acts := map[operator.Action]func(operator.By) error{
			operator.Resolve: func(by operator.By) error { return o.Resolve(ctx, by, task, seen, nil) },
			operator.Release: func(by operator.By) error { return o.Release(ctx, by, task, seen) },
			operator.Forget:  func(by operator.By) error { return o.Forget(ctx, by, task, seen) },
			operator.ForgetScope: func(by operator.By) error {
				_, err := o.ForgetScope(ctx, by, "ann", nil)
				return err
			},
		}
		for action, act := range acts {
			o.refuses, o.audited = errTest, nil
			assert.ErrorIs(t, act(alice), errTest, action)
			require.Len(t, o.audited, 1, action)
			assert.Equal(t, action, o.audited[0].Action)
			o.refuses, o.audited = nil, nil
			for _, by := range []operator.By{{}, {Who: "alice"}, {Why: "ticket 7"}} {
				assert.ErrorContains(t, act(by), "By.Who and By.Why", action)
			}
			assert.Empty(t, o.audited, action)
			assert.Equal(t, seen, o.look("ann", "K"), action)
		}
		assert.Empty(t, o.done)
	})
}

func TestAllRecordsOfACallerAreForgotten(t *testing.T) {
	inBubble(t, "OPR-03", func(t *testing.T) {
		o := newOperator(t, memstore.New())
		for _, scope := range []string{"ann", "bob"} {
			o.send(scope, "completed", respond(201))
			o.send(scope, "failed", respond(500))
			o.send(scope, "unknown", vanish)
		}
		time.Sleep(lease)
		o.send("ann", "in-progress", func(context.Context) (*core.Response, error) {
			var seen []operator.Forgotten
			done, err := o.ForgetScope(ctx, alice, "ann", func(f operator.Forgotten) { seen = append(seen, f) })
			require.NoError(t, err)
			assert.Equal(t, operator.Forgotten{Records: 3, InProgress: 1}, done)
			require.Len(t, seen, 4)
			assert.Equal(t, done, seen[3])
			return respondWith(201), nil
		})
		states := map[driver.State]int{}
		require.NoError(t, o.Scan(ctx, operator.Filter{}, func(r driver.Record) bool {
			states[r.State]++
			return true
		}))
		assert.Equal(t, map[driver.State]int{driver.Completed: 2, driver.Failed: 1, driver.Unknown: 1}, states)
		assert.Equal(t, driver.Completed, o.look("ann", "in-progress").State)
		assert.False(t, o.send("ann", "completed", respond(201)).Replayed, "the key is new")
		assert.True(t, o.send("bob", "completed", respond(201)).Replayed)
		_, err := o.ForgetScope(ctx, alice, "", nil)
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
	o := newOperator(t, memstore.New())
	err := o.Forget(ctx, alice, core.Task{}, driver.Record{State: driver.Unreadable})
	assert.ErrorIs(t, err, driver.ErrUnreadable)
	assert.Empty(t, o.audited)
}
