package core_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// What one run sees of another (EVT-09).

// inner is a way to get into something that is not the run around it.
type inner struct {
	enter     func(t *testing.T, f *fixture, outer context.Context, h func(context.Context))
	isRun     bool // there is a claim
	protected bool // or it is a run without one
	child     bool // it has child keys
}

func failOpen(c *core.Config) { c.DangerouslyFailOpen = true }

// away is f on a store that never answers.
func (f *fixture) away() *fixture {
	return f.with(func(c *core.Config) {
		c.Store = scripted{Store: f.inner, begin: func(driver.Claim) (driver.Entry, error) { return driver.Entry{}, errTest }}
	})
}

func consumes(id string) func(*testing.T, *fixture, context.Context, func(context.Context)) {
	return func(_ *testing.T, f *fixture, outer context.Context, h func(context.Context)) {
		consumer.Consume(outer, f.consumer, consumer.Message{Group: "inner", ID: id}, func(ctx context.Context) (receipt, error) {
			h(ctx)
			return receipt{}, nil
		})
	}
}

func batches(_ *testing.T, f *fixture, outer context.Context, h func(context.Context)) {
	consumer.Batch(outer, f.consumer, []consumer.Message{{Group: "inner", ID: "1"}, {Group: "inner", ID: "2"}},
		func(ctx context.Context, messages []consumer.Message) ([]receipt, error) {
			h(ctx)
			return make([]receipt, len(messages)), nil
		})
}

var inners = map[string]inner{
	"a run": {enter: func(t *testing.T, f *fixture, outer context.Context, h func(context.Context)) {
		_, err := f.do(outer, request("inner", "B"), func(ctx context.Context) (*core.Response, error) { h(ctx); return made(ctx) })
		require.NoError(t, err)
	}, isRun: true, child: true},
	"a message": {enter: consumes("1"), isRun: true, child: true},
	"a batch":   {enter: batches},
	"an unprotected run": {enter: func(t *testing.T, f *fixture, outer context.Context, h func(context.Context)) {
		_, err := f.away().do(outer, request("inner", "B"), func(ctx context.Context) (*core.Response, error) { h(ctx); return made(ctx) })
		require.NoError(t, err)
	}, protected: true, child: true},
	"an unprotected message": {enter: func(t *testing.T, f *fixture, outer context.Context, h func(context.Context)) {
		consumes("1")(t, f.away(), outer, h)
	}, protected: true, child: true},
	"an unprotected batch": {enter: func(t *testing.T, f *fixture, outer context.Context, h func(context.Context)) {
		batches(t, f.away(), outer, h)
	}},
	"a question about an unknown outcome": {enter: func(t *testing.T, f *fixture, outer context.Context, h func(context.Context)) {
		asked := false
		g := f.with(func(c *core.Config) {
			c.Lease.OnUnknown = func(ctx context.Context, _ *core.Request) (*core.Response, error) {
				asked = true
				h(ctx)
				return nil, core.ErrOutcomeUnknown
			}
			store := c.Store
			c.Store = scripted{Store: store, begin: func(driver.Claim) (driver.Entry, error) { return driver.Entry{State: driver.Unknown, Fence: 7}, nil }}
		})
		_, err := g.do(outer, request("inner", "B"), made)
		require.NoError(t, err)
		require.True(t, asked)
	}, child: true},
}

func TestWhatIsInsideARunSeesNothingOfIt(t *testing.T) {
	for name, in := range inners {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, failOpen)
			var outerRun core.Run
			outerSteps, innerSteps := 0, 0
			result := f.send(request("outer", "B"), func(outer context.Context) (*core.Response, error) {
				outerRun = f.seen(outer)
				_, err := core.Step(outer, "charge", func(context.Context) (int, error) { outerSteps++; return 1, nil })
				require.NoError(t, err)
				in.enter(t, f, outer, func(ctx context.Context) {
					run, ok := core.FromContext(ctx)
					assert.Equal(t, in.isRun || in.protected, ok)
					assert.Equal(t, in.protected, run.Unprotected)
					assert.NotEqual(t, outerRun.Fence, run.Fence)
					assert.Equal(t, in.child, core.ChildKey(ctx, "charge") != "")
					assert.NotEqual(t, core.ChildKey(outer, "charge"), core.ChildKey(ctx, "charge"))
					got, err := core.Step(ctx, "charge", func(context.Context) (int, error) { innerSteps++; return 2, nil })
					assert.NoError(t, err)
					assert.Equal(t, 2, got, "a step of the run around it is none of its own")
					core.Decide(ctx, core.Keep)
					core.CancelOnDisconnect(ctx)
				})
				assert.Equal(t, outerRun, f.seen(outer), "the run goes on around it")
				return &core.Response{Status: 503}, nil
			})
			f.answered(result, 503, "")
			assert.Equal(t, 1, innerSteps)
			assert.Equal(t, 2, f.runsAgain(request("outer", "B")).Attempt, "Decide(Keep) was not about the outer run")
			assert.Equal(t, 1, outerSteps)
		})
	}
}

// A leaving client ends a run that asked for it, and not the one around it.
func TestAnInnerRunsClientIsNotTheOuterOnes(t *testing.T) {
	f := newFixture(t, failOpen)
	client, leave := context.WithCancel(ctx)
	_, err := f.do(client, request("outer", "B"), func(outer context.Context) (*core.Response, error) {
		consumes("1")(t, f.away(), outer, func(ctx context.Context) { core.CancelOnDisconnect(ctx) })
		leave()
		assert.NoError(t, outer.Err())
		return made(outer)
	})
	require.NoError(t, err)
}

// Rows of a batch that are charged one by one are charged each, whatever is around the batch.
func TestEachRowOfABatchInsideARunIsChargedOnItsOwn(t *testing.T) {
	f := newFixture(t)
	charged := map[string]string{}
	f.send(request("outer", "B"), func(outer context.Context) (*core.Response, error) {
		messages := []consumer.Message{{Group: "rows", ID: "1"}, {Group: "rows", ID: "2"}}
		consumer.Batch(outer, f.consumer, messages, func(ctx context.Context, rows []consumer.Message) (receipts []receipt, err error) {
			for _, row := range rows {
				_, err := core.Step(ctx, "charge", func(context.Context) (string, error) {
					charged[row.ID] = core.ChildKey(ctx, "charge")
					return row.ID, nil
				})
				require.NoError(t, err)
				receipts = append(receipts, receipt{})
			}
			return receipts, nil
		})
		return made(outer)
	})
	assert.Equal(t, map[string]string{"1": "", "2": ""}, charged)
}

// A run that is around the one around it is found, too.
func TestARunStandsAsideHoweverManyAreBetween(t *testing.T) {
	message := consumer.Message{Group: "g", ID: "A"}
	for name, between := range inners {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, failOpen)
			result := f.send(request("A", "B"), func(outer context.Context) (*core.Response, error) {
				between.enter(t, f, outer, func(ctx context.Context) {
					again, err := f.Do(ctx, request("A", "B"), made)
					require.NoError(t, err)
					assert.True(t, again.Bypassed, "%+v", again)
				})
				return made(outer)
			})
			f.answered(result, 201, "made")

			delivery := consumer.Consume(ctx, f.consumer, message, func(outer context.Context) (receipt, error) {
				g := f.with(func(c *core.Config) { c.Scope = func(context.Context, *core.Request) string { return "other" } })
				between.enter(t, g, outer, func(ctx context.Context) {
					again := consumer.Consume(ctx, f.consumer, message, f.numbered)
					assert.Equal(t, consumer.Done, again.Verdict)
				})
				return receipt{}, nil
			})
			assert.Equal(t, consumer.Done, delivery.Verdict, delivery.Err)
		})
	}
}

// The batch holds the claims of its messages, so their runs are around its handler.
func TestAMessageWithinItsOwnBatchIsOnlyHandled(t *testing.T) {
	f := newFixture(t)
	messages := []consumer.Message{{Group: "g", ID: "1"}, {Group: "g", ID: "2"}}
	deliveries := consumer.Batch(ctx, f.consumer, messages, func(ctx context.Context, rows []consumer.Message) (receipts []receipt, err error) {
		for i, row := range rows {
			d := consumer.Consume(ctx, f.consumer, row, func(context.Context) (receipt, error) { return receipt{i + 1}, nil })
			assert.Equal(t, consumer.Done, d.Verdict, d.Err)
			receipts = append(receipts, d.Result)
		}
		return receipts, nil
	})
	assert.Equal(t, []consumer.Delivery[receipt]{
		{Verdict: consumer.Done, Result: receipt{1}, Attempt: 1}, {Verdict: consumer.Done, Result: receipt{2}, Attempt: 1},
	}, deliveries)
}

// A run that has ended is around nothing, although its context is still there.
func TestARunThatHasEndedIsNotStoodAsideFor(t *testing.T) {
	f := newFixture(t)
	var left context.Context
	f.send(request("A", "B"), func(ctx context.Context) (*core.Response, error) { left = ctx; return made(ctx) })
	result, err := f.Do(context.WithoutCancel(left), request("A", "B"), made)
	require.NoError(t, err)
	f.replayed(result, 201, "made")
}

// SKW-01: a child key follows scope, key, method, path and step, and nothing else.
func TestChildKeysStayWhateverChanges(t *testing.T) {
	child := func(t *testing.T, r core.Request, change func(*core.Config)) (key string) {
		newFixture(t, change).send(r, func(ctx context.Context) (*core.Response, error) {
			key = core.ChildKey(ctx, "charge")
			return made(ctx)
		})
		return key
	}
	nothing := func(*core.Config) {}
	want := child(t, request("K", "B"), nothing)
	assert.Equal(t, "66e919617835a626e072315c28cf6ee3c7c51579acfafa1d1b7368b57a006ae0", want, "this value outlives processes: it must never change")
	for name, change := range map[string]func(*core.Config){
		"a secret": secret(oneSecret), "another": secret(anotherSecret), "PerRoute": func(c *core.Config) { c.Key.PerRoute = true },
		"JSON": comparing(core.FingerprintConfig{JSON: true}), "Off": comparing(core.FingerprintConfig{Off: true}), "a store that lost its data": nothing,
		"a retention": func(c *core.Config) { c.Keep.Retention *= 2 }, "an alias": func(c *core.Config) { c.Key.Aliases = []string{"X-Key"} },
	} {
		assert.Equal(t, want, child(t, request("K", "B"), change), name)
	}
	assert.Equal(t, want, child(t, request("K", "B'"), nothing), "the body is no part of it: after a release another may come")
	for name, r := range map[string]core.Request{
		"key": request("L", "B"), "path": changed(path("/refunds")), "method": changed(method("PATCH")), "scope": changed(scope("other")),
	} {
		assert.NotEqual(t, want, child(t, r, func(c *core.Config) { c.Key.PerRoute = true }), name)
	}
}

// The handler can tell one operation under a key from the next, which the child key does not.
func TestTheHandlerIsToldTheOperationThatTheStoreTells(t *testing.T) {
	tells := int64(40) // what Begin says of the operation; a store counts its fences for it
	f := newFixture(t, func(c *core.Config) {
		store := c.Store
		c.Store = scripted{Store: store, begin: func(c driver.Claim) (driver.Entry, error) {
			entry, err := store.Begin(ctx, c)
			tells++
			entry.Operation = tells
			return entry, err
		}}
	})
	var runs []core.Run
	var children []string
	for _, status := range []int{500, 500, 401, 201} {
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			runs, children = append(runs, f.seen(ctx)), append(children, core.ChildKey(ctx, "charge"))
			return &core.Response{Status: status}, nil
		})
	}
	require.Len(t, runs, 4)
	assert.Equal(t, []int64{41, 42, 43, 44}, []int64{runs[0].Operation, runs[1].Operation, runs[2].Operation, runs[3].Operation})
	for _, c := range children {
		assert.Equal(t, children[0], c)
	}
}

// A run inside of one without a claim is a run like any other.
func TestARunInsideARunWithoutAClaimIsItsOwn(t *testing.T) {
	f := newFixture(t, failOpen)
	f.store.Inject("begin", storetest.Before, 1)
	f.send(request("outer", "B"), func(ctx context.Context) (*core.Response, error) {
		result, err := f.do(ctx, request("inner", "B"), made)
		require.NoError(t, err)
		f.answered(result, 201, "made")
		return made(ctx)
	})
	f.replayed(f.send(request("inner", "B"), made), 201, "made")
	f.close()
}
