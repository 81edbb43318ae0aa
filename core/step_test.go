package core_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

// charging counts how often the step "charge" was done.
type charging struct{ charged int }

func (c *charging) charge(context.Context) (receipt, error) {
	c.charged++
	return receipt{c.charged}, nil
}

// handler charges in a step and then does what then does.
func (c *charging) handler(tb testing.TB, then handler) handler {
	return func(ctx context.Context) (*core.Response, error) {
		got, err := core.Step(ctx, "charge", c.charge)
		require.NoError(tb, err)
		assert.Equal(tb, receipt{1}, got)
		return then(ctx)
	}
}

func TestAFinishedStepIsNotDoneAgain(t *testing.T) {
	t.Run("after a failure", func(t *testing.T) {
		f, c := newFixture(t), &charging{}
		f.send(request("K", "B"), c.handler(t, answers(500, "")))
		f.answered(f.send(request("K", "B"), c.handler(t, made)), 201, "made")
		f.ran(2)
		assert.Equal(t, 1, c.charged)
	})
	inBubble(t, "after a crash", func(t *testing.T) {
		f, c := newFixture(t), &charging{}
		f.send(request("K", "B"), c.handler(t, func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, core.LeaveUnknown)
			return &core.Response{Status: 504}, nil
		}))
		time.Sleep(lease)
		f.answered(f.send(request("K", "B"), c.handler(t, made)), 201, "made")
		assert.Equal(t, 1, c.charged)
	})
	t.Run("in one run", func(t *testing.T) {
		f, c := newFixture(t), &charging{}
		f.send(request("K", "B"), c.handler(t, c.handler(t, made)))
		assert.Equal(t, 1, c.charged)
	})
	t.Run("of a message", func(t *testing.T) {
		f, c := newFixture(t), &charging{}
		f.consume(message, func(ctx context.Context) (receipt, error) {
			_, _ = core.Step(ctx, "charge", c.charge)
			return receipt{}, errTest
		})
		d := f.consume(message, func(ctx context.Context) (receipt, error) { return core.Step(ctx, "charge", c.charge) })
		assert.Equal(t, receipt{1}, d.Result)
		assert.Equal(t, 1, c.charged)
	})
	inBubble(t, "of a run that outlives the retention", func(t *testing.T) {
		f, c := newFixture(t, func(c *core.Config) { c.Keep.Retention = lease + time.Second }), &charging{}
		f.send(request("K", "B"), c.handler(t, func(context.Context) (*core.Response, error) {
			time.Sleep(10 * lease)
			return &core.Response{Status: 500}, nil
		}))
		f.answered(f.send(request("K", "B"), c.handler(t, made)), 201, "made")
		assert.Equal(t, 1, c.charged)
	})
}

// The store deletes the results of the steps with the commit, and needs no call for that if there are none.
func TestTheCommitSaysWhetherThereAreResultsOfStepsToDelete(t *testing.T) {
	doing := func(err error) handler {
		return func(ctx context.Context) (*core.Response, error) {
			_, got := core.Step(ctx, "charge", func(context.Context) (receipt, error) { return receipt{1}, err })
			assert.Equal(t, err, got)
			return made(ctx)
		}
	}
	for name, c := range map[string]struct {
		runs  []handler
		steps bool
	}{
		"a run with a step":                  {[]handler{doing(nil)}, true},
		"a run without steps":                {[]handler{made}, false},
		"a second run whose step has failed": {[]handler{answers(500, ""), doing(errTest)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var completed []driver.Claim
			f := newFixture(t, func(c *core.Config) {
				inner := memstore.New()
				c.Store = stepping{scripted{Store: inner, complete: func(c driver.Claim) error {
					completed = append(completed, c)
					return nil
				}}, inner}
			})
			for _, h := range c.runs {
				f.send(request("K", "B"), h)
			}
			require.Len(t, completed, 1)
			assert.Equal(t, c.steps, completed[0].Steps)
		})
	}
}

// stepping is a scripted store that keeps the results of steps.
type stepping struct {
	scripted
	driver.Checkpointer
}

func TestStepsAreDoneOnceInOneRunToo(t *testing.T) {
	f, done := newFixture(t), map[string]int{}
	f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
		for _, name := range []string{"charge", "mail", "charge", "mail"} {
			_, err := core.Step(ctx, name, func(context.Context) (int, error) { done[name]++; return done[name], nil })
			require.NoError(t, err)
		}
		return made(ctx)
	})
	assert.Equal(t, map[string]int{"charge": 1, "mail": 1}, done)
}

func TestAStepThatFailedIsDoneAgain(t *testing.T) {
	f, c := newFixture(t), &charging{}
	f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
		_, err := core.Step(ctx, "charge", func(context.Context) (receipt, error) { return receipt{9}, errTest })
		assert.ErrorIs(t, err, errTest)
		return &core.Response{Status: 500}, nil
	})
	f.send(request("K", "B"), c.handler(t, made))
	assert.Equal(t, 1, c.charged)
}

func TestOtherOperationsDoTheirOwnSteps(t *testing.T) {
	f, c := newFixture(t), &charging{}
	step := func(ctx context.Context) (*core.Response, error) {
		_, err := core.Step(ctx, "charge", c.charge)
		require.NoError(t, err)
		return &core.Response{Status: 429}, nil // would free the key for any request, without the step
	}
	f.send(request("K", "B"), step)
	f.refused(f.send(request("K", "B'"), step), 422, "fingerprint-mismatch")
	f.send(request("K2", "B"), step)
	assert.Equal(t, 2, c.charged)
}

func TestStepsMayRunAtOnce(t *testing.T) {
	f := newFixture(t)
	both := func(ctx context.Context) (*core.Response, error) {
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b", "c"} {
			wg.Go(func() {
				got, err := core.Step(ctx, name, func(context.Context) (string, error) { return name, nil })
				assert.NoError(t, err)
				assert.Equal(t, name, got)
			})
		}
		wg.Wait()
		return &core.Response{Status: 500}, nil
	}
	f.send(request("K", "B"), both)
	f.send(request("K", "B"), both)
	assert.Equal(t, 3, f.store.Calls("checkpoint"))
	assert.Equal(t, 1, f.store.Calls("checkpoints"), "read once, and not by a first run")
}

func TestAStepAndTheStore(t *testing.T) {
	t.Run("that is away after it: the run goes on", func(t *testing.T) {
		f, c := newFixture(t), &charging{}
		f.store.Inject("checkpoint", storetest.Before, always)
		f.answered(f.send(request("K", "B"), c.handler(t, made)), 201, "made")
		assert.Equal(t, "begin store-error kept", f.heard.names())
	})
	t.Run("that is away for a moment: it is sent again", func(t *testing.T) {
		f, c := newFixture(t), &charging{}
		f.store.Inject("checkpoint", storetest.Before, 2)
		f.send(request("K", "B"), c.handler(t, answers(500, "")))
		f.send(request("K", "B"), c.handler(t, made))
		assert.Equal(t, 1, c.charged)
	})
	t.Run("that can not tell what was done: an error, before anything is", func(t *testing.T) {
		f, c := newFixture(t), &charging{}
		f.send(request("K", "B"), c.handler(t, answers(500, "")))
		f.store.Inject("checkpoints", storetest.Before, 1)
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			_, err := core.Step(ctx, "charge", c.charge)
			assert.ErrorIs(t, err, storetest.ErrInjected)
			return &core.Response{Status: 503}, nil
		})
		f.send(request("K", "B"), c.handler(t, made))
		assert.Equal(t, 1, c.charged)
	})
	inBubble(t, "that gave the claim to another: lost", func(t *testing.T) {
		f, c := newFixture(t), &charging{}
		f.store.Inject("extend", storetest.Before, always)
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			time.Sleep(lease + time.Second)
			f.healed().send(request("K", "B"), made)
			_, err := core.Step(ctx, "charge", c.charge)
			assert.ErrorIs(t, err, core.ErrLost)
			return made(ctx)
		})
	})
	t.Run("that keeps no steps: an error that says so", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) { c.Store = struct{ driver.Store }{memstore.New()} })
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			_, err := core.Step(ctx, "charge", (&charging{}).charge)
			assert.ErrorIs(t, err, errors.ErrUnsupported)
			return made(ctx)
		})
	})
}

func TestAStepOutsideOfARunIsOnlyDone(t *testing.T) {
	c := &charging{}
	for range 2 {
		_, err := core.Step(ctx, "charge", c.charge)
		assert.NoError(t, err)
	}
	assert.Equal(t, 2, c.charged)
}

func TestAStepNeedsANameAndAResultThatCanBeKept(t *testing.T) {
	f, c := newFixture(t), &charging{}
	f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
		_, err := core.Step(ctx, "", c.charge)
		assert.ErrorContains(t, err, "needs a name")
		_, err = core.Step(ctx, "function", func(context.Context) (func(), error) { return nil, nil })
		assert.ErrorContains(t, err, "can not be marshalled")
		return &core.Response{Status: 500}, nil
	})
	assert.Zero(t, c.charged)
	f.send(request("K", "B"), c.handler(t, answers(500, "")))
	f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
		_, err := core.Step(ctx, "charge", func(context.Context) ([]string, error) { return nil, nil })
		assert.ErrorIs(t, err, driver.ErrUnreadable, "the type has changed")
		return made(ctx)
	})
}

func TestStepsAreSealedLikeOutcomes(t *testing.T) {
	seal := &sealing{}
	f, c := newFixture(t, func(c *core.Config) { c.Keep.Codecs = []driver.Codec{seal} }), &charging{}
	f.send(request("K", "B"), c.handler(t, answers(500, "")))
	f.send(request("K", "B"), c.handler(t, made))
	assert.Equal(t, 1, c.charged)
	assert.Equal(t, 1, seal.opened)
}

// sealing is a codec that turns bits around.
type sealing struct{ opened int }

func (*sealing) Encode(_ [32]byte, outcome []byte) []byte {
	turned := make([]byte, len(outcome))
	for i, b := range outcome {
		turned[i] = ^b
	}
	return turned
}

func (s *sealing) Decode(record [32]byte, kept []byte) ([]byte, error) {
	s.opened++
	return s.Encode(record, kept), nil
}
