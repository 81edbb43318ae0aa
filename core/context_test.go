package core_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
)

// probed is a store whose first calls are looked at from inside.
type probed struct {
	driver.Store
	begin, complete func(context.Context)
	began, over     sync.Once
}

func (p *probed) Begin(ctx context.Context, c driver.Claim) (driver.Entry, error) {
	if p.begin != nil {
		p.began.Do(func() { p.begin(ctx) })
	}
	return p.Store.Begin(ctx, c)
}

func (p *probed) Complete(ctx context.Context, c driver.Claim, outcome []byte) error {
	if p.complete != nil {
		p.over.Do(func() { p.complete(ctx) })
	}
	return p.Store.Complete(ctx, c, outcome)
}

func probing(t *testing.T, begin, complete func(context.Context)) *fixture {
	return newFixture(t, func(c *core.Config) { c.Store = &probed{Store: c.Store, begin: begin, complete: complete} })
}

// The ways to learn that a call of the store is over. None waits when it is.
var endings = map[string]func(*testing.T, context.Context) error{
	"by its channel":       func(t *testing.T, ctx context.Context) error { return ended(t, ctx) },
	"by a context of it":   childEnded,
	"by looking":           func(_ *testing.T, ctx context.Context) error { time.Sleep(storeTimeout); return ctx.Err() },
	"by looking, and then": lookedThenEnded,
}

func childEnded(t *testing.T, ctx context.Context) error {
	child, cancel := context.WithCancel(ctx)
	defer cancel()
	return ended(t, child)
}

func lookedThenEnded(t *testing.T, ctx context.Context) error {
	time.Sleep(storeTimeout)
	looked := ctx.Err()
	assert.Equal(t, looked, ended(t, ctx))
	assert.Equal(t, looked, ctx.Err())
	return looked
}

func TestACallOfTheStoreEndsWithItsTimeOrItsClient(t *testing.T) {
	for way, end := range endings {
		inBubble(t, "begin at the timeout, "+way, func(t *testing.T) {
			f := probing(t, func(ctx context.Context) {
				deadline, ok := ctx.Deadline()
				assert.True(t, ok)
				assert.Equal(t, storeTimeout, time.Until(deadline))
				assert.NoError(t, ctx.Err())
				assert.Equal(t, storeTimeout, elapsed(func() { assert.Equal(t, context.DeadlineExceeded, end(t, ctx)) }))
			}, nil)
			f.send(request("K", "B"), made)
			f.close()
		})
		inBubble(t, "begin with its client, "+way, func(t *testing.T) {
			client, leave := context.WithCancel(ctx)
			time.AfterFunc(storeTimeout/2, leave)
			f := probing(t, func(ctx context.Context) { assert.Equal(t, context.Canceled, end(t, ctx)) }, nil)
			_, _ = f.do(client, request("K", "B"), made)
			f.close()
		})
		inBubble(t, "begin for a client that has left already, "+way, func(t *testing.T) {
			client, leave := context.WithCancel(ctx)
			leave()
			f := probing(t, func(ctx context.Context) { assert.Equal(t, context.Canceled, end(t, ctx)) }, nil)
			_, _ = f.do(client, request("K", "B"), made)
			f.close()
		})
		inBubble(t, "complete at the timeout and not with its client, "+way, func(t *testing.T) {
			client, leave := context.WithCancelCause(context.WithValue(ctx, tenant{}, "T"))
			f := probing(t, nil, func(ctx context.Context) {
				leave(errTest)
				synctest.Wait()
				assert.NoError(t, ctx.Err())
				assert.Equal(t, "T", ctx.Value(tenant{}), "values are the client's")
				assert.Equal(t, context.DeadlineExceeded, end(t, ctx))
				assert.Equal(t, context.DeadlineExceeded, context.Cause(ctx), "nor is the client's cause its own")
			})
			_, _ = f.do(client, request("K", "B"), made)
			f.close()
		})
	}
}

func TestTheContextOfACallEndsWithTheCall(t *testing.T) {
	var calls []context.Context
	keep := func(ctx context.Context) { calls = append(calls, ctx) }
	watched := func(ctx context.Context) { keep(ctx); ctx.Done() }
	for name, f := range map[string]*fixture{"nobody asked": probing(t, keep, keep), "somebody asked": probing(t, watched, watched)} {
		t.Run(name, func(t *testing.T) {
			calls = nil
			f.send(request("K", "B"), made)
			assert.Len(t, calls, 2)
			for _, ctx := range calls {
				assert.Equal(t, context.Canceled, ended(t, ctx))
			}
		})
	}
}

// A server's client looks at the channel and goes on when it is open.
func TestACallThatIsOverBeforeAnybodyAsksSaysSoAtOnce(t *testing.T) {
	inBubble(t, "channel", func(t *testing.T) {
		f := probing(t, func(ctx context.Context) {
			time.Sleep(storeTimeout)
			select {
			case <-ctx.Done():
				assert.Equal(t, context.DeadlineExceeded, ctx.Err())
			default:
				t.Error("still open")
			}
		}, nil)
		f.send(request("K", "B"), made)
		f.close()
	})
}

// A client's deadline is the call's when it comes first, with the client's cause.
func TestACallKnowsTheClientsDeadline(t *testing.T) {
	inBubble(t, "cause", func(t *testing.T) {
		reason := errors.New("out of time")
		client, cancel := context.WithTimeoutCause(ctx, storeTimeout/2, reason)
		defer cancel()
		f := probing(t, func(ctx context.Context) {
			deadline, _ := ctx.Deadline()
			assert.Equal(t, storeTimeout/2, time.Until(deadline))
			assert.Equal(t, reason, ended(t, ctx))
		}, nil)
		_, _ = f.do(client, request("K", "B"), made)
		f.close()
	})
}

// A begin is answered in a millisecond, as a rule: it does not watch its client before that has waited for 20.
func TestABeginMissesItsClientSoon(t *testing.T) {
	for _, stays := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond} {
		inBubble(t, stays.String(), func(t *testing.T) {
			client, leave := context.WithCancel(ctx)
			time.AfterFunc(stays, leave)
			f := probing(t, func(ctx context.Context) {
				missed := elapsed(func() { assert.Equal(t, context.Canceled, ended(t, ctx)) })
				assert.Equal(t, max(stays, 20*time.Millisecond), missed)
			}, nil)
			_, _ = f.do(client, request("K", "B"), made)
			f.close()
			f.ran(0)
		})
	}
}

// slow is a store that answers no Begin in time.
type slow struct {
	driver.Store
	took chan time.Duration
}

func (s *slow) Begin(ctx context.Context, _ driver.Claim) (driver.Entry, error) {
	began := time.Now()
	<-ctx.Done()
	s.took <- time.Since(began)
	return driver.Entry{}, ctx.Err()
}

// Calls share a timer, whatever their order.
func TestEachOfManyCallsEndsAtItsOwnTime(t *testing.T) {
	inBubble(t, "timer", func(t *testing.T) {
		const calls, apart = 20, 70 * time.Millisecond
		took := make(chan time.Duration, calls)
		f := newFixture(t, func(c *core.Config) { c.Store = &slow{c.Store, took} })
		for i := range calls {
			time.AfterFunc(time.Duration(i)*apart, func() { f.send(request(string(rune('a'+i)), "B"), made) })
		}
		for range calls {
			assert.Equal(t, storeTimeout, <-took)
		}
		f.close()
		f.ran(0)
	})
}
