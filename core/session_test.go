package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
)

// sessions is a store that is there while a run lasts, and notes what happens.
type sessions struct {
	driver.Store
	events []string
}

type sessionKey struct{}

func (a *sessions) OpenSession(ctx context.Context, c driver.Claim) (context.Context, func()) {
	a.events = append(a.events, "open")
	return context.WithValue(ctx, sessionKey{}, c.Fence), func() { a.events = append(a.events, "close") }
}

func (a *sessions) verb(ctx context.Context, name string, c driver.Claim) {
	if ctx.Value(sessionKey{}) != c.Fence {
		name += " outside"
	}
	a.events = append(a.events, name)
}

func (a *sessions) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	a.verb(ctx, "complete", c)
	return a.Store.Complete(ctx, c, outcome)
}

func (a *sessions) Fail(ctx context.Context, c driver.Claim, f driver.Failure) error {
	a.verb(ctx, "fail", c)
	return a.Store.Fail(ctx, c, f)
}

func TestAStoreAttendsARunUntilItHasEnded(t *testing.T) {
	refuse := func(c *core.Config) { c.Lease.OnUnknown = core.RefuseUnknown }
	for _, test := range []struct {
		name   string
		end    handler
		change func(*core.Config)
		want   []string
	}{
		{"an outcome", made, nil, []string{"open", "run", "complete", "close"}},
		{"a failure", answers(500, ""), nil, []string{"open", "run", "fail", "close"}},
		{"a panic", func(context.Context) (*core.Response, error) { panic(errTest) }, nil, []string{"open", "run", "fail", "close"}},
		{"a panic that leaves the outcome unknown", func(context.Context) (*core.Response, error) { panic(errTest) }, refuse,
			[]string{"open", "run", "close"}},
		{"an unknown outcome", func(ctx context.Context) (*core.Response, error) {
			core.Decide(ctx, core.LeaveUnknown)
			return made(ctx)
		}, nil, []string{"open", "run", "close"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := &sessions{Store: memstore.New()}
			f := newFixture(t, func(c *core.Config) {
				c.Store = store
				if test.change != nil {
					test.change(c)
				}
			})
			func() {
				defer func() { _ = recover() }()
				_, _ = f.do(ctx, request("K", "B"), func(ctx context.Context) (*core.Response, error) {
					run, _ := core.FromContext(ctx)
					store.verb(ctx, "run", driver.Claim{Fence: run.Fence})
					return test.end(ctx)
				})
			}()
			assert.Equal(t, test.want, store.events)
		})
	}
}

// The step needs the session, for example its transaction, although the handler has returned.
func TestASessionLastsAsLongAsAStepThatOutlivesItsHandler(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		inner, s := memstore.New(), &lasting{}
		store := &sessions{Store: inner}
		f := newFixture(t, func(c *core.Config) {
			c.Store = struct {
				*sessions
				driver.Checkpointer
			}{store, inner}
		})
		result := f.send(request("K", "B"), func(ctx context.Context) (*core.Response, error) {
			s.begin(ctx)
			return &core.Response{Status: 500}, nil
		})
		f.answered(result, 500, "")
		synctest.Wait()
		assert.Equal(t, []string{"open"}, store.events)
		close(s.letGo)
		s.over.Wait()
		f.close()
		assert.NoError(t, s.err)
		assert.Equal(t, []string{"open", "fail", "close"}, store.events)
	})
}

func TestAReplayAndARefusalAreNotAttended(t *testing.T) {
	store := &sessions{Store: memstore.New()}
	f := newFixture(t, func(c *core.Config) { c.Store = store })
	f.send(request("K", "B"), made)
	store.events = nil
	f.replayed(f.send(request("K", "B"), made), 201, "made")
	f.refused(f.send(request("K", "other"), made), 422, "fingerprint-mismatch")
	assert.Empty(t, store.events)
}

// panicking is a store that panics when it is to open a session, if panics returns true.
type panicking struct {
	driver.Store
	panics func() bool
}

func (p *panicking) OpenSession(ctx context.Context, _ driver.Claim) (context.Context, func()) {
	if p.panics() {
		panic("the store")
	}
	return ctx, func() {}
}

func TestAStoreThatPanicsAtTheStartOfARunLeavesNoClaimBehind(t *testing.T) {
	panics := true
	f := newFixture(t, func(c *core.Config) {
		c.Store = &panicking{memstore.New(), func() bool { return panics }}
	})
	assert.PanicsWithValue(t, "the store", func() { _, _ = f.do(ctx, request("K", "B"), made) })
	panics = false
	assert.NoError(t, f.Close(ctx))
	assert.Equal(t, 201, f.send(request("K", "B"), made).Response.Status)
}

func TestAStoreThatPanicsAtTheStartOfANestedRunHoldsUpNoOuterRun(t *testing.T) {
	panics := false
	f := newFixture(t, func(c *core.Config) {
		c.Store = &panicking{memstore.New(), func() bool { return panics }}
	})
	done := make(chan core.Result)
	go func() {
		done <- f.send(request("OUTER", "B"), func(outer context.Context) (*core.Response, error) {
			panics = true
			assert.PanicsWithValue(t, "the store", func() { _, _ = f.do(outer, request("INNER", "B"), made) })
			panics = false
			return made(outer)
		})
	}()
	select {
	case result := <-done:
		assert.Equal(t, 201, result.Response.Status)
	case <-time.After(10 * time.Second):
		t.Fatal("the outer run waits for the run whose start panicked")
	}
	f.replayed(f.send(request("OUTER", "B"), made), 201, "made")
}
