package core_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/storetest"
)

// doneLog collects the events of Hooks.Done and Hooks.Refused.
type doneLog struct {
	mu      sync.Mutex
	done    []core.Event
	refused []string
}

// observe makes an engine report to the log.
func (l *doneLog) observe(c *core.Config) {
	c.Name = "payments"
	c.Hooks.Done = func(_ context.Context, e core.Event) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.done = append(l.done, e)
	}
	c.Hooks.Refused = func(_ context.Context, e core.Event) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.refused = append(l.refused, e.Code)
	}
}

// story is what the log has of each operation: its result, its code or how its run ended.
func (l *doneLog) story() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, e := range l.done {
		one := e.Result
		for _, more := range []string{e.End, e.Code} {
			if more != "" {
				one += " " + more
			}
		}
		all = append(all, one)
	}
	return strings.Join(all, ", ")
}

func panicsInside(context.Context) (*core.Response, error) { panic("handler") }

// everyEnd has the ways in which operations end, each with what Hooks.Done says of it.
var everyEnd = []struct {
	name   string
	change func(*core.Config)
	play   func(t *testing.T, f *fixture)
	story  string
}{
	{"an outcome is stored and replayed", nil, func(_ *testing.T, f *fixture) {
		f.send(request("K", "B"), made)
		f.send(request("K", "B"), made)
	}, "run kept, replay"},
	{"a replay comes from the memory of the process", func(c *core.Config) { c.Keep.LocalReplays = 1 << 20 },
		func(_ *testing.T, f *fixture) {
			f.send(request("K", "B"), made)
			f.send(request("K", "B"), made)
			f.send(request("K", "B"), made)
		}, "run kept, local_replay, local_replay"},
	{"a replay from the memory of the process is not shown", func(c *core.Config) {
		c.Keep.LocalReplays = 1 << 20
		withOnReplay(func(context.Context, *core.Request, *core.Response) (*core.Response, error) { return nil, nil })(c)
	}, func(_ *testing.T, f *fixture) {
		f.send(request("K", "B"), made)
		f.send(request("K", "B"), made)
	}, "run kept, refused replay-refused"},
	{"nothing is known of an outcome that was sent", func(c *core.Config) {
		c.Store = scripted{Store: c.Store, complete: func(driver.Claim) error {
			return fmt.Errorf("%w: commit: %w", core.ErrOutcomeUnknown, core.ErrLost)
		}}
	}, func(_ *testing.T, f *fixture) { f.send(request("K", "B"), made) }, "run unknown store-unavailable"},
	{"requests pass by", nil, func(_ *testing.T, f *fixture) {
		f.send(changed(method("GET")), made)
		f.send(changed(keys()), made)
	}, "bypass, bypass"},
	{"a request is inside of its own run", nil, func(t *testing.T, f *fixture) {
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			_, err := f.do(ctx, request("K", "B"), made)
			require.NoError(t, err)
			return made(ctx)
		})
	}, "bypass, run kept"},
	{"a key is malformed, or there is no caller", nil, func(_ *testing.T, f *fixture) {
		f.send(changed(keys("a b")), made)
		f.send(changed(scope("")), made)
	}, "refused key-malformed, refused scope-missing"},
	{"a run is in progress", nil, func(_ *testing.T, f *fixture) {
		first := f.hold(ctx, request("K", "B"), made)
		f.send(request("K", "B"), made)
		first.finish()
	}, "conflict in-progress, run kept"},
	{"a key belongs to another request", nil, func(_ *testing.T, f *fixture) {
		f.send(request("K", "B"), made)
		f.send(request("K", "another"), made)
	}, "run kept, mismatch fingerprint-mismatch"},
	{"a handler fails, errs or panics", nil, func(t *testing.T, f *fixture) {
		f.send(request("K", "B"), answers(500, ""))
		_, err := f.do(ctx, request("K", "B"), func(context.Context) (*core.Response, error) { return nil, errTest })
		require.Error(t, err)
		require.Panics(t, func() { _, _ = f.do(ctx, request("K", "B"), panicsInside) })
	}, "run failed, run failed, run failed"},
	{"something outside of the handler panics", nil, func(t *testing.T, f *fixture) {
		f.send(request("K", "B"), made)
		f.doTask(job, made)
		for _, set := range []func(*core.Config){
			func(c *core.Config) { c.Key.Accept = func(string) (string, bool) { panic(errTest) } },
			func(c *core.Config) { c.Scope = func(context.Context, *core.Request) string { panic(errTest) } },
			withOnReplay(func(context.Context, *core.Request, *core.Response) (*core.Response, error) { panic(errTest) }),
		} {
			passes(t, errTest, func() { f.with(set).send(request("K", "B"), made) })
		}
		replay := func(h *core.Hooks) *core.Hook { return &h.Replay }
		passes(t, errTest, func() { f.broken(replay).doTask(job, made) })
		done := func(h *core.Hooks) *core.Hook { return &h.Done }
		passes(t, errTest, func() { f.broken(done).send(request("K", "B"), made) })
		refused := func(h *core.Hooks) *core.Hook { return &h.Refused }
		passes(t, errTest, func() { f.broken(refused).send(request("K", "other"), made) })
	}, "run kept, run kept, refused, refused, refused, refused, replay, mismatch fingerprint-mismatch"},
	{"a handler releases its key", nil, func(_ *testing.T, f *fixture) { f.send(request("K", "B"), answers(401, "")) }, "run released"},
	{"a handler decides on what is no Disposition", nil, func(_ *testing.T, f *fixture) {
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, -1)
			return made(ctx)
		})
		f.send(request("K", "B"), made)
	}, "run kept, replay"},
	{"a policy returns what is no Disposition", func(c *core.Config) {
		c.Keep.Policy = func(*core.Response) core.Disposition { return 4 }
	}, func(_ *testing.T, f *fixture) {
		f.send(request("K", "B"), made)
		f.send(request("K", "B"), made)
	}, "run kept, replay"},
	{"an outcome is unknown", func(c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown }, func(_ *testing.T, f *fixture) {
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, core.LeaveUnknown)
			return made(ctx)
		})
		time.Sleep(lease)
		f.send(request("K", "B"), made)
	}, "run unknown, unknown outcome-unknown"},
	{"a run takes over, and the earlier one is lost", nil, func(_ *testing.T, f *fixture) {
		f.store.Inject("extend", storetest.Before, 1000)
		first := f.hold(ctx, request("K", "B"), made)
		time.Sleep(2 * lease)
		f.send(request("K", "B"), made)
		first.finish()
	}, "run kept, run lost claim-lost"},
	{"a commit is pending", nil, func(_ *testing.T, f *fixture) {
		f.store.Inject("complete", storetest.Before, 1)
		f.send(request("K", "B"), made)
		f.close()
	}, "run pending"},
	{"the store is away", nil, func(_ *testing.T, f *fixture) {
		f.store.Inject("begin", storetest.Before, 1)
		f.send(request("K", "B"), made)
	}, "refused store-unavailable"},
	{"the store is away, and the handler runs nevertheless", func(c *core.Config) { c.DangerouslyFailOpen = true },
		func(t *testing.T, f *fixture) {
			f.store.Inject("begin", storetest.Before, 2)
			f.send(request("K", "B"), made)
			require.Panics(t, func() { _, _ = f.do(ctx, request("K", "B"), panicsInside) })
		}, "unprotected, unprotected"},
	{"a response ends later", nil, func(t *testing.T, f *fixture) {
		_, end := f.stream(t)
		require.Empty(t, f.ends.story(), "it goes on")
		end(&core.Response{Status: 201, Body: []byte("whole"), Sent: true}, nil)
		_, end = f.with(func(*core.Config) {}).streamOf(t, request("L", "B"))
		end(nil, errTest)
	}, "run kept, run failed"},
	{"a step goes on when the handler has returned", nil, func(t *testing.T, f *fixture) {
		letGo := make(chan struct{})
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			go func() {
				_, _ = core.Step(ctx, "slow", func(context.Context) (int, error) { <-letGo; return 1, nil })
			}()
			synctest.Wait()
			return &core.Response{Status: 500}, nil
		})
		close(letGo)
		f.close()
	}, "run pending"},
	{"tasks are run, refused and replayed", nil, func(t *testing.T, f *fixture) {
		for _, task := range []core.Task{{Kind: "JOB", Scope: "s", Key: "K"}, {Kind: "JOB", Scope: "s", Key: "K"}, {Kind: "JOB", Key: "K"}} {
			_, err := f.DoTask(ctx, task, made)
			require.NoError(t, err)
		}
	}, "run kept, replay, refused scope-missing"},
	{"messages are handled and delivered again", nil, func(_ *testing.T, f *fixture) {
		handle := func(context.Context) (receipt, error) { return receipt{}, nil }
		f.consume(message, handle)
		f.consume(message, handle)
	}, "run kept, replay"},
}

// TEL-01: each operation ends once, and Hooks.Done tells how.
func TestEveryOperationIsDoneOnce(t *testing.T) {
	for _, test := range everyEnd {
		inBubble(t, test.name, func(t *testing.T) {
			log := &doneLog{}
			f := newFixture(t, log.observe, func(c *core.Config) {
				if test.change != nil {
					test.change(c)
				}
			})
			f.ends = log
			test.play(t, f)
			f.close()
			assert.Equal(t, test.story, log.story())
			codes := []string(nil)
			for _, e := range log.done {
				assert.Equal(t, "payments", e.Engine)
				if e.Code != "" {
					codes = append(codes, e.Code)
				}
			}
			assert.ElementsMatch(t, codes, log.refused, "each refusal is reported")
		})
	}
}

// The event of a message has the group of its consumer for a route, and no event has more of it.
func TestMessagesHaveTheirGroupForARoute(t *testing.T) {
	log := &doneLog{}
	f := newFixture(t, log.observe)
	m := consumer.Message{Group: "billing", ID: "1"}
	f.consume(m, func(context.Context) (receipt, error) { return receipt{}, nil })
	require.Len(t, log.done, 1)
	assert.Equal(t, "billing", log.done[0].Route)
	assert.Equal(t, consumer.Kind, log.done[0].Method)
}

// The times of an event are those of the handler and of the wait.
func TestEventsTellHowLongItTook(t *testing.T) {
	inBubble(t, "a run and a request that waits for it", func(t *testing.T) {
		log := &doneLog{}
		f := newFixture(t, log.observe, waiting(time.Minute))
		running := f.hold(ctx, request("K", "B"), made)
		time.Sleep(time.Second)
		waiter := f.later(ctx, request("K", "B"), made)
		time.Sleep(2 * time.Second)
		running.finish()
		<-waiter
		require.Len(t, log.done, 2)
		run, replay := log.done[0], log.done[1]
		if run.Result == "replay" { // the outcome was stored before either ended, so either may end first
			run, replay = replay, run
		}
		assert.Equal(t, "run", run.Result)
		assert.Equal(t, 3*time.Second, run.Took)
		assert.Zero(t, run.Waited)
		assert.Positive(t, run.Size)
		assert.Equal(t, "replay", replay.Result)
		assert.Equal(t, 2*time.Second, replay.Waited)
		assert.Zero(t, replay.Took)
		assert.Equal(t, run.Size, replay.Size)
	})
	for name, begins := range map[string]int{"a run without protection": 1, "a run whose outcome is unknown": 0} {
		inBubble(t, name, func(t *testing.T) {
			log := &doneLog{}
			f := newFixture(t, log.observe, func(c *core.Config) { c.DangerouslyFailOpen = true })
			f.store.Inject("begin", storetest.Before, begins)
			f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
				core.Decide(ctx, core.LeaveUnknown)
				time.Sleep(time.Second)
				return made(ctx)
			})
			require.Len(t, log.done, 1)
			assert.Equal(t, time.Second, log.done[0].Took)
			f.close()
		})
	}
}

// Hooks.StoreCall is told each call of the store, and how long it took.
func TestEachCallOfTheStoreIsReported(t *testing.T) {
	inBubble(t, "a run and its replay", func(t *testing.T) {
		var calls []string
		f := newFixture(t, func(c *core.Config) {
			store := c.Store
			c.Store = scripted{Store: store, begin: func(c driver.Claim) (driver.Entry, error) {
				time.Sleep(10 * time.Millisecond)
				return store.Begin(ctx, c)
			}}
			c.Hooks.StoreCall = func(_ context.Context, e core.Event) {
				calls = append(calls, e.Call)
				assert.NoError(t, e.Err)
				assert.Equal(t, map[string]time.Duration{"Begin": 10 * time.Millisecond}[e.Call], e.Took, e.Call)
			}
		})
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			time.Sleep(lease / 2)
			return made(ctx)
		})
		f.send(request("K", "B"), made)
		f.send(request("L", "B"), answers(503, ""))
		assert.Equal(t, []string{"Begin", "Extend", "Complete", "Begin", "Begin", "Fail"}, calls)
	})
	inBubble(t, "a commit that is sent again", func(t *testing.T) {
		var calls []string
		f := newFixture(t, func(c *core.Config) {
			c.Hooks.StoreCall = func(_ context.Context, e core.Event) { calls = append(calls, e.Call) }
		})
		f.store.Inject("complete", storetest.Before, 2)
		f.send(request("K", "B"), made)
		f.close()
		assert.Equal(t, []string{"Begin", "Complete", "Complete", "Complete"}, calls)
	})
}

// TEL-03: an outcome tells which run has made it, also in another process, through every codec and from the local cache.
func TestAReplayTellsTheOriginOfItsOutcome(t *testing.T) {
	type traceKey struct{}
	origin := func(c *core.Config) {
		c.Keep.Origin = func(ctx context.Context) string { trace, _ := ctx.Value(traceKey{}).(string); return trace }
	}
	for name, change := range map[string]func(*core.Config){
		"the store":       func(*core.Config) {},
		"the local cache": func(c *core.Config) { c.Keep.LocalReplays = 1 << 20 },
		"a blob":          func(c *core.Config) { c.Keep.Blobs, c.Keep.BlobsFrom = newShelf(), 3 },
		"no body":         func(c *core.Config) { c.Keep.MaxBody = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			log := &doneLog{}
			f := newFixture(t, log.observe, origin, change)
			for _, trace := range []string{"first", "second", "third"} {
				_, err := f.do(context.WithValue(ctx, traceKey{}, trace), request("K", "B"), made)
				require.NoError(t, err)
			}
			other := f.with(func(c *core.Config) { c.Keep.Origin = nil })
			other.sends(other.send(request("K", "B"), made), 201, map[bool]string{true: "", false: "made"}[name == "no body"])
			require.Len(t, log.done, 4)
			assert.Empty(t, log.done[0].Origin, "the run itself has its own context")
			for _, replay := range log.done[1:] {
				assert.Equal(t, "first", replay.Origin)
			}
		})
	}
	t.Run("a long one is cut between two characters", func(t *testing.T) {
		log := &doneLog{}
		f := newFixture(t, log.observe, func(c *core.Config) {
			c.Keep.Origin = func(context.Context) string { return strings.Repeat("é", 40) + "x" }
		})
		f.send(request("K", "B"), made)
		f.send(request("K", "B"), made)
		assert.Equal(t, strings.Repeat("é", 32), log.done[1].Origin)
	})
}

// TEL-01: an event has the status that the client gets, and the route that the handler's response names.
func TestDoneHasTheStatusAndTheRouteOfTheResponse(t *testing.T) {
	log := &doneLog{}
	f := newFixture(t, log.observe, func(c *core.Config) { c.DangerouslyFailOpen = true })
	routed := func(context.Context) (*core.Response, error) {
		return &core.Response{Status: 202, Body: []byte("made"), Route: "/orders/{id}"}, nil
	}
	f.send(request("K", "B"), routed)
	f.send(request("K", "B"), routed)
	f.send(request("K", "another"), routed)
	f.send(changed(keys("a b")), routed)
	f.store.Inject("begin", storetest.Before, 1)
	f.send(request("L", "B"), routed)
	var got []string
	for _, e := range log.done {
		got = append(got, fmt.Sprint(e.Result, " ", e.Status, " ", e.Route))
	}
	assert.Equal(t, []string{
		"run 202 /orders/{id}", "replay 202 ", "mismatch 422 ", "refused 400 ", "unprotected 202 /orders/{id}",
	}, got)
	f.close()
}

// slowCommits is a store that takes long for the end of a run.
type slowCommits struct{ driver.Store }

func (s slowCommits) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	time.Sleep(100 * time.Millisecond)
	return s.Store.Complete(ctx, c, outcome)
}

func (s slowCommits) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	time.Sleep(100 * time.Millisecond)
	return s.Store.Fail(ctx, c, f)
}

// Each hook has the whole event if it is the only one that is set. The time of the run is that of its handler.
func TestAHookAloneGetsItsWholeEvent(t *testing.T) {
	unknown := func(ctx context.Context) (*core.Response, error) {
		core.Decide(ctx, core.LeaveUnknown)
		return made(ctx)
	}
	for _, test := range []struct {
		name   string
		set    func(*core.Hooks) *core.Hook
		handle func(context.Context) (*core.Response, error)
	}{
		{"Done", func(h *core.Hooks) *core.Hook { return &h.Done }, made},
		{"Kept", func(h *core.Hooks) *core.Hook { return &h.Kept }, made},
		{"Failed", func(h *core.Hooks) *core.Hook { return &h.Failed }, answers(500, "")},
		{"Unknown", func(h *core.Hooks) *core.Hook { return &h.Unknown }, unknown},
		{"Lost", func(h *core.Hooks) *core.Hook { return &h.Lost }, made},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			var events []core.Event
			f := newFixture(t, func(c *core.Config) {
				c.Name, c.Hooks = "payments", core.Hooks{}
				*test.set(&c.Hooks) = func(_ context.Context, e core.Event) { events = append(events, e) }
				c.Store = slowCommits{c.Store}
				if test.name == "Lost" {
					c.Store = scripted{Store: c.Store, complete: func(driver.Claim) error { return driver.ErrLost }}
				}
			})
			f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
				time.Sleep(3 * time.Second)
				return test.handle(ctx)
			})
			f.close()
			require.Len(t, events, 1)
			assert.Equal(t, 3*time.Second, events[0].Took)
			assert.Equal(t, "payments", events[0].Engine)
			assert.Len(t, events[0].Record, driver.RecordNameLength)
			assert.EqualValues(t, 1, events[0].Attempt)
		})
	}
}

// An event has no field of a run or a record that the request does not have, and Refused needs no Done beside it.
func TestAnEventHasNoMoreThanItsRequest(t *testing.T) {
	inBubble(t, "requests without a run", func(t *testing.T) {
		log := &doneLog{}
		f := newFixture(t, log.observe)
		f.send(changed(keys()), made)
		f.send(changed(keys("a b")), made)
		f.send(request("K", "B"), made)
		time.Sleep(time.Second)
		f.send(request("K", "another"), made)
		require.Len(t, log.done, 4)
		for n, hasRecord := range []bool{false, false, true, true} {
			assert.Equal(t, hasRecord, log.done[n].Record != "", "event %d", n)
		}
		assert.Zero(t, log.done[3].Took, "the request has not run")
		refused := 0
		only := f.with(func(c *core.Config) {
			c.Hooks = core.Hooks{Refused: func(_ context.Context, e core.Event) { refused++ }}
		})
		only.send(changed(keys()), made)
		assert.Zero(t, refused)
		only.send(changed(keys("a b")), made)
		only.send(request("K", "another"), made)
		assert.Equal(t, 2, refused)
	})
}
