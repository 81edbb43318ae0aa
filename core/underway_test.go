package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

// lasting is a step that lasts until it is let go.
type lasting struct {
	begun, letGo chan struct{}
	over         sync.WaitGroup
	err          error // of the step
}

// begin begins the step in a goroutine of its own.
func (s *lasting) begin(ctx context.Context) {
	s.begun, s.letGo = make(chan struct{}), make(chan struct{})
	s.over.Go(func() {
		_, s.err = core.Step(ctx, "charge", func(context.Context) (receipt, error) {
			close(s.begun)
			<-s.letGo
			return receipt{1}, nil
		})
	})
	<-s.begun
}

// ATT-01: something inside has answered for a handler that works on.
func TestAStepThatOutlivesItsHandlerHoldsTheClaim(t *testing.T) {
	ends := map[string]struct {
		end       handler
		mayBeFree bool
	}{
		"503":   {answers(503, "timeout"), false},
		"429":   {answers(429, "released"), true},
		"error": {func(context.Context) (*core.Response, error) { return nil, errTest }, false},
		"panic": {func(context.Context) (*core.Response, error) { panic(errTest) }, false},
	}
	for name, c := range ends {
		inBubble(t, name, func(t *testing.T) {
			f, s := newFixture(t), &lasting{}
			func() {
				defer func() { _ = recover() }()
				took := elapsed(func() {
					_, _ = f.do(ctx, request("K", "B"), func(ctx context.Context) (*core.Response, error) {
						s.begin(ctx)
						return c.end(ctx)
					})
				})
				assert.Zero(t, took, "the client need not wait")
			}()
			for range 12 {
				time.Sleep(lease / 4)
				f.refused(f.send(request("K", "B"), made), 409, "in-progress")
			}
			close(s.letGo)
			s.over.Wait()
			f.close()
			assert.NoError(t, s.err)
			f.refused(f.send(request("K", "another"), made), 422, "fingerprint-mismatch")
			charge := &charging{charged: 8}
			f.answered(f.send(request("K", "B"), charge.handler(t, made)), 201, "made")
			assert.Equal(t, 8, charge.charged, "the result of the step was kept")
			f.ran(2)
		})
	}
	inBubble(t, "also if the step fails then, it may have had effects", func(t *testing.T) {
		f := newFixture(t)
		var running sync.WaitGroup
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			begun := make(chan struct{})
			running.Go(func() {
				_, _ = core.Step(ctx, "charge", func(context.Context) (receipt, error) {
					close(begun)
					time.Sleep(time.Second)
					return receipt{}, errTest
				})
			})
			<-begun
			return &core.Response{Status: 429}, nil
		})
		running.Wait()
		f.close()
		f.refused(f.send(request("K", "another"), made), 422, "fingerprint-mismatch")
	})
	inBubble(t, "an outcome is held back until it is kept", func(t *testing.T) {
		f, s := newFixture(t), &lasting{}
		running := f.hold(ctx, request("K", "B"), made)
		s.begin(running.run)
		close(running.letGo)
		time.Sleep(3 * lease)
		f.refused(f.send(request("K", "B"), made), 409, "in-progress")
		close(s.letGo)
		<-running.done
		f.answered(running.result, 201, "made")
		s.over.Wait()
		assert.NoError(t, s.err)
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		f.ran(1)
	})
	inBubble(t, "so does a run inside", func(t *testing.T) {
		f := newFixture(t)
		var inner *held
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			inner = f.hold(ctx, request("inner", "B"), made)
			return &core.Response{Status: 503}, nil
		})
		time.Sleep(2 * lease)
		f.refused(f.send(request("K", "B"), made), 409, "in-progress")
		inner.finish()
		f.close()
		f.runsAgain(request("K", "B"))
	})
}

// ATT-01: a step that begins as its run ends is done before the commit, or not at all.
func TestAStepThatBeginsAsItsRunEnds(t *testing.T) {
	var isCommitted atomic.Bool
	f := newFixture(t)
	f = f.with(func(c *core.Config) {
		c.Store = stepping{scripted{Store: f.store, complete: func(driver.Claim) error {
			isCommitted.Store(true)
			return nil
		}}, f.store}
	})
	for i := range 20_000 {
		isCommitted.Store(false)
		var step sync.WaitGroup
		f.send(request(fmt.Sprint(i), "B"), func(ctx context.Context) (*core.Response, error) {
			step.Go(func() {
				_, _ = core.Step(ctx, "charge", func(context.Context) (receipt, error) {
					time.Sleep(100 * time.Microsecond)
					assert.False(t, isCommitted.Load())
					return receipt{1}, nil
				})
			})
			for range i % 100 * 100 { // sooner or later, the two meet
				isCommitted.Load()
			}
			return made(ctx)
		})
		step.Wait()
	}
}

func TestARunThatKeptStepsIsNotOpenToAnotherRequest(t *testing.T) {
	f, c := newFixture(t), &charging{}
	f.send(request("K", "pay 100"), c.handler(t, answers(429, "slow down")))
	f.refused(f.send(request("K", "pay 50"), made), 422, "fingerprint-mismatch")
	f.answered(f.send(request("K", "pay 100"), c.handler(t, made)), 201, "made")
	assert.Equal(t, 1, c.charged)
}

func TestAStepIsNotDoneInARunThatHasEndedOrIsLost(t *testing.T) {
	t.Run("ended", func(t *testing.T) {
		f, c := newFixture(t), &charging{}
		var run context.Context
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			run = ctx
			return made(ctx)
		})
		_, err := core.Step(run, "charge", c.charge)
		assert.ErrorIs(t, err, core.ErrLost)
		assert.Zero(t, c.charged)
		assert.Zero(t, f.store.Calls("checkpoint"))
	})
	inBubble(t, "lost", func(t *testing.T) {
		f, running := silenced(t, made)
		c := &charging{}
		_, err := core.Step(running.run, "charge", c.charge)
		assert.ErrorIs(t, err, core.ErrLost)
		assert.Zero(t, c.charged)
		running.finish()
		f.close()
	})
}

func TestStepsOfOneNameAreDoneOneAfterTheOther(t *testing.T) {
	inBubble(t, "the second gets the result of the first", func(t *testing.T) {
		f, c := newFixture(t), &charging{}
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			var both sync.WaitGroup
			for range 5 {
				both.Go(func() {
					got, err := core.Step(ctx, "charge", func(ctx context.Context) (receipt, error) {
						time.Sleep(time.Second)
						return c.charge(ctx)
					})
					assert.NoError(t, err)
					assert.Equal(t, receipt{1}, got)
				})
			}
			both.Wait()
			return made(ctx)
		})
		assert.Equal(t, 1, c.charged)
	})
	inBubble(t, "also if one of another name has begun meanwhile", func(t *testing.T) {
		f, charged, mailed := newFixture(t), &charging{}, &charging{}
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			var all sync.WaitGroup
			step := func(name string, c *charging) {
				all.Go(func() {
					_, err := core.Step(ctx, name, func(ctx context.Context) (receipt, error) {
						time.Sleep(time.Second)
						return c.charge(ctx)
					})
					assert.NoError(t, err)
				})
				synctest.Wait()
			}
			step("charge", charged)
			step("mail", mailed)
			step("charge", charged)
			all.Wait()
			return made(ctx)
		})
		assert.Equal(t, []int{1, 1}, []int{charged.charged, mailed.charged})
	})
	inBubble(t, "the second is done when the first failed, or panicked", func(t *testing.T) {
		f, c := newFixture(t), &charging{}
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			_, err := core.Step(ctx, "charge", func(context.Context) (receipt, error) { return receipt{}, errTest })
			assert.ErrorIs(t, err, errTest)
			passes(t, errTest, func() {
				_, _ = core.Step(ctx, "charge", func(context.Context) (receipt, error) { panic(errTest) })
			})
			_, err = core.Step(ctx, "charge", c.charge)
			assert.NoError(t, err)
			return made(ctx)
		})
		assert.Equal(t, 1, c.charged)
	})
	inBubble(t, "the second waits no longer than its context lasts", func(t *testing.T) {
		f, s := newFixture(t), &lasting{}
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			s.begin(ctx)
			hurried, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := core.Step(hurried, "charge", (&charging{}).charge)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			close(s.letGo)
			return made(ctx)
		})
		s.over.Wait()
	})
	t.Run("one inside another of its name is an error, and does not wait for ever", func(t *testing.T) {
		f := newFixture(t)
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			_, err := core.Step(ctx, "charge", func(ctx context.Context) (receipt, error) {
				return core.Step(ctx, "charge", (&charging{}).charge)
			})
			assert.ErrorContains(t, err, "encloses this one")
			return made(ctx)
		})
	})
}

// LSE-20.
func TestARunThatLastsTooLongEndsAsUnknown(t *testing.T) {
	const most = 3 * lease
	bounded := func(c *core.Config) { c.Lease.MaxRun = most }
	for name, h := range map[string]handler{"an outcome": made, "a failure": answers(500, ""), "a release": answers(429, "")} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t, bounded)
			running := f.hold(ctx, request("K", "B"), h)
			time.Sleep(most - time.Millisecond)
			synctest.Wait()
			assert.NoError(t, running.run.Err())
			time.Sleep(time.Millisecond)
			synctest.Wait()
			assert.ErrorIs(t, context.Cause(running.run), core.ErrLost)
			assert.ErrorContains(t, context.Cause(running.run), "MaxRun")
			f.refused(running.finish(), 409, "claim-lost")
			f.refused(f.send(request("K", "B"), made), 409, "in-progress")
			time.Sleep(lease)
			assert.Equal(t, "begin unknown conflict", f.heard.names())
			assert.True(t, f.runsAgain(request("K", "B")).Takeover)
		})
	}
	inBubble(t, "and hangs", func(t *testing.T) {
		f := newFixture(t, bounded, func(c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown })
		running := f.hold(ctx, request("K", "B"), made)
		time.Sleep(most + lease)
		f.refused(f.send(request("K", "B"), made), 409, "outcome-unknown")
		running.finish()
		f.refused(f.send(request("K", "B"), made), 409, "outcome-unknown")
		f.ran(1)
	})
	inBubble(t, "in a step", func(t *testing.T) {
		f, s := newFixture(t, bounded), &lasting{}
		f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			s.begin(ctx)
			return &core.Response{Status: 503}, nil
		})
		time.Sleep(most + lease)
		f.close()
		assert.True(t, f.runsAgain(request("K", "B")).Takeover)
		close(s.letGo)
		s.over.Wait()
		assert.ErrorIs(t, s.err, core.ErrLost)
	})
	inBubble(t, "shorter ones hear nothing of it", func(t *testing.T) {
		f := newFixture(t, bounded)
		f.send(request("K", "B"), made)
		time.Sleep(2 * most)
		assert.Equal(t, "begin kept", f.heard.names())
	})
}

func TestMaxRunIsLongerThanALease(t *testing.T) {
	for _, bad := range []time.Duration{-1, 1, lease} {
		_, err := core.New(core.Config{Store: newFixture(t).inner, Scope: core.SingleTenant, Lease: core.LeaseConfig{Duration: lease, MaxRun: bad}})
		var field *core.ConfigError
		assert.True(t, errors.As(err, &field))
		assert.Equal(t, "Lease.MaxRun", field.Field)
	}
}
