package core_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/storetest"
)

// CON-12: an answer that is made when the handler has returned, as that of a stream.

// stream sends K, whose answer ends later, and returns its run's context and what ends it.
func (f *fixture) stream(t *testing.T) (run context.Context, end func(*core.Response, error)) {
	t.Helper()
	return f.streamOf(t, request("K", "B"))
}

// streamOf is stream for another request.
func (f *fixture) streamOf(t *testing.T, r core.Request) (run context.Context, end func(*core.Response, error)) {
	t.Helper()
	result := f.send(r, func(ctx context.Context) (*core.Response, error) {
		run = ctx
		return &core.Response{Later: func(e func(*core.Response, error)) { end = e }}, nil
	})
	assert.Equal(t, core.Result{}, result, "nothing is left to send")
	require.NotNil(t, end)
	return run, end
}

func TestAnAnswerThatEndsLater(t *testing.T) {
	whole := &core.Response{Status: 201, Body: []byte("whole"), Sent: true}
	inBubble(t, "holds its claim until then, and is kept", func(t *testing.T) {
		f := newFixture(t)
		run, end := f.stream(t)
		for range 5 {
			time.Sleep(lease)
			f.refused(f.send(request("K", "B"), made), 409, "in-progress")
			require.NoError(t, run.Err())
		}
		end(whole, nil)
		require.Error(t, run.Err())
		f.replayed(f.send(request("K", "B"), made), 201, "whole")
		f.ran(1)
	})
	inBubble(t, "ends once", func(t *testing.T) {
		f, log := newFixture(t), &doneLog{}
		_, end := f.with(log.observe).streamOf(t, request("K", "B"))
		end(whole, nil)
		end(whole, nil)
		f.close()
		assert.Len(t, log.done, 1)
		assert.Equal(t, 1, f.store.Calls("complete"))
	})
	inBubble(t, "is waited for by Close", func(t *testing.T) {
		f := newFixture(t)
		_, end := f.stream(t)
		soon, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		require.ErrorIs(t, f.Close(soon), context.DeadlineExceeded)
		end(whole, nil)
		f.close()
	})
	inBubble(t, "runs again when it broke off", func(t *testing.T) {
		f := newFixture(t)
		run, end := f.stream(t)
		end(nil, errTest)
		require.Error(t, run.Err(), "what still works for it is told")
		events := f.heard.take()
		assert.ErrorContains(t, events[len(events)-1].Err, "broke off")
		assert.Equal(t, 2, f.runsAgain(request("K", "B")).Attempt)
		f.ran(2)
	})
	inBubble(t, "is unknown when it broke off, to who asks about such", func(t *testing.T) {
		f := newFixture(t, onUnknown(core.RefuseUnknown))
		_, end := f.stream(t)
		end(nil, errTest)
		f.refused(f.send(request("K", "B"), made), 409, "in-progress")
		time.Sleep(lease)
		f.refused(f.send(request("K", "B"), made), 409, "outcome-unknown")
		f.ran(1)
	})
	inBubble(t, "obeys what its handler has decided", func(t *testing.T) {
		f := newFixture(t)
		run, end := f.stream(t)
		core.Decide(run, core.Retry)
		end(whole, nil)
		f.runsAgain(request("K", "B"))
	})
	inBubble(t, "is attended until then", func(t *testing.T) {
		a := &sessions{}
		f := newFixture(t, func(c *core.Config) { a.Store, c.Store = c.Store, a })
		_, end := f.stream(t)
		assert.Equal(t, []string{"open"}, a.events)
		end(whole, nil)
		assert.Equal(t, []string{"open", "complete", "close"}, a.events)
	})
	for name, isUnknown := range map[string]bool{
		"runs again when the policy panics": false, "is unknown when the policy panics, to who asks about such": true,
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t, func(cfg *core.Config) {
				cfg.Keep.Policy = func(r *core.Response) core.Disposition {
					if r.Status == 202 {
						panic("in the policy")
					}
					return core.Keep
				}
				if isUnknown {
					cfg.Lease.OnUnknown = core.RefuseUnknown
				}
			})
			_, end := f.stream(t)
			time.Sleep(lease) // it has been extended
			assert.PanicsWithValue(t, "in the policy", func() { end(&core.Response{Status: 202, Sent: true}, nil) })
			f.close()
			if !isUnknown {
				f.runsAgain(request("K", "B"))
				return
			}
			time.Sleep(lease)
			f.refused(f.send(request("K", "B"), made), 409, "outcome-unknown")
		})
	}
	inBubble(t, "goes on by itself without a claim", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) { c.DangerouslyFailOpen = true })
		f.store.Inject("begin", storetest.Before, 1)
		result := f.send(request("K", "B"), func(context.Context) (*core.Response, error) {
			return &core.Response{Status: 201, Sent: true, Later: func(func(*core.Response, error)) { t.Error("there is nothing to end") }}, nil
		})
		assert.Nil(t, result.Response)
		f.close()
	})
}

// A response that was sent and goes on, such as an event stream, has the context of its run until its client leaves.
func TestTheContextOfARunLastsAsLongAsItsResponse(t *testing.T) {
	for name, c := range map[string]struct {
		response core.Response
		goesOn   bool
	}{
		"a response that goes on":     {core.Response{Status: 200, Sent: true, Unfinished: true, Omitted: true}, true},
		"a response that is not sent": {core.Response{Status: 200, Unfinished: true, Omitted: true}, false},
		"a response that is finished": {core.Response{Status: 200, Sent: true}, false},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			client, leave := context.WithCancel(ctx)
			var run context.Context
			_, err := f.do(client, request("K", "B"), func(ctx context.Context) (*core.Response, error) {
				run = ctx
				return &c.response, nil
			})
			require.NoError(t, err)
			assert.Equal(t, c.goesOn, run.Err() == nil)
			leave()
			ended(t, run)
		})
	}
	inBubble(t, "an event stream that has ended later", func(t *testing.T) {
		f := newFixture(t)
		run, end := f.stream(t)
		end(&core.Response{
			Status: 200, Sent: true, Unfinished: true, Omitted: true, Header: []core.Field{line("Content-Type", "text/event-stream")},
		}, nil)
		assert.Error(t, run.Err())
	})
}

// A panic on the way to the end of an answer is the caller's, and does not hold the key.
func TestAnAnswerThatEndsLaterAndPanics(t *testing.T) {
	inBubble(t, "in the policy", func(t *testing.T) {
		f := newFixture(t, func(c *core.Config) { c.Keep.Policy = func(*core.Response) core.Disposition { panic(errTest) } })
		run, end := f.stream(t)
		time.Sleep(2 * lease) // it is renewed
		assert.PanicsWithValue(t, errTest, func() { end(&core.Response{Status: 201, Sent: true}, nil) })
		f.close()
		require.Error(t, run.Err())
		f.with(func(c *core.Config) { c.Keep.Policy = core.DefaultPolicy }).runsAgain(request("K", "B"))
	})
	inBubble(t, "before anybody can end it", func(t *testing.T) {
		f := newFixture(t)
		assert.PanicsWithValue(t, errTest, func() {
			f.send(request("K", "B"), func(context.Context) (*core.Response, error) {
				return &core.Response{Later: func(func(*core.Response, error)) { panic(errTest) }}, nil
			})
		})
		f.close()
		f.runsAgain(request("K", "B"))
	})
	inBubble(t, "when it was ended", func(t *testing.T) {
		log := &doneLog{}
		f := newFixture(t, log.observe)
		assert.PanicsWithValue(t, errTest, func() {
			f.send(request("K", "B"), func(context.Context) (*core.Response, error) {
				return &core.Response{Later: func(end func(*core.Response, error)) {
					end(&core.Response{Status: 201, Body: []byte("whole"), Sent: true}, nil)
					panic(errTest)
				}}, nil
			})
		})
		f.close()
		assert.Len(t, log.done, 1, "TEL-01: it is counted once")
		f.replayed(f.send(request("K", "B"), made), 201, "whole")
	})
}
